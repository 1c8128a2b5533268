//! A plugin with custom routes that creates pictures, and ensembles of such plugins.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use std::io::Cursor;
use std::path::Path;
use std::process::Command;

use saggar_tests::{HttpPayload, ServerProcess, guest, series_value};
use serde_json::{Value, json};

fn with_painter(home: &Path) -> ServerProcess {
    let plugin = guest("painter");
    let server = ServerProcess::start(home);
    server.saggar_ok(&["run", plugin.to_str().unwrap(), "--wait"]);
    server.wait_for_version("painter", 1);
    server
}

/// Returns pixels that count up from 0, in rows of eight.
fn ramp() -> Vec<u8> {
    (0..64).collect()
}

fn encode_png(pixels: &[u8]) -> Vec<u8> {
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, 8, 8);
    encoder.set_color(png::ColorType::Grayscale);
    encoder.write_header().unwrap().write_image_data(pixels).unwrap();
    file
}

fn decode_png(file: &[u8]) -> Vec<u8> {
    let mut reader = png::Decoder::new(Cursor::new(file)).read_info().unwrap();
    let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut pixels).unwrap();
    assert_eq!((info.width, info.height, info.color_type), (8, 8, png::ColorType::Grayscale));
    pixels
}

fn rows(pixels: &[u8]) -> Value {
    json!(pixels.chunks(8).map(<[u8]>::to_vec).collect::<Vec<_>>())
}

#[test]
fn a_plugin_with_two_routes_serves_both() {
    let home = tempfile::tempdir().unwrap();
    let server = with_painter(home.path());
    let post = |path: &str, body: &Value| server.request("POST", path, HttpPayload::Json(body));
    let body = json!({ "image": rows(&ramp()) });
    let opposite: Vec<u8> = ramp().iter().map(|pixel| 255 - pixel).collect();
    let half: Vec<u8> = ramp().iter().map(|pixel| pixel / 2).collect();
    for prefix in ["/models/painter", "/models/painter@1", ""] {
        assert_eq!(post(&format!("{prefix}/invert"), &body).json()["picture"], rows(&opposite), "{prefix}");
        assert_eq!(post(&format!("{prefix}/dim/0.5"), &body).json()["picture"], rows(&half), "{prefix}");
    }
    for path in ["/", "/predict"] {
        assert_eq!(post(path, &body).json()["picture"], rows(&ramp()), "{path}");
    }
    let batch = json!({ "image": [rows(&ramp()), rows(&half)] });
    let answer = post("/models/painter/dim/0", &batch).json();
    assert_eq!(answer["brightness"], json!([0.0, 0.0]), "the path counts for every item");
    let refusals = [
        ("/models/painter/dim", 404),
        ("/models/painter/dim/0.5/more", 404),
        ("/models/painter/dim/much", 400),
        ("/models/painter/nothing", 404),
        ("/nothing", 404),
        ("/models/nobody/invert", 404),
    ];
    for (path, status) in refusals {
        let answer = post(path, &body);
        assert_eq!(answer.status, status, "{path}: {}", answer.text);
        assert!(answer.json()["error"].is_string());
    }
    let twice = json!({ "image": rows(&ramp()), "inverted": 0 });
    assert_eq!(post("/models/painter/invert", &twice).status, 400, "the route gives it already");
    assert_eq!(
        server.request("GET", "/models/painter/invert", HttpPayload::Nothing).status,
        400,
        "a picture is missing"
    );
}

#[test]
fn a_multipart_image_upload_returns_an_image() {
    let home = tempfile::tempdir().unwrap();
    let server = with_painter(home.path());
    let (input, output) = (home.path().join("face.png"), home.path().join("out.png"));
    std::fs::write(&input, encode_png(&ramp())).unwrap();
    let curl = |accept: &str, path: &str| {
        let form = format!("image=@{}", input.display());
        let mut command = Command::new("curl");
        command.args(["-sS", "-w", "%{http_code} %{content_type}", "-o"]).arg(&output);
        command.args(["-H", &format!("Accept: {accept}"), "-F", &form, &format!("{}{path}", server.url())]);
        let printed = command.output().unwrap();
        assert!(printed.status.success(), "{}", String::from_utf8_lossy(&printed.stderr));
        String::from_utf8(printed.stdout).unwrap()
    };
    assert_eq!(curl("image/png", "/models/painter/predict"), "200 image/png");
    assert_eq!(decode_png(&std::fs::read(&output).unwrap()), ramp());
    assert_eq!(curl("image/png", "/models/painter/invert"), "200 image/png");
    assert_eq!(decode_png(&std::fs::read(&output).unwrap())[1], 254);
    assert_eq!(curl("application/json", "/predict"), "200 application/json");
    // A JPEG begins with SOI and an APP0 segment. Source: JFIF 1.02. The painter's pictures are grey.
    assert_eq!(curl("image/jpeg;quality=95", "/models/painter/predict"), "200 image/jpeg");
    assert_eq!(std::fs::read(&output).unwrap()[..4], [0xff, 0xd8, 0xff, 0xe0]);
}

/// Returns the bytes of tensors copied to the device and back so far.
fn copied_bytes(server: &ServerProcess) -> [u64; 2] {
    let page = server.request("GET", "/metrics", HttpPayload::Nothing).text;
    ["host_to_device", "device_to_host"].map(|direction| {
        let series = format!("saggar_tensor_copy_bytes_total{{device=\"cpu\",direction=\"{direction}\"}}");
        series_value(&page, &series).map_or(0, |bytes| bytes as u64)
    })
}

#[test]
fn an_ensemble_keeps_intermediate_tensors_on_the_device() {
    let home = tempfile::tempdir().unwrap();
    let server = with_painter(home.path());
    let ensemble = home.path().join("models/twice");
    std::fs::create_dir_all(&ensemble).unwrap();
    let first = json!({ "model": "painter", "outputs": { "picture": "half", "brightness": "middle" } });
    let second = json!({ "model": "painter@stable", "inputs": { "image": "half", "inverted": "opposite" } });
    std::fs::write(ensemble.join("model.json"), json!({ "ensemble": { "steps": [first, second] } }).to_string())
        .unwrap();
    server.wait_for_version("twice", 1);
    let body = json!({ "image": rows(&ramp()), "factor": 0.5, "opposite": 1 });
    let before = copied_bytes(&server);
    let answer = server.request("POST", "/models/twice/predict", HttpPayload::Json(&body));
    assert_eq!(answer.status, 200, "{}", answer.text);
    // Input: a picture and three numbers, of which one has a default. Output: a picture and two numbers. Nothing is
    // copied in between.
    let now = copied_bytes(&server);
    assert_eq!([now[0] - before[0], now[1] - before[1]], [64 + 3 * 4, 64 + 2 * 4]);
    // Half of each pixel, then its inverse, then half again: both steps use the one `factor`.
    let expected: Vec<u8> = ramp().iter().map(|pixel| ((255 - pixel / 2) as f32 * 0.5) as u8).collect();
    assert_eq!(answer.json()["picture"], rows(&expected));
    assert!(answer.json()["middle"].is_number(), "what no later step takes is answered");
    let batch = json!({ "image": vec![rows(&ramp()); 5], "factor": [1, 1, 1, 1, 0], "opposite": [0, 0, 0, 0, 0] });
    let answer = server.request("POST", "/models/twice/predict", HttpPayload::Json(&batch)).json();
    assert_eq!(answer["picture"][3], rows(&ramp()), "{answer}");
    assert_eq!(answer["picture"][4], rows(&[0; 64]));
    server.request("POST", "/api/v1/models/painter/unload", HttpPayload::Nothing);
    assert_ne!(server.request("POST", "/models/twice/predict", HttpPayload::Json(&body)).status, 200);
    server.request("POST", "/api/v1/models/painter/load", HttpPayload::Nothing);
    server.wait_for("the ensemble", |server| {
        (server.request("POST", "/models/twice/predict", HttpPayload::Json(&body)).status == 200).then_some(())
    });
}

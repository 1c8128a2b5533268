//! The declared preprocessing of an image input: the same file gives the same bits in a training and in a request, a
//! version keeps its declaration, and a wrong one is refused.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use std::path::{Path, PathBuf};

use saggar_tests::onnx::small_model::identity_model;
use saggar_tests::{HttpPayload, ServerProcess, guest, lenet};
use serde_json::{Value, json};

/// Height and width of the images, which no declaration has.
const HEIGHT: u32 = 9;
const WIDTH: u32 = 12;

/// Returns RGB pixels without regularity.
fn pixels(seed: u32) -> Vec<u8> {
    (0..HEIGHT * WIDTH * 3).map(|at| ((at + seed) * (at + 7 * seed + 3) % 251) as u8).collect()
}

/// Writes an image of each of two classes, a PNG and a WebP, and returns their files in the stored order.
fn write_images(folder: &Path) -> [PathBuf; 2] {
    let [png, webp] = ["a/0.png", "b/1.webp"].map(|file| folder.join(file));
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, WIDTH, HEIGHT);
    encoder.set_color(png::ColorType::Rgb);
    encoder.write_header().unwrap().write_image_data(&pixels(1)).unwrap();
    std::fs::create_dir_all(png.parent().unwrap()).unwrap();
    std::fs::write(&png, &file).unwrap();
    file.clear();
    let encoder = image_webp::WebPEncoder::new(&mut file);
    encoder.encode(&pixels(2), WIDTH, HEIGHT, image_webp::ColorType::Rgb8).unwrap();
    std::fs::create_dir_all(webp.parent().unwrap()).unwrap();
    std::fs::write(&webp, &file).unwrap();
    [png, webp]
}

/// A server that has the images as the dataset `pictures`.
struct PreprocessingFixture {
    _home: tempfile::TempDir,
    folder: tempfile::TempDir,
    server: ServerProcess,
    files: [PathBuf; 2],
}

impl PreprocessingFixture {
    fn new() -> PreprocessingFixture {
        let folder = tempfile::tempdir().unwrap();
        let files = write_images(&folder.path().join("pictures"));
        let (home, server) = ServerProcess::start_in_temp_dir();
        server.saggar_ok(&["data", "push", folder.path().join("pictures").to_str().unwrap()]);
        PreprocessingFixture { _home: home, folder, server, files }
    }

    /// Runs the guest with these parameters, and returns its job.
    fn train(&self, parameters: &[&str]) -> Value {
        let component = guest("preprocessor");
        let run = ["run", component.to_str().unwrap(), "--data", "pictures", "--device", "cpu", "--"];
        let job = self.server.saggar_ok(&[&run[..], parameters].concat());
        self.server.wait_for_job(job.trim())
    }

    /// Returns an output of a job, in hexadecimal digits.
    fn output(&self, job: &Value, name: &str) -> String {
        let path = format!("/api/v1/jobs/{}/output/{name}", job["name"].as_str().unwrap());
        let output = self.server.request("GET", &path, HttpPayload::Nothing);
        assert_eq!(output.status, 200, "{}", output.text);
        output.text
    }

    /// Returns what the served model gets of a file, in hexadecimal digits.
    fn served_input(&self, file: &Path) -> String {
        let media = if file.extension().unwrap() == "png" { "image/png" } else { "image/webp" };
        let body = std::fs::read(file).unwrap();
        let answer = self.server.request("POST", "/models/preprocessor/predict", HttpPayload::Bytes(media, &body));
        assert_eq!(answer.status, 200, "{}", answer.text);
        float_digits(&answer.json()["y"])
    }
}

/// Returns the little-endian `float32` bytes of nested arrays of numbers in hexadecimal digits.
fn float_digits(value: &Value) -> String {
    match value {
        Value::Array(items) => items.iter().map(float_digits).collect(),
        number => (number.as_f64().unwrap() as f32).to_le_bytes().iter().map(|byte| format!("{byte:02x}")).collect(),
    }
}

#[test]
fn the_same_file_gives_the_same_bits_in_training_and_in_serving() {
    let fixture = PreprocessingFixture::new();
    let scale = "scale=[0.017124754, 0.33333334, -1.5]";
    let declarations: [(&[&str], &[u64]); 4] = [
        (&["height=7", "width=5"], &[3, 7, 5]),
        (&["height=4", "width=4", "fit=crop", "layout=nhwc", "mean=[123.675, 116.28, 103.53]", scale], &[4, 4, 3]),
        (&["height=20", "width=3", "colors=grey", "mean=[127.5]", "scale=[0.007843138]"], &[1, 20, 3]),
        // Neither resized nor in other colours.
        (&["height=9", "width=12", "layout=nhwc"], &[9, 12, 3]),
    ];
    for ((declaration, shape), version) in declarations.into_iter().zip(1..) {
        let job = fixture.train(declaration);
        assert_eq!(job["state"], "SUCCEEDED", "{job}");
        fixture.server.wait_for_version("preprocessor", version);
        let served = fixture.files.each_ref().map(|file| fixture.served_input(file));
        assert_eq!(served[0].len() as u64, shape.iter().product::<u64>() * 8, "{declaration:?}");
        assert_ne!(served[0], served[1], "{declaration:?}");
        assert_eq!(fixture.output(&job, "batches.txt"), served.concat(), "{declaration:?}");
        assert_eq!(fixture.output(&job, "run.txt"), served[0], "{declaration:?}");
    }
}

#[test]
fn clients_see_pixels_and_the_declaration_and_a_bundle_keeps_it() {
    let fixture = PreprocessingFixture::new();
    let server = &fixture.server;
    let declaration = ["height=4", "width=6", "fit=crop", "mean=[1, 2, 3]", "scale=[0.5, 0.5, 0.25]"];
    assert_eq!(fixture.train(&declaration)["state"], "SUCCEEDED");
    server.wait_for_version("preprocessor", 1);
    let input = |server: &ServerProcess| server.get("/api/v1/models/preprocessor")["signature"]["inputs"][0].clone();
    let expected = json!({
        "resize": { "height": 4, "width": 6, "fit": "crop" }, "colors": "rgb", "layout": "nchw",
        "normalization": { "mean-and-scale": { "mean": [1.0, 2.0, 3.0], "scale": [0.5, 0.5, 0.25] } },
    });
    assert_eq!(input(server)["preprocessing"], expected);
    assert_eq!(
        (&input(server)["dtype"], &input(server)["shape"], &input(server)["semantics"]),
        (&json!("uint8"), &json!([4, 6, 3]), &json!("image"))
    );
    let printed = server.saggar_ok(&["models", "show", "preprocessor"]);
    let summary = "4 x 6 pixels, crop, rgb, mean [1.0, 2.0, 3.0] and scale [0.5, 0.5, 0.25], nchw";
    assert!(printed.contains(&format!("preprocessing: {summary}")), "{printed}");
    let card = server.saggar_ok(&["models", "show", "preprocessor@1"]);
    assert!(card.contains("## Image inputs") && card.contains("| image | 4 x 6 pixels, crop, rgb, mean "), "{card}");

    // Pixels in JSON get the same arithmetic.
    let pixels = json!({ "image": [vec![vec![[11, 22, 33]; 6]; 4]] });
    let answer = server.request("POST", "/models/preprocessor/predict", HttpPayload::Json(&pixels)).json();
    let planes = [5.0, 10.0, 7.5].map(|value| vec![vec![value; 6]; 4]);
    assert_eq!(answer["y"], json!([planes]));

    let bundle = |name: &str| fixture.folder.path().join(name).to_str().unwrap().to_owned();
    let (first, second) = (bundle("first.saggar"), bundle("second.saggar"));
    let (_other_home, other) = ServerProcess::start_in_temp_dir();
    server.saggar_ok(&["models", "export", "preprocessor@1", &first]);
    other.saggar_ok(&["models", "import-bundle", &first]);
    other.wait_for_version("preprocessor", 1);
    other.saggar_ok(&["models", "export", "preprocessor@1", &second]);
    assert_eq!(std::fs::read(&first).unwrap(), std::fs::read(&second).unwrap());
    assert_eq!(input(&other), input(server));
    let predict = |server: &ServerProcess| {
        server.saggar_ok(&[
            "predict",
            "preprocessor",
            "-i",
            &format!("image=@{}", fixture.files[0].display()),
            "--json",
        ])
    };
    assert_eq!(predict(&other), predict(server));
}

/// A model that another program made gets the same preprocessing as one whose training declared it.
#[test]
fn an_import_and_a_push_declare_the_preprocessing_in_a_file() {
    let fixture = PreprocessingFixture::new();
    let server = &fixture.server;
    let declaration = ["height=4", "width=6", "fit=crop", "mean=[123.675, 116.28, 103.53]", "scale=[0.5, 0.1, 3]"];
    assert_eq!(fixture.train(&declaration)["state"], "SUCCEEDED");
    server.wait_for_version("preprocessor", 1);
    let input = |model: &str| server.get(&format!("/api/v1/models/{model}"))["signature"]["inputs"][0].clone();
    let preprocessing = input("preprocessor")["preprocessing"].clone();
    let write = |name: &str, content: &[u8]| {
        let path = fixture.folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let inputs = write("inputs.json", json!({ "image": &preprocessing }).to_string().as_bytes());
    let onnx = write("identity.onnx", &identity_model(&[1, 3, 4, 6]));
    server.saggar_ok(&["import", &onnx, "--image-inputs", &inputs]);
    let config = write("config.json", br#"{"input": "image", "shape": [3, 4, 6]}"#);
    let component = guest("preprocessor");
    let push = ["models", "push", "pushed", component.to_str().unwrap(), "--config", &config];
    server.saggar_ok(&[&push[..], &["--image-inputs", &inputs]].concat());
    let served = |model: &str, file: &Path| {
        let image = format!("image=@{}", file.display());
        server.saggar_ok(&["predict", model, "-i", &image, "--json"])
    };
    for model in ["identity", "pushed"] {
        assert_eq!(input(model), input("preprocessor"), "{model}");
        for file in &fixture.files {
            let found: Value = serde_json::from_str(&served(model, file)).unwrap();
            let expected: Value = serde_json::from_str(&served("preprocessor", file)).unwrap();
            assert_eq!(found["y"], expected["y"], "{model}");
        }
    }
    server.saggar_ok(&["models", "push", "without", component.to_str().unwrap(), "--config", &config]);
    assert_eq!(input("without")["dtype"], "float32");

    let wrong = write("wrong.json", br#"{"image": {"resize": {"height": 4, "width": 6, "fit": "tile"}}}"#);
    let refused = server.saggar(&[&push[..], &["--image-inputs", &wrong]].concat());
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && text.contains("input image: unknown variant `tile`"), "{text}");
    let refused = server.saggar(&["import", &onnx, "--name", "wrong", "--image-inputs", &wrong]);
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && text.contains("input image: unknown variant `tile`"), "{text}");
    let other = write("other.json", json!({ "picture": &preprocessing }).to_string().as_bytes());
    let refused = server.saggar(&[&push[..], &["--image-inputs", &other]].concat());
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(text.contains("preprocessing of an input picture, and the plugin's inputs are image"), "{text}");
    let models = server.get("/api/v1/models").to_string();
    assert!(!models.contains("\"wrong\"") && !models.contains("\"pushed@2\""), "{models}");
}

#[test]
fn wrong_declarations_are_refused_with_the_input_and_the_fix() {
    let fixture = PreprocessingFixture::new();
    let three = "[1, 1, 1]";
    for (parameters, expected) in [
        (&["mean=[1, 2]", &format!("scale={three}")][..], "mean: 2 values, and the image has 3 channels; declare 3"),
        (&[&format!("mean={three}"), "scale=[1, 0, 1]"], "scale: the value of channel 1 is 0; declare a finite number"),
        (&["height=0"], "resize: 0 x 4 pixels; declare 1 to 16384 a side"),
        (&["width=1000000000"], "resize: 4 x 1000000000 pixels; declare 1 to 16384 a side"),
        (&["late=true"], "batches of it were created without preprocessing: declare it before them"),
        (&["again=true"], "another preprocessing of it is declared: declare it once"),
    ] {
        let job = fixture.train(parameters);
        assert_eq!(job["state"], "FAILED", "{parameters:?}: {job}");
        let reason = job.to_string();
        assert!(reason.contains("image") && reason.contains(expected), "{parameters:?}: {reason}");
    }
    // The model does not have the input that the training declared.
    let declared = "the preprocessing that the version declares for it gives float32[3, 4, 4]";
    for (parameter, version, expected) in [
        ("shape=[4, 4, 3]", 1, format!("input image is float32[4, 4, 3], and {declared}: declare the size")),
        ("input=picture", 2, "preprocessing of an input image, and the plugin's inputs are picture".to_owned()),
    ] {
        assert_eq!(fixture.train(&[parameter])["state"], "SUCCEEDED");
        let reason = fixture.server.wait_for("the refusal", |server| {
            // The server finds the version a moment after its training has ended.
            let answer = server.request("GET", "/api/v1/models/preprocessor", HttpPayload::Nothing).json();
            let refused =
                answer["versions"].as_array()?.iter().find(|it| it["version"] == version && it["state"] == "FAILED")?;
            Some(refused["reason"].as_str()?.to_owned())
        });
        assert!(reason.contains(&expected), "{reason}");
    }
}

#[test]
fn lenet_learns_from_standardized_images_and_gets_them_in_requests() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    server.push_digits();
    let component = lenet();
    let run = ["run", component.to_str().unwrap(), "--data", "digits", "--device", "cpu", "--seed", "7", "--"];
    let job = server.saggar_ok(&[&run[..], &["model=digits", "epochs=8", "normalization=per-image"]].concat());
    let job = server.wait_for_job(job.trim());
    assert_eq!(job["state"], "SUCCEEDED", "{job}");
    let accuracy = job["metrics"]["validation/accuracy"].as_f64().unwrap();
    assert!(accuracy >= 0.95, "held-out accuracy {accuracy}");
    server.wait_for_version("digits", 1);
    let input = &server.get("/api/v1/models/digits")["signature"]["inputs"][0];
    assert_eq!(input["preprocessing"]["normalization"], "per-image-standardization", "{input}");
    let is_right = |digit: &u32| {
        let image = format!("image=@examples/digits/held-out/{digit}.png");
        let printed = server.saggar_ok(&["predict", "digits", "-i", &image, "--json"]);
        serde_json::from_str::<Value>(&printed).unwrap()["label"] == *digit
    };
    let right = (0..10).filter(is_right).count();
    assert!(right >= 9, "{right} of 10 held-out digits");
    let logged = server.get(&format!("/api/v1/jobs/{}/logged", job["name"].as_str().unwrap()));
    let images = logged["items"].as_array().unwrap().iter().filter(|item| item["kind"] == "image").count();
    assert!(images > 0, "wrong predictions are logged as images: {logged}");
}

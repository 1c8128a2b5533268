//! ONNX files as served models: real networks give the outputs of ONNX Runtime, and invalid files are refused.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use std::io::Read;
use std::path::Path;

use saggar_tests::onnx::small_model::{external_model, external_weights};
use saggar_tests::{HttpPayload, ServerProcess, shared};
use serde_json::{Value, json};

/// Tolerance for ONNX Runtime's outputs, which are recorded with six digits.
const TOLERANCE: f64 = 2e-5;
/// Minimum accuracy on 10,000 digits: that of ONNX Runtime for pixels from 0 to 1.
const ACCURACY_MIN: f64 = 0.989;

/// Returns `arange(n) / n` in this shape, without the batch dimension of one.
fn ramp(shape: &[usize]) -> Value {
    let count: usize = shape.iter().product();
    nested_json(shape, &mut (0..count).map(|at| at as f64 / count as f64))
}

fn nested_json(shape: &[usize], numbers: &mut impl Iterator<Item = f64>) -> Value {
    let Some((&length, inner)) = shape.split_first() else { return json!(numbers.next().unwrap()) };
    Value::Array((0..length).map(|_| nested_json(inner, numbers)).collect())
}

fn flatten_json(value: &Value, into: &mut Vec<f64>) {
    match value {
        Value::Array(values) => values.iter().for_each(|value| flatten_json(value, into)),
        value => into.push(value.as_f64().unwrap()),
    }
}

fn import_model(server: &ServerProcess, file: &Path, name: &str) {
    server.saggar_ok(&["import", file.to_str().unwrap(), "--name", name]);
}

#[test]
fn imported_models_give_the_outputs_of_onnx_runtime() {
    let Some(folder) = shared("models") else { return };
    let known: Value = serde_json::from_slice(&std::fs::read(folder.join("MODELS.json")).unwrap()).unwrap();
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(home.path());
    for (name, facts) in known.as_object().unwrap() {
        import_model(&server, &folder.join(name).join("model.onnx"), name);
        let mut body = json!({});
        for input in facts["inputs"].as_array().unwrap() {
            let dims = input[2].as_array().unwrap()[1..].iter();
            let shape: Vec<usize> = dims.map(|dim| dim.as_str().unwrap().parse().unwrap()).collect();
            body[input[0].as_str().unwrap()] = ramp(&shape);
        }
        let answer = server.request("POST", &format!("/models/{name}/predict"), HttpPayload::Json(&body));
        assert_eq!(answer.status, 200, "{name}: {}", answer.text);
        for output in facts["first_outputs"].as_array().unwrap() {
            let mut given = Vec::new();
            flatten_json(&answer.json()[output[0].as_str().unwrap()], &mut given);
            let count: u64 = output[2].as_array().unwrap().iter().map(|dim| dim.as_u64().unwrap()).product();
            assert_eq!(given.len() as u64, count, "{name}, {}", output[0]);
            for (at, expected) in output[1].as_array().unwrap().iter().enumerate() {
                let (given, expected) = (given[at], expected.as_f64().unwrap());
                assert!((given - expected).abs() <= TOLERANCE, "{name}, {}[{at}]: {given}, not {expected}", output[0]);
            }
        }
    }
}

#[test]
fn imported_digit_models_reach_the_accuracy_of_onnx_runtime() {
    let (Some(folder), Some(mnist)) = (shared("models"), shared("data/mnist")) else { return };
    let read = |name: &str| {
        let mut bytes = Vec::new();
        let file = std::fs::File::open(mnist.join(name)).unwrap();
        flate2::read::GzDecoder::new(file).read_to_end(&mut bytes).unwrap();
        bytes
    };
    let (images, labels) = (read("t10k-images-idx3-ubyte.gz"), read("t10k-labels-idx1-ubyte.gz"));
    let (images, labels) = (&images[16..], &labels[8..]);
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(home.path());
    for name in ["wonnx-opt-mnist", "ort-examples-mnist"] {
        import_model(&server, &folder.join(name).join("model.onnx"), name);
        let mut right = 0;
        for (images, labels) in images.chunks(250 * 784).zip(labels.chunks(250)) {
            let mut pixels = images.iter().map(|&pixel| f64::from(pixel) / 255.0);
            let body = json!({ "Input3": nested_json(&[labels.len(), 1, 28, 28], &mut pixels) });
            let answer = server.request("POST", &format!("/models/{name}/predict"), HttpPayload::Json(&body));
            assert_eq!(answer.status, 200, "{}", answer.text);
            let answer = answer.json();
            for (logits, label) in answer["Plus214_Output_0"].as_array().unwrap().iter().zip(labels) {
                let logits: Vec<f64> = logits.as_array().unwrap().iter().map(|logit| logit.as_f64().unwrap()).collect();
                let best = (0..10).max_by(|&a, &b| logits[a].total_cmp(&logits[b])).unwrap();
                right += usize::from(best == usize::from(*label));
            }
        }
        let accuracy = right as f64 / labels.len() as f64;
        assert!(accuracy >= ACCURACY_MIN, "{name}: {accuracy}");
    }
}

/// Encodes a length-delimited field of a protocol buffer: a message or a text.
fn encode_field(number: u8, content: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2, u8::try_from(content.len()).unwrap()], content].concat()
}

/// Encodes a field of a protocol buffer that is a small number.
fn encode_number(field: u8, value: u8) -> Vec<u8> {
    vec![field << 3, value]
}

#[test]
fn bool_tensors_are_bool_in_the_open_inference_protocol() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    // `y = Not(x)`, of two booleans (type 9) without a batch dimension.
    let shape = encode_field(1, &encode_number(1, 2));
    let tensor = encode_field(1, &[encode_number(1, 9), encode_field(2, &shape)].concat());
    let value = |name: &str| [encode_field(1, name.as_bytes()), encode_field(2, &tensor)].concat();
    let node = [encode_field(1, b"x"), encode_field(2, b"y"), encode_field(4, b"Not")].concat();
    let graph =
        [encode_field(1, &node), encode_field(2, b"g"), encode_field(11, &value("x")), encode_field(12, &value("y"))]
            .concat();
    let model = [encode_number(1, 8), encode_field(7, &graph), encode_field(8, &encode_number(2, 13))].concat();
    let response =
        server.request("POST", "/api/v1/models/not/import", HttpPayload::Bytes("application/octet-stream", &model));
    assert_eq!(response.status, 200, "{}", response.text);
    server.wait_for_version("not", 1);
    let described = server.get("/v2/models/not");
    for (port, name) in [("inputs", "x"), ("outputs", "y")] {
        assert_eq!(described[port], json!([{ "name": name, "datatype": "BOOL", "shape": [2] }]), "{described}");
    }
    let given = json!({ "name": "x", "shape": [2], "datatype": "BOOL", "data": [true, false] });
    let answer = server.post("/v2/models/not/infer", &json!({ "inputs": [given] }));
    let output = &answer["outputs"][0];
    assert_eq!((&output["datatype"], &output["data"]), (&json!("BOOL"), &json!([false, true])), "{answer}");
}

#[test]
fn invalid_model_files_are_refused_and_a_copied_file_is_imported_once_complete() {
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(home.path());
    let send =
        |path: &str, bytes: &[u8]| server.request("POST", path, HttpPayload::Bytes("application/octet-stream", bytes));
    for (bytes, word) in [(&b"no model"[..], "not an ONNX file"), (b"", "ONNX")] {
        let answer = send("/api/v1/models/broken/import", bytes);
        assert_eq!((answer.status, &answer.json()["code"]), (422, &json!("bad_file")), "{}", answer.text);
        assert!(answer.text.contains(word), "{}", answer.text);
    }
    assert_eq!(send("/api/v1/models/broken/import?options=5", b"no model").status, 400);
    let listed = server.request("GET", "/api/v1/models", HttpPayload::Nothing).json();
    assert_eq!(listed["models"], json!([]), "nothing is half loaded");

    let Some(folder) = shared("models") else { return };
    let whole = std::fs::read(folder.join("wonnx-opt-mnist/model.onnx")).unwrap();
    let upper = send("/api/v1/models/Not%20A%20Name/import", &whole);
    assert_eq!((upper.status, &upper.json()["code"]), (400, &json!("bad_name")), "{}", upper.text);
    let dropped = home.path().join("models/digits.onnx");
    std::fs::write(&dropped, &whole[..20_000]).unwrap();
    server.wait_for_log("file refused");
    std::fs::write(&dropped, &whole).unwrap();
    server.wait_for_version("digits", 1);

    // A command does not wait for a version that is not going to be served.
    server.saggar_ok(&["models", "unload", "digits"]);
    let file = folder.join("wonnx-opt-mnist/model.onnx");
    let import = server.saggar(&["import", file.to_str().unwrap(), "--name", "digits"]);
    let notes = String::from_utf8(import.stderr).unwrap();
    assert_eq!((import.status.code(), import.stdout), (Some(0), b"digits@1\n".to_vec()), "{notes}");
    assert!(notes.contains("digits@1 is stored but does not serve: unloaded by `saggar models unload`"), "{notes}");
    assert!(notes.contains("`saggar models load digits` loads the model"), "{notes}");
}

/// Checks the output of the model with an external file for `[1, 1]`: the sums of its weight's columns.
fn assert_serves(server: &ServerProcess, model: &str) {
    let answer =
        server.request("POST", &format!("/models/{model}/predict"), HttpPayload::Json(&json!({ "x": [1, 1] })));
    assert_eq!((answer.status, &answer.json()["y"]), (200, &json!([4.0, 6.0])), "{model}: {}", answer.text);
}

#[test]
fn models_are_imported_with_their_external_data_files() {
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(home.path());
    let files = tempfile::tempdir().unwrap();
    let path = files.path().join("sums.onnx");
    std::fs::write(&path, external_model("sums.onnx.data", 4)).unwrap();
    let path = path.to_str().unwrap();

    let refused = server.saggar(&["import", path]);
    let text = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(3), "{text}");
    assert!(text.contains("the model keeps tensors in the file `sums.onnx.data`, which is not with it"), "{text}");
    std::fs::write(files.path().join("sums.onnx.data"), external_weights(4)).unwrap();
    server.saggar_ok(&["import", path]);
    assert_serves(&server, "sums");

    // The files are copied to the models directory, in either order, and in a separate folder.
    let models = home.path().join("models");
    std::fs::write(models.join("later.data"), external_weights(0)).unwrap();
    std::fs::write(models.join("later.onnx"), external_model("later.data", 0)).unwrap();
    server.wait_for_version("later", 1);
    assert_serves(&server, "later");
    std::fs::write(models.join("first.onnx"), external_model("first.data", 0)).unwrap();
    server.wait_for_log("the model waits for an external file");
    std::fs::write(models.join("first.data"), external_weights(0)).unwrap();
    server.wait_for_version("first", 1);
    assert_serves(&server, "first");

    // Links that lead out of the folder are not followed.
    std::os::unix::fs::symlink(files.path().join("sums.onnx.data"), models.join("link.data")).unwrap();
    std::fs::write(models.join("link.onnx"), external_model("link.data", 4)).unwrap();
    server.wait_for_log("a link that leads out of the model's folder");
}

#[test]
fn a_multipart_upload_imports_a_model_with_its_files() {
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(home.path());
    let send = |name: &str, parts: &[(&str, &str, Vec<u8>)]| {
        let mut body = Vec::new();
        for (field, file, bytes) in parts {
            let head = format!("--x\r\nContent-Disposition: form-data; name=\"{field}\"; filename=\"{file}\"\r\n\r\n");
            body.extend_from_slice(head.as_bytes());
            body.extend_from_slice(bytes);
            body.extend_from_slice(b"\r\n");
        }
        body.extend_from_slice(b"--x--\r\n");
        let payload = HttpPayload::Bytes("multipart/form-data; boundary=x", &body);
        server.request("POST", &format!("/api/v1/models/{name}/import"), payload)
    };
    let (model, weights) = (external_model("parts/w.data", 0), external_weights(0));
    let answer = send("sums", &[("weights", "w.data", weights.clone()), ("m", "sums.onnx", model.clone())]);
    assert_eq!(answer.status, 200, "{}", answer.text);
    server.wait_for_version("sums", 1);
    assert_serves(&server, "sums");

    for (parts, status, code, word) in [
        (vec![("model", "m", model.clone())], 422, "missing_file", "`parts/w.data`, which is not with it"),
        (
            vec![("model", "m", model.clone()), ("a", "w.data", weights.clone()), ("b", "other", weights.clone())],
            422,
            "bad_file",
            "the file `other` is not one that the model keeps tensors in; it names parts/w.data",
        ),
        (vec![("a", "w.data", weights.clone())], 400, "bad_form", "no field is the model"),
        (
            vec![("model", "m", external_model("../w.data", 0)), ("a", "w.data", weights.clone())],
            422,
            "bad_file",
            "expected a relative path in the model's folder",
        ),
        (vec![("model", "m", model.clone()), ("a", "w.data", vec![0; 15])], 422, "bad_file", "which has 15 bytes"),
    ] {
        let answer = send("refused", &parts);
        assert_eq!((answer.status, &answer.json()["code"]), (status, &json!(code)), "{}", answer.text);
        assert!(answer.text.contains(word), "{}", answer.text);
    }
    let alone =
        server.request("POST", "/api/v1/models/refused/import", HttpPayload::Bytes("application/octet-stream", &model));
    assert_eq!((alone.status, &alone.json()["code"]), (422, &json!("missing_file")), "{}", alone.text);
    assert!(alone.text.contains("curl -F model=@MODEL.onnx -F data=@parts/w.data"), "{}", alone.text);
}

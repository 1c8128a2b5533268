//! Binary tensors of the Open Inference Protocol against JSON, on the same models of the same server.

use saggar_tests::{Payload, Server};
use serde_json::json;

use crate::load::{Contender, Request, interleaved};
use crate::report::{Goal, Report, loads, loads_heading};
use crate::stage::{SIDE, Stage, picture_json, vector, vector_json};

/// A model with its input in both forms.
struct Case {
    model: &'static str,
    json: String,
    dtype: &'static str,
    input: &'static str,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

pub(crate) fn measure(stage: &Stage, server: &Server, report: &mut Report) {
    stage.train_lenet(server);
    stage.publish_linear(server, "matmul", 1, 0, 1);
    println!("\nbinary tensors (Open Inference Protocol) against JSON, 64 connections");
    if server.request("GET", "/v2/models/lenet", Payload::Nothing).status == 404 {
        return report.skip("binary tensors", "the server has no /v2/models/{model}");
    }
    let picture = &stage.pictures()[0];
    let floats = vector().iter().flat_map(|number| (*number as f32).to_le_bytes()).collect();
    let cases = [
        Case {
            model: "lenet",
            json: picture_json(picture),
            dtype: "UINT8",
            input: "image",
            shape: vec![1, SIDE, SIDE],
            bytes: picture.clone(),
        },
        Case { model: "matmul", json: vector_json(), dtype: "FP32", input: "x", shape: vec![1, 784], bytes: floats },
    ];
    loads_heading();
    for case in cases {
        let contender = |name: &str, path: String, request| Contender {
            name: format!("{}, {name}", case.model),
            url: format!("{}{path}", server.url()),
            pid: server.pid(),
            request,
        };
        let model = case.model;
        let contenders = [
            contender("binary", format!("/v2/models/{model}/infer"), case.binary(stage)),
            contender("JSON", format!("/models/{model}/predict"), Request::json(stage.home(), model, &case.json)),
        ];
        let figures = interleaved(&contenders, 64);
        for (contender, load) in contenders.iter().zip(&figures) {
            loads(&contender.name, 64, load);
        }
        let [binary, json] = figures[..] else { unreachable!("two contenders") };
        assert_eq!(binary.failed, 0, "{model}: binary requests fail");
        report.goal(format!("{model}: binary / JSON, req/s"), binary.rate / json.rate, "x", Goal::AtLeast(1.3));
    }
}

impl Case {
    /// The JSON head, the tensor's bytes after it, and the head's length in a header; outputs are wanted as bytes too.
    fn binary(&self, stage: &Stage) -> Request {
        let Case { model, dtype, input, shape, bytes, .. } = self;
        let parameters = json!({ "binary_data_size": bytes.len() });
        let head = json!({
            "inputs": [{ "name": input, "datatype": dtype, "shape": shape, "parameters": parameters }],
            "parameters": { "binary_data_output": true },
        });
        let head = head.to_string();
        let length = head.len().to_string();
        let headers = [("content-type", "application/octet-stream"), ("Inference-Header-Content-Length", &length)];
        Request::new(stage.home(), &format!("{model}-binary"), &headers, &[head.as_bytes(), bytes].concat())
    }
}

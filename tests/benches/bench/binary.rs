//! Binary tensors of the Open Inference Protocol against JSON, in the same protocol and as short as it can be, on the same
//! models of the same server.

use saggar_tests::{Payload, Server};
use serde_json::{Value, json};

use crate::load::{Contender, Request, interleaved};
use crate::report::{Goal, Report, loads_heading};
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
            contender("JSON", format!("/v2/models/{model}/infer"), case.json(stage)),
            contender("short JSON", format!("/models/{model}/predict"), case.short(stage)),
        ];
        let figures = interleaved(&contenders, 64);
        for (contender, load) in contenders.iter().zip(&figures) {
            report.load(&contender.name, 64, load);
        }
        let [binary, json, short] = figures[..] else { unreachable!("three contenders") };
        report.goal(format!("{model}: binary / JSON, req/s"), binary.rate / json.rate, "x", Goal::AtLeast(1.3));
        report.goal(format!("{model}: binary / short JSON, req/s"), binary.rate / short.rate, "x", Goal::AtLeast(1.3));
    }
}

impl Case {
    /// The body of `/predict`.
    fn short(&self, stage: &Stage) -> Request {
        Request::json(stage.home(), &format!("{}-short", self.model), &self.json)
    }

    /// The same in the protocol's words.
    fn json(&self, stage: &Stage) -> Request {
        let Case { model, dtype, input, shape, .. } = self;
        let data = &serde_json::from_str::<Value>(&self.json).unwrap()[input];
        let body = json!({ "inputs": [{ "name": input, "datatype": dtype, "shape": shape, "data": data }] });
        Request::json(stage.home(), &format!("{model}-json"), &body.to_string())
    }

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

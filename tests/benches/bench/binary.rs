//! Binary tensors of the Open Inference Protocol against JSON, in the same protocol and in the shortest form, on the
//! same models of the same server.

use saggar_tests::{HttpPayload, ServerProcess};
use serde_json::{Value, json};

use crate::load::{LoadRequest, LoadTarget, run_interleaved};
use crate::report::{BenchGoal, BenchReport, print_load_heading};
use crate::stage::{BenchFixture, SIDE, picture_json, vector, vector_json};

/// A model with its input in both encodings.
struct EncodingCase {
    model: &'static str,
    json: String,
    dtype: &'static str,
    input: &'static str,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

pub(crate) fn measure(stage: &BenchFixture, server: &ServerProcess, report: &mut BenchReport) {
    stage.train_lenet(server);
    stage.publish_linear(server, "matmul", 1, 0, 1);
    println!("\nbinary tensors (Open Inference Protocol) against JSON, 64 connections");
    if server.request("GET", "/v2/models/lenet", HttpPayload::Nothing).status == 404 {
        return report.add_skipped("binary tensors", "the server has no /v2/models/{model}");
    }
    let picture = &stage.pictures()[0];
    let floats = vector().iter().flat_map(|number| (*number as f32).to_le_bytes()).collect();
    let cases = [
        EncodingCase {
            model: "lenet",
            json: picture_json(picture),
            dtype: "UINT8",
            input: "image",
            shape: vec![1, SIDE, SIDE],
            bytes: picture.clone(),
        },
        EncodingCase {
            model: "matmul",
            json: vector_json(),
            dtype: "FP32",
            input: "x",
            shape: vec![1, 784],
            bytes: floats,
        },
    ];
    print_load_heading();
    for case in cases {
        let contender = |name: &str, path: String, request| LoadTarget {
            name: format!("{}, {name}", case.model),
            url: format!("{}{path}", server.url()),
            pid: server.pid(),
            request,
        };
        let model = case.model;
        let contenders = [
            contender("binary", format!("/v2/models/{model}/infer"), case.oip_binary_request(stage)),
            contender("JSON", format!("/v2/models/{model}/infer"), case.oip_json_request(stage)),
            contender("short JSON", format!("/models/{model}/predict"), case.short_json_request(stage)),
        ];
        let figures = run_interleaved(&contenders, 64);
        for (contender, load) in contenders.iter().zip(&figures) {
            report.print_load(&contender.name, 64, load);
        }
        let [binary, json, short] = figures[..] else { unreachable!("three contenders") };
        report.add_goal(
            format!("{model}: binary / JSON, req/s"),
            binary.rate / json.rate,
            "x",
            BenchGoal::AtLeast(1.3),
        );
        report.add_goal(
            format!("{model}: binary / short JSON, req/s"),
            binary.rate / short.rate,
            "x",
            BenchGoal::AtLeast(1.3),
        );
    }
}

impl EncodingCase {
    /// Returns a request with the body of `/predict`.
    fn short_json_request(&self, stage: &BenchFixture) -> LoadRequest {
        LoadRequest::json(stage.home(), &format!("{}-short", self.model), &self.json)
    }

    /// Returns the same request in the protocol's JSON form.
    fn oip_json_request(&self, stage: &BenchFixture) -> LoadRequest {
        let EncodingCase { model, dtype, input, shape, .. } = self;
        let data = &serde_json::from_str::<Value>(&self.json).unwrap()[input];
        let body = json!({ "inputs": [{ "name": input, "datatype": dtype, "shape": shape, "data": data }] });
        LoadRequest::json(stage.home(), &format!("{model}-json"), &body.to_string())
    }

    /// Returns a request with a JSON head followed by the tensor's bytes, and the head's length in a header. Requests
    /// binary outputs too.
    fn oip_binary_request(&self, stage: &BenchFixture) -> LoadRequest {
        let EncodingCase { model, dtype, input, shape, bytes, .. } = self;
        let parameters = json!({ "binary_data_size": bytes.len() });
        let head = json!({
            "inputs": [{ "name": input, "datatype": dtype, "shape": shape, "parameters": parameters }],
            "parameters": { "binary_data_output": true },
        });
        let head = head.to_string();
        let length = head.len().to_string();
        let headers = [("content-type", "application/octet-stream"), ("Inference-Header-Content-Length", &length)];
        LoadRequest::new(stage.home(), &format!("{model}-binary"), &headers, &[head.as_bytes(), bytes].concat())
    }
}

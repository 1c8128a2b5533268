//! Models whose outputs violate their signature: each request gets an error, and the model, its server and their memory
//! are unaffected.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use saggar_tests::{HttpPayload, HttpResponse, ServerProcess, guest, memory_kib};
use serde_json::json;

/// Number of rounds of the worst outputs.
const ROUNDS: usize = 10;
/// The limit on the server's memory growth in KiB: 50,000 tensors, the most that an instance can hold, take about 40
/// MB.
const GROWTH_KIB_MAX: u64 = 256 << 10;

/// Publishes version `version` of the model `hostile`, which gives this kind of output if its input begins below 0.
fn publish(server: &ServerProcess, way: &str, version: u64) {
    let (plugin, predict) = (guest("hostile"), format!("predict=late-{way}"));
    server.saggar_ok(&["run", plugin.to_str().unwrap(), "--wait", "--", "train=well", &predict]);
    server.wait_for_version("hostile", version);
}

fn ask(server: &ServerProcess, first: f64) -> HttpResponse {
    server.request("POST", "/models/hostile/predict", HttpPayload::Json(&json!({ "x": [first, 2.0, 3.0, 4.0] })))
}

/// Requests the invalid output, of which clients get the name and the log the details, and then a valid one.
fn check(server: &ServerProcess, way: &str, name: &str, says: &str) {
    let broken = ask(server, -1.0);
    let body = broken.json();
    assert_eq!((broken.status, &body["code"]), (500, &json!("plugin_error")), "{way}: {}", broken.text);
    assert_eq!(body["error"], format!("the plugin failed: {name}"), "{way}");
    server.wait_for_log(says);
    let good = ask(server, 1.0);
    assert_eq!((good.status, &good.json()["y"]), (200, &json!([1.0, 2.0, 3.0, 4.0])), "{way}: {}", good.text);
}

#[test]
fn outputs_that_violate_the_signature_are_refused_and_the_model_keeps_serving() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let ways = [
        ("missing", "output none: the signature promises 1 outputs, and the plugin gave 0 outputs"),
        ("twice", "output y: the signature promises 1 outputs, and the plugin gave 2 outputs"),
        ("many-outputs", "output y0: the signature promises 1 outputs, and the plugin gave 40000 outputs"),
        ("wrong-type", "output y: the signature promises float32[1, 4], and the plugin gave int8[1, 4]"),
        ("wrong-shape", "output y: the signature promises float32[1, 4], and the plugin gave float32[1, 5]"),
        ("wrong-batch", "output y: the signature promises float32[1, 4], and the plugin gave float32[2, 4]"),
        ("long-names", "yyy: the signature promises 1 outputs, and the plugin gave 2 outputs"),
    ];
    for (version, (way, says)) in (1..).zip(ways) {
        publish(&server, way, version);
        check(&server, way, "BAD_OUTPUT", says);
        check(&server, way, "BAD_OUTPUT", says);
    }
}

#[test]
fn an_error_of_a_megabyte_is_truncated() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    publish(&server, "long-error", 1);
    for _ in 0..2 {
        let broken = ask(&server, -1.0);
        assert_eq!((broken.status, &broken.json()["code"]), (422, &json!("plugin_rejected")), "{}", broken.text.len());
        assert!(broken.text.contains("yyyy") && broken.text.len() < 20_000, "{} bytes", broken.text.len());
    }
    assert_eq!(ask(&server, 1.0).status, 200);
}

#[test]
fn a_prediction_with_a_million_outputs_loses_its_instance_and_no_memory() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    publish(&server, "million-outputs", 1);
    let says = "the plugin holds 50000 handles, which is the limit (predict)";
    check(&server, "the first", "HANDLE_LIMIT", says);
    let before = memory_kib(server.pid(), "VmRSS");
    for round in 0..ROUNDS {
        check(&server, &format!("round {round}"), "HANDLE_LIMIT", says);
    }
    let after = memory_kib(server.pid(), "VmRSS");
    assert!(after < before + GROWTH_KIB_MAX, "{before} KiB before, {after} KiB after");
    let metrics = server.request("GET", "/metrics", HttpPayload::Nothing).text;
    let failed = r#"saggar_predict_requests_total{model="hostile",outcome="plugin_error",version="1"}"#;
    assert!(metrics.contains(&format!("{failed} {}", ROUNDS + 1)), "{metrics}");
}

//! Plugins that trap outside their exports, flood the resources that the engine counts, or re-enter the host during a
//! call of the host: each job ends with that reason, and the server continues.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use saggar_tests::component::component_with_train_body;
use saggar_tests::{HttpPayload, ServerProcess, guest, memory_kib};
use serde_json::{Value, json};

/// The limit on the server's memory growth in KiB while jobs flood their workers.
const GROWTH_KIB_MAX: u64 = 64 << 10;

/// A resource of the component whose destructor traps, for the module to create and drop.
const RESOURCE: [&str; 3] = [
    r#"(core module $d (func $destroy (export "destroy") (param i32) unreachable))
       (core instance $destructors (instantiate $d))
       (type $thing (resource (rep i32) (dtor (core func $destructors "destroy"))))
       (core func $new (canon resource.new $thing))
       (core func $drop (canon resource.drop $thing))"#,
    r#"(with "host" (instance (export "new" (func $new)) (export "drop" (func $drop))))"#,
    r#"(import "host" "new" (func $new (param i32) (result i32))) (import "host" "drop" (func $drop (param i32)))"#,
];

/// The job's parameters, in memory that the plugin allocates only after another call of the host.
const PARAMETERS: [&str; 3] = [
    r#"(import "saggar:plugin/job@0.1.0" (instance $job
         (export "parameters" (func (result string))) (export "seed" (func (result u64)))))
       (core func $seed (canon lower (func $job "seed")))
       (core module $l
         (import "host" "seed" (func $seed (result i64)))
         (memory (export "memory") 1)
         (func $realloc (export "realloc") (param i32 i32 i32 i32) (result i32) (drop (call $seed)) i32.const 1024))
       (core instance $library (instantiate $l (with "host" (instance (export "seed" (func $seed))))))
       (core func $parameters (canon lower (func $job "parameters")
         (memory (core memory $library "memory")) (realloc (core func $library "realloc"))))"#,
    r#"(with "host" (instance (export "parameters" (func $parameters))))"#,
    r#"(import "host" "parameters" (func $parameters (param i32)))"#,
];

/// Runs a training of the component to its end.
fn train(server: &ServerProcess, wasm: &[u8]) -> Value {
    let uploaded = server.request("POST", "/api/v1/plugins", HttpPayload::Bytes("application/wasm", wasm));
    assert_eq!(uploaded.status, 200, "{}", uploaded.text);
    let spec = json!({ "project": "faults", "device": "cpu", "plugin": uploaded.json()["digest"] });
    let job = server.post("/api/v1/jobs", &spec)["name"].as_str().unwrap().to_owned();
    server.wait_for_job(&job)
}

#[test]
fn traps_floods_and_reentrant_calls_fail_their_job_with_a_reason() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let [resource, with_resource, resource_fields] = RESOURCE;
    let [parameters, with_parameters, parameters_fields] = PARAMETERS;
    let grow = "(loop (br_if 0 (i32.ne (table.grow $t (ref.null func) (i32.const 1000)) (i32.const -1)))) unreachable";
    let floods = "(loop (drop (call $new (i32.const 7))) (br 0))";
    let drops = "(call $drop (call $new (i32.const 7)))";
    let before = memory_kib(server.pid(), "VmRSS");
    for (wasm, reason, parts) in [
        (
            component_with_train_body("", "", "(func $begin unreachable) (start $begin)", ""),
            "TRAP",
            ["trapped in start", "unreachable"],
        ),
        (
            component_with_train_body(resource, with_resource, resource_fields, drops),
            "TRAP",
            ["trapped in train", "destroy"],
        ),
        (component_with_train_body("", "", "(table $t 0 funcref)", grow), "TABLE_LIMIT", ["table elements", "100000"]),
        (
            component_with_train_body(resource, with_resource, resource_fields, floods),
            "HANDLE_LIMIT",
            ["100000 handles", "train"],
        ),
        (
            component_with_train_body(
                parameters,
                with_parameters,
                parameters_fields,
                "(call $parameters (i32.const 8))",
            ),
            "TRAP",
            ["trapped in train", "cannot leave component instance"],
        ),
    ] {
        let job = train(&server, &wasm);
        assert_eq!((&job["state"], &job["reason"]), (&json!("FAILED"), &json!(reason)), "{job}");
        let message = job["message"].as_str().unwrap();
        assert!(parts.iter().all(|part| message.contains(part)), "{parts:?}: {message}");
        assert_eq!(job["attempt"], 1, "a plugin's own fault is not tried again");
        assert_eq!(server.request("GET", "/readyz", HttpPayload::Nothing).status, 200);
    }
    let growth = memory_kib(server.pid(), "VmRSS").saturating_sub(before);
    assert!(growth < GROWTH_KIB_MAX, "{growth} KiB more than {before} KiB");
    // A correct plugin still runs.
    assert_eq!(train(&server, &component_with_train_body("", "", "", ""))["state"], "SUCCEEDED");
}

#[test]
fn a_model_whose_destructor_traps_is_still_unloaded() {
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(home.path());
    let plugin = guest("hostile");
    let run =
        ["run", plugin.to_str().unwrap(), "--wait", "--", "train=well", "model=fragile", "predict=trap-when-dropped"];
    server.saggar_ok(&run);
    server.wait_for_version("fragile", 1);
    let ask = || server.request("POST", "/models/fragile/predict", HttpPayload::Json(&json!({ "x": [1, 2, 3, 4] })));
    for _ in 0..3 {
        let answer = ask();
        assert_eq!((answer.status, &answer.json()["y"]), (200, &json!([1.0, 2.0, 3.0, 4.0])), "{}", answer.text);
        server.saggar_ok(&["models", "unload", "fragile"]);
        assert_eq!(ask().status, 503);
        server.saggar_ok(&["models", "load", "fragile"]);
    }
    // The next version replaces it, and it is removed.
    server.saggar_ok(&["run", plugin.to_str().unwrap(), "--wait", "--", "train=well", "model=fragile", "predict=well"]);
    server.wait_for_version("fragile", 2);
    server.saggar_ok(&["models", "rm", "fragile@1", "--yes"]);
    assert_eq!(ask().status, 200);
    let log = std::fs::read_to_string(home.path().join("server.log")).unwrap();
    assert!(!log.contains("the destructor of a model ran"), "{log}");
}

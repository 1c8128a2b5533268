//! The Open Inference Protocol with its common clients, Triton's and KServe's, against the real binary.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use saggar_tests::{run_inference_client, serve_inference_models};

#[test]
fn the_triton_and_kserve_clients_work() {
    let home = tempfile::tempdir().unwrap();
    let server = serve_inference_models(home.path(), &[]);
    run_inference_client("kserve_rest.py", &[server.url()]);
    run_inference_client("triton.py", &[server.url()]);
}

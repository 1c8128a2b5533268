//! gRPC with its common clients, Triton's, KServe's and gRPC's own, against the real binary.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use std::process::Command;

use saggar_tests::{ServerProcess, create_key, publish_echo, root, run_inference_client, serve_inference_models};

#[test]
fn the_triton_and_kserve_clients_work_over_grpc() {
    let home = tempfile::tempdir().unwrap();
    let server = serve_inference_models(home.path(), &[]);
    run_inference_client("kserve_grpc.py", &[server.url()]);
    run_inference_client("grpc_triton.py", &[server.url()]);
}

#[test]
fn a_thousand_streams_and_broken_clients_leave_the_server_intact() {
    let home = tempfile::tempdir().unwrap();
    publish_echo(home.path());
    let server = ServerProcess::start(home.path());
    server.wait_for_version("echo", 1);
    run_inference_client("grpc_calls.py", &[server.url()]);
}

#[test]
fn keys_and_tls_protect_grpc() {
    let home = tempfile::tempdir().unwrap();
    publish_echo(home.path());
    let [predicts, reads, admin] = [("predicts", "predict"), ("reads", "jobs:read"), ("boss", "admin")]
        .map(|(name, scope)| create_key(home.path(), &[name, "--scope", scope]));
    let certificates = root().join("host/serve/src/tests/certificates");
    let [certificate, private] =
        ["first.crt.pem", "first.key.pem"].map(|name| certificates.join(name).display().to_string());
    let plain = ServerProcess::start_with(home.path(), &["--require-keys"]).with_key(&admin);
    plain.wait_for_version("echo", 1);
    run_inference_client("grpc_calls.py", &[plain.url(), &predicts, &reads]);
    drop(plain);
    let arguments = ["--require-keys", "--tls-cert", &certificate, "--tls-key", &private];
    let encrypted = ServerProcess::start_with(home.path(), &arguments).with_key(&admin);
    run_inference_client("grpc_calls.py", &[encrypted.url(), &predicts, &reads, &certificate]);
}

/// What reflection sends is `host/serve/proto`, compiled.
#[test]
fn the_descriptors_are_those_of_the_proto_files() {
    let folder = tempfile::tempdir().unwrap();
    let compiled = folder.path().join("descriptors.bin");
    let output = Command::new(root().join(".ci/grpc-descriptors")).arg(&compiled).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let is_equal =
        std::fs::read(&compiled).unwrap() == std::fs::read(root().join("host/serve/proto/descriptors.bin")).unwrap();
    assert!(is_equal, "run .ci/grpc-descriptors");
}

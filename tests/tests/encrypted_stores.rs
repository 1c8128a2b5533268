//! A server with a database and a bucket over TLS: it trusts the authorities that it was given, and no others.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use std::path::PathBuf;
use std::process::Command;

use saggar_tests::postgres::TestServerOptions;
use saggar_tests::s3::{MotoServer, s3_address, s3_variables};
use saggar_tests::{PostgresServer, ServerProcess, SteadyJob, binary, root};

/// Returns a certificate for localhost and 127.0.0.1, which is its own authority, or its key.
fn certificate(file: &str) -> PathBuf {
    root().join("host/serve/src/tests/certificates").join(file)
}

#[test]
fn jobs_run_with_encrypted_stores_and_other_authorities_are_refused() {
    let (own, key) = (certificate("first.crt.pem"), certificate("first.key.pem"));
    let options = TestServerOptions { certificate: Some((own.clone(), key.clone())), ..TestServerOptions::default() };
    let Some(database) = PostgresServer::start_with(options) else { return };
    let Some(store) = MotoServer::start_encrypted(&own, &key) else { return };
    let directory = tempfile::tempdir().unwrap();
    let url = |authority: &str| {
        let authority = certificate(authority);
        format!("{}?sslmode=verify-full&sslrootcert={}", database.url(), authority.display())
    };
    let command = |database_authority: &str, bucket_authority: Option<&str>| {
        let mut command = Command::new(binary());
        command
            .args(["serve", "--addr", "127.0.0.1:0", "--device", "cpu", "--name", "s", "--home"])
            .arg(directory.path());
        command.env("SAGGAR_DATABASE_URL", url(database_authority)).env("SAGGAR_OBJECTS", s3_address("lab"));
        command.envs(s3_variables(store.port())).env_remove("AWS_SESSION_TOKEN").env_remove("AWS_CA_BUNDLE");
        command.env("AWS_ENDPOINT_URL", format!("https://127.0.0.1:{}", store.port()));
        command.envs(bucket_authority.map(|file| ("AWS_CA_BUNDLE", certificate(file))));
        command
    };
    for (database_authority, bucket_authority, words) in [
        ("second.crt.pem", Some("first.crt.pem"), "add sslrootcert=FILE to the URL"),
        ("first.crt.pem", None, "set AWS_CA_BUNDLE to a PEM file"),
        ("first.crt.pem", Some("second.crt.pem"), "set AWS_CA_BUNDLE to a PEM file"),
        ("first.crt.pem", Some("missing.pem"), "missing.pem"),
    ] {
        let output = command(database_authority, bucket_authority).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(words) && !said.contains("hunter2"), "{words}: {said}");
    }
    let server = ServerProcess::from_command(command("first.crt.pem", Some("first.crt.pem")), directory.path());
    // Its worker reaches the bucket, too: it reads the plugin, and saves checkpoints.
    let job = SteadyJob::with_steps(20).submit(&server);
    let job = server.wait_for_job(&job);
    assert_eq!(job["state"], "SUCCEEDED", "{job}");
    assert!(!server.checkpoints(job["name"].as_str().unwrap()).is_empty());
    let encrypted = "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE application_name = 'saggar' AND NOT ssl";
    assert_eq!(database.server().query(encrypted), "0", "every connection is encrypted");
}

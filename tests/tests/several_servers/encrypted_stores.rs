//! Databases and buckets over TLS: what each `sslmode` encrypts and verifies, and a server that trusts the authorities that it was
//! given, and no others.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use saggar_store::limits::POSTGRES_RETRY_MS_MAX;
use saggar_store::records;
use saggar_tests::postgres::TestServerOptions;
use saggar_tests::s3::{MotoServer, s3_address, s3_variables};
use saggar_tests::{PostgresServer, ServerProcess, SteadyJob, binary, root};

/// Returns a certificate for localhost and 127.0.0.1, which is its own authority, or its key.
fn certificate(file: &str) -> PathBuf {
    root().join("host/serve/src/tests/certificates").join(file)
}

fn encrypted_database() -> Option<PostgresServer> {
    let certificate = Some((certificate("first.crt.pem"), certificate("first.key.pem")));
    PostgresServer::start_with(TestServerOptions { certificate, ..TestServerOptions::default() })
}

/// Connects, and returns whether all connections of the records are encrypted; or the error.
fn is_encrypted(database: &PostgresServer, url: &str) -> Result<bool, String> {
    let records = records::open(url).map_err(|error| error.to_string())?;
    records.count_by_state().unwrap();
    let used = database.server().query(
        "SELECT coalesce(string_agg(DISTINCT ssl::text, ','), 'none') FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
         WHERE application_name = 'saggar'",
    );
    drop(records);
    // The next case counts only its own.
    while database.server().query("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'saggar'") != "0" {
        std::thread::yield_now();
    }
    match used.as_str() {
        "true" => Ok(true),
        "false" => Ok(false),
        other => Err(format!("unexpected {other}")),
    }
}

#[test]
fn each_mode_encrypts_and_verifies_what_it_says() {
    let Some(database) = encrypted_database() else { return };
    let local = database.url().to_owned();
    let named = local.replace("127.0.0.1", "localhost");
    // This address is of this machine too, and is not one of its names, as that of another machine.
    let remote = local.replace("127.0.0.1", "127.0.0.2");
    let (own, other) = (certificate("first.crt.pem"), certificate("second.crt.pem"));
    let own = format!("?sslmode=verify-full&sslrootcert={}", own.display());
    let other = format!("?sslmode=verify-full&sslrootcert={}", other.display());
    for (url, parameters, expected) in [
        (&local, "", false),
        (&local, "?sslmode=prefer", false),
        (&remote, "", true),
        (&remote, "?sslmode=prefer", true),
        (&remote, "?sslmode=disable", false),
        (&local, "?sslmode=require", true),
        (&remote, "?sslmode=require", true),
        (&local, own.as_str(), true),
        (&named, own.as_str(), true),
    ] {
        assert_eq!(is_encrypted(&database, &format!("{url}{parameters}")), Ok(expected), "{url}{parameters}");
    }
    for (url, parameters, words) in [
        // Another authority, and none but the public ones.
        (&local, other.as_str(), "add sslrootcert=FILE to the URL"),
        (&local, "?sslmode=verify-full", "add sslrootcert=FILE to the URL"),
        (&local, &other.replace("verify-full", "require"), "add sslrootcert=FILE to the URL"),
        // Another name.
        (&remote, own.as_str(), "it is not for the host 127.0.0.2: use a name in the URL"),
        (&local, "?sslmode=verify-full&sslrootcert=/missing.pem", "sslrootcert: /missing.pem"),
    ] {
        let began = Instant::now();
        let error = is_encrypted(&database, &format!("{url}{parameters}")).unwrap_err();
        assert!(error.contains(words), "{url}{parameters}: {error}");
        assert!(began.elapsed() < Duration::from_millis(POSTGRES_RETRY_MS_MAX.into()), "it is not repeated: {error}");
    }
}

#[test]
fn a_server_without_a_certificate_is_used_only_if_the_mode_allows_it() {
    let Some(database) = PostgresServer::start() else { return };
    let remote = database.url().replace("127.0.0.1", "127.0.0.2");
    assert_eq!(is_encrypted(&database, &remote), Ok(false), "the database offers no encryption");
    assert_eq!(is_encrypted(&database, &format!("{remote}?sslmode=prefer")), Ok(false));
    for mode in ["require", "verify-full"] {
        let error = is_encrypted(&database, &format!("{remote}?sslmode={mode}")).unwrap_err();
        assert!(error.contains("does not support TLS"), "{mode}: {error}");
    }
}

#[test]
fn jobs_run_with_encrypted_stores_and_other_authorities_are_refused() {
    let (own, key) = (certificate("first.crt.pem"), certificate("first.key.pem"));
    let Some(database) = encrypted_database() else { return };
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

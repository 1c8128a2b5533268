//! Encrypted connections to a server with a certificate: what each `sslmode` accepts, and what a refusal says.

use std::path::{Path, PathBuf};

use super::test_server::{TestServer, TestServerOptions};
use super::*;

/// Returns a certificate for localhost and 127.0.0.1, which is its own authority, or its key.
fn certificate(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../serve/src/tests/certificates").join(file)
}

fn encrypted_server() -> Option<TestServer> {
    let certificate = Some((certificate("first.crt.pem"), certificate("first.key.pem")));
    TestServer::start_with(TestServerOptions { certificate, ..TestServerOptions::default() })
}

/// Connects, and returns whether all connections of the records are encrypted; or the error.
fn is_encrypted(server: &TestServer, url: &str) -> Result<bool, String> {
    let records = PostgresRecords::open(url).map_err(|error| error.to_string())?;
    job_names(&records);
    let used = server.query(
        "SELECT coalesce(string_agg(DISTINCT ssl::text, ','), 'none') FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
         WHERE application_name = 'saggar'",
    );
    drop(records);
    // The next case counts only its own.
    while server.query("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'saggar'") != "0" {
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
    let Some(server) = encrypted_server() else { return };
    let local = server.create_database();
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
        assert_eq!(is_encrypted(&server, &format!("{url}{parameters}")), Ok(expected), "{url}{parameters}");
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
        let error = is_encrypted(&server, &format!("{url}{parameters}")).unwrap_err();
        assert!(error.contains(words), "{url}{parameters}: {error}");
        assert!(began.elapsed() < Duration::from_millis(POSTGRES_RETRY_MS_MAX.into()), "it is not repeated: {error}");
    }
}

#[test]
fn a_server_without_a_certificate_is_used_only_if_the_mode_allows_it() {
    let Some(server) = TestServer::start() else { return };
    let remote = server.create_database().replace("127.0.0.1", "127.0.0.2");
    assert_eq!(is_encrypted(&server, &remote), Ok(false), "the database offers no encryption");
    assert_eq!(is_encrypted(&server, &format!("{remote}?sslmode=prefer")), Ok(false));
    for mode in ["require", "verify-full"] {
        let error = is_encrypted(&server, &format!("{remote}?sslmode={mode}")).unwrap_err();
        assert!(error.contains("does not support TLS"), "{mode}: {error}");
    }
}

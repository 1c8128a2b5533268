//! Servers with Amazon's S3 interface, moto and one that loses races, and a proxy that injects faults into connections.

use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use saggar_store::ObjectStorage;
use saggar_store::objects::S3Settings;
use ureq::tls::TlsConfig;

use crate::root;

mod fault_proxy;
mod http_message;

pub use fault_proxy::{FaultProxy, S3Fault};

/// The bucket that a new server has.
const BUCKET: &str = "saggar";
const ACCESS_KEY: &str = "test-key";
const SECRET_KEY: &str = "test-secret";
/// The program of [`RacyServer`], which `.ci/setup` installs.
const RACY_SERVER: &str = "target/s3s-fs-0.14.1/bin/s3s-fs";
/// How long the clients of tests wait: for a connection, for an answer, and before they repeat a request no more.
const CONNECT_TIME: Duration = Duration::from_secs(2);
const ANSWER_TIME: Duration = Duration::from_secs(3);
const RETRY_TIME: Duration = Duration::from_secs(4);

/// A server, which is killed when this value is dropped.
#[derive(Debug)]
pub struct MotoServer {
    child: Child,
    port: u16,
}

impl MotoServer {
    /// Starts a server with an empty bucket, or prints SKIP and returns `None` if moto cannot be installed.
    ///
    /// # Panics
    /// If it cannot be installed and `REQUIRE_ALL` or `REQUIRE_S3` is set, or does not start.
    pub fn start() -> Option<MotoServer> {
        MotoServer::start_with(None)
    }

    /// Starts a server as [`MotoServer::start`] does, with the files of a certificate and of its key, with which it accepts only
    /// encrypted connections.
    ///
    /// # Panics
    /// The same.
    pub fn start_encrypted(certificate: &Path, key: &Path) -> Option<MotoServer> {
        MotoServer::start_with(Some([certificate, key]))
    }

    fn start_with(certificate: Option<[&Path; 2]>) -> Option<MotoServer> {
        let installed = Command::new(root().join(".ci/clients")).arg("tests/clients/s3.txt").output();
        let installed = installed.expect("bash is installed");
        if !installed.status.success() {
            return skip("moto");
        }
        let mut command = Command::new(String::from_utf8_lossy(&installed.stdout).trim());
        command.arg("-B").arg(root().join("tests/clients/moto_server.py")).env("PYTHONUNBUFFERED", "1");
        command.args(certificate.into_iter().flatten());
        let scheme = if certificate.is_some() { "https" } else { "http" };
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
        // Owned by the value that kills it before anything can panic.
        let mut server = MotoServer { child: child.expect("the environment has Python"), port: 0 };
        let mut log = BufReader::new(server.child.stderr.take().expect("a pipe")).lines().map_while(Result::ok);
        let port = log.find_map(|line| line.split_once("://127.0.0.1:")?.1.trim().parse().ok());
        server.port = port.expect("moto says its address");
        // A full pipe would block the server.
        std::thread::spawn(move || log.for_each(drop));
        // Its certificate is that of a test, which the client of this request does not know.
        let trust = TlsConfig::builder().disable_verification(true).build();
        let agent = ureq::Agent::new_with_config(ureq::Agent::config_builder().tls_config(trust).build());
        let created = agent.put(format!("{scheme}://127.0.0.1:{}/{BUCKET}", server.port)).send_empty();
        assert!(created.is_ok(), "{created:?}");
        Some(server)
    }

    /// Returns its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Opens the objects with this prefix.
    pub fn objects(&self, prefix: &str) -> ObjectStorage {
        s3_objects(self.port, prefix)
    }
}

impl Drop for MotoServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A server that checks the condition of a put and then writes without a lock, `s3s-fs`. It is killed when this value is
/// dropped.
#[derive(Debug)]
pub struct RacyServer {
    child: Child,
    port: u16,
    _directory: tempfile::TempDir,
}

impl RacyServer {
    /// Starts a server with an empty bucket, or prints SKIP and returns `None` if `s3s-fs` is not installed.
    ///
    /// # Panics
    /// If it is not installed and `REQUIRE_ALL` or `REQUIRE_S3` is set, or does not start.
    pub fn start() -> Option<RacyServer> {
        let program = root().join(RACY_SERVER);
        if !program.is_file() {
            return skip("s3s-fs");
        }
        let directory = tempfile::tempdir().expect("a directory for temporary files");
        std::fs::create_dir(directory.path().join(BUCKET)).expect("the directory is writable");
        // The port is free when it is chosen. If another process takes it before the server does, the server ends.
        let port = TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr()).expect("a free port").port();
        let mut command = Command::new(program);
        command.args(["--host", "127.0.0.1", "--port", &port.to_string(), "--access-key", ACCESS_KEY]);
        command.args(["--secret-key", SECRET_KEY]).arg(directory.path());
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let mut server = RacyServer { child: child.expect("the program starts"), port, _directory: directory };
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            let ended = server.child.try_wait().expect("the program is a child");
            assert!(ended.is_none(), "s3s-fs does not start: {ended:?}");
            // It does not say when it listens.
            std::thread::sleep(Duration::from_millis(10));
        }
        Some(server)
    }

    /// Returns its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Opens the objects with this prefix.
    pub fn objects(&self, prefix: &str) -> ObjectStorage {
        s3_objects(self.port, prefix)
    }
}

impl Drop for RacyServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Prints SKIP and returns `None`.
///
/// # Panics
/// If `REQUIRE_ALL` or `REQUIRE_S3` is set.
fn skip<T>(program: &str) -> Option<T> {
    let is_required = ["REQUIRE_ALL", "REQUIRE_S3"].iter().any(|name| std::env::var_os(name).is_some());
    assert!(!is_required, "{program} is not installed, and REQUIRE_ALL or REQUIRE_S3 is set: run `.ci/setup test`");
    #[expect(clippy::print_stdout, reason = "a skipped test says so")]
    {
        println!("SKIP: {program} is not installed");
    }
    None
}

/// Returns the address of the objects with this prefix, as `saggar serve --objects` expects it.
pub fn s3_address(prefix: &str) -> String {
    format!("s3://{BUCKET}/{prefix}")
}

/// Returns the environment variables of a client of the server at this port.
pub fn s3_variables(port: u16) -> [(&'static str, String); 4] {
    [
        ("AWS_ACCESS_KEY_ID", ACCESS_KEY.to_owned()),
        ("AWS_SECRET_ACCESS_KEY", SECRET_KEY.to_owned()),
        ("AWS_REGION", "us-east-1".to_owned()),
        ("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{port}")),
    ]
}

/// Opens the objects with this prefix through the server at this port, which waits for seconds and not for minutes.
///
/// # Panics
/// If the settings are refused.
pub fn s3_objects(port: u16, prefix: &str) -> ObjectStorage {
    let variables = s3_variables(port);
    let variable = |name: &str| variables.iter().find(|it| it.0 == name).map(|it| it.1.clone());
    let settings = S3Settings::read(&s3_address(prefix), &variable).expect("the settings are valid");
    ObjectStorage::open_bucket(settings.with_limits(CONNECT_TIME, ANSWER_TIME, RETRY_TIME)).expect("they are complete")
}

//! A PostgreSQL server for tests, in a temporary directory. Each test starts one, which takes half a second.

use std::fmt::Write as _;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use parking_lot::Mutex;
use tempfile::TempDir;

use super::super::PostgresRecords;

/// A server that ends when this value is dropped, also if the test panics, and with the test's process.
pub(in crate::records) struct TestServer {
    directory: TempDir,
    programs: PathBuf,
    port: u16,
    process: Mutex<Child>,
    databases: Mutex<u32>,
}

/// Returns the directory of the server's programs, of the newest version.
fn find_programs() -> Option<PathBuf> {
    let mut found: Vec<_> = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path().join("bin")))
        .filter(|bin| bin.join("initdb").exists() && bin.join("postgres").exists())
        .collect();
    found.sort();
    found.pop()
}

/// Returns a command that runs a program of the server. The server refuses to run as root.
fn server_command(program: &Path) -> Command {
    if !rustix::process::geteuid().is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups", "--pdeathsig=KILL", "--"]).arg(program);
    command
}

impl TestServer {
    /// Starts a server, or prints SKIP and returns `None` if PostgreSQL is not installed.
    ///
    /// # Panics
    /// If it is not installed and `REQUIRE_ALL` or `REQUIRE_POSTGRES` is set, or does not start.
    pub(in crate::records) fn start() -> Option<TestServer> {
        let Some(programs) = find_programs() else {
            let is_required = ["REQUIRE_ALL", "REQUIRE_POSTGRES"].iter().any(|name| std::env::var_os(name).is_some());
            assert!(!is_required, "PostgreSQL is not installed, and REQUIRE_ALL or REQUIRE_POSTGRES is set");
            println!("SKIP: PostgreSQL is not installed");
            return None;
        };
        let directory = tempfile::tempdir().unwrap();
        if rustix::process::geteuid().is_root() {
            let owned = Command::new("chown").arg("postgres:").arg(directory.path()).status().unwrap();
            assert!(owned.success(), "the directory of the server has to belong to the user `postgres`");
        }
        let data = directory.path().join("data");
        let created = server_command(&programs.join("initdb"))
            .current_dir(directory.path())
            .args(["-A", "trust", "-U", "saggar", "-E", "UTF8", "--locale=C", "--no-sync", "--no-instructions", "-D"])
            .arg(&data)
            .output()
            .unwrap();
        assert!(created.status.success(), "{}", String::from_utf8_lossy(&created.stderr));
        // The port is free when it is chosen. If another process takes it before the server does, the server ends.
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let process = Mutex::new(spawn(&programs, directory.path(), port));
        let server = TestServer { directory, programs, port, process, databases: Mutex::new(0) };
        server.wait_until_ready();
        Some(server)
    }

    pub(in crate::records) fn port(&self) -> u16 {
        self.port
    }

    /// Returns the URL of a new database.
    pub(in crate::records) fn create_database(&self) -> String {
        let mut databases = self.databases.lock();
        *databases += 1;
        let name = format!("test{databases}");
        self.execute(&format!("CREATE DATABASE {name}"));
        format!("postgres://saggar@127.0.0.1:{}/{name}", self.port)
    }

    /// Returns the URL of a database through another port.
    pub(in crate::records) fn url_through(&self, url: &str, port: u16) -> String {
        url.replace(&format!(":{}/", self.port), &format!(":{port}/"))
    }

    /// Opens records in a new database.
    pub(in crate::records) fn open(&self) -> PostgresRecords {
        PostgresRecords::open(&self.create_database()).unwrap()
    }

    /// Kills all processes of the server at once, and starts it again.
    pub(in crate::records) fn kill_and_restart(&self) {
        let mut process = self.process.lock();
        kill_group(&mut process);
        *process = spawn(&self.programs, self.directory.path(), self.port);
        drop(process);
        self.wait_until_ready();
    }

    pub(in crate::records) fn execute(&self, statement: &str) {
        let mut command = self.client();
        let output = command.args(["-c", statement]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    fn client(&self) -> Command {
        let mut command = Command::new(self.programs.join("psql"));
        command.args(["-X", "-q", "-h", "127.0.0.1", "-U", "saggar", "-d", "postgres", "-p", &self.port.to_string()]);
        command
    }

    /// Waits until the server answers.
    fn wait_until_ready(&self) {
        let mut message = String::new();
        for _ in 0..600 {
            let output = self.client().args(["-c", "SELECT 1"]).output().unwrap();
            if output.status.success() {
                return;
            }
            message = String::from_utf8_lossy(&output.stderr).into_owned();
            let ended = self.process.lock().try_wait().unwrap();
            if let Some(status) = ended {
                let log = std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default();
                let _ = write!(message, "the server ended with {status}: {log}");
                break;
            }
            // The client has no means to wait for a server that starts.
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        panic!("PostgreSQL does not start: {message}");
    }
}

/// Starts the server in a separate process group.
fn spawn(programs: &Path, directory: &Path, port: u16) -> Child {
    // A killed server leaves it.
    let _ = std::fs::remove_file(directory.join("data/postmaster.pid"));
    let log = std::fs::File::create(directory.join("log")).unwrap();
    server_command(&programs.join("postgres"))
        .current_dir(directory)
        .arg("-D")
        .arg(directory.join("data"))
        .args(["-p", &port.to_string(), "-k", ""])
        .args(["-c", "listen_addresses=127.0.0.1", "-c", "fsync=off", "-c", "deadlock_timeout=100ms"])
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .process_group(0)
        .spawn()
        .unwrap()
}

/// Kills the server with its children, each of which is a separate group.
fn kill_group(process: &mut Child) {
    let pid = process.id();
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    process.kill().unwrap();
    for child in children.split_whitespace().filter_map(|child| rustix::process::Pid::from_raw(child.parse().ok()?)) {
        let _ = rustix::process::kill_process(child, rustix::process::Signal::KILL);
    }
    process.wait().unwrap();
}

impl Drop for TestServer {
    fn drop(&mut self) {
        kill_group(self.process.get_mut());
    }
}

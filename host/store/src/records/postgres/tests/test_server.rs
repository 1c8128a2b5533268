//! A PostgreSQL server for tests, in a temporary directory, which starts in half a second. This file needs nothing else of
//! the crate: the tests of whole servers use it too.

use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, geteuid, kill_process};
use tempfile::TempDir;

/// A server that ends when this value is dropped, also if the test panics, and with the test's process.
#[derive(Debug)]
pub struct TestServer {
    directory: TempDir,
    programs: PathBuf,
    port: u16,
    process: Mutex<Child>,
    databases: Mutex<u32>,
}

/// Returns the directory of the server's programs, of the newest version.
fn find_programs() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let programs = versions.filter_map(|entry| Some(entry.ok()?.path().join("bin")));
    programs.filter(|bin| bin.join("initdb").exists() && bin.join("postgres").exists()).max()
}

/// Returns a command that runs a program of the server. The server refuses to run as root.
fn server_command(program: &Path) -> Command {
    if !geteuid().is_root() {
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
    pub fn start() -> Option<TestServer> {
        let Some(programs) = find_programs() else {
            let is_required = ["REQUIRE_ALL", "REQUIRE_POSTGRES"].iter().any(|name| std::env::var_os(name).is_some());
            assert!(!is_required, "PostgreSQL is not installed, and REQUIRE_ALL or REQUIRE_POSTGRES is set");
            #[allow(clippy::print_stdout, reason = "a skipped test says so")]
            {
                println!("SKIP: PostgreSQL is not installed");
            }
            return None;
        };
        let directory = tempfile::tempdir().expect("a directory for temporary files");
        if geteuid().is_root() {
            // The directory of the server has to belong to the user `postgres`.
            run(Command::new("chown").arg("postgres:").arg(directory.path()));
        }
        let mut create = server_command(&programs.join("initdb"));
        create.args([
            "-A",
            "trust",
            "-U",
            "saggar",
            "-E",
            "UTF8",
            "--locale=C",
            "--no-sync",
            "--no-instructions",
            "-D",
        ]);
        run(create.arg(directory.path().join("data")).current_dir(directory.path()));
        // The port is free when it is chosen. If another process takes it before the server does, the server ends.
        let port = TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr()).expect("a free port").port();
        let process = Mutex::new(spawn(&programs, directory.path(), port));
        let server = TestServer { directory, programs, port, process, databases: Mutex::new(0) };
        server.wait_until_ready();
        Some(server)
    }

    /// Returns the port of this machine that the server listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the URL of a new database.
    pub fn create_database(&self) -> String {
        let name = {
            let mut databases = lock(&self.databases);
            *databases += 1;
            format!("test{databases}")
        };
        self.execute(&format!("CREATE DATABASE {name}"));
        format!("postgres://saggar@127.0.0.1:{}/{name}", self.port)
    }

    /// Returns the URL of a database through another port.
    pub fn url_through(&self, url: &str, port: u16) -> String {
        url.replace(&format!(":{}/", self.port), &format!(":{port}/"))
    }

    /// Runs a statement in the database `postgres`.
    ///
    /// # Panics
    /// If the server refuses it.
    pub fn execute(&self, statement: &str) {
        run(self.client().args(["-c", statement]));
    }

    /// Kills all processes of the server at once, and starts it again.
    pub fn kill_and_restart(&self) {
        self.stop();
        self.start_again();
    }

    /// Kills all processes of the server at once.
    pub fn stop(&self) {
        kill_group(&mut lock(&self.process));
    }

    /// Starts the server that was stopped, with the same data and port.
    pub fn start_again(&self) {
        *lock(&self.process) = spawn(&self.programs, self.directory.path(), self.port);
        self.wait_until_ready();
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
            let answer = output_of(self.client().args(["-c", "SELECT 1"]));
            if answer.status.success() {
                return;
            }
            message = String::from_utf8_lossy(&answer.stderr).into_owned();
            if let Some(status) = self.ended() {
                let log = std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default();
                message += &format!("the server ended with {status}: {log}");
                break;
            }
            // The client has no means to wait for a server that starts.
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("PostgreSQL does not start: {message}");
    }

    fn ended(&self) -> Option<ExitStatus> {
        lock(&self.process).try_wait().expect("a child process")
    }
}

/// A panic of a test leaves the value as it is.
fn lock<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

fn output_of(command: &mut Command) -> Output {
    command.output().expect("the program exists")
}

fn run(command: &mut Command) {
    let output = output_of(command);
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Starts the server in a separate process group.
fn spawn(programs: &Path, directory: &Path, port: u16) -> Child {
    // A killed server leaves it.
    let _ = std::fs::remove_file(directory.join("data/postmaster.pid"));
    let log = std::fs::File::create(directory.join("log")).expect("the directory is writable");
    let mut command = server_command(&programs.join("postgres"));
    command.current_dir(directory).arg("-D").arg(directory.join("data")).args(["-p", &port.to_string(), "-k", ""]);
    command.args(["-c", "listen_addresses=127.0.0.1", "-c", "fsync=off", "-c", "deadlock_timeout=100ms"]);
    command.stdin(Stdio::null()).stdout(log.try_clone().expect("a file")).stderr(log).process_group(0);
    command.spawn().expect("the server's program starts")
}

/// Kills the server with its children, each of which is a separate group.
fn kill_group(process: &mut Child) {
    let pid = process.id();
    let send = |signal: Signal, pid: u32| kill_process(Pid::from_raw(i32::try_from(pid).ok()?)?, signal).ok();
    // While it is stopped, it starts no others.
    send(Signal::STOP, pid);
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let children: Vec<u32> = children.split_whitespace().filter_map(|child| child.parse().ok()).collect();
    for child in &children {
        send(Signal::KILL, *child);
    }
    let _ = process.kill();
    let _ = process.wait();
    // The next server refuses to start while one of them uses the shared memory.
    while children.iter().any(|child| Path::new(&format!("/proc/{child}")).exists()) {
        std::thread::yield_now();
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.stop();
    }
}

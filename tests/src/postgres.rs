//! A PostgreSQL server for servers under test, in a temporary directory.

use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// A server that ends when this value is dropped, also if the test panics.
#[derive(Debug)]
pub struct PostgresServer {
    directory: TempDir,
    programs: PathBuf,
    port: u16,
    process: Child,
}

/// Returns the directory of the server's programs, of the newest version.
fn find_programs() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let programs = versions.filter_map(|entry| Some(entry.ok()?.path().join("bin")));
    programs.filter(|bin| bin.join("initdb").exists() && bin.join("postgres").exists()).max()
}

/// Returns a command that runs a program of the server, which refuses to run as root.
fn server_command(program: &Path) -> Command {
    if !rustix::process::geteuid().is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups", "--pdeathsig=KILL", "--"]).arg(program);
    command
}

impl PostgresServer {
    /// Starts a server with the database `saggar`, or prints SKIP and returns `None` if PostgreSQL is not installed.
    ///
    /// # Panics
    /// If it is not installed and `REQUIRE_ALL` or `REQUIRE_POSTGRES` is set, or does not start.
    pub fn start() -> Option<PostgresServer> {
        let Some(programs) = find_programs() else {
            let is_required = ["REQUIRE_ALL", "REQUIRE_POSTGRES"].iter().any(|name| std::env::var_os(name).is_some());
            assert!(!is_required, "PostgreSQL is not installed, and REQUIRE_ALL or REQUIRE_POSTGRES is set");
            #[expect(clippy::print_stdout, reason = "a skipped test says so")]
            {
                println!("SKIP: PostgreSQL is not installed");
            }
            return None;
        };
        let directory = tempfile::tempdir().expect("a directory for temporary files");
        if rustix::process::geteuid().is_root() {
            run(Command::new("chown").arg("postgres:").arg(directory.path()));
        }
        let mut create = server_command(&programs.join("initdb"));
        create.args(["-A", "trust", "-U", "saggar", "-E", "UTF8", "--locale=C", "--no-sync", "-D"]);
        run(create.arg(directory.path().join("data")).current_dir(directory.path()));
        // The port is free when it is chosen. If another process takes it before the server does, the server ends.
        let port = TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr()).expect("a free port").port();
        let process = spawn(&programs, directory.path(), port);
        let server = PostgresServer { directory, programs, port, process };
        server.wait_until_ready();
        run(server.client().args(["-c", "CREATE DATABASE saggar"]));
        Some(server)
    }

    /// Returns the URL of the database, with a password that the server does not ask for.
    pub fn url(&self) -> String {
        format!("postgres://saggar:hunter2@127.0.0.1:{}/saggar", self.port)
    }

    /// Kills all processes of the server at once, and starts it again.
    pub fn kill_and_restart(&mut self) {
        self.stop();
        self.start_again();
    }

    /// Starts the server that was stopped, with the same data and port.
    pub fn start_again(&mut self) {
        self.process = spawn(&self.programs, self.directory.path(), self.port);
        self.wait_until_ready();
    }

    fn client(&self) -> Command {
        let mut command = Command::new(self.programs.join("psql"));
        command.args(["-X", "-q", "-h", "127.0.0.1", "-U", "saggar", "-d", "postgres", "-p", &self.port.to_string()]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    fn wait_until_ready(&self) {
        for _ in 0..600 {
            if self.client().args(["-c", "SELECT 1"]).status().is_ok_and(|status| status.success()) {
                return;
            }
            // The client has no means to wait for a server that starts.
            std::thread::sleep(Duration::from_millis(50));
        }
        let log = std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default();
        panic!("PostgreSQL does not start: {log}");
    }

    /// Kills all processes of the server at once.
    pub fn stop(&mut self) {
        // Each process of the server is a separate group. While it is stopped it starts no others.
        let send = |signal: Signal, pid: u32| {
            let pid = Pid::from_raw(i32::try_from(pid).ok()?)?;
            kill_process(pid, signal).ok()
        };
        send(Signal::STOP, self.process.id());
        let children = crate::child_processes(self.process.id());
        for child in &children {
            send(Signal::KILL, *child);
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
        // The next server refuses to start while one of them uses the shared memory.
        while children.iter().any(|child| Path::new(&format!("/proc/{child}")).exists()) {
            std::thread::yield_now();
        }
    }
}

fn run(command: &mut Command) {
    let status = command.stdout(Stdio::null()).status().expect("the program exists");
    assert!(status.success(), "{command:?}: {status}");
}

/// Starts the server in a separate process group.
fn spawn(programs: &Path, directory: &Path, port: u16) -> Child {
    // A killed server leaves it.
    let _ = std::fs::remove_file(directory.join("data/postmaster.pid"));
    let log = std::fs::File::create(directory.join("log")).expect("the directory is writable");
    let mut command = server_command(&programs.join("postgres"));
    command.current_dir(directory).arg("-D").arg(directory.join("data"));
    command.args(["-p", &port.to_string(), "-k", "", "-c", "listen_addresses=127.0.0.1", "-c", "fsync=off"]);
    command.stdin(Stdio::null()).stdout(log.try_clone().expect("a file")).stderr(log).process_group(0);
    command.spawn().expect("the server's program starts")
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        self.stop();
    }
}

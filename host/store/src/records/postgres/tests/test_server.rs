//! A PostgreSQL server for tests, in a temporary directory, which starts in half a second. This file needs nothing else of
//! the crate: the tests of whole servers use it too.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
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
    options: TestServerOptions,
    process: Mutex<Child>,
    databases: Mutex<u32>,
}

/// How a server differs from the usual one.
#[derive(Clone, Debug, Default)]
pub struct TestServerOptions {
    /// A certificate and its key in PEM form: the server accepts encrypted connections.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// Mebibytes of a separate disk for the tables of databases, which only the server sees. Needs root's rights.
    pub small_disk_mib: Option<u32>,
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
        TestServer::start_with(TestServerOptions::default())
    }

    /// Starts a server as [`TestServer::start`] does, with these options.
    ///
    /// # Panics
    /// The same.
    pub fn start_with(options: TestServerOptions) -> Option<TestServer> {
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
        if let Some((certificate, key)) = &options.certificate {
            for (from, to) in [(certificate, "server.crt"), (key, "server.key")] {
                let to = directory.path().join(to);
                std::fs::copy(from, &to).expect("the certificate exists");
                std::fs::set_permissions(&to, std::fs::Permissions::from_mode(0o600)).expect("it is ours");
            }
        }
        std::fs::create_dir(directory.path().join("small")).expect("the directory is writable");
        if geteuid().is_root() {
            // The directory of the server has to belong to the user `postgres`.
            run(Command::new("chown").args(["-R", "postgres:"]).arg(directory.path()));
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
        let process = Mutex::new(spawn(&programs, directory.path(), port, &options));
        let server = TestServer { directory, programs, port, options, process, databases: Mutex::new(0) };
        server.wait_until_ready();
        if server.options.small_disk_mib.is_some() {
            server.execute(&format!("CREATE TABLESPACE small LOCATION '{}'", server.small_disk()));
        }
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
        let place = if self.options.small_disk_mib.is_some() { " TABLESPACE small" } else { "" };
        self.execute(&format!("CREATE DATABASE {name}{place}"));
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
        *lock(&self.process) = spawn(&self.programs, self.directory.path(), self.port, &self.options);
        self.wait_until_ready();
    }

    /// Stops all processes of the server, which keep their connections.
    pub fn pause(&self) {
        self.signal_all(Signal::STOP);
    }

    /// Lets the processes go on.
    pub fn resume(&self) {
        self.signal_all(Signal::CONT);
    }

    /// Sends a signal to the server and then to its children: a server that is stopped starts no others.
    fn signal_all(&self, signal: Signal) {
        let pid = lock(&self.process).id();
        send(signal, pid);
        children_of(pid).into_iter().for_each(|child| send(signal, child));
    }

    fn small_disk(&self) -> String {
        self.directory.path().join("small").display().to_string()
    }

    /// Fills the small disk.
    pub fn fill_small_disk(&self) {
        let filler = format!("dd if=/dev/zero of={}/filler bs=64k 2>/dev/null || true", self.small_disk());
        self.execute(&format!("COPY (SELECT 1) TO PROGRAM '{filler}'"));
    }

    /// Frees what [`fill_small_disk`](Self::fill_small_disk) has filled.
    pub fn free_small_disk(&self) {
        self.execute(&format!("COPY (SELECT 1) TO PROGRAM 'rm {}/filler'", self.small_disk()));
    }

    /// Returns the first line of a query's result.
    ///
    /// # Panics
    /// If the server refuses it.
    pub fn query(&self, statement: &str) -> String {
        let output = output_of(self.client().args(["-A", "-t", "-c", statement]));
        assert!(output.status.success(), "{statement}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or_default().to_owned()
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
fn spawn(programs: &Path, directory: &Path, port: u16, options: &TestServerOptions) -> Child {
    // A killed server leaves it.
    let _ = std::fs::remove_file(directory.join("data/postmaster.pid"));
    let log = std::fs::File::create(directory.join("log")).expect("the directory is writable");
    let program = programs.join("postgres");
    let mut command = match options.small_disk_mib {
        None => server_command(&program),
        Some(mib) => on_small_disk(&program, mib),
    };
    command.current_dir(directory).arg("-D").arg(directory.join("data")).args(["-p", &port.to_string(), "-k", ""]);
    // The second address is not that of this machine for the client, which encrypts connections to others.
    command.args(["-c", "listen_addresses=127.0.0.1,127.0.0.2", "-c", "fsync=off", "-c", "deadlock_timeout=100ms"]);
    if options.certificate.is_some() {
        let file = |name: &str| directory.join(name).display().to_string();
        command.args(["-c", "ssl=on", "-c", &format!("ssl_cert_file={}", file("server.crt"))]);
        command.args(["-c", &format!("ssl_key_file={}", file("server.key"))]);
    }
    command.stdin(Stdio::null()).stdout(log.try_clone().expect("a file")).stderr(log).process_group(0);
    command.spawn().expect("the server's program starts")
}

/// Returns a command that runs a program of the server in a mount namespace with a small disk in the directory `small`. It
/// keeps the process's number.
fn on_small_disk(program: &Path, mib: u32) -> Command {
    let mut command = Command::new("unshare");
    let mount = format!("mount -t tmpfs -o size={mib}m,mode=700 tmpfs small && chown postgres: small");
    let start = "exec setpriv --reuid=postgres --regid=postgres --clear-groups --pdeathsig=KILL -- \"$0\" \"$@\"";
    command.args(["--mount", "sh", "-euc", &format!("{mount} && {start}")]).arg(program);
    command
}

fn send(signal: Signal, pid: u32) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        // It can have ended.
        let _ = kill_process(pid, signal);
    }
}

fn children_of(pid: u32) -> Vec<u32> {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    children.split_whitespace().filter_map(|child| child.parse().ok()).collect()
}

/// Kills the server with its children, each of which is a separate group.
fn kill_group(process: &mut Child) {
    let pid = process.id();
    // While it is stopped, it starts no others.
    send(Signal::STOP, pid);
    let children = children_of(pid);
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

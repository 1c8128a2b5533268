//! Other servers over onnxruntime with the same network, from PyPI, in a virtual environment with pinned versions.
//!
//! The environment is created once, under the target directory, and again if `peers/requirements.txt` changes.

use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use saggar_tests::root;

/// Time limit for a peer's first response.
const START_MAX: Duration = Duration::from_secs(60);

/// A virtual environment with the packages that peers need.
#[derive(Debug)]
pub(crate) struct PeerEnvironment(PathBuf);

impl PeerEnvironment {
    /// Opens the environment and creates it if it does not exist.
    ///
    /// # Errors
    /// Returns why it cannot be created, such as a missing Python or network.
    pub(crate) fn open() -> Result<PeerEnvironment, String> {
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
        let (dir, wanted) = (target.join("peers"), sources().join("requirements.txt"));
        let made_of = dir.join("requirements.txt");
        if std::fs::read(&made_of).ok() != std::fs::read(&wanted).ok() {
            println!("making {} from {}", dir.display(), wanted.display());
            let _ = std::fs::remove_dir_all(&dir);
            run_checked(Command::new("python3").args(["-m", "venv"]).arg(&dir))?;
            let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--requirement"];
            run_checked(Command::new(dir.join("bin/python")).args(pip).arg(&wanted))?;
            std::fs::copy(&wanted, &made_of).map_err(|error| error.to_string())?;
        }
        Ok(PeerEnvironment(dir))
    }

    /// Writes the network of a published version of `lenet` as an ONNX file.
    ///
    /// # Errors
    /// Returns Python's error.
    pub(crate) fn export_onnx(&self, version: &Path, output: &Path) -> Result<(), String> {
        run_checked(
            Command::new(self.0.join("bin/python")).arg(sources().join("lenet_onnx.py")).arg(version).arg(output),
        )
    }

    /// Returns a command for a program of the environment.
    fn program(&self, name: &str) -> Command {
        let mut command = Command::new(self.0.join("bin").join(name));
        command.current_dir(sources()).env("PYTHONDONTWRITEBYTECODE", "1").stdin(Stdio::null());
        command
    }
}

fn sources() -> PathBuf {
    root().join("tests/benches/peers")
}

fn run_checked(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    Err(format!("{command:?}: {}", errors.lines().last().unwrap_or("no word")))
}

/// The kind of a server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum PeerKind {
    Flask,
    FastApi,
    /// mosec with batches of at most this size.
    Mosec {
        batch: usize,
    },
}

impl PeerKind {
    pub(crate) fn name(self) -> String {
        match self {
            PeerKind::Flask => "Flask + gunicorn".to_owned(),
            PeerKind::FastApi => "FastAPI, tuned".to_owned(),
            PeerKind::Mosec { batch: 1 } => "mosec, no batching".to_owned(),
            PeerKind::Mosec { batch } => format!("mosec, batch {batch}"),
        }
    }

    fn command(self, environment: &PeerEnvironment, port: u16, workers: usize) -> Command {
        let (workers, port) = (workers.to_string(), port.to_string());
        let mut command = environment.program(match self {
            PeerKind::Flask => "gunicorn",
            PeerKind::FastApi => "uvicorn",
            PeerKind::Mosec { .. } => "python",
        });
        match self {
            PeerKind::Flask => {
                let address = format!("127.0.0.1:{port}");
                // gunicorn's default worker closes the connection after each response, while the other servers keep it
                // alive.
                command.args(["--workers", &workers, "--worker-class", "gthread", "--threads", "4"]);
                command.args(["--keep-alive", "60", "--bind", &address, "--log-level", "error", "flask_app:app"]);
            }
            PeerKind::FastApi => {
                command.args(["--workers", &workers, "--port", &port, "--loop", "uvloop", "--http", "httptools"]);
                command.args(["--no-access-log", "--log-level", "error", "fastapi_app:app"]);
            }
            PeerKind::Mosec { batch } => {
                command.args(["mosec_app.py", "--address", "127.0.0.1", "--port", &port]);
                command.env("PEER_WORKERS", workers).env("PEER_BATCH", batch.to_string());
            }
        }
        command
    }
}

/// A running peer; dropping it ends its processes.
#[derive(Debug)]
pub(crate) struct PeerServer {
    pub(crate) kind: PeerKind,
    child: Child,
    port: u16,
    times: tempfile::TempDir,
}

impl PeerServer {
    /// Starts a peer with `model`, an ONNX file, in `workers` processes, without waiting for it to be ready.
    pub(crate) fn spawn(environment: &PeerEnvironment, kind: PeerKind, model: &Path, workers: usize) -> PeerServer {
        let (port, times) = (free_port(), tempfile::tempdir().unwrap());
        let mut command = kind.command(environment, port, workers);
        command.env("PEER_MODEL", model).env("PEER_TIMES", times.path());
        // A separate process group, so that it ends with all its workers.
        command.process_group(0).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        PeerServer { kind, child, port, times }
    }

    /// Starts a peer and waits until it responds.
    ///
    /// # Errors
    /// Returns an error if it does not respond in time.
    pub(crate) fn start(
        environment: &PeerEnvironment,
        kind: PeerKind,
        model: &Path,
        body: &str,
    ) -> Result<PeerServer, String> {
        let peer = PeerServer::spawn(environment, kind, model, 2);
        let began = Instant::now();
        while !crate::client::post_once(peer.port, "/predict", body) {
            if began.elapsed() > START_MAX {
                return Err(format!("{} never answered", kind.name()));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(peer)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/predict", self.port)
    }

    /// Returns the number of items that its processes have computed so far, and onnxruntime's seconds for them.
    pub(crate) fn compute_totals(&self) -> (f64, f64) {
        let mut sum = (0.0, 0.0);
        for entry in std::fs::read_dir(self.times.path()).unwrap().flatten() {
            let text = std::fs::read_to_string(entry.path()).unwrap_or_default();
            if let Some((items, seconds)) = text.split_once(' ') {
                sum.0 += items.parse().unwrap_or(0.0);
                sum.1 += seconds.parse().unwrap_or(0.0);
            }
        }
        sum
    }
}

impl Drop for PeerServer {
    fn drop(&mut self) {
        let group = format!("-{}", self.child.id());
        let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
        let _ = self.child.wait();
    }
}

/// Returns a port that is currently free. If another process takes it first, the peer does not start.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

//! Runs a server of the real binary in a separate process.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use ureq::Agent;

use crate::guests::lenet;
use crate::http::{HttpPayload, HttpResponse, http_agent, request_as};
use crate::process::wait_for_end;
use crate::root;

/// The time limit for any wait before a test fails.
const WAIT_TIMEOUT: Duration = Duration::from_secs(300);

/// A running server. Dropping it kills the server and its workers.
#[derive(Debug)]
pub struct ServerProcess {
    child: Child,
    url: String,
    home: PathBuf,
    agent: Agent,
    key: Option<String>,
}

/// Returns the binary under test: `SAGGAR_BIN`, or the debug build.
pub fn binary() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    let path = std::env::var_os("SAGGAR_BIN").map_or_else(|| target.join("debug/saggar"), PathBuf::from);
    assert!(path.is_file(), "{} is missing: `cargo build -p saggar` builds it", path.display());
    path
}

impl ServerProcess {
    /// Starts a server on a free port with its state in `home`.
    pub fn start(home: &Path) -> ServerProcess {
        ServerProcess::start_with(home, &[])
    }

    /// Starts a server with its state in a new directory.
    pub fn start_in_temp_dir() -> (tempfile::TempDir, ServerProcess) {
        let home = tempfile::tempdir().expect("a directory for temporary files");
        let server = ServerProcess::start(home.path());
        (home, server)
    }

    /// Starts a server with further arguments.
    pub fn start_with(home: &Path, arguments: &[&str]) -> ServerProcess {
        let mut command = Command::new(binary());
        command.args(["serve", "--addr", "127.0.0.1:0", "--device", "cpu", "--home"]).arg(home).args(arguments);
        ServerProcess::from_command(command, home)
    }

    /// Waits for the server that a command starts, with its log in `home`.
    pub fn from_command(mut command: Command, home: &Path) -> ServerProcess {
        let log = std::fs::OpenOptions::new().create(true).append(true).open(home.join("server.log"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log.expect("the home directory is writable"));
        let mut child = command.spawn().expect("the binary starts");
        let stdout = child.stdout.take().expect("a pipe");
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).expect("the server says its address");
        let url = line.trim().to_owned();
        let has_scheme = ["http://", "https://"].iter().any(|scheme| url.starts_with(scheme));
        assert!(has_scheme, "the server said {url:?}; its log: {}", log_tail(home));
        ServerProcess { child, url, home: home.to_owned(), agent: http_agent(), key: None }
    }

    /// Starts a server that serves version 1 of `digits`, trained for one epoch on the dataset of that name.
    pub fn start_with_digits(home: &Path, arguments: &[&str]) -> ServerProcess {
        let server = ServerProcess::start_with(home, arguments);
        server.push_digits();
        let plugin = lenet();
        let plugin = plugin.to_str().expect("a path that is text");
        server.saggar_ok(&["run", plugin, "--data", "digits", "--wait", "--", "epochs=1"]);
        server.wait_for_version("digits", 1);
        server
    }

    /// Stores the digits data set as the next version of the dataset `digits`.
    pub fn push_digits(&self) {
        self.saggar_ok(&["data", "push", "examples/digits", "--name", "digits"]);
    }

    /// Returns the server with a key that requests and commands use by default.
    #[must_use]
    pub fn with_key(mut self, key: &str) -> ServerProcess {
        self.key = Some(key.to_owned());
        self
    }

    /// Returns the server's address.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns its state directory.
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// Returns its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Makes a request and returns the response of any status.
    pub fn request(&self, method: &str, path: &str, payload: HttpPayload<'_>) -> HttpResponse {
        self.request_as(self.key.as_deref(), method, path, payload)
    }

    /// Makes a request as [`ServerProcess::request`] does, with this key, or without one.
    pub fn request_as(&self, key: Option<&str>, method: &str, path: &str, payload: HttpPayload<'_>) -> HttpResponse {
        let url = format!("{}{path}", self.url);
        request_as(&self.agent, key, method, &url, payload)
            .unwrap_or_else(|error| panic!("{method} {path}: {error}; the log: {}", log_tail(&self.home)))
    }

    /// Makes a request as [`ServerProcess::request`] does, to a server that can end before it responds.
    pub fn try_request(&self, method: &str, path: &str, payload: HttpPayload<'_>) -> Option<HttpResponse> {
        request_as(&self.agent, self.key.as_deref(), method, &format!("{}{path}", self.url), payload).ok()
    }

    /// Gets JSON, and expects success.
    pub fn get(&self, path: &str) -> Value {
        let answer = self.request("GET", path, HttpPayload::Nothing);
        assert_eq!(answer.status, 200, "GET {path}: {}", answer.text);
        answer.json()
    }

    /// Returns the page for Prometheus.
    pub fn metrics(&self) -> String {
        self.request("GET", "/metrics", HttpPayload::Nothing).text
    }

    /// Returns the value of a series of `/metrics`, named with all its labels, or `None` if it does not exist.
    pub fn metric(&self, series: &str) -> Option<f64> {
        series_value(&self.metrics(), series)
    }

    /// Posts JSON, and expects success.
    pub fn post(&self, path: &str, body: &Value) -> Value {
        let answer = self.request("POST", path, HttpPayload::Json(body));
        assert!((200..300).contains(&answer.status), "POST {path}: {} {}", answer.status, answer.text);
        answer.json()
    }

    /// Returns whether the server has a Vulkan adapter. Prints SKIP otherwise; with `REQUIRE_GPU` panics instead.
    pub fn has_vulkan(&self) -> bool {
        let devices = self.get("/api/v1/devices");
        let has = devices["devices"].as_array().is_some_and(|all| all.iter().any(|one| one["backend"] == "vulkan"));
        if !has {
            assert!(std::env::var_os("REQUIRE_GPU").is_none(), "no Vulkan adapter, and REQUIRE_GPU is set");
            #[expect(clippy::print_stdout, reason = "a skipped test says so")]
            {
                println!("SKIP: no Vulkan adapter is here");
            }
        }
        has
    }

    /// Uploads a component and returns its digest.
    pub fn upload(&self, wasm: &Path) -> String {
        let bytes = std::fs::read(wasm).expect("the component is there");
        let answer = self.request("POST", "/api/v1/plugins", HttpPayload::Bytes("application/wasm", &bytes));
        assert_eq!(answer.status, 200, "{}", answer.text);
        answer.json()["digest"].as_str().expect("a digest").to_owned()
    }

    /// Returns the current state of a job.
    pub fn job(&self, name: &str) -> Value {
        self.get(&format!("/api/v1/jobs/{name}"))
    }

    /// Waits until a job is running and has done this number of steps.
    pub fn wait_for_step(&self, name: &str, step: u64) -> Value {
        self.wait_for(name, |server| {
            let job = server.job(name);
            assert!(job["finished_ms"].is_null(), "over before step {step}: {job}");
            (job["state"] == "RUNNING" && job["step"].as_u64() >= Some(step)).then_some(job)
        })
    }

    /// Runs a command of the binary against this server.
    pub fn saggar(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("the binary starts")
    }

    /// Returns a command that connects to this server.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(binary());
        command.args(arguments).env("SAGGAR_HOST", &self.url).current_dir(root()).stdin(Stdio::null());
        if let Some(key) = &self.key {
            command.env("SAGGAR_API_KEY", key);
        }
        command
    }

    /// Runs a command, expects success, and returns what it printed.
    pub fn saggar_ok(&self, arguments: &[&str]) -> String {
        let output = self.saggar(arguments);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "saggar {arguments:?}: {}\n{errors}\n{}", output.status, log_tail(&self.home));
        String::from_utf8(output.stdout).expect("text")
    }

    /// Waits until `done` returns a value.
    pub fn wait_for<T>(&self, what: &str, mut done: impl FnMut(&ServerProcess) -> Option<T>) -> T {
        let began = Instant::now();
        loop {
            if let Some(value) = done(self) {
                return value;
            }
            assert!(began.elapsed() < WAIT_TIMEOUT, "timed out waiting for {what}; the log: {}", log_tail(&self.home));
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until the job has finished and returns it.
    pub fn wait_for_job(&self, job: &str) -> Value {
        self.wait_for(job, |server| {
            let job = server.get(&format!("/api/v1/jobs/{job}"));
            let over = matches!(job["state"].as_str(), Some("SUCCEEDED" | "FAILED" | "CANCELLED" | "TIMED_OUT"));
            over.then_some(job)
        })
    }

    /// Waits until the server's log contains `words`.
    pub fn wait_for_log(&self, words: &str) {
        self.wait_for(words, |server| {
            let log = std::fs::read_to_string(server.home.join("server.log")).unwrap_or_default();
            log.contains(words).then_some(())
        });
    }

    /// Waits until the model serves this version.
    pub fn wait_for_version(&self, model: &str, version: u64) {
        self.wait_for("the version", |server| {
            let answer = server.request("GET", &format!("/api/v1/models/{model}"), HttpPayload::Nothing);
            (answer.json()["serving"].as_u64() == Some(version)).then_some(())
        });
    }

    /// Returns the existing checkpoints of a job, newest first: the step and the digest of each.
    pub fn checkpoints(&self, job: &str) -> Vec<(u64, String)> {
        let listed = self.get(&format!("/api/v1/jobs/{job}/checkpoints"));
        let one = |it: &Value| Some((it["step"].as_u64()?, it["digest"].as_str()?.to_owned()));
        listed["checkpoints"].as_array().and_then(|all| all.iter().map(one).collect()).expect("steps with digests")
    }

    /// Waits for the model's first version and returns the digest of its weights.
    pub fn weights_digest(&self, model: &str) -> String {
        self.wait_for(model, |server| {
            let answer = server.request("GET", &format!("/api/v1/models/{model}"), HttpPayload::Nothing);
            answer.json()["versions"][0]["weights"].as_str().map(str::to_owned)
        })
    }

    /// Sends a signal, such as `-TERM`.
    pub fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.pid().to_string()]).status();
        assert!(sent.expect("a system with kill").success(), "{signal}: it does not run");
    }

    /// Waits at most this long for the process to end, and returns its exit status.
    ///
    /// # Errors
    /// Returns the end of its log if it did not end in time.
    pub fn wait_for_exit(mut self, time: Duration) -> Result<ExitStatus, String> {
        wait_for_end(&mut self.child, time).ok_or_else(|| log_tail(&self.home))
    }

    /// Sends SIGKILL and waits until the process has ended.
    pub fn kill_and_wait(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it is ours");
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Copies a version of a model as a careful user would: the manifest last.
pub fn copy_version(model: &Path, from: u64, to: u64) {
    let (from, to) = (model.join(from.to_string()), model.join(to.to_string()));
    std::fs::create_dir(&to).expect("a version that is not there yet");
    for file in ["plugin.wasm", "weights.safetensors", "manifest.json"] {
        std::fs::copy(from.join(file), to.join(file)).expect("a whole version to copy");
    }
}

/// Returns the value of a series, named with all its labels, in a Prometheus page, or `None` if it does not exist.
pub fn series_value(page: &str, series: &str) -> Option<f64> {
    page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
}

fn log_tail(home: &Path) -> String {
    let log = std::fs::read_to_string(home.join("server.log")).unwrap_or_default();
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(30)..].join("\n")
}

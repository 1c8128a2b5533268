//! Notebooks of a server, used as a browser uses them.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::root;
use crate::server::ServerProcess;

/// A running notebook.
#[derive(Debug)]
pub struct RunningNotebook {
    /// The name of its job.
    pub job: String,
    /// The address of its page, with the token.
    pub url: String,
}

/// What a kernel answered to code.
#[derive(Debug)]
pub struct KernelAnswer {
    /// The kernel, which runs further code.
    pub kernel: String,
    /// What the code printed.
    pub printed: String,
    /// The title of the page.
    pub title: String,
}

impl RunningNotebook {
    /// Starts a notebook with further arguments, and waits until it answers.
    pub fn start(server: &ServerProcess, arguments: &[&str]) -> RunningNotebook {
        let words = [&["--json", "run", "--mode", "notebook"], arguments].concat();
        let document: Value = serde_json::from_str(&server.saggar_ok(&words)).expect("a document");
        let text = |name: &str| document[name].as_str().expect("text").to_owned();
        RunningNotebook { job: text("job"), url: text("url") }
    }

    /// Runs code in a kernel, or in a new one, over a separate connection.
    ///
    /// # Panics
    /// If the notebook cannot be reached, or the code raises an exception.
    pub fn execute(&self, kernel: Option<&str>, code: &str) -> KernelAnswer {
        let mut python = Command::new(jupyterlab_environment().join("bin/python"));
        let script = root().join("tests/clients/notebook_kernel.py");
        let output = python.arg("-B").arg(script).args([&self.url, kernel.unwrap_or("new"), code]).output();
        let output = output.expect("`.ci/setup test` installs JupyterLab");
        let problem = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{problem}");
        let answer: Value = serde_json::from_slice(&output.stdout).expect("a document");
        assert_eq!(answer["error"], Value::Null, "{answer}");
        let text = |name: &str| answer[name].as_str().unwrap_or_default().to_owned();
        KernelAnswer { kernel: text("kernel"), printed: text("printed"), title: text("title") }
    }

    /// Returns the path of its page, without the token.
    pub fn page(&self) -> String {
        format!("/notebooks/{}/lab", self.job)
    }
}

/// Returns the environment of JupyterLab, in the place of `saggar run --mode notebook`.
fn jupyterlab_environment() -> PathBuf {
    let requirements =
        std::fs::read_to_string(root().join("host/notebook/requirements.txt")).expect("the requirements");
    let version = requirements.lines().find_map(|line| line.strip_prefix("jupyterlab==")).expect("a version");
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.unwrap_or_else(|| PathBuf::from(std::env::var_os("HOME").expect("HOME is set")).join(".cache"));
    cache.join("saggar/tools").join(format!("jupyterlab-{version}"))
}

/// Returns the processes with the state directory `home` in their arguments, such as those of sandboxes.
pub fn sandbox_processes(home: &Path) -> Vec<u32> {
    let home = home.to_string_lossy().into_owned();
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").expect("a system with /proc").flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<u32>() else { continue };
        let Ok(words) = std::fs::read(entry.path().join("cmdline")) else { continue };
        if words.starts_with(b"bwrap") && String::from_utf8_lossy(&words).contains(&home) {
            found.push(pid);
        }
    }
    found
}

/// Returns the processes that have this text in their environment.
pub fn processes_with_variable(text: &str) -> Vec<u32> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").expect("a system with /proc").flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<u32>() else { continue };
        let variables = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        if variables.split(|byte| *byte == 0).any(|variable| variable == text.as_bytes()) {
            found.push(pid);
        }
    }
    found
}

//! The installation of JupyterLab for notebooks, with the real binary: what fails is explained, and what is stopped leaves
//! nothing.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use saggar_tests::notebooks::processes_with_variable;
use saggar_tests::{HttpPayload, ServerProcess, binary, root};

/// Starts a server whose notebooks are installed into `cache`, with these variables.
fn start(home: &Path, cache: &Path, variables: &[(&str, &str)]) -> ServerProcess {
    let mut command = Command::new(binary());
    command.args(["serve", "--addr", "127.0.0.1:0", "--device", "cpu", "--notebooks", "2", "--home"]);
    command.arg(home).env("XDG_CACHE_HOME", cache).envs(variables.iter().copied());
    ServerProcess::from_command(command, home)
}

/// Starts a notebook, which fails. Its reason and its log contain these words.
fn fails(server: &ServerProcess, job: &str, words: &[&str]) {
    let output = server.saggar(&["run", "--mode", "notebook"]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && errors.contains(&format!("saggar logs {job}")), "{errors}");
    let ended = server.job(job);
    assert_eq!((&ended["state"], &ended["reason"]), (&"FAILED".into(), &"NOTEBOOK_FAILED".into()), "{ended}");
    let (log, message) = (server.saggar_ok(&["logs", job]), ended["message"].as_str().unwrap());
    for word in words {
        assert!(log.contains(word), "{word}: {log}");
    }
    for word in &words[..words.len().min(3)] {
        assert!(message.contains(word), "{word}: {message}");
    }
}

/// Writes a program of `sh`.
fn write_script(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, format!("#!/bin/sh\n{text}")).unwrap();
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
}

/// The environments of a cache, complete or not.
fn environments(cache: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(cache.join("saggar/tools")).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| !name.ends_with(".lock")).collect()
}

fn jupyterlab_environment(cache: &Path) -> PathBuf {
    let requirements = std::fs::read_to_string(root().join("host/notebook/requirements.txt")).unwrap();
    let version = requirements.lines().find_map(|line| line.strip_prefix("jupyterlab==")).unwrap();
    cache.join(format!("saggar/tools/jupyterlab-{version}"))
}

#[test]
fn a_notebook_that_cannot_be_installed_says_why() {
    let home = tempfile::tempdir().unwrap();
    // No package index is reached.
    let cache = tempfile::tempdir().unwrap();
    let unreachable = [("PIP_INDEX_URL", "http://127.0.0.1:9/simple"), ("PIP_RETRIES", "0"), ("PIP_TIMEOUT", "1")];
    let server = start(home.path(), cache.path(), &unreachable);
    fails(&server, "notebook-1", &["pip could not install jupyterlab-", "No matching distribution", "pip config set"]);
    drop(server);
    // The package index has other versions only.
    let packages = tempfile::tempdir().unwrap();
    std::fs::write(packages.path().join("anyio-1.0.0-py3-none-any.whl"), "").unwrap();
    let others = [("PIP_NO_INDEX", "1"), ("PIP_FIND_LINKS", packages.path().to_str().unwrap())];
    let server = start(home.path(), cache.path(), &others);
    fails(&server, "notebook-2", &["(from versions: 1.0.0)", "the package index lacks this version", "SAGGAR_PYTHON"]);
    drop(server);
    // Python is missing.
    let server = start(home.path(), cache.path(), &[("SAGGAR_PYTHON", "/no/python")]);
    fails(&server, "notebook-3", &["/no/python", "apt install python3"]);
    drop(server);
    assert_eq!(environments(cache.path()), [""; 0], "nothing half-made is left");
    // JupyterLab ends at once.
    let script = "if [ \"$1\" = -I ]; then echo /usr; else echo it is broken >&2; exit 3; fi\n";
    write_script(&jupyterlab_environment(cache.path()).join("bin/python"), script);
    let server = start(home.path(), cache.path(), &[]);
    fails(&server, "notebook-4", &["JupyterLab ended (exit status: 3)", "above in the log", "log", "it is broken"]);
}

#[test]
fn a_full_disk_is_named_when_a_notebook_cannot_be_installed() {
    let (home, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    // A file system of 4 MiB, of which the server's sandbox alone knows.
    let mut command = Command::new("bwrap");
    command
        .args(["--die-with-parent", "--dev-bind", "/", "/", "--size", "4194304", "--tmpfs"])
        .arg(cache.path())
        .arg(binary());
    command.args(["serve", "--addr", "127.0.0.1:0", "--device", "cpu", "--notebooks", "1", "--home"]);
    command.arg(home.path()).env("XDG_CACHE_HOME", cache.path());
    let server = ServerProcess::from_command(command, home.path());
    let tools = cache.path().join("saggar/tools").display().to_string();
    fails(&server, "notebook-1", &["has no space left for jupyterlab-", &tools, "free space there"]);
}

/// A worker that does not end by itself is killed after 30 s, and leaves its processes and its draft.
#[test]
fn a_stop_ends_the_installation_of_a_notebook() {
    let (home, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let python = home.path().join("python");
    let began = home.path().join("began");
    let script = format!(
        "if [ \"$3\" != venv ]; then echo 3.13.0; exit; fi\nmkdir -p \"$4/bin\"\ntouch \"$4/bin/python\" {0}\nsleep 600 & \
         sleep 600\n",
        began.display()
    );
    write_script(&python, &script);
    let mark = format!("INSTALLATION={}", home.path().display());
    let variables = [("SAGGAR_PYTHON", python.to_str().unwrap()), ("INSTALLATION", home.path().to_str().unwrap())];
    let server = start(home.path(), cache.path(), &variables);
    let installing = |server: &ServerProcess| {
        let run = server.command(&["run", "--mode", "notebook"]).spawn().unwrap();
        server.wait_for("the installation", |_| began.exists().then_some(()));
        std::fs::remove_file(&began).unwrap();
        run
    };
    let sleeping = || {
        let processes = processes_with_variable(&mark).into_iter();
        let is_sleep = |process: &u32| {
            std::fs::read_to_string(format!("/proc/{process}/comm")).is_ok_and(|name| name.trim() == "sleep")
        };
        processes.filter(is_sleep).count()
    };
    let mut first = installing(&server);
    // Another notebook waits for the installation, and is stopped as well.
    let mut second = server.command(&["run", "--mode", "notebook"]).spawn().unwrap();
    server.wait_for("the second notebook", |server| {
        let job = server.request("GET", "/api/v1/jobs/notebook-2", HttpPayload::Nothing);
        (job.status == 200 && job.json()["state"] == "RUNNING").then_some(())
    });
    assert_eq!(sleeping(), 2);
    for job in ["notebook-2", "notebook-1"] {
        server.saggar_ok(&["stop", job]);
        let ended = server.wait_for_job(job);
        assert_eq!(ended["state"], "CANCELLED", "{ended}");
    }
    assert!(!first.wait().unwrap().success() && !second.wait().unwrap().success());
    assert_eq!((sleeping(), environments(cache.path())), (0, Vec::new()));
    // What the worker of a killed server has left is not taken for an environment.
    let mut third = installing(&server);
    assert_eq!(environments(cache.path()).len(), 1);
    server.kill_and_wait();
    third.wait().unwrap();
    let server = start(home.path(), cache.path(), &[("SAGGAR_PYTHON", "/no/python")]);
    let ended = server.wait_for_job("notebook-3");
    assert!(ended["message"].as_str().unwrap().contains("/no/python"), "{ended}");
    assert_eq!(environments(cache.path()), [""; 0]);
    for process in processes_with_variable(&mark) {
        let pid = rustix::process::Pid::from_raw(i32::try_from(process).unwrap()).unwrap();
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
}

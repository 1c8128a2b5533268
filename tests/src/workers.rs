//! Runs a worker that has joined a server, in a separate process.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use crate::process::wait_for_end;
use crate::{ServerProcess, binary};

/// A running worker. Dropping it kills the worker.
#[derive(Debug)]
pub struct WorkerProcess {
    child: Child,
    home: PathBuf,
}

impl WorkerProcess {
    /// Lets a worker with its state in `home` join a server, with the name of that directory. If `shared` is given, it is a
    /// state directory whose shared directories are linked.
    ///
    /// # Panics
    /// If the process does not start.
    pub fn join(server: &ServerProcess, key: &str, home: &Path, shared: Option<&Path>, arguments: &[&str]) -> Self {
        link_shared_directories(home, shared);
        WorkerProcess::spawn(join_command(server, key, home, "cpu", arguments), home)
    }

    /// Lets a worker join whose jobs compute on this device by default.
    ///
    /// # Panics
    /// If the process does not start.
    pub fn join_on(server: &ServerProcess, key: &str, home: &Path, shared: &Path, device: &str) -> Self {
        link_shared_directories(home, Some(shared));
        WorkerProcess::spawn(join_command(server, key, home, device, &[]), home)
    }

    /// Starts a worker's command, with its log in `home`.
    ///
    /// # Panics
    /// If the process does not start.
    pub fn spawn(mut command: Command, home: &Path) -> Self {
        let log = std::fs::OpenOptions::new().create(true).append(true).open(home.join("worker.log"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log.expect("the home directory is writable"));
        WorkerProcess { child: command.spawn().expect("the binary starts"), home: home.to_owned() }
    }

    /// Returns its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns its log so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.home.join("worker.log")).unwrap_or_default()
    }

    /// Sends a signal, such as `-TERM`.
    ///
    /// # Panics
    /// If it does not run.
    pub fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.pid().to_string()]).status();
        assert!(sent.expect("a system with kill").success(), "{signal}: {}", self.log());
    }

    /// Waits at most this long for the process to end, and returns its exit status.
    ///
    /// # Errors
    /// Returns its log if it did not end in time.
    ///
    /// # Panics
    /// If the process cannot be waited for.
    pub fn wait_for_exit(mut self, time: Duration) -> Result<ExitStatus, String> {
        wait_for_end(&mut self.child, time).ok_or_else(|| self.log())
    }

    /// Sends SIGKILL and waits until the process has ended.
    ///
    /// # Panics
    /// If it does not run.
    pub fn kill_and_wait(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it is ours");
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn join_command(server: &ServerProcess, key: &str, home: &Path, device: &str, arguments: &[&str]) -> Command {
    let name = home.file_name().and_then(|name| name.to_str()).expect("a name");
    let mut command = Command::new(binary());
    command.args(["worker", "join", server.url(), "--key", key, "--name", name, "--device", device, "--home"]);
    command.arg(home).args(arguments);
    command
}

/// Creates a state directory, and links the directories that hosts without a bucket share to those of another one.
///
/// # Panics
/// If a directory cannot be created.
pub fn link_shared_directories(home: &Path, shared: Option<&Path>) {
    std::fs::create_dir_all(home).expect("a directory");
    for directory in ["objects", "datasets", "jobs", "models"] {
        let (place, target) = (home.join(directory), shared.map(|shared| shared.join(directory)));
        if let Some(target) = target.filter(|_| !place.exists()) {
            symlink(target, place).expect("a link");
        }
    }
}

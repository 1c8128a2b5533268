//! A process of Python that installs packages. It is the leader of a process group, which ends when the installation is
//! stopped, and also when the process that started it ends for whatever reason: its standard input is closed then.

use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};

/// The time between two looks at the process.
const POLL: Duration = Duration::from_millis(50);
/// Runs the module that the first argument names, and kills the process group when the standard input ends.
const LAUNCHER: &str = "import os, runpy, sys, threading\n\
                        def watch():\n    os.read(0, 1)\n    os.killpg(0, 9)\n\
                        threading.Thread(target=watch, daemon=True).start()\n\
                        sys.argv = sys.argv[1:]\n\
                        runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True)\n";

/// How an installer ended.
#[derive(Debug)]
pub(crate) enum InstallerEnd {
    /// It ended by itself.
    Exited {
        status: ExitStatus,
        /// What it wrote to standard error.
        messages: String,
    },
    /// It was stopped.
    Stopped,
}

/// Returns the command that runs a module of Python, without the module's arguments.
pub(crate) fn module_command(python: &Path, module: &str) -> Command {
    let mut command = Command::new(python);
    command.args(["-c", LAUNCHER, module]).env_remove("VIRTUAL_ENV").env_remove("PYTHONHOME");
    command
}

/// Runs a command of [`module_command`]. `is_stopped` is asked often, and ends it early.
///
/// # Errors
/// The operating system's error.
pub(crate) fn run(command: &mut Command, is_stopped: &dyn Fn() -> bool) -> io::Result<InstallerEnd> {
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).process_group(0);
    let mut process = command.spawn()?;
    let reader = read_messages(&mut process);
    loop {
        if let Some(status) = process.try_wait()? {
            return Ok(InstallerEnd::Exited { status, messages: reader.join().unwrap_or_default() });
        }
        if is_stopped() {
            kill_group(&mut process)?;
            return Ok(InstallerEnd::Stopped);
        }
        std::thread::sleep(POLL);
    }
}

/// Reads the standard error on a thread, so that a full pipe does not block the process.
fn read_messages(process: &mut Child) -> JoinHandle<String> {
    let stderr = process.stderr.take();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut stderr) = stderr {
            // What was read before an error is kept.
            let _ = stderr.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

fn kill_group(process: &mut Child) -> io::Result<()> {
    kill_process_group(Pid::from_child(process), Signal::KILL)?;
    process.wait().map(drop)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::fs;

    use super::*;

    /// A module that starts a child, names it in a file and waits for it.
    const MODULE: &str = "import subprocess, sys\nchild = subprocess.Popen(['sleep', '600'])\n\
                          open(sys.argv[1] + '.part', 'w').write(str(child.pid))\n\
                          import os\nos.rename(sys.argv[1] + '.part', sys.argv[1])\nchild.wait()\n";

    fn is_running(process: &str) -> bool {
        // A process that has ended and was not waited for is a zombie.
        fs::read_to_string(format!("/proc/{process}/stat")).is_ok_and(|text| !text.contains(") Z "))
    }

    #[test]
    fn a_stopped_installer_leaves_no_processes() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("waiting_module.py"), MODULE).unwrap();
        let file = dir.path().join("child");
        let mut command = module_command("python3".as_ref(), "waiting_module");
        command.arg(&file).env("PYTHONPATH", dir.path());
        let end = run(&mut command, &|| file.exists()).unwrap();
        assert!(matches!(end, InstallerEnd::Stopped), "{end:?}");
        let child = fs::read_to_string(&file).unwrap();
        while is_running(&child) {
            std::thread::yield_now();
        }
    }

    #[test]
    fn an_installer_ends_with_the_process_that_started_it() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("waiting_module.py"), MODULE).unwrap();
        let file = dir.path().join("child");
        let mut command = module_command("python3".as_ref(), "waiting_module");
        command.arg(&file).env("PYTHONPATH", dir.path()).stdin(Stdio::piped()).process_group(0);
        let mut process = command.spawn().unwrap();
        while !file.exists() {
            std::thread::yield_now();
        }
        // The same happens if this process is killed.
        drop(process.stdin.take());
        let status = process.wait().unwrap();
        assert!(!status.success());
        let child = fs::read_to_string(&file).unwrap();
        while is_running(&child) {
            std::thread::yield_now();
        }
    }

    #[test]
    fn the_messages_and_the_status_of_an_installer_are_returned() {
        let asked = Cell::new(0);
        let is_stopped = || {
            asked.set(asked.get() + 1);
            false
        };
        let mut command = module_command("python3".as_ref(), "no_such_module");
        let end = run(&mut command, &is_stopped).unwrap();
        let InstallerEnd::Exited { status, messages } = end else { panic!("{end:?}") };
        assert!(!status.success() && messages.contains("no_such_module"), "{messages}");
        assert!(asked.get() > 0);
    }
}

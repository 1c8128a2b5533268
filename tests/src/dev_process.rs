//! `saggar dev` as a process whose lines a test waits for.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use crate::binary;

/// The time limit for any wait. Compilers take long on a busy machine, and a server without optimization compiles a
/// component with an interpreter for half a minute.
pub const DEV_WAIT_TIMEOUT: Duration = Duration::from_secs(400);

/// A running `saggar dev` and its output. Dropping it kills it.
#[derive(Debug)]
pub struct DevProcess {
    /// The process.
    pub child: Child,
    /// The lines that it has printed so far.
    pub printed: Vec<String>,
    lines: Receiver<String>,
}

impl DevProcess {
    /// Starts it on a free port, in the project at `place`.
    pub fn start(place: &Path) -> DevProcess {
        DevProcess::start_at(place, "127.0.0.1:0")
    }

    /// Starts it at an address.
    pub fn start_at(place: &Path, address: &str) -> DevProcess {
        let mut command = Command::new(binary());
        command.args(["dev", "--addr", address, "--device", "cpu"]).current_dir(place);
        for name in ["SAGGAR_HOST", "SAGGAR_HOME", "SAGGAR_PROJECT"] {
            command.env_remove(name);
        }
        command.env("XDG_CONFIG_HOME", place.join("config")).stdin(Stdio::null());
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts and can be signalled");
        let (sender, lines) = channel();
        let (out, err) = (
            child.stdout.take().expect("it starts and can be signalled"),
            child.stderr.take().expect("it starts and can be signalled"),
        );
        let errors = sender.clone();
        std::thread::spawn(move || BufReader::new(out).lines().map_while(Result::ok).all(|it| sender.send(it).is_ok()));
        std::thread::spawn(move || BufReader::new(err).lines().map_while(Result::ok).all(|it| errors.send(it).is_ok()));
        DevProcess { child, lines, printed: Vec::new() }
    }

    /// Returns the next line that contains these words.
    ///
    /// # Panics
    /// No such line comes within [`DEV_WAIT_TIMEOUT`].
    pub fn wait_for(&mut self, words: &str) -> String {
        let until = Instant::now() + DEV_WAIT_TIMEOUT;
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            let Ok(line) = self.lines.recv_timeout(left) else { break };
            self.printed.push(line.clone());
            if line.contains(words) {
                return line;
            }
        }
        panic!("timed out waiting for {words:?}:\n{}", self.printed.join("\n"));
    }

    /// Ends it by a signal, as Ctrl-C or a service manager would, and returns its exit code.
    pub fn stop(&mut self, signal: &str) -> Option<i32> {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().expect("it starts and can be signalled").success());
        self.child.wait().expect("it starts and can be signalled").code()
    }
}

impl Drop for DevProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

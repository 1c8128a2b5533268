//! Runs a program in a terminal: a pseudo-terminal whose output is parsed into a screen.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::num::NonZeroU16;
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::pty::OpenptFlags;
use rustix::termios::{Termios, Winsize};
use vt100::{MouseProtocolMode, Parser};

use crate::process::child_processes;

/// The time limit for any wait before a test fails.
const WAIT_TIMEOUT: Duration = Duration::from_secs(120);

/// What the terminal receives when the program ended, before its exit code.
const END_MARK: &str = "program-ended-with-";

/// What begins a synchronized update, and what ends it: a terminal shows all of it at once.
const UPDATE_BEGIN: &[u8] = b"\x1b[?2026h";
const UPDATE_END: &[u8] = b"\x1b[?2026l";

/// What a terminal received, and the screen that it shows.
struct TerminalOutput {
    parser: Parser,
    bytes: Vec<u8>,
    /// How many of the bytes are on the screen: all but those of an update that has not ended.
    screen_bytes: usize,
    is_ended: bool,
}

impl TerminalOutput {
    /// Takes what the program wrote; nothing if it closed the terminal.
    fn receive(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.is_ended = bytes.is_empty();
        let waiting = &self.bytes[self.screen_bytes..];
        let length = if self.is_ended { waiting.len() } else { complete_length(waiting) };
        self.parser.process(&waiting[..length]);
        self.screen_bytes += length;
    }
}

/// Returns the length of what is before an update that has not ended, or before bytes that may begin one.
fn complete_length(bytes: &[u8]) -> usize {
    let last = |mark: &[u8]| bytes.windows(mark.len()).rposition(|window| window == mark);
    match (last(UPDATE_BEGIN), last(UPDATE_END)) {
        (Some(begin), end) if end.is_none_or(|end| end < begin) => begin,
        _ => {
            let is_started = |length: &usize| bytes.ends_with(&UPDATE_BEGIN[..*length]);
            bytes.len() - (1..UPDATE_BEGIN.len()).rev().find(is_started).unwrap_or(0)
        }
    }
}

/// A program in a terminal. Dropping it kills the program.
pub struct TerminalProcess {
    child: Child,
    /// The side of the terminal's user.
    user: File,
    /// The side of the program, held so that the terminal stays open after the program ended.
    program: OwnedFd,
    output: Arc<(Mutex<TerminalOutput>, Condvar)>,
    modes_before: Termios,
}

impl TerminalProcess {
    /// Starts a program in a terminal of a size, which is its controlling terminal.
    pub fn start(command: &Command, columns: u16, rows: u16) -> TerminalProcess {
        let user = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        rustix::pty::grantpt(&user).and_then(|()| rustix::pty::unlockpt(&user)).expect("the terminal opens");
        let name = rustix::pty::ptsname(&user, Vec::new()).expect("the terminal has a name");
        let name = name.into_string().expect("a path that is text");
        let program = File::options().read(true).write(true).open(name).expect("the terminal opens");
        let program = OwnedFd::from(program);
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        rustix::termios::tcsetwinsize(&program, size).expect("a size");
        let modes_before = rustix::termios::tcgetattr(&program).expect("modes");
        // A new session, whose controlling terminal is standard input. Its leader is a shell that outlives the program,
        // because the system hangs up the terminal when the leader ends.
        let mut session = Command::new("setsid");
        session.args(["--ctty", "sh", "-c", &format!("\"$@\"; printf '{END_MARK}%d\\n' $?; read line"), "sh"]);
        session.arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => session.env(name, value),
                None => session.env_remove(name),
            };
        }
        if let Some(directory) = command.get_current_dir() {
            session.current_dir(directory);
        }
        let side = || Stdio::from(program.try_clone().expect("a file descriptor"));
        let child = session.stdin(side()).stdout(side()).stderr(side()).spawn().expect("the program starts");
        let [rows, columns] = [rows, columns].map(|count| NonZeroU16::new(count).expect("a size above 0"));
        let parser = Parser::new(rows, columns, 0);
        let output = TerminalOutput { parser, bytes: Vec::new(), screen_bytes: 0, is_ended: false };
        let output = Arc::new((Mutex::new(output), Condvar::new()));
        let user = File::from(user);
        let (reader, received) = (user.try_clone().expect("a file descriptor"), Arc::clone(&output));
        std::thread::spawn(move || read_output(reader, &received));
        TerminalProcess { child, user, program, output, modes_before }
    }

    /// Types a text, or the sequences of keys.
    pub fn send(&mut self, keys: &str) {
        self.user.write_all(keys.as_bytes()).expect("the terminal takes keys");
    }

    /// Changes the size of the terminal, and notifies the program.
    pub fn resize(&mut self, columns: u16, rows: u16) {
        let [height, width] = [rows, columns].map(|count| NonZeroU16::new(count).expect("a size above 0"));
        self.lock().parser.set_size(height, width);
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        rustix::termios::tcsetwinsize(self.user.as_fd(), size).expect("a size");
    }

    /// Returns the text of the screen.
    pub fn screen(&self) -> String {
        self.lock().parser.screen().contents()
    }

    /// Returns everything that the terminal received.
    pub fn received(&self) -> String {
        String::from_utf8_lossy(&self.lock().bytes).into_owned()
    }

    /// Waits until the screen has what is looked for, and returns its text.
    pub fn wait_for(&self, what: &str, is_found: impl Fn(&str) -> bool) -> String {
        let end = Instant::now() + WAIT_TIMEOUT;
        let mut output = self.lock();
        loop {
            let screen = output.parser.screen().contents();
            if is_found(&screen) {
                return screen;
            }
            let rest = end.saturating_duration_since(Instant::now());
            assert!(!rest.is_zero() && !output.is_ended, "{what} does not come:\n{screen}");
            output = self.output.1.wait_timeout(output, rest).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits until the screen contains every one of some texts.
    pub fn wait_for_texts(&self, texts: &[&str]) -> String {
        self.wait_for(&format!("{texts:?}"), |screen| texts.iter().all(|text| screen.contains(text)))
    }

    /// Returns whether the terminal is as before the program: its modes, the usual screen, the cursor, and no mouse.
    pub fn is_restored(&self) -> bool {
        let modes = rustix::termios::tcgetattr(&self.program).expect("modes");
        let before = &self.modes_before;
        let is_same = modes.input_modes == before.input_modes
            && modes.output_modes == before.output_modes
            && modes.local_modes == before.local_modes
            && modes.control_modes == before.control_modes;
        let output = self.lock();
        let screen = output.parser.screen();
        let is_usual = !screen.alternate_screen() && !screen.hide_cursor();
        is_same && is_usual && screen.mouse_protocol_mode() == MouseProtocolMode::None
    }

    /// Returns whether the program reads single keys and draws on the alternate screen.
    pub fn is_full_screen(&self) -> bool {
        let modes = rustix::termios::tcgetattr(&self.program).expect("modes");
        modes.local_modes != self.modes_before.local_modes && self.lock().parser.screen().alternate_screen()
    }

    /// Returns the process identifier of the program.
    pub fn pid(&self) -> u32 {
        let children = child_processes(self.child.id());
        *children.first().expect("the program runs")
    }

    /// Waits until the program ends, and returns its exit code; of one that a signal ended, the number of a shell.
    pub fn wait(&self) -> i32 {
        let end = Instant::now() + WAIT_TIMEOUT;
        let mut output = self.lock();
        loop {
            let text = String::from_utf8_lossy(&output.bytes);
            let code =
                text.rsplit_once(END_MARK).and_then(|(_, code)| code.split_once('\r')).map(|(code, _)| code.parse());
            if let Some(Ok(code)) = code {
                return code;
            }
            let rest = end.saturating_duration_since(Instant::now());
            assert!(!rest.is_zero() && !output.is_ended, "the program does not end:\n{text}");
            output = self.output.1.wait_timeout(output, rest).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn lock(&self) -> MutexGuard<'_, TerminalOutput> {
        self.output.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for TerminalProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads what the program writes, until the terminal is closed.
fn read_output(mut reader: File, output: &(Mutex<TerminalOutput>, Condvar)) {
    let mut buffer = [0; 65_536];
    loop {
        let read = reader.read(&mut buffer).unwrap_or(0);
        output.0.lock().unwrap_or_else(PoisonError::into_inner).receive(&buffer[..read]);
        output.1.notify_all();
        if read == 0 {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::complete_length;

    #[test]
    fn an_update_is_complete_when_it_has_ended() {
        for (bytes, length) in [
            ("", 0),
            ("rows", 4),
            ("rows\x1b[?2026hnew", 4),
            ("rows\x1b[?2026hnew\x1b[?2026l", 23),
            ("\x1b[?2026hnew\x1b[?2026l\x1b[?2026h", 19),
            ("rows\x1b[?20", 4),
            ("rows\x1b[0m", 8),
        ] {
            assert_eq!(complete_length(bytes.as_bytes()), length, "{bytes:?}");
        }
    }
}

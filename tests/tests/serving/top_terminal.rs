//! `saggar top` leaves a terminal as it found it, in whatever way it ends.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use std::path::Path;
use std::process::Command;

use saggar_tests::{ServerProcess, TerminalProcess, binary};

/// Starts `saggar top` for a server, and waits until it shows something.
fn start(server: &ServerProcess, arguments: &[&str]) -> TerminalProcess {
    let mut command = Command::new(binary());
    command.args(["top", "--host", server.url(), "--interval", "200ms"]).args(arguments);
    command.env("XDG_CONFIG_HOME", server.home()).env_remove("SAGGAR_JSON").env("TERM", "xterm-256color");
    let terminal = TerminalProcess::start(&command, 100, 24);
    terminal.wait_for_texts(&["no jobs", "q ends"]);
    assert!(terminal.is_full_screen());
    terminal
}

fn kill(signal: &str, pid: u32) {
    let status = Command::new("kill").args([signal, &pid.to_string()]).status().unwrap();
    assert!(status.success());
}

#[test]
fn keys_end_the_view_and_restore_the_terminal() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    for key in ["q", "\x1b", "\x03"] {
        let mut terminal = start(&server, &[]);
        terminal.send(key);
        assert_eq!(terminal.wait(), 0, "{key:?}");
        assert!(terminal.is_restored(), "{key:?}: {:?}", terminal.received());
    }
}

#[test]
fn signals_end_the_view_and_restore_the_terminal() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    for (signal, code) in [("-TERM", 143), ("-INT", 130)] {
        let terminal = start(&server, &[]);
        kill(signal, terminal.pid());
        assert_eq!(terminal.wait(), code, "{signal}");
        assert!(terminal.is_restored(), "{signal}: {:?}", terminal.received());
    }
}

#[test]
fn an_error_restores_the_terminal_and_is_printed() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let mut command = Command::new(binary());
    command.args(["top", "--host", server.url(), "--record", "/dev/full"]).env("XDG_CONFIG_HOME", server.home());
    let terminal = TerminalProcess::start(&command, 100, 24);
    assert_eq!(terminal.wait(), 7);
    assert!(terminal.is_restored() && terminal.screen().contains("/dev/full: No space left"), "{}", terminal.screen());
}

#[test]
fn a_panic_of_any_thread_restores_the_terminal_and_is_printed() {
    for thread in ["main", "thread"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_panic-in-terminal"));
        command.arg(thread).env("RUST_BACKTRACE", "0");
        let mut terminal = TerminalProcess::start(&command, 80, 24);
        terminal.wait_for_texts(&["drawn before the panic"]);
        assert!(terminal.is_full_screen());
        terminal.send("\n");
        assert_eq!(terminal.wait(), 101, "{thread}");
        let screen = terminal.screen();
        assert!(terminal.is_restored() && screen.contains("a deliberate panic"), "{thread}: {screen}");
        assert!(!screen.contains("drawn before"), "{screen}");
    }
}

/// Starts a shell with job control in a terminal.
fn start_shell(home: &Path) -> TerminalProcess {
    let mut shell = Command::new("bash");
    shell.args(["--norc", "--noprofile", "-i"]).env("PS1", "shell> ").env("HISTFILE", "/dev/null");
    shell.env("XDG_CONFIG_HOME", home).env_remove("SAGGAR_JSON").env("TERM", "xterm-256color");
    let terminal = TerminalProcess::start(&shell, 100, 24);
    terminal.wait_for_texts(&["shell> "]);
    terminal
}

#[test]
fn ctrl_z_gives_the_terminal_back_to_the_shell_and_fg_continues() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    let mut terminal = start_shell(server.home());
    let line = format!("{} top --host {} --interval 200ms\r", binary().display(), server.url());
    terminal.send(&line);
    terminal.wait_for_texts(&["no jobs", "q ends"]);
    terminal.send("\x1a");
    let screen = terminal.wait_for_texts(&["Stopped", "shell> "]);
    assert!(!screen.contains("q ends") && !terminal.is_full_screen(), "{screen}");
    // The shell reads what is typed.
    terminal.send("echo $((6 * 7))-typed\r");
    terminal.wait_for_texts(&["42-typed"]);
    terminal.send("fg\r");
    terminal.wait_for_texts(&["no jobs", "q ends"]);
    assert!(terminal.is_full_screen());
    terminal.send("2");
    terminal.wait_for_texts(&["no models"]);
    terminal.send("q");
    terminal.wait_for("the shell again", |screen| screen.contains("42-typed") && !screen.contains("q ends"));
}

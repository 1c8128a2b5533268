//! Restarts the server by replacing its process: the same program, arguments and addresses, without any other state.
//! Jobs resume from their checkpoints, as after a crash.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::exit;
use crate::logging;

/// Set in a restarted server, which has printed its addresses before.
const VARIABLE: &str = "SAGGAR_RESTARTED";

/// Returns whether this server was restarted.
pub(super) fn is_restarted() -> bool {
    std::env::var_os(VARIABLE).is_some()
}

/// Replaces this process, because a new one may get a device. If systemd holds the sockets, the process ends, and systemd
/// starts the service again; otherwise a new process listens at `urls`. Returns only on failure, and logs it.
pub(super) fn replace_server(has_inherited: bool, urls: &[String]) {
    if has_inherited {
        tracing::error!("the server ends, because a new process may get a device");
        logging::flush_log();
        std::process::exit(exit::UNEXPECTED);
    }
    tracing::warn!("the server restarts, because a new process may get a device");
    let error = reexec(urls);
    tracing::error!(%error, "the server cannot restart, and ends");
}

/// Replaces this process by a new one that listens at `urls`. Returns only on failure, with the reason.
fn reexec(urls: &[String]) -> io::Error {
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => return error,
    };
    let arguments = with_addresses(std::env::args_os().skip(1), urls);
    logging::flush_log();
    Command::new(program).args(arguments).env(VARIABLE, "1").exec()
}

/// Replaces the addresses in the arguments, because a port that the system chose must stay the same.
fn with_addresses(arguments: impl Iterator<Item = OsString>, urls: &[String]) -> Vec<OsString> {
    let mut new_arguments = Vec::new();
    let mut arguments = arguments.peekable();
    while let Some(argument) = arguments.next() {
        if argument == "--addr" {
            arguments.next();
        } else if !argument.to_string_lossy().starts_with("--addr=") {
            new_arguments.push(argument);
        }
    }
    for url in urls {
        let address = url.split_once("://").map_or(url.as_str(), |(_, address)| address);
        new_arguments.push(format!("--addr={address}").into());
    }
    new_arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reexec_keeps_the_addresses_that_the_server_listens_on() {
        let given = ["serve", "--addr", "127.0.0.1:0", "--jobs", "2", "--addr=unix:/run/s.sock"].map(OsString::from);
        let urls = ["http://127.0.0.1:4711".to_owned(), "unix:/run/s.sock".to_owned()];
        let expected = ["serve", "--jobs", "2", "--addr=127.0.0.1:4711", "--addr=unix:/run/s.sock"];
        assert_eq!(with_addresses(given.into_iter(), &urls), expected.map(OsString::from));
    }
}

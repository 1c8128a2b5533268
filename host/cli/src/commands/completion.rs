//! `saggar completion`: prints completion scripts for shells.

use crate::args::{self, CompletionArgs};
use crate::exit::{self, CliError};

pub(crate) fn completion(args: &CompletionArgs) -> Result<i32, CliError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut args::command(), "saggar", &mut script);
    let mut out = std::io::stdout().lock();
    let written = std::io::Write::write_all(&mut out, &script);
    // A closed pipe is not an error.
    written.map(|()| 0).or_else(|error| match error.kind() {
        std::io::ErrorKind::BrokenPipe => Ok(0),
        _ => Err(CliError::new(exit::UNEXPECTED, "write", error.to_string())),
    })
}

//! Runs the tools of a language.

use std::process::{Command, Output};

use super::BuildError;

/// Runs the command until it ends and returns its output, as far as that is piped.
pub(super) fn run_to_completion(command: &mut Command) -> Result<Output, BuildError> {
    let child = command.spawn().map_err(|source| spawn_error(command, source))?;
    child.wait_with_output().map_err(|source| spawn_error(command, source))
}

/// Returns the error of a tool that failed.
pub(super) fn check(what: &str, output: Output) -> Result<(), BuildError> {
    if output.status.success() {
        return Ok(());
    }
    Err(BuildError::Tool { what: what.to_owned(), status: output.status, messages: error_text(&output) })
}

/// Returns what a tool wrote to standard error.
pub(super) fn error_text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).trim().to_owned()
}

fn spawn_error(command: &Command, source: std::io::Error) -> BuildError {
    BuildError::Spawn { program: command.get_program().to_string_lossy().into_owned(), source }
}

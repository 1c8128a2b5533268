//! `saggar health`: says whether a server is ready, for probes of containers and scripts.

use std::time::Duration;

use crate::client::ApiClient;
use crate::exit::{self, CliError};
use crate::output::CliOutput;

/// Maximum time for the server to answer.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(5);

/// Prints whether the server is ready, and why it is not. Needs no key. Returns the exit code: 0 if the server is ready,
/// [`exit::UNEXPECTED`] if it is not.
///
/// # Errors
/// Fails with [`exit::UNREACHABLE`] if no server answers.
pub(crate) fn print_health(client: &ApiClient, output: CliOutput) -> Result<i32, CliError> {
    let readiness = client.readiness(ANSWER_TIME_MAX)?;
    if output.json {
        output.print_json(&readiness);
    } else if readiness.ready {
        output.print_line("ready");
    } else {
        output.print_line("not ready");
        readiness.reasons.iter().flatten().for_each(|reason| output.print_note(reason));
    }
    Ok(if readiness.ready { 0 } else { exit::UNEXPECTED })
}

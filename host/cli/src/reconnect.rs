//! Reconnects to a server. Commands that follow a job survive a server restart: they retry for a while before they
//! fail.

use std::time::{Duration, Instant};

use crate::exit::{self, CliError};
use crate::output::CliOutput;

/// Maximum time to reconnect to a server.
const RECONNECT_TIME_MAX: Duration = Duration::from_secs(60);
/// Time between two attempts.
const RECONNECT_INTERVAL: Duration = Duration::from_millis(250);

/// The connection state of a server that answered before.
#[derive(Debug)]
pub(crate) struct ReconnectState {
    output: CliOutput,
    /// When the server became unreachable; `None` while it answers.
    unreachable_since: Option<Instant>,
}

impl ReconnectState {
    pub(crate) fn new(output: CliOutput) -> ReconnectState {
        ReconnectState { output, unreachable_since: None }
    }

    /// Waits before the next attempt, after `failure` ended the last one.
    ///
    /// # Errors
    /// Returns `failure` if it is not a connection error, or if the server was unreachable for too long.
    pub(crate) fn wait_for_retry(&mut self, failure: CliError) -> Result<(), CliError> {
        if failure.exit_code != exit::UNREACHABLE {
            return Err(failure);
        }
        let seconds = RECONNECT_TIME_MAX.as_secs();
        let gone = *self.unreachable_since.get_or_insert_with(|| {
            self.output.print_note(&format!("{failure}; connecting again for {seconds} s"));
            Instant::now()
        });
        if gone.elapsed() >= RECONNECT_TIME_MAX {
            let hint = "the job continues once the server runs: `saggar serve` starts it, `saggar logs -f JOB` follows the job";
            return Err(CliError { message: format!("{failure}, for {seconds} s"), ..failure }.with_hint(hint));
        }
        std::thread::sleep(RECONNECT_INTERVAL);
        Ok(())
    }

    /// Records that the server answers.
    pub(crate) fn note_connected(&mut self) {
        if self.unreachable_since.take().is_some() {
            self.output.print_note("reconnected");
        }
    }
}

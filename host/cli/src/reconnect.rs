//! Commands that follow a job outlive a restart of the server: they connect again for a while before they give up.

use std::time::{Duration, Instant};

use crate::exit::{self, CliError};
use crate::output::CliOutput;

/// How long a command tries to reach a server that was there.
const RECONNECT_TIME_MAX: Duration = Duration::from_secs(60);
/// The time between two tries.
const RECONNECT_INTERVAL: Duration = Duration::from_millis(250);

/// What is known of the connection to a server that answered before.
#[derive(Debug)]
pub(crate) struct ReconnectState {
    output: CliOutput,
    /// When the server was found to be gone; `None` while it answers.
    unreachable_since: Option<Instant>,
}

impl ReconnectState {
    pub(crate) fn new(output: CliOutput) -> ReconnectState {
        ReconnectState { output, unreachable_since: None }
    }

    /// Waits before the next try, after `failure` ended the last one.
    ///
    /// # Errors
    /// `failure`, where it is another than that nobody answers, or where nobody has answered for long enough.
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
            let hint =
                "the job goes on when the server does: `saggar serve` starts it, `saggar logs -f JOB` follows the job";
            return Err(CliError { message: format!("{failure}, for {seconds} s"), ..failure }.with_hint(hint));
        }
        std::thread::sleep(RECONNECT_INTERVAL);
        Ok(())
    }

    /// Notes that the server answers.
    pub(crate) fn note_connected(&mut self) {
        if self.unreachable_since.take().is_some() {
            self.output.print_note("connected again");
        }
    }
}

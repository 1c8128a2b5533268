//! `--watch`: prints a listing repeatedly.

use std::time::Duration;

use crate::exit::CliError;
use crate::output::CliOutput;
use crate::reconnect::ReconnectState;

/// Time between two listings.
const REDRAW_INTERVAL: Duration = Duration::from_secs(2);

/// Reads and shows a listing every two seconds until Ctrl-C. On a terminal each one replaces the previous one. Waits
/// across restarts of the server.
///
/// # Errors
/// Returns the errors of `read`.
pub(super) fn watch_listing<T>(
    output: CliOutput,
    read: impl Fn() -> Result<T, CliError>,
    show: impl Fn(T),
) -> Result<(), CliError> {
    let mut reconnect = ReconnectState::new(output);
    let mut listed = read()?;
    loop {
        output.clear_screen();
        show(listed);
        std::thread::sleep(REDRAW_INTERVAL);
        listed = loop {
            match read() {
                Ok(listed) => break listed,
                Err(failure) => reconnect.wait_for_retry(failure)?,
            }
        };
        reconnect.note_connected();
    }
}

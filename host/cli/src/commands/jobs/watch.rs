//! `--watch`: a listing again and again.

use std::time::Duration;

use serde_json::Value;

use crate::exit::CliError;
use crate::output::CliOutput;
use crate::reconnect::ReconnectState;

/// How long a listing stands.
const REDRAW_INTERVAL: Duration = Duration::from_secs(2);

/// Reads and shows a listing every two seconds, each in the place of the one before where a person looks on, until Ctrl-C. A
/// restart of the server is waited for.
///
/// # Errors
/// Those of `read`.
pub(super) fn watch_listing(
    output: CliOutput,
    read: impl Fn() -> Result<Vec<Value>, CliError>,
    show: impl Fn(Vec<Value>),
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

//! `--watch`: a listing again and again.

use std::time::Duration;

use serde_json::Value;

use crate::exit::Failure;
use crate::output::Output;
use crate::reconnect::Reconnect;

/// How long a listing stands.
const REDRAW_INTERVAL: Duration = Duration::from_secs(2);

/// Reads and shows a listing every two seconds, each in the place of the one before where a person looks on, until Ctrl-C. A
/// restart of the server is waited for.
///
/// # Errors
/// Those of `read`.
pub(super) fn watch(
    output: Output,
    read: impl Fn() -> Result<Vec<Value>, Failure>,
    show: impl Fn(Vec<Value>),
) -> Result<(), Failure> {
    let mut reconnect = Reconnect::new(output);
    let mut listed = read()?;
    loop {
        output.begin_redraw();
        show(listed);
        std::thread::sleep(REDRAW_INTERVAL);
        listed = loop {
            match read() {
                Ok(listed) => break listed,
                Err(failure) => reconnect.wait_for_retry(failure)?,
            }
        };
        reconnect.connected();
    }
}

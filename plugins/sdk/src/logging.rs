//! Lines for people.

use crate::bindings::logging::{Level, log};

/// Writes a line of detail.
pub fn debug(line: &str) {
    log(Level::Debug, line);
}

/// Writes a line. In a training's lines the host puts numbers in the place of `{samples/s}`, `{seconds}` and
/// `{checkpoint}`, since a plugin has no clock: see `wit/logging.wit`.
pub fn info(line: &str) {
    log(Level::Info, line);
}

/// Writes a line about something that should not be so.
pub fn warn(line: &str) {
    log(Level::Warn, line);
}

/// Lets the host's log say why a guest that panics does so; the trap itself carries no message.
pub(crate) fn report_panics() {
    std::panic::set_hook(Box::new(|panic| log(Level::Error, &panic.to_string())));
}

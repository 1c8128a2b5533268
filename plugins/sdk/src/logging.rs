//! Log lines for users.

use crate::bindings::logging::{Level, log};

/// Logs a line at debug level.
pub fn debug(line: &str) {
    log(Level::Debug, line);
}

/// Logs a line at info level. In a training's lines the host replaces `{samples/s}`, `{seconds}` and `{checkpoint}` by
/// numbers, because a plugin has no clock: see `wit/logging.wit`.
pub fn info(line: &str) {
    log(Level::Info, line);
}

/// Logs a line at warning level.
pub fn warn(line: &str) {
    log(Level::Warn, line);
}

/// Installs a panic hook that logs the message, because the trap that a panic causes has no message.
pub(crate) fn report_panics() {
    std::panic::set_hook(Box::new(|panic| log(Level::Error, &panic.to_string())));
}

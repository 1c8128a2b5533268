//! Log lines that plugins write: those of a training go to its job, those of a model to the server's log. Lines are
//! truncated at a limit; past a limit on their number and bytes they are only counted.

use crate::bindings::logging::{Host, Level};
use crate::convert;
use crate::instance_state::{InstanceRole, InstanceState};
use crate::limits::{LOG_BYTES_MAX, LOG_LINE_BYTES_MAX, LOG_LINES_MAX};
use crate::train::LogLevel;

/// The amount that an instance has logged so far.
#[derive(Debug, Default)]
pub(crate) struct LogBudget {
    lines: u64,
    bytes: u64,
    dropped: u64,
}

/// The decision about one line.
#[derive(Debug, PartialEq, Eq)]
enum LogLineVerdict {
    Keep,
    /// Report once that the limit is reached, instead of the first line past it.
    LimitNotice,
    Drop,
}

impl LogBudget {
    fn charge_line(&mut self, bytes: usize) -> LogLineVerdict {
        if self.dropped == 0 && self.lines < LOG_LINES_MAX && self.bytes + bytes as u64 <= LOG_BYTES_MAX {
            self.lines += 1;
            self.bytes += bytes as u64;
            return LogLineVerdict::Keep;
        }
        self.dropped += 1;
        if self.dropped == 1 { LogLineVerdict::LimitNotice } else { LogLineVerdict::Drop }
    }

    /// Returns the number of lines that were dropped.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }
}

/// Returns the longest prefix of a line that is within the limit and does not split a character.
fn truncate_line(line: &str) -> &str {
    &line[..line.floor_char_boundary(LOG_LINE_BYTES_MAX)]
}

impl InstanceState {
    /// Writes a line of the host, without any limit.
    pub(crate) fn write_log(&mut self, level: LogLevel, line: &str) {
        match &mut self.role {
            InstanceRole::Train(train) => train.context.log(level, line),
            InstanceRole::Predict { plugin, .. } => match level {
                LogLevel::Debug => tracing::debug!(target: "saggar::model", %plugin, line),
                LogLevel::Info => tracing::info!(target: "saggar::model", %plugin, line),
                LogLevel::Warn => tracing::warn!(target: "saggar::model", %plugin, line),
                LogLevel::Error => tracing::error!(target: "saggar::model", %plugin, line),
            },
        }
    }
}

impl Host for InstanceState {
    fn log(&mut self, level: Level, line: String) -> wasmtime::Result<()> {
        let line = truncate_line(&line);
        match self.logs.charge_line(line.len()) {
            LogLineVerdict::Keep => self.write_log(convert::log_level(level), line),
            LogLineVerdict::LimitNotice => {
                self.write_log(LogLevel::Warn, "the plugin logs too much: later lines are only counted")
            }
            LogLineVerdict::Drop => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_lines_are_truncated_at_a_character_boundary() {
        assert_eq!(truncate_line("short"), "short");
        let long = "é".repeat(LOG_LINE_BYTES_MAX);
        assert_eq!(truncate_line(&long).len(), LOG_LINE_BYTES_MAX);
        let odd = format!("a{long}");
        assert_eq!(truncate_line(&odd).len(), LOG_LINE_BYTES_MAX - 1);
    }

    #[test]
    fn log_lines_past_the_limit_are_counted_and_reported_once() {
        let mut budget = LogBudget::default();
        assert!((0..LOG_LINES_MAX).all(|_| budget.charge_line(10) == LogLineVerdict::Keep));
        assert_eq!(budget.charge_line(10), LogLineVerdict::LimitNotice);
        assert_eq!(budget.charge_line(10), LogLineVerdict::Drop);
        assert_eq!(budget.dropped(), 2);
    }
}

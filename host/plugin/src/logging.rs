//! Lines that plugins write: a training's to its job, a model's to the server's log; cut and counted past their limits.

use crate::bindings::logging::{Host, Level};
use crate::convert;
use crate::limits::{LOG_BYTES_MAX, LOG_LINE_BYTES_MAX, LOG_LINES_MAX};
use crate::state::{Role, State};
use crate::train::LogLevel;

/// What an instance has logged so far.
#[derive(Debug, Default)]
pub(crate) struct LogBudget {
    lines: u64,
    bytes: u64,
    dropped: u64,
}

/// What to do with a line.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Keep,
    /// The first line past the limit: say so, once.
    LastWord,
    Drop,
}

impl LogBudget {
    fn take(&mut self, bytes: usize) -> Verdict {
        if self.dropped == 0 && self.lines < LOG_LINES_MAX && self.bytes + bytes as u64 <= LOG_BYTES_MAX {
            self.lines += 1;
            self.bytes += bytes as u64;
            return Verdict::Keep;
        }
        self.dropped += 1;
        if self.dropped == 1 { Verdict::LastWord } else { Verdict::Drop }
    }

    /// Lines that were counted, not kept.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }
}

/// The longest beginning of a line that is within the limit and does not split a character.
fn cut(line: &str) -> &str {
    &line[..line.floor_char_boundary(LOG_LINE_BYTES_MAX)]
}

impl State {
    /// Writes a line past all limits: for the host's own remarks.
    pub(crate) fn write_log(&mut self, level: LogLevel, line: &str) {
        match &mut self.role {
            Role::Train(train) => train.context.log(level, line),
            Role::Predict { plugin, .. } => match level {
                LogLevel::Debug => tracing::debug!(target: "saggar::model", %plugin, line),
                LogLevel::Info => tracing::info!(target: "saggar::model", %plugin, line),
                LogLevel::Warn => tracing::warn!(target: "saggar::model", %plugin, line),
                LogLevel::Error => tracing::error!(target: "saggar::model", %plugin, line),
            },
        }
    }
}

impl Host for State {
    fn log(&mut self, level: Level, line: String) -> wasmtime::Result<()> {
        let line = cut(&line);
        match self.logs.take(line.len()) {
            Verdict::Keep => self.write_log(convert::level(level), line),
            Verdict::LastWord => {
                self.write_log(LogLevel::Warn, "the plugin logs too much: later lines are only counted")
            }
            Verdict::Drop => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_cut_at_a_character() {
        assert_eq!(cut("short"), "short");
        let long = "é".repeat(LOG_LINE_BYTES_MAX);
        assert_eq!(cut(&long).len(), LOG_LINE_BYTES_MAX);
        let odd = format!("a{long}");
        assert_eq!(cut(&odd).len(), LOG_LINE_BYTES_MAX - 1);
    }

    #[test]
    fn a_flood_is_counted_and_mentioned_once() {
        let mut budget = LogBudget::default();
        assert!((0..LOG_LINES_MAX).all(|_| budget.take(10) == Verdict::Keep));
        assert_eq!(budget.take(10), Verdict::LastWord);
        assert_eq!(budget.take(10), Verdict::Drop);
        assert_eq!(budget.dropped(), 2);
    }
}

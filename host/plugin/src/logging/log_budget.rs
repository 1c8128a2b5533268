//! The limit on what an instance logs.

use crate::limits::{LOG_BYTES_MAX, LOG_LINE_BYTES_MAX, LOG_LINES_MAX};

/// The amount that an instance has logged so far.
#[derive(Debug, Default)]
pub(crate) struct LogBudget {
    lines: u64,
    bytes: u64,
    dropped: u64,
}

/// The decision about one line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LogLineVerdict {
    Keep,
    /// Report once that the limit is reached, instead of the first line past it.
    LimitNotice,
    Drop,
}

impl LogBudget {
    /// Counts a line and decides about it.
    pub(super) fn charge_line(&mut self, bytes: usize) -> LogLineVerdict {
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
pub(super) fn truncate_line(line: &str) -> &str {
    &line[..line.floor_char_boundary(LOG_LINE_BYTES_MAX)]
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

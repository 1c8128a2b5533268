//! Placeholders in a plugin's log lines that the host replaces with numbers. A plugin has no clock, so it cannot
//! compute its speed; it never sees the numbers.

use std::borrow::Cow;
use std::time::{Duration, Instant};

/// Items per second since the previous line with a time or a rate, or since the beginning.
const RATE: &str = "{samples/s}";
/// Seconds since the attempt's training began.
const SECONDS: &str = "{seconds}";
/// The step of the newest checkpoint, as `@1200`, or `-` before the first one.
const CHECKPOINT: &str = "{checkpoint}";

/// The source of the numbers.
#[derive(Debug)]
pub(super) struct LogPlaceholders {
    began: Instant,
    /// The time and the number of items at the last line with a time or a rate. The row of an epoch contains a time
    /// after its held-out items, so that these do not count as trained ones.
    last_reported: (Duration, u64),
}

impl LogPlaceholders {
    /// Starts with a training that begins now.
    pub(super) fn new() -> LogPlaceholders {
        LogPlaceholders { began: Instant::now(), last_reported: (Duration::ZERO, 0) }
    }

    /// Replaces the placeholders of a line. `samples` is the number of items so far, `checkpoint` the step of the
    /// newest checkpoint, 0 before the first one.
    pub(super) fn fill<'a>(&mut self, line: &'a str, samples: u64, checkpoint: u64) -> Cow<'a, str> {
        self.fill_at(line, self.began.elapsed(), samples, checkpoint)
    }

    fn fill_at<'a>(&mut self, line: &'a str, now: Duration, samples: u64, checkpoint: u64) -> Cow<'a, str> {
        if !line.contains('{') {
            return Cow::Borrowed(line);
        }
        let mut line = Cow::Borrowed(line);
        let (then, before) = self.last_reported;
        if line.contains(RATE) || line.contains(SECONDS) {
            self.last_reported = (now, samples);
        }
        if line.contains(RATE) {
            let seconds = now.saturating_sub(then).as_secs_f64().max(1e-9);
            substitute(&mut line, RATE, &format!("{:.2}", samples.saturating_sub(before) as f64 / seconds));
        }
        substitute(&mut line, SECONDS, &format!("{:.2}", now.as_secs_f64()));
        substitute(&mut line, CHECKPOINT, &if checkpoint == 0 { "-".to_owned() } else { format!("@{checkpoint}") });
        line
    }
}

/// Replaces each `word` by `value`, right-aligned to the width of the word so that columns stay aligned.
fn substitute(line: &mut Cow<'_, str>, word: &str, value: &str) {
    if line.contains(word) {
        let width = word.len();
        *line = Cow::Owned(line.replace(word, &format!("{value:>width$}")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_placeholders_become_right_aligned_numbers() {
        let mut words = LogPlaceholders::new();
        let mut at = |ms: u64, samples: u64, checkpoint: u64, line: &str| {
            words.fill_at(line, Duration::from_millis(ms), samples, checkpoint).into_owned()
        };
        assert_eq!(at(10, 0, 0, "as it is {}"), "as it is {}");
        assert_eq!(at(500, 10_000, 0, "batch 100: {samples/s} samples/s"), "batch 100:    20000.00 samples/s");
        assert_eq!(at(1000, 15_000, 0, "batch 200: {samples/s} samples/s"), "batch 200:    10000.00 samples/s");
        assert_eq!(at(18_509, 15_000, 0, "|{seconds}|{checkpoint}|"), "|    18.51|           -|");
        assert_eq!(at(18_509, 15_000, 1200, "{checkpoint}"), "       @1200");
        assert_eq!(at(19_509, 15_300, 1200, "{samples/s}"), "     300.00", "since the line with the time");
        assert_eq!(at(18_509, 15_000, 1200, "{rate} {unknown}"), "{rate} {unknown}");
    }
}

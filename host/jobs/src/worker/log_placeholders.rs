//! Words in a plugin's log lines that the host puts numbers in the place of: a plugin has no clock, and what it cannot tell
//! people of its own speed is told for it. The plugin never sees the numbers.

use std::borrow::Cow;
use std::time::{Duration, Instant};

/// Items a second since the line before that told a time or a rate, or since the beginning.
const RATE: &str = "{samples/s}";
/// Seconds since the attempt's training began.
const SECONDS: &str = "{seconds}";
/// The step of the newest checkpoint, as `@1200`; `-` where there is none yet.
const CHECKPOINT: &str = "{checkpoint}";

/// What the numbers follow from.
#[derive(Debug)]
pub(super) struct LogPlaceholders {
    began: Instant,
    /// When a time or a rate was told last, and how many items there were then. The row of an epoch tells a time when its
    /// held-out items are done, so that these are not taken for trained ones.
    last_reported: (Duration, u64),
}

impl LogPlaceholders {
    /// A training that begins now.
    pub(super) fn new() -> LogPlaceholders {
        LogPlaceholders { began: Instant::now(), last_reported: (Duration::ZERO, 0) }
    }

    /// The line with numbers for words. `samples` is how many items there were so far, `checkpoint` the step of the newest
    /// checkpoint, 0 for none.
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

/// Puts `value` in the place of each `word`, at the right of the room that the word takes: columns stay columns.
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
        assert_eq!(at(19_509, 15_300, 1200, "{samples/s}"), "     300.00", "since the time was told");
        assert_eq!(at(18_509, 15_000, 1200, "{rate} {unknown}"), "{rate} {unknown}");
    }
}

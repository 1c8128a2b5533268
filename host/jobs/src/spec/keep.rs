//! When checkpoints are made, and which of them stay.

use saggar_store::checkpoint::{BestBy, Mode};
use serde::{Deserialize, Serialize};

/// When a checkpoint is due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckpointEvery {
    /// A second after training began, and then so often that saving takes at most 1 % of the time, but at least every 30 s.
    #[default]
    Auto,
    /// After so many milliseconds, at the next step boundary.
    Milliseconds(u64),
    /// After so many steps, at the next step boundary.
    Steps(u64),
}

/// Reads `validation/main/loss`, `min:loss` or `max:accuracy`: the checkpoint that stays however old it is. A series whose
/// name ends in `accuracy` is best at its largest value where nothing is said.
pub fn keep_best(text: &str) -> BestBy {
    let (mode, metric) = match text.split_once(':') {
        Some(("min", metric)) => (Mode::Min, metric),
        Some(("max", metric)) => (Mode::Max, metric),
        _ if text.ends_with("accuracy") => (Mode::Max, text),
        _ => (Mode::Min, text),
    };
    BestBy { metric: metric.to_owned(), mode }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_is_told_by_name_or_by_word() {
        let best = |text: &str| (keep_best(text).metric, keep_best(text).mode);
        assert_eq!(best("validation/main/loss"), ("validation/main/loss".to_owned(), Mode::Min));
        assert_eq!(best("main/accuracy"), ("main/accuracy".to_owned(), Mode::Max));
        assert_eq!(best("min:main/accuracy"), ("main/accuracy".to_owned(), Mode::Min));
        assert_eq!(best("max:bleu"), ("bleu".to_owned(), Mode::Max));
    }
}

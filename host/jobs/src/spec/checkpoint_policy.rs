//! When checkpoints are saved, and which are kept.

use saggar_store::checkpoint::{BestMetric, MetricMode};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// When a checkpoint is due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CheckpointEvery {
    /// One second after training began, then as often as saving takes at most 1 % of the time, but at least every 30 s.
    #[default]
    Auto,
    /// After this number of milliseconds, at the next step boundary.
    Milliseconds(u64),
    /// After this number of steps, at the next step boundary.
    Steps(u64),
}

/// Returns the schema of the metric whose best checkpoint is kept.
pub(super) fn best_metric_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": ["object", "null"],
        "required": ["metric", "mode"],
        "properties": {
            "metric": { "type": "string", "description": "The name of the series, such as `validation/loss`." },
            "mode": { "enum": ["min", "max"], "description": "The direction in which it improves." },
        },
        "additionalProperties": false,
    })
}

/// Parses `validation/main/loss`, `min:loss` or `max:accuracy`: the metric whose best checkpoint is kept regardless of
/// age. By default, a series whose name ends in `accuracy` is best at its maximum, and any other at its minimum.
pub fn parse_keep_best(text: &str) -> BestMetric {
    let (mode, metric) = match text.split_once(':') {
        Some(("min", metric)) => (MetricMode::Min, metric),
        Some(("max", metric)) => (MetricMode::Max, metric),
        _ if text.ends_with("accuracy") => (MetricMode::Max, text),
        _ => (MetricMode::Min, text),
    };
    BestMetric { metric: metric.to_owned(), mode }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keep_best_takes_a_mode_or_infers_it_from_the_series_name() {
        let best = |text: &str| (parse_keep_best(text).metric, parse_keep_best(text).mode);
        assert_eq!(best("validation/main/loss"), ("validation/main/loss".to_owned(), MetricMode::Min));
        assert_eq!(best("main/accuracy"), ("main/accuracy".to_owned(), MetricMode::Max));
        assert_eq!(best("min:main/accuracy"), ("main/accuracy".to_owned(), MetricMode::Min));
        assert_eq!(best("max:bleu"), ("bleu".to_owned(), MetricMode::Max));
    }
}

//! Reads the samples of `/metrics`, in Prometheus' text format 0.0.4, that the views need.

use std::collections::BTreeMap;

/// The metrics that are read. Others are skipped without being parsed.
const NEEDED: [&str; 7] = [
    "saggar_predict_requests_total",
    "saggar_predict_items_total",
    "saggar_predict_executions_total",
    "saggar_predict_seconds_bucket",
    "saggar_predict_queue_length",
    "saggar_device_busy_seconds_total",
    "saggar_device_memory_bytes",
];

/// A sample: the labels and the value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MetricSample {
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) value: f64,
}

impl MetricSample {
    /// Returns the value of a label; empty without it.
    pub(crate) fn label(&self, name: &str) -> &str {
        self.labels.get(name).map_or("", String::as_str)
    }
}

/// The needed samples, by metric.
#[derive(Clone, Debug, Default)]
pub(crate) struct MetricSamples(BTreeMap<&'static str, Vec<MetricSample>>);

impl MetricSamples {
    /// Reads a text. Lines that are not samples are skipped.
    pub(crate) fn parse(text: &str) -> MetricSamples {
        let mut samples = MetricSamples::default();
        for line in text.lines() {
            let Some(name) = NEEDED.into_iter().find(|name| is_sample_of(line, name)) else { continue };
            if let Some(sample) = parse_sample(&line[name.len()..]) {
                samples.0.entry(name).or_default().push(sample);
            }
        }
        samples
    }

    /// Returns the samples of a metric.
    pub(crate) fn of(&self, metric: &str) -> &[MetricSample] {
        self.0.get(metric).map_or(&[], Vec::as_slice)
    }
}

fn is_sample_of(line: &str, name: &str) -> bool {
    line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']))
}

/// Parses what follows the name: labels in braces, if any, and a value.
fn parse_sample(text: &str) -> Option<MetricSample> {
    let mut labels = BTreeMap::new();
    let mut rest = text.trim_start();
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        while let Some((name, after)) = rest.split_once("=\"") {
            let (value, after) = parse_label_value(after)?;
            labels.insert(name.trim_start_matches([',', ' ']).to_owned(), value);
            rest = after;
            if rest.starts_with('}') {
                break;
            }
        }
        rest = rest.trim_start_matches([',', ' ']).strip_prefix('}')?;
    }
    let value = rest.split_whitespace().next()?.parse().ok()?;
    Some(MetricSample { labels, value })
}

/// Returns the value up to the closing quote, with its escapes resolved, and what follows the quote.
fn parse_label_value(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => match characters.next()?.1 {
                'n' => value.push('\n'),
                other => value.push(other),
            },
            other => value.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn needed_samples_are_read_with_labels_and_escapes() {
        let text = "# HELP saggar_predict_requests_total x\n\
                    saggar_predict_requests_total{model=\"a\\\"}b\",version=\"1\",outcome=\"success\"} 12\n\
                    saggar_predict_requests_total_created{model=\"a\"} 5\n\
                    saggar_device_busy_seconds_total{device=\"cpu\"} 1.5e2 1700000000\n\
                    saggar_device_busy_seconds_total{device=\"cpu\n\
                    saggar_predict_seconds_bucket{model=\"a\",le=\"+Inf\"} 3\n\
                    process_threads 7\n";
        let samples = MetricSamples::parse(text);
        let requests = samples.of("saggar_predict_requests_total");
        assert_eq!((requests.len(), requests[0].label("model"), requests[0].value), (1, "a\"}b", 12.0));
        let busy = samples.of("saggar_device_busy_seconds_total");
        assert_eq!((busy.len(), busy[0].value), (1, 150.0));
        assert_eq!(samples.of("saggar_predict_seconds_bucket")[0].label("le"), "+Inf");
        assert!(samples.of("process_threads").is_empty());
    }
}

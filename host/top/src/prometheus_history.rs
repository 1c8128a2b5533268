//! The past of series from a Prometheus server that scrapes the servers: `query_range` of its HTTP interface.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::series_name::{OwnerKind, SeriesKey};
use crate::series_store::TimedValue;
use crate::transport::{ServerTransport, TransportError, get_document};

/// Points of a series that are requested for a window.
const POINTS_PER_WINDOW: u64 = 300;

/// A query: its text, in which `$range` is the time that rates are over, the kind and name of the series, and the label
/// with their owner. The name of a job's metric is in the label `name`.
struct HistoryQuery {
    text: &'static str,
    kind: OwnerKind,
    name: &'static str,
    owner_label: &'static str,
}

const QUERIES: [HistoryQuery; 8] = [
    HistoryQuery {
        text: "100 * rate(saggar_device_busy_seconds_total[$range])",
        kind: OwnerKind::Device,
        name: "busy",
        owner_label: "device",
    },
    HistoryQuery {
        text: "sum by (instance, device) (saggar_device_memory_bytes)",
        kind: OwnerKind::Device,
        name: "memory",
        owner_label: "device",
    },
    HistoryQuery {
        text: "sum by (instance, model) (rate(saggar_predict_requests_total[$range]))",
        kind: OwnerKind::Model,
        name: "requests",
        owner_label: "model",
    },
    HistoryQuery {
        text: "sum by (instance, model) (rate(saggar_predict_requests_total{outcome!=\"success\"}[$range]))",
        kind: OwnerKind::Model,
        name: "errors",
        owner_label: "model",
    },
    HistoryQuery {
        text: "1000 * histogram_quantile(0.5, sum by (instance, model, le) (rate(saggar_predict_seconds_bucket[$range])))",
        kind: OwnerKind::Model,
        name: "p50",
        owner_label: "model",
    },
    HistoryQuery {
        text: "1000 * histogram_quantile(0.99, sum by (instance, model, le) (rate(saggar_predict_seconds_bucket[$range])))",
        kind: OwnerKind::Model,
        name: "p99",
        owner_label: "model",
    },
    HistoryQuery {
        text: "sum by (instance, model) (saggar_predict_queue_length)",
        kind: OwnerKind::Model,
        name: "queue",
        owner_label: "model",
    },
    HistoryQuery { text: "saggar_train_metric", kind: OwnerKind::Job, name: "", owner_label: "job" },
];

/// The answer of `/api/v1/query_range`. Source: Prometheus, HTTP API, "Range queries".
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RangeAnswer {
    data: RangeData,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RangeData {
    result: Vec<RangeSeries>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RangeSeries {
    metric: BTreeMap<String, String>,
    /// Unix seconds, and the value as text.
    values: Vec<(f64, String)>,
}

/// The past of some series.
pub(crate) type SeriesHistory = Vec<(SeriesKey, Vec<TimedValue>)>;

/// Requests the past of every series of some servers, by URL, from `start_ms` to `end_ms`.
///
/// # Errors
/// Prometheus does not answer, or refuses.
pub(crate) fn fetch_history(
    prometheus: &dyn ServerTransport,
    hosts: &[String],
    (start_ms, end_ms): (u64, u64),
) -> Result<SeriesHistory, TransportError> {
    let step = (end_ms.saturating_sub(start_ms) / 1000 / POINTS_PER_WINDOW).max(1);
    // A rate needs two scrapes, which are a minute apart by default.
    let range = format!("{}s", (step * 4).max(120));
    let [start, end] = [start_ms, end_ms].map(|ms| format!("{:.3}", ms as f64 / 1000.0));
    let mut history = Vec::new();
    for query in &QUERIES {
        let (text, step) = (query.text.replace("$range", &range), format!("{step}s"));
        let parameters = [("query", text.as_str()), ("start", &start), ("end", &end), ("step", &step)];
        let answer: RangeAnswer = get_document(prometheus, "/api/v1/query_range", &parameters)?;
        for series in answer.data.result {
            let Some(host) = host_of(series.metric.get("instance").map_or("", String::as_str), hosts) else { continue };
            let label = |name: &str| series.metric.get(name).cloned().unwrap_or_default();
            let name = if query.name.is_empty() { label("name") } else { query.name.to_owned() };
            let key = SeriesKey { kind: query.kind, name, host, owner: label(query.owner_label) };
            let point = |(seconds, value): &(f64, String)| {
                value
                    .parse()
                    .ok()
                    .filter(|value: &f64| value.is_finite())
                    .map(|value| ((seconds * 1000.0) as u64, value))
            };
            history.push((key, series.values.iter().filter_map(point).collect()));
        }
    }
    Ok(history)
}

/// Returns the position of the server that an `instance` is. If there is one server only, a Prometheus that knows it by
/// another name is accepted.
fn host_of(instance: &str, hosts: &[String]) -> Option<usize> {
    let authority = |host: &String| host.split_once("://").map_or(host.as_str(), |(_, rest)| rest).to_owned();
    hosts.iter().position(|host| authority(host) == instance).or((hosts.len() == 1).then_some(0))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    struct PrometheusTransport(RefCell<Vec<String>>);

    impl ServerTransport for PrometheusTransport {
        fn url(&self) -> &str {
            "http://prometheus"
        }

        fn get(&self, path: &str, query: &[(&str, &str)]) -> Result<String, TransportError> {
            self.0.borrow_mut().push(format!("{path} {query:?}"));
            let is_busy = query[0].1.contains("busy");
            let result = if is_busy {
                r#"{"metric":{"instance":"b:5000","device":"cpu"},"values":[[1.5,"40"],[2,"NaN"]]},
                   {"metric":{"instance":"c:5000","device":"cpu"},"values":[[1,"1"]]}"#
            } else if query[0].1 == "saggar_train_metric" {
                r#"{"metric":{"instance":"a:5000","job":"digits-7","name":"loss"},"values":[[3,"0.5"]]}"#
            } else {
                ""
            };
            Ok(format!(r#"{{"status":"success","data":{{"resultType":"matrix","result":[{result}]}}}}"#))
        }
    }

    #[test]
    fn series_of_known_servers_are_read() {
        let prometheus = PrometheusTransport(RefCell::default());
        let hosts = ["http://a:5000".to_owned(), "https://b:5000".to_owned()];
        let history = fetch_history(&prometheus, &hosts, (0, 3_600_000)).unwrap();
        let key =
            |kind, name: &str, host, owner: &str| SeriesKey { kind, name: name.into(), host, owner: owner.into() };
        assert_eq!(
            history,
            [
                (key(OwnerKind::Device, "busy", 1, "cpu"), vec![(1500, 40.0)]),
                (key(OwnerKind::Job, "loss", 0, "digits-7"), vec![(3000, 0.5)]),
            ]
        );
        let asked = prometheus.0.borrow();
        assert!(
            asked[0].contains("query_range") && asked[0].contains("[120s]") && asked[0].contains("\"12s\""),
            "{asked:?}"
        );
        assert_eq!(host_of("anything", &hosts[..1]), Some(0));
    }
}

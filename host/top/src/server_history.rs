//! Reads the samples that a server keeps of its models and devices: one a second for ten minutes, and one a minute for a
//! day. They have the past, and they are the figures of each refresh.

use std::collections::BTreeMap;

use saggar_rest::history::{HistoryDocument, HistorySeriesDocument};

use crate::documents::{DeviceFigures, ModelFigures};
use crate::recorded_series::RecordedSeries;
use crate::series_name::OwnerKind;
use crate::series_store::TimedValue;
use crate::transport::{ServerTransport, TransportError, get_document};

/// The path of the samples.
const PATH: &str = "/api/v1/history";

/// Where the reading of a server's samples ended.
#[derive(Clone, Debug, Default)]
pub(crate) struct HistoryCursor {
    newest_ms: Option<u64>,
    /// Whether the server is one of an older version, which has no samples.
    is_missing: bool,
}

/// The samples since the last refresh, by model and by device.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServerSamples {
    document: HistoryDocument,
}

impl HistoryCursor {
    /// Asks again for samples, because another version of the server can have them.
    pub(crate) fn forget_version(&mut self) {
        self.is_missing = false;
    }

    /// Reads the new samples; at first, all of them. Adds their points to `recorded`. Returns `None` if the server has no
    /// samples.
    pub(crate) fn read(
        &mut self,
        transport: &dyn ServerTransport,
        recorded: &mut Vec<RecordedSeries>,
    ) -> Result<Option<ServerSamples>, TransportError> {
        if self.is_missing {
            return Ok(None);
        }
        let since = self.newest_ms.unwrap_or(0).to_string();
        let document: HistoryDocument = match get_document(transport, PATH, &[("since", &since)]) {
            Err(error) if error.is_missing => {
                self.is_missing = true;
                return Ok(None);
            }
            document => document?,
        };
        let is_whole = self.newest_ms.is_none();
        let mut points = series_points(&document);
        if is_whole {
            let first_ms = document.times_ms.first().copied().unwrap_or(u64::MAX);
            let minutes: HistoryDocument = get_document(transport, PATH, &[("step", "60")])?;
            for (key, mut earlier) in series_points(&minutes) {
                earlier.retain(|(at, _)| *at < first_ms);
                earlier.extend(points.remove(&key).unwrap_or_default());
                points.insert(key, earlier);
            }
        }
        // A server without any sample yet has the time 0.
        self.newest_ms = Some(document.newest_ms).filter(|newest| *newest > 0);
        let series = |((kind, owner, name), points)| RecordedSeries { kind, owner, name, is_whole, points };
        recorded.extend(points.into_iter().map(series));
        Ok(Some(ServerSamples { document }))
    }
}

/// The kind, the owner and the name of a series.
type SampleKey = (OwnerKind, String, String);

/// Returns the points of the series that the screen has. Memory is added up over its owners.
fn series_points(document: &HistoryDocument) -> BTreeMap<SampleKey, Vec<TimedValue>> {
    let mut sums: BTreeMap<SampleKey, BTreeMap<u64, f64>> = BTreeMap::new();
    for series in &document.series {
        let Some((key, factor)) = sample_key(series) else { continue };
        let values = sums.entry(key).or_default();
        for (at, value) in document.times_ms.iter().zip(&series.values) {
            if let Some(value) = value {
                *values.entry(*at).or_default() += f64::from(*value) * factor;
            }
        }
    }
    sums.into_iter().map(|(key, values)| (key, values.into_iter().collect())).collect()
}

/// Returns the series of the screen that has the samples, and the factor between their units.
fn sample_key(series: &HistorySeriesDocument) -> Option<(SampleKey, f64)> {
    let (kind, name, factor) = match series.name.as_str() {
        "model_requests_per_second" => (OwnerKind::Model, "requests", 1.0),
        "model_errors_per_second" => (OwnerKind::Model, "errors", 1.0),
        "model_latency_p50_seconds" => (OwnerKind::Model, "p50", 1000.0),
        "model_latency_p99_seconds" => (OwnerKind::Model, "p99", 1000.0),
        "model_batch_items" => (OwnerKind::Model, "batch", 1.0),
        "model_queue_length" => (OwnerKind::Model, "queue", 1.0),
        "device_busy_ratio" => (OwnerKind::Device, "busy", 100.0),
        "device_memory_bytes" => (OwnerKind::Device, "memory", 1.0),
        _ => return None,
    };
    let owner = if kind == OwnerKind::Model { series.model.clone() } else { series.device.clone() };
    Some(((kind, owner?, name.to_owned()), factor))
}

impl ServerSamples {
    /// Sets the figures of models: rates are means since the last refresh, other figures the last values.
    pub(crate) fn set_model_figures(&self, models: &mut [ModelFigures]) {
        for model in models {
            let values = |name: &str| {
                let is_own = |it: &&HistorySeriesDocument| it.name == name && it.model.as_ref() == Some(&model.name);
                let own = self.document.series.iter().find(is_own);
                own.into_iter().flat_map(|series| series.values.iter().flatten()).map(|value| f64::from(*value))
            };
            let mean = |name: &str| {
                let count = values(name).count();
                (count > 0).then(|| values(name).sum::<f64>() / count as f64)
            };
            model.requests_per_second = mean("model_requests_per_second");
            model.errors_per_second = mean("model_errors_per_second");
            model.p50_seconds = values("model_latency_p50_seconds").next_back();
            model.p99_seconds = values("model_latency_p99_seconds").next_back();
            model.batch_items = mean("model_batch_items");
            model.queue_length = values("model_queue_length").next_back();
        }
    }

    /// Sets the figures of devices to their last values.
    pub(crate) fn set_device_figures(&self, devices: &mut [DeviceFigures]) {
        for device in devices {
            let own = self.document.series.iter().filter(|it| it.device.as_ref() == Some(&device.name));
            for series in own {
                let last = series.values.last().copied().flatten().map(f64::from);
                match (series.name.as_str(), &series.owner) {
                    ("device_busy_ratio", _) => device.busy_percent = last.map(|ratio| ratio * 100.0),
                    ("device_memory_bytes", Some(owner)) => {
                        if let Some(held) = last.filter(|held| *held > 0.0) {
                            device.memory_bytes.insert(owner.clone(), held as u64);
                        }
                    }
                    _ => {}
                }
            }
        }
    }

    /// Returns whether there is no new sample since the last refresh.
    pub(crate) fn is_empty(&self) -> bool {
        self.document.times_ms.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers with samples of seconds or of minutes.
    struct HistoryTransport;

    impl ServerTransport for HistoryTransport {
        fn url(&self) -> &str {
            "http://a"
        }

        fn get(&self, _: &str, query: &[(&str, &str)]) -> Result<String, TransportError> {
            let requests = |times: &str, values: &str| {
                format!(
                    r#"{{"newest_ms":130000,"times_ms":[{times}],"series":[
                    {{"name":"model_requests_per_second","model":"m","values":[{values}]}},
                    {{"name":"model_latency_p99_seconds","model":"m","values":[0.5,null]}},
                    {{"name":"device_busy_ratio","device":"cpu","values":[0.25,0.5]}},
                    {{"name":"device_memory_bytes","device":"cpu","owner":"models","values":[1,2]}},
                    {{"name":"device_memory_bytes","device":"cpu","owner":"a-1","values":[10,20]}},
                    {{"name":"jobs_running","values":[1,1]}}]}}"#
                )
            };
            Ok(match query[0] {
                ("step", "60") => requests("60000,120000", "7,8"),
                ("since", "0") => requests("120000,130000", "1,3"),
                ("since", "130000") => r#"{"newest_ms":130000}"#.to_owned(),
                other => panic!("{other:?} is not asked for"),
            })
        }
    }

    #[test]
    fn samples_have_the_past_and_the_figures() {
        let (mut cursor, mut recorded) = (HistoryCursor::default(), Vec::new());
        let samples = cursor.read(&HistoryTransport, &mut recorded).unwrap().unwrap();
        let points = |name: &str| recorded.iter().find(|it| it.name == name).unwrap().points.clone();
        assert_eq!(points("requests"), [(60_000, 7.0), (120_000, 1.0), (130_000, 3.0)]);
        assert_eq!(points("p99"), [(60_000, 500.0), (120_000, 500.0)]);
        assert_eq!(points("memory"), [(60_000, 11.0), (120_000, 11.0), (130_000, 22.0)]);
        assert!(recorded.iter().all(|it| it.is_whole) && recorded.len() == 4);
        let mut models = [ModelFigures { name: "m".to_owned(), ..ModelFigures::default() }];
        samples.set_model_figures(&mut models);
        assert_eq!((models[0].requests_per_second, models[0].p99_seconds), (Some(2.0), Some(0.5)));
        let mut devices = [DeviceFigures { name: "cpu".to_owned(), ..DeviceFigures::default() }];
        samples.set_device_figures(&mut devices);
        assert_eq!((devices[0].busy_percent, devices[0].memory_total()), (Some(50.0), 22));
        recorded.clear();
        assert!(cursor.read(&HistoryTransport, &mut recorded).unwrap().unwrap().is_empty() && recorded.is_empty());
    }
}

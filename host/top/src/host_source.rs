//! Reads the state of one server.

use std::time::{Duration, Instant};

use saggar_rest::devices::DeviceListDocument;
use saggar_rest::jobs::{JobDocument, JobListDocument};
use saggar_rest::models::ModelListDocument;

use crate::documents::{DeviceFigures, HostDocument, JobFigures, ModelFigures};
use crate::metric_rates::{set_device_figures, set_model_figures};
use crate::metrics_text::MetricSamples;
use crate::poll_request::PollRequest;
use crate::recorded_series::{RecordedSeries, SeriesRecorder};
use crate::server_history::{HistoryCursor, ServerSamples};
use crate::transport::{ServerTransport, TransportError, get_document};

/// The states of jobs that are not over.
const UNFINISHED: &str = "QUEUED,STARTING,RUNNING,STOPPING";
/// Maximum unfinished jobs that are read.
const UNFINISHED_MAX: &str = "200";
/// Maximum other jobs that are read, the newest ones.
const NEWEST_MAX: &str = "30";

/// What was read of a server.
#[derive(Clone, Debug, Default)]
pub(crate) struct HostSample {
    /// Its state.
    pub(crate) document: HostDocument,
    /// New points of series that its jobs record.
    pub(crate) recorded: Vec<RecordedSeries>,
}

/// A server and what is remembered of it between refreshes.
pub(crate) struct HostSource {
    transport: Box<dyn ServerTransport>,
    /// The devices, which do not change while the server runs.
    devices: Vec<DeviceFigures>,
    /// The last samples, and where the next ones begin.
    samples: Option<ServerSamples>,
    history: HistoryCursor,
    /// The last scrape of a server that has no samples.
    counters: Option<(Instant, MetricSamples)>,
    recorder: SeriesRecorder,
}

impl HostSource {
    /// Returns a source that has read nothing yet.
    pub(crate) fn new(transport: Box<dyn ServerTransport>) -> HostSource {
        HostSource {
            transport,
            devices: Vec::new(),
            samples: None,
            history: HistoryCursor::default(),
            counters: None,
            recorder: SeriesRecorder::default(),
        }
    }

    /// Reads the server's state. What the key does not allow is left out and noted. If nothing can be read, the document
    /// states the error.
    pub(crate) fn poll(&mut self, request: &PollRequest) -> HostSample {
        let host = self.transport.url().to_owned();
        let mut sample = HostSample::default();
        match self.read_parts(request, &mut sample) {
            Ok(()) => sample.document.host = host,
            Err(error) => {
                // A server that restarts has other devices and counters, and can have another version.
                self.devices.clear();
                (self.samples, self.counters) = (None, None);
                self.history.forget_version();
                let document = HostDocument { host, error: Some(error.message), ..HostDocument::default() };
                return HostSample { document, recorded: Vec::new() };
            }
        }
        sample
    }

    fn read_parts(&mut self, request: &PollRequest, sample: &mut HostSample) -> Result<(), TransportError> {
        let document = &mut sample.document;
        let mut refused = None;
        let jobs = self.read_jobs();
        let jobs = part_or_note(jobs, "jobs", document, &mut refused)?;
        let models = get_document::<ModelListDocument>(&*self.transport, "/api/v1/models", &[]);
        let models = part_or_note(models, "models", document, &mut refused)?;
        if self.devices.is_empty() {
            let devices = get_document::<DeviceListDocument>(&*self.transport, "/api/v1/devices", &[]);
            let devices = part_or_note(devices, "devices", document, &mut refused)?.unwrap_or_default().devices;
            self.devices = devices.into_iter().map(|it| device_figures(it.name, it.adapter)).collect();
        }
        let samples = self.history.read(&*self.transport, &mut sample.recorded);
        let samples = part_or_note(samples, "history", document, &mut refused)?.flatten();
        let metrics = match samples.is_some() {
            true => None,
            // A server of an older version.
            false => {
                let metrics = self.transport.get("/metrics", &[]).map(|text| MetricSamples::parse(&text));
                part_or_note(metrics, "metrics", document, &mut refused)?
            }
        };
        let is_refused = jobs.is_none() && models.is_none() && samples.is_none() && metrics.is_none();
        if let Some(error) = refused.filter(|_| is_refused) {
            return Err(error);
        }
        document.answered = true;
        document.models = models.unwrap_or_default().models.into_iter().map(model_figures).collect();
        document.devices.clone_from(&self.devices);
        // Refreshes can be closer to each other than samples.
        self.samples = samples.filter(|samples| !samples.is_empty()).or(self.samples.take());
        if let Some(samples) = &self.samples {
            samples.set_model_figures(&mut document.models);
            samples.set_device_figures(&mut document.devices);
        }
        self.set_rates(document, metrics);
        let jobs = jobs.unwrap_or_default();
        let series = self.recorder.read(&*self.transport, &jobs, request);
        sample.recorded.extend(part_or_note(series, "series", document, &mut None)?.unwrap_or_default());
        sample.document.jobs = jobs.into_iter().map(job_figures).collect();
        Ok(())
    }

    fn set_rates(&mut self, document: &mut HostDocument, metrics: Option<MetricSamples>) {
        let Some(metrics) = metrics else { return };
        let now = Instant::now();
        let before = self.counters.as_ref().map(|(at, samples)| (samples, now.saturating_duration_since(*at)));
        let before = before.filter(|(_, elapsed)| *elapsed > Duration::ZERO);
        set_model_figures(&mut document.models, &metrics, before);
        set_device_figures(&mut document.devices, &metrics, before);
        self.counters = Some((now, metrics));
    }

    /// Returns the unfinished jobs and the newest others, newest first.
    fn read_jobs(&self) -> Result<Vec<JobDocument>, TransportError> {
        let list = |query: &[(&str, &str)]| {
            get_document::<JobListDocument>(&*self.transport, "/api/v1/jobs", query).map(|list| list.jobs)
        };
        let mut jobs = list(&[("state", UNFINISHED), ("limit", UNFINISHED_MAX)])?;
        let newest = list(&[("limit", NEWEST_MAX)])?;
        let others: Vec<JobDocument> =
            newest.into_iter().filter(|job| jobs.iter().all(|known| known.id != job.id)).collect();
        jobs.extend(others);
        jobs.sort_by_key(|job| std::cmp::Reverse(job.created_ms));
        Ok(jobs)
    }
}

/// Returns a part, or `None` with a note if the server refused it.
///
/// # Errors
/// The server does not answer.
fn part_or_note<T>(
    part: Result<T, TransportError>,
    name: &str,
    document: &mut HostDocument,
    refused: &mut Option<TransportError>,
) -> Result<Option<T>, TransportError> {
    match part {
        Ok(part) => Ok(Some(part)),
        Err(error) if error.is_unreachable => Err(error),
        Err(error) => {
            document.notes.push(format!("{name}: {error}"));
            *refused = Some(error);
            Ok(None)
        }
    }
}

fn job_figures(job: JobDocument) -> JobFigures {
    JobFigures {
        name: job.name,
        // A paused job is queued and does not start.
        state: if job.paused { "PAUSED".to_owned() } else { job.state },
        attempt: job.attempt,
        step: job.step,
        steps_target: job.steps_target,
        steps_per_second: job.steps_per_second,
        metrics: job.metrics,
        device: job.device,
        wall_seconds: job.wall_seconds,
    }
}

fn model_figures(model: saggar_rest::models::ModelDocument) -> ModelFigures {
    ModelFigures { name: model.name, state: model.state, serving: model.serving, ..ModelFigures::default() }
}

fn device_figures(name: String, adapter: String) -> DeviceFigures {
    DeviceFigures { name, adapter, ..DeviceFigures::default() }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::series_name::SeriesSelection;

    /// Answers from a table of paths; other paths are refused.
    struct TableTransport(Vec<(&'static str, String)>, RefCell<Vec<String>>);

    impl ServerTransport for TableTransport {
        fn url(&self) -> &str {
            "http://a"
        }

        fn get(&self, path: &str, query: &[(&str, &str)]) -> Result<String, TransportError> {
            self.1.borrow_mut().push(format!("{path} {query:?}"));
            let refused = || TransportError { message: format!("no {path}"), is_unreachable: false, is_missing: true };
            let found = self.0.iter().find(|(known, _)| *known == path);
            found.map(|(_, text)| text.clone()).ok_or_else(refused)
        }
    }

    fn source(answers: &[(&'static str, &str)]) -> HostSource {
        let answers = answers.iter().map(|(path, text)| (*path, (*text).to_owned())).collect();
        HostSource::new(Box::new(TableTransport(answers, RefCell::default())))
    }

    fn request() -> PollRequest {
        PollRequest { host: 0, selection: SeriesSelection::new(Vec::new()), since_ms: 0 }
    }

    #[test]
    fn what_a_key_may_not_read_is_noted_and_the_rest_is_there() {
        let jobs = r#"{"jobs":[{"id":"1","name":"a-1","state":"QUEUED","paused":true}]}"#;
        let mut source = source(&[("/api/v1/jobs", jobs), ("/api/v1/models", r#"{"models":[{"name":"m"}]}"#)]);
        let document = source.poll(&request()).document;
        assert!(document.answered && document.error.is_none());
        assert_eq!(document.notes, ["devices: no /api/v1/devices", "metrics: no /metrics"]);
        assert_eq!((document.jobs.len(), document.jobs[0].state.as_str()), (1, "PAUSED"));
        assert_eq!(document.models[0].requests_per_second, None);
    }

    #[test]
    fn a_server_that_refuses_everything_has_an_error() {
        let document = source(&[]).poll(&request()).document;
        assert!(!document.answered && document.error.is_some_and(|error| error == "no /metrics"));
    }

    #[test]
    fn answers_that_are_not_documents_are_no_failure_of_the_rest() {
        let document = source(&[("/api/v1/jobs", "<html>"), ("/metrics", "")]).poll(&request()).document;
        assert!(document.answered && document.notes[0].contains("does not answer /api/v1/jobs as expected"));
    }
}

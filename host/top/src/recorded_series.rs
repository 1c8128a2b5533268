//! Series with their past, and the series that jobs record, read from where the last refresh ended.

use std::collections::{BTreeSet, HashMap};

use saggar_rest::job_metrics::{JobMetricsDocument, MetricSeriesPoint};
use saggar_rest::jobs::JobDocument;

use crate::poll_request::PollRequest;
use crate::series_name::{OwnerKind, SeriesKey};
use crate::transport::{ServerTransport, TransportError, get_document};

/// Maximum jobs whose series are read.
const RECORDED_JOBS_MAX: usize = 24;

/// New points of a series.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RecordedSeries {
    /// The kind of its owner.
    pub(crate) kind: OwnerKind,
    /// The job, model or device.
    pub(crate) owner: String,
    /// The name of the series.
    pub(crate) name: String,
    /// Whether the points are the whole series, which replace those of earlier refreshes.
    pub(crate) is_whole: bool,
    /// Time in Unix milliseconds and value; NaN for a value that is not finite.
    pub(crate) points: Vec<(u64, f64)>,
}

/// Where the reading of a job's series ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct SeriesCursor {
    /// The job's attempt, step and state when they were read. If none of them changed, there are no new points.
    version: (u32, u64, String),
    names: BTreeSet<String>,
    /// The last step of each series.
    last_steps: HashMap<String, u64>,
}

/// Where the reading of the series of each job ended.
#[derive(Clone, Debug, Default)]
pub(crate) struct SeriesRecorder {
    cursors: HashMap<String, SeriesCursor>,
}

impl SeriesRecorder {
    /// Returns the new points of the chosen series of jobs that ran after the start of the request.
    pub(crate) fn read(
        &mut self,
        transport: &dyn ServerTransport,
        jobs: &[JobDocument],
        request: &PollRequest,
    ) -> Result<Vec<RecordedSeries>, TransportError> {
        self.cursors.retain(|id, _| jobs.iter().any(|job| job.id == *id));
        let is_visible = |job: &&JobDocument| job.finished_ms.is_none_or(|finished| finished >= request.since_ms);
        let chosen = jobs.iter().filter(is_visible).map(|job| (job, chosen_names(job, request)));
        let mut series = Vec::new();
        for (job, names) in chosen.filter(|(_, names)| !names.is_empty()).take(RECORDED_JOBS_MAX) {
            series.extend(self.read_job(transport, job, names)?);
        }
        Ok(series)
    }

    fn read_job(
        &mut self,
        transport: &dyn ServerTransport,
        job: &JobDocument,
        names: BTreeSet<String>,
    ) -> Result<Vec<RecordedSeries>, TransportError> {
        let version = (job.attempt, job.step, job.state.clone());
        let before = self.cursors.get(&job.id).filter(|it| it.names == names && it.version.0 == version.0);
        if before.is_some_and(|cursor| cursor.version == version) {
            return Ok(Vec::new());
        }
        let is_whole = before.is_none();
        let mut last_steps = before.map(|cursor| cursor.last_steps.clone()).unwrap_or_default();
        // The last step again, because another series can have got its point of that step later.
        let mut from = Some(last_steps.values().copied().max().unwrap_or(0));
        let list = names.iter().cloned().collect::<Vec<_>>().join(",");
        let mut points: HashMap<String, Vec<(u64, f64)>> = HashMap::new();
        while let Some(step) = from {
            let (path, step) = (format!("/api/v1/jobs/{}/metrics", job.id), step.to_string());
            let query = [("times", "1"), ("from", step.as_str()), ("series", list.as_str())];
            let page: JobMetricsDocument = get_document(transport, &path, &query)?;
            for one in page.series {
                let known = points.entry(one.name.clone()).or_default();
                for point in one.points {
                    let MetricSeriesPoint::Timed(step, value, at_ms) = point else { continue };
                    if last_steps.get(&one.name).is_none_or(|last| step > *last) {
                        known.push((at_ms, value.unwrap_or(f64::NAN)));
                        last_steps.insert(one.name.clone(), step);
                    }
                }
            }
            from = page.next;
        }
        self.cursors.insert(job.id.clone(), SeriesCursor { version, names, last_steps });
        let new = points.into_iter().filter(|(_, points)| is_whole || !points.is_empty());
        Ok(new
            .map(|(name, points)| RecordedSeries {
                kind: OwnerKind::Job,
                owner: job.name.clone(),
                name,
                is_whole,
                points,
            })
            .collect())
    }
}

fn chosen_names(job: &JobDocument, request: &PollRequest) -> BTreeSet<String> {
    let key = |name: &String| SeriesKey {
        kind: OwnerKind::Job,
        name: name.clone(),
        host: request.host,
        owner: job.name.clone(),
    };
    let is_chosen = |name: &&String| request.selection.contains(&key(name));
    job.metrics.keys().filter(is_chosen).cloned().collect()
}

//! The figures of a load, as a document and as tables.

use serde::Serialize;

use super::super::device::{format_rate, format_seconds};
use super::super::saved_result::{BetterDirection, MeasuredSeries};
use super::load_connection::FailureCause;
use super::load_recorder::{LatencyHistogram, LoadInterval, RequestCounts};
use super::load_run::{LoadOutcome, LoadPlan};
use super::server_timing::PHASES;
use super::server_usage::ServerUsage;
use crate::output::CliOutput;
use crate::units;

/// The schedule counts as late if a twentieth of the requests was later than this.
const LATENESS_SECONDS_MAX: f64 = 1e-3;

/// A distribution of times in seconds; `None` if nothing was measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct TimeDistribution {
    mean: Option<f64>,
    p50: Option<f64>,
    p95: Option<f64>,
    p99: Option<f64>,
    max: Option<f64>,
}

/// A cause and the number of requests that failed by it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct FailureCount {
    #[serde(flatten)]
    cause: FailureCause,
    requests: u64,
}

/// A phase of predictions in the server.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct PhaseResult {
    phase: &'static str,
    seconds: TimeDistribution,
}

/// Processor time of the client.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct ClientResult {
    threads: usize,
    /// The cores that it kept busy on average.
    cores_busy: f64,
    /// The share of the machine's cores.
    machine_share: f64,
    /// Whether its threads were busy almost all the time, so that the client can be what was measured.
    saturated: bool,
    /// The time by which it began 95 percent of requests after they were due at most; null in a closed loop.
    schedule_late_p95_seconds: Option<f64>,
}

/// The figures of one load.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct LoadResult {
    pub(super) connections: usize,
    /// Requests per second that were due; null in a closed loop.
    rate: Option<f64>,
    /// Answers per second in the measured time.
    pub(super) requests_per_second: f64,
    /// The requests that were due in the measured time.
    pub(super) requests: RequestTotals,
    /// The requests of the warm-up, which count for nothing else.
    warm_up: RequestTotals,
    /// From when a request was due, or sent in a closed loop, to its complete answer.
    latency_seconds: TimeDistribution,
    failures: Vec<FailureCount>,
    /// The time in the server by phase, as far as the server reports it.
    phases: Vec<PhaseResult>,
    /// The mean time outside the server's phases: network, the server's connection handling and the client.
    outside_seconds: Option<f64>,
    /// What the server used in the measured time; null if its metrics cannot be read.
    server: Option<ServerUsage>,
    client: ClientResult,
    /// The versions that answered, with the digests of their weights.
    pub(super) versions: Vec<String>,
    /// Whether the server no longer answered at the end.
    pub(super) server_lost: bool,
}

/// Requests by how they ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct RequestTotals {
    pub(super) answered: u64,
    pub(super) failed: u64,
}

impl From<RequestCounts> for RequestTotals {
    fn from(counts: RequestCounts) -> RequestTotals {
        RequestTotals { answered: counts.answered, failed: counts.failed }
    }
}

impl TimeDistribution {
    fn of(times: &LatencyHistogram) -> TimeDistribution {
        TimeDistribution {
            mean: times.mean(),
            p50: times.quantile(0.5),
            p95: times.quantile(0.95),
            p99: times.quantile(0.99),
            max: times.max(),
        }
    }
}

impl LoadResult {
    /// Returns the figures of a load. `rate` is that of an open loop.
    pub(super) fn new(plan: &LoadPlan, rate: Option<f64>, outcome: &LoadOutcome) -> LoadResult {
        let recorder = &outcome.recorder;
        let phase = |(&phase, times): (&&'static str, &LatencyHistogram)| {
            (times.count() > 0).then(|| PhaseResult { phase, seconds: TimeDistribution::of(times) })
        };
        let phases: Vec<PhaseResult> = PHASES.iter().zip(&recorder.phases).filter_map(phase).collect();
        let in_server = recorder.phases.last().and_then(LatencyHistogram::mean);
        // In an open loop, a request can wait for a connection before it is sent, so this includes that time.
        let outside = recorder.latency.mean().zip(in_server).map(|(all, in_server)| (all - in_server).max(0.0));
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = plan.threads.min(plan.connections);
        let failures = recorder.failures.iter();
        LoadResult {
            connections: plan.connections,
            rate,
            requests_per_second: recorder.answers_per_second(),
            requests: recorder.measured.into(),
            warm_up: recorder.warm_up.into(),
            latency_seconds: TimeDistribution::of(&recorder.latency),
            failures: failures.map(|(cause, &requests)| FailureCount { cause: cause.clone(), requests }).collect(),
            phases,
            outside_seconds: outside,
            server: outcome.server,
            client: ClientResult {
                threads,
                cores_busy: outcome.client.cores(),
                machine_share: outcome.client.cores() / cores as f64,
                saturated: outcome.client.is_saturated(threads),
                schedule_late_p95_seconds: outcome.lateness.as_ref().and_then(|late| late.quantile(0.95)),
            },
            versions: recorder.versions.iter().cloned().collect(),
            server_lost: recorder.lost_server(),
        }
    }

    /// Returns the requests per second that were due, or `None` in a closed loop.
    pub(super) fn rate(&self) -> Option<f64> {
        self.rate
    }

    /// Returns the series by which two results are compared: one sample for each interval of the measured time.
    pub(super) fn series(&self, outcome: &LoadOutcome) -> Vec<MeasuredSeries> {
        let group = match self.rate {
            Some(rate) => format!("{} connections, {rate} requests/s", self.connections),
            None => format!("{} connections", self.connections),
        };
        let latency = |name: &str, share: f64| {
            let quantile = |interval: &LoadInterval| interval.latency.quantile(share);
            let samples = outcome.recorder.intervals.iter().filter_map(quantile).collect();
            MeasuredSeries { group: group.clone(), name: name.to_owned(), better: BetterDirection::Lower, samples }
        };
        vec![
            MeasuredSeries {
                group: group.clone(),
                name: "requests/s".to_owned(),
                better: BetterDirection::Higher,
                samples: outcome.recorder.interval_rates(),
            },
            latency("p50 seconds", 0.5),
            latency("p95 seconds", 0.95),
            latency("p99 seconds", 0.99),
        ]
    }

    /// Returns the warnings about this load.
    pub(super) fn warnings(&self) -> Vec<String> {
        let connections = self.connections;
        let mut warnings = Vec::new();
        if self.client.saturated {
            let (busy, threads) = (self.client.cores_busy, self.client.threads);
            warnings.push(format!("{connections} connections: the client kept {busy:.2} of its {threads} threads busy, so it limits the figures: use more --threads, or another machine for the client"));
        }
        if let Some(late) = self.client.schedule_late_p95_seconds.filter(|late| *late > LATENESS_SECONDS_MAX) {
            let late = format_seconds(late);
            warnings.push(format!("{connections} connections: a twentieth of the requests was due more than {late} before the client began it: the machine is too busy for this rate"));
        }
        for FailureCount { cause, requests } in &self.failures {
            warnings.push(format!("{connections} connections: {requests} requests failed: {cause}"));
        }
        if self.server_lost {
            warnings.push(format!("{connections} connections: the server did not answer at the end"));
        }
        if self.versions.len() > 1 {
            warnings
                .push(format!("{connections} connections: several versions answered: {}", self.versions.join(", ")));
        }
        warnings
    }
}

/// Prints the figures of all loads.
pub(super) fn print_results(results: &[LoadResult], output: CliOutput) {
    let time = |seconds: Option<f64>| seconds.map_or_else(|| "-".to_owned(), format_seconds);
    let row = |load: &LoadResult| {
        let latency = &load.latency_seconds;
        vec![
            load.connections.to_string(),
            format_rate(load.requests_per_second),
            time(latency.p50),
            time(latency.p95),
            time(latency.p99),
            time(latency.max),
            load.requests.answered.to_string(),
            load.requests.failed.to_string(),
            format!("{:.0}% of the machine", load.client.machine_share * 100.0),
        ]
    };
    let headers = ["CONNECTIONS", "REQUESTS/S", "P50", "P95", "P99", "MAX", "ANSWERED", "FAILED", "CLIENT"];
    output.print_table(&headers, &results.iter().map(row).collect::<Vec<_>>());
    let phases = |load: &LoadResult| {
        let seconds = |name: &str| load.phases.iter().find(|it| it.phase == name).and_then(|it| it.seconds.mean);
        let mut cells = vec![load.connections.to_string()];
        cells.extend(PHASES.iter().map(|phase| time(seconds(phase))));
        cells.push(time(load.outside_seconds));
        // Per answer, so that the phases beside them can be compared.
        let each = |total: f64| total / (load.requests.answered as f64).max(1.0);
        cells.push(load.server.map_or_else(|| "-".to_owned(), |server| format_seconds(each(server.device_seconds))));
        let copied = load.server.map(|server| units::format_bytes(each(server.copied_bytes) as u64));
        cells.push(copied.unwrap_or_else(|| "-".to_owned()));
        cells.push(load.server.map_or_else(|| "-".to_owned(), |server| format_seconds(each(server.cpu_seconds))));
        cells
    };
    output.print_line("");
    let headers = [
        "CONNECTIONS",
        "READ",
        "DECODE",
        "QUEUE",
        "COMPUTE",
        "ENCODE",
        "IN SERVER",
        "OUTSIDE",
        "DEVICE",
        "COPIED",
        "SERVER CPU",
    ];
    output.print_table(&headers, &results.iter().map(phases).collect::<Vec<_>>());
}

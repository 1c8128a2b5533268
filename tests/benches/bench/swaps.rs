//! A thousand weight swaps under load: no request fails, latency does not rise, memory does not grow.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use saggar_tests::{HttpPayload, ServerProcess, copy_version};
use serde_json::json;

use crate::client::{HttpConnection, encode_post, port_of_url};
use crate::processes::rss_mb;
use crate::report::{BenchGoal, BenchReport};
use crate::stage::{BenchFixture, vector_json};
use crate::statistics::{percentile, slope};

const MODEL: &str = "swapped";
const CONNECTIONS: usize = 64;
/// Number of swaps between two samples of resident memory.
const SAMPLE_SWAPS: u64 = 100;
/// Minimum pause between two swaps. A longer swap is followed by a pause as long as itself, so that time outside of
/// swaps always exists to compare with.
const PAUSE: Duration = Duration::from_millis(80);
/// A swap's window begins this long before it, for requests in flight, and ends this long after it, because its effects
/// can be delayed.
const WINDOW_MARGIN: Duration = Duration::from_millis(15);
/// Number of old copied versions that are kept; older ones are removed.
const VERSIONS_KEPT: u64 = 4;

/// A request: its start in seconds since the load began, its duration, and whether the response was 200.
type RequestSample = (f64, f64, bool);

pub(crate) fn measure(stage: &BenchFixture, server: &ServerProcess, report: &mut BenchReport) {
    let swaps = std::env::var("SWAPS").ok().and_then(|swaps| swaps.parse().ok()).unwrap_or(1000);
    stage.publish_linear(server, MODEL, 1, 0, 1);
    stage.publish_linear(server, MODEL, 2, 0, 1);
    let swap = VersionSwapper::new(stage, server);
    println!("\n{swaps} swaps of weights under {CONNECTIONS} connections, by {}", swap.swap_method());
    let (over, began) = (AtomicBool::new(false), Instant::now());
    let (mut windows, mut resident, mut device, mut pause) = (Vec::new(), Vec::new(), Vec::new(), PAUSE);
    let samples: Vec<RequestSample> = std::thread::scope(|scope| {
        let clients: Vec<_> =
            (0..CONNECTIONS).map(|_| scope.spawn(|| send_requests_until(server, &over, began))).collect();
        for number in 0..swaps {
            if number % SAMPLE_SWAPS == 0 {
                resident.push(rss_mb(server.pid()));
                device.push(device_bytes(server));
            }
            std::thread::sleep(pause);
            let start = began.elapsed().saturating_sub(WINDOW_MARGIN);
            swap.swap(number);
            let end = began.elapsed() + WINDOW_MARGIN;
            windows.push((start.as_secs_f64(), end.as_secs_f64()));
            pause = PAUSE.max(end - start);
        }
        std::thread::sleep(pause);
        resident.push(rss_mb(server.pid()));
        device.push(device_bytes(server));
        over.store(true, Ordering::Release);
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
    });
    report_swaps(&samples, &windows, &resident, &device, report);
}

fn report_swaps(
    samples: &[RequestSample],
    windows: &[(f64, f64)],
    resident: &[f64],
    device: &[f64],
    report: &mut BenchReport,
) {
    let failed = samples.iter().filter(|sample| !sample.2).count();
    // By the start of a request: if all requests that overlap a window counted, long requests would be overrepresented.
    let in_window = |&(start, ..): &RequestSample| {
        let at = windows.partition_point(|window| window.1 < start);
        windows.get(at).is_some_and(|window| window.0 <= start)
    };
    let (inside, outside): (Vec<&RequestSample>, Vec<&RequestSample>) =
        samples.iter().partition(|sample| in_window(sample));
    let p99_ms = |samples: &[&RequestSample]| percentile(samples.iter().map(|sample| sample.1 * 1e3).collect(), 99.0);
    let (inside_ms, outside_ms) = (p99_ms(&inside), p99_ms(&outside));
    println!("  {} requests, {failed} failed", samples.len());
    println!("  p99 in swaps {inside_ms:.2} ms of {}, outside {outside_ms:.2} ms of {}", inside.len(), outside.len());
    // The first part fills pools and buffers.
    let settled = &resident[resident.len().min(2)..];
    println!("  resident MB at every {SAMPLE_SWAPS} swaps: {resident:.1?}");
    println!("  device bytes at every {SAMPLE_SWAPS} swaps: {device:?}");
    report.add_goal("swaps: failed requests", failed as f64, "", BenchGoal::AtMost(0.0));
    report.add_goal("swaps: p99 in windows / outside", inside_ms / outside_ms, "x", BenchGoal::AtMost(1.2));
    if settled.len() > 2 {
        report.add_goal("swaps: resident memory per 100", slope(settled), " MB", BenchGoal::AtMost(0.1));
    }
    let growth = device.last().unwrap_or(&f64::NAN) - device.get(1).unwrap_or(&f64::NAN);
    report.add_goal("swaps: device bytes, growth after the first 100", growth, "", BenchGoal::AtMost(0.0));
}

/// Sends requests on one connection until `over` is set. A broken connection is a failed request, and is opened again.
fn send_requests_until(server: &ServerProcess, over: &AtomicBool, began: Instant) -> Vec<RequestSample> {
    let (port, request) =
        (port_of_url(server.url()), encode_post(&format!("/models/{MODEL}/predict"), "", &vector_json()));
    let (mut samples, mut connection) = (Vec::new(), None);
    while !over.load(Ordering::Acquire) {
        let start = Instant::now();
        let mut open = connection.take().map_or_else(|| HttpConnection::open(port), Ok);
        let status = open.as_mut().map_err(|_| ()).and_then(|open| open.send(&request).map_err(|_| ()));
        samples.push(((start - began).as_secs_f64(), start.elapsed().as_secs_f64(), status == Ok(200)));
        connection = open.ok().filter(|_| status.is_ok());
    }
    samples
}

/// Returns the bytes of device memory in use, by all owners.
fn device_bytes(server: &ServerProcess) -> f64 {
    let page = server.request("GET", "/metrics", HttpPayload::Nothing).text;
    let values = page.lines().filter(|line| line.starts_with("saggar_device_memory_bytes{"));
    values.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

/// Changes which version serves.
struct VersionSwapper<'a> {
    stage: &'a BenchFixture,
    server: &'a ServerProcess,
    promotes: bool,
}

impl<'a> VersionSwapper<'a> {
    fn new(stage: &'a BenchFixture, server: &'a ServerProcess) -> VersionSwapper<'a> {
        let answer = server.request(
            "POST",
            &format!("/api/v1/models/{MODEL}/promote"),
            HttpPayload::Json(&json!({ "version": 2 })),
        );
        VersionSwapper { stage, server, promotes: answer.status == 200 }
    }

    fn swap_method(&self) -> &'static str {
        if self.promotes { "promoting two versions in turn" } else { "copying version directories" }
    }

    /// Swaps and waits until the other version serves.
    fn swap(&self, number: u64) {
        let version = if self.promotes { 1 + number % 2 } else { 3 + number };
        if self.promotes {
            let path = format!("/api/v1/models/{MODEL}/promote");
            let answer = self.server.request("POST", &path, HttpPayload::Json(&json!({ "version": version })));
            assert_eq!(answer.status, 200, "{}", answer.text);
        } else {
            let model = self.stage.home().join("models").join(MODEL);
            copy_version(&model, 1 + number % 2, version);
            self.server.wait_for_version(MODEL, version);
            if version > 2 + VERSIONS_KEPT {
                std::fs::remove_dir_all(model.join((version - VERSIONS_KEPT).to_string())).unwrap();
            }
            return;
        }
        self.server.wait_for_version(MODEL, version);
    }
}

//! Closed-loop load by `wrk`, outside every process under test.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::processes::cpu_us;
use crate::statistics::median;

/// Seconds of one run. Runs are short and many: contenders take turns, so that noise affects all of them alike.
const SECONDS: u32 = 3;
/// Number of turns of each contender.
const ROUNDS: usize = 4;

/// The script of `wrk`: what it sends, prints at the end and reads from the environment: headers, a body, percentiles
/// in microseconds.
const SCRIPT: &str = r#"
wrk.method = 'POST'
for name, value in string.gmatch(os.getenv('BENCH_HEADERS'), '([^:;]+):([^;]+)') do wrk.headers[name] = value end
local file = io.open(os.getenv('BENCH_BODY'), 'rb')
wrk.body = file:read('*a')
file:close()
function done(summary, latency, requests)
    local e = summary.errors
    print(string.format('bench %d %d %d %d %d %d %d', summary.requests - e.status, summary.duration,
        latency:percentile(50), latency:percentile(95), latency:percentile(99), e.status,
        e.connect + e.read + e.write + e.timeout))
end
"#;

/// A request that is sent repeatedly.
#[derive(Clone, Debug)]
pub(crate) struct LoadRequest {
    body: PathBuf,
    script: PathBuf,
    headers: String,
}

impl LoadRequest {
    /// Returns a request with this body, stored in `dir` under `name`. Header values must not contain `;`.
    pub(crate) fn new(dir: &Path, name: &str, headers: &[(&str, &str)], body: &[u8]) -> LoadRequest {
        let (file, script) = (dir.join(format!("{name}.body")), dir.join("wrk.lua"));
        std::fs::write(&file, body).unwrap();
        std::fs::write(&script, SCRIPT).unwrap();
        let headers: Vec<String> = headers.iter().map(|(name, value)| format!("{name}:{value}")).collect();
        LoadRequest { body: file, script, headers: headers.join(";") }
    }

    /// Returns its body, if it is JSON.
    pub(crate) fn json_body(&self) -> serde_json::Value {
        serde_json::from_slice(&std::fs::read(&self.body).unwrap()).unwrap()
    }

    /// Returns a request with a JSON body.
    pub(crate) fn json(dir: &Path, name: &str, body: &str) -> LoadRequest {
        LoadRequest::new(dir, name, &[("content-type", "application/json")], body.as_bytes())
    }
}

/// A server under load.
#[derive(Clone, Debug)]
pub(crate) struct LoadTarget {
    pub(crate) name: String,
    pub(crate) url: String,
    pub(crate) pid: u32,
    pub(crate) request: LoadRequest,
}

/// The results of a load; times in microseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LoadResult {
    /// Successful responses per second.
    pub(crate) rate: f64,
    pub(crate) p50: f64,
    pub(crate) p95: f64,
    pub(crate) p99: f64,
    /// CPU time of the contender's processes per successful response.
    pub(crate) cpu: f64,
    /// Responses of 400 and above, and broken connections.
    pub(crate) failed: u64,
}

/// Loads every contender in turn, several times, and returns the median of each figure for each contender.
pub(crate) fn run_interleaved(contenders: &[LoadTarget], connections: u32) -> Vec<LoadResult> {
    let mut runs = vec![Vec::new(); contenders.len()];
    for _ in 0..ROUNDS {
        for (contender, runs) in contenders.iter().zip(&mut runs) {
            runs.push(contender.run_load(connections, SECONDS));
        }
    }
    runs.iter().map(|runs| LoadResult::median(runs)).collect()
}

impl LoadResult {
    /// Returns the median of each figure; of failures, the sum.
    pub(crate) fn median(runs: &[LoadResult]) -> LoadResult {
        let figure = |of: fn(&LoadResult) -> f64| median(runs.iter().map(of).collect());
        LoadResult {
            rate: figure(|run| run.rate),
            p50: figure(|run| run.p50),
            p95: figure(|run| run.p95),
            p99: figure(|run| run.p99),
            cpu: figure(|run| run.cpu),
            failed: runs.iter().map(|run| run.failed).sum(),
        }
    }
}

impl LoadTarget {
    /// Runs the load once.
    pub(crate) fn run_load(&self, connections: u32, seconds: u32) -> LoadResult {
        let (used, threads) = (cpu_us(self.pid), connections.min(2).to_string());
        let output = Command::new("wrk")
            .args(["-t", &threads, "-c", &connections.to_string(), "-d", &format!("{seconds}s"), "--timeout", "10s"])
            .arg("-s")
            .arg(&self.request.script)
            .arg(&self.url)
            .env("BENCH_BODY", &self.request.body)
            .env("BENCH_HEADERS", &self.request.headers)
            .output()
            .expect("wrk is installed: `.ci/setup bench` does it");
        let used = cpu_us(self.pid) - used;
        let text = String::from_utf8_lossy(&output.stdout);
        let line = text.lines().find_map(|line| line.strip_prefix("bench "));
        let line = line.unwrap_or_else(|| panic!("{}: wrk said {text}", self.name));
        let figures: Vec<f64> = line.split(' ').map(|figure| figure.parse().unwrap()).collect();
        let [answers, duration_us, p50, p95, p99, refused, broken] = figures[..] else { panic!("wrk said {line}") };
        let (rate, cpu, failed) = (answers / duration_us * 1e6, used / answers.max(1.0), (refused + broken) as u64);
        LoadResult { rate, p50, p95, p99, cpu, failed }
    }
}

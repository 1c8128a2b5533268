//! More requests than a server can handle: it admits as many as its capacity, answers those, and refuses the others at
//! once. `make bench ONLY=overload` measures the throughput under overload.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "in a test, to unwrap is to assert; figures are shown")]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use saggar_tests::{HttpPayload, ServerProcess, guest, request, series_value};
use serde_json::{Value, json};
use ureq::Agent;

/// Predictions that the model admits at once. Each client always has one outstanding.
const CAPACITY: u64 = 8;
const CLIENTS: u64 = 10 * CAPACITY;
const DEADLINE: Duration = Duration::from_secs(30);
/// Number of responses and refusals after which the load ends.
const ANSWERS: u64 = 100;
const REFUSALS: u64 = 1000;

const PREDICT: &str = "/models/matmul/predict";

/// Returns the input of client `client`. The output differs for each client.
fn input(client: u64) -> Value {
    json!({ "x": vec![client as f64 / CLIENTS as f64; 784] })
}

/// Returns the number of predictions that the model has admitted: queued and running ones.
fn admitted_predictions(server: &ServerProcess) -> u64 {
    let metrics = server.metrics();
    let value = |name: &str| {
        let series = format!("saggar_predict_{name}{{model=\"matmul\",version=\"1\"}}");
        series_value(&metrics, &series).unwrap_or_else(|| panic!("{series} is missing")) as u64
    };
    value("in_flight") + value("queue_length")
}

/// The counts of responses and refusals, and whether there are enough.
#[derive(Default)]
struct LoadCounts {
    answered: AtomicU64,
    refused: AtomicU64,
    over: AtomicBool,
}

/// Ends the load when it is dropped, also by a panic.
struct StopLoadOnDrop<'c>(&'c LoadCounts);

impl Drop for StopLoadOnDrop<'_> {
    fn drop(&mut self) {
        self.0.over.store(true, Ordering::Relaxed);
    }
}

/// Sends requests until the load ends. A response must be correct and in time; a refusal must say when to retry.
fn run_client(url: &str, client: u64, expected: &str, counts: &LoadCounts) {
    let agent = Agent::new_with_config(Agent::config_builder().http_status_as_error(false).build());
    let (input, _ending) = (input(client), StopLoadOnDrop(counts));
    while !counts.over.load(Ordering::Relaxed) {
        let began = Instant::now();
        let answer = request(&agent, "POST", url, HttpPayload::Json(&input)).unwrap();
        match answer.status {
            200 => {
                assert_eq!(answer.text, expected, "client {client}");
                assert!(began.elapsed() < DEADLINE, "client {client} waited for {:?}", began.elapsed());
                counts.answered.fetch_add(1, Ordering::Relaxed);
            }
            429 | 503 => {
                let seconds: u64 = answer.header("retry-after").parse().unwrap();
                assert!((1..=60).contains(&seconds), "come again in {seconds} s");
                assert_eq!(answer.json()["code"], "queue_full", "{}", answer.text);
                counts.refused.fetch_add(1, Ordering::Relaxed);
            }
            status => panic!("neither answered nor refused: {status} {}", answer.text),
        }
    }
}

#[test]
fn under_ten_times_the_load_admitted_requests_are_answered_and_the_rest_refused() {
    let (_home, server) = ServerProcess::start_in_temp_dir();
    // Slow enough that clients send faster than it computes.
    let plugin = guest("matmul");
    server.saggar_ok(&["run", plugin.to_str().unwrap(), "--wait", "--", "depth=8", "width=1024"]);
    server.wait_for_version("matmul", 1);
    let config = json!({
        "batch": { "max_items": 1 },
        "queue": { "capacity": CAPACITY, "timeout": format!("{}s", DEADLINE.as_secs()) },
        "instances": { "max": 1 },
    });
    let configured = server.request("PUT", "/api/v1/models/matmul/config", HttpPayload::Json(&config));
    assert_eq!(configured.status, 200, "{}", configured.text);
    let alone = |client| {
        let answer = server.request("POST", PREDICT, HttpPayload::Json(&input(client)));
        assert_eq!(answer.status, 200, "{}", answer.text);
        answer.text
    };
    let expected: Vec<String> = (0..CLIENTS).map(alone).collect();

    let (counts, url) = (LoadCounts::default(), format!("{}{PREDICT}", server.url()));
    let most = std::thread::scope(|scope| {
        for (number, expected) in (0..).zip(&expected) {
            let (counts, url) = (&counts, &url);
            scope.spawn(move || run_client(url, number, expected, counts));
        }
        let _ending = StopLoadOnDrop(&counts);
        let mut most = 0;
        server.wait_for("answers and refusals", |server| {
            assert!(!counts.over.load(Ordering::Relaxed), "a client failed");
            most = most.max(admitted_predictions(server));
            let [answered, refused] = [&counts.answered, &counts.refused].map(|count| count.load(Ordering::Relaxed));
            (answered >= ANSWERS && refused >= REFUSALS).then_some(())
        });
        most
    });
    let (answered, refused) = (counts.answered.into_inner(), counts.refused.into_inner());
    println!("{CLIENTS} clients: {answered} answers, {refused} refusals, at most {most} predictions at once");
    // The two gauges are read one after the other, and a prediction can move from one to the other in between.
    assert!((CAPACITY / 2..=CAPACITY + 1).contains(&most), "{most} predictions at once");
    // The model is back to normal at once.
    assert_eq!(alone(3), expected[3]);
    assert_eq!(admitted_predictions(&server), 0);
    let rejected = format!("saggar_requests_rejected_total{{reason=\"queue_full\"}} {refused}");
    let metrics = server.request("GET", "/metrics", HttpPayload::Nothing).text;
    assert!(metrics.contains(&rejected), "{rejected} expected: {metrics}");
}

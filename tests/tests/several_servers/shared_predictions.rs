//! Predictions that clients begin on one server and read or cancel on another one, with one database and one bucket.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests fail by panic, and say what they measured")]

use std::time::{Duration, Instant};

use saggar_tests::{BucketCluster, HttpPayload, ServerProcess, guest};
use serde_json::{Value, json};
use ureq::Agent;

/// Time in which a cancellation on one server ends the computation on another one.
const CANCEL_TIME_MAX: Duration = Duration::from_secs(5);
/// Time from the end of a server until its predictions have failed: 15 s without a renewal.
const LOST_TIME_MAX: Duration = Duration::from_secs(20);

/// The servers `a` and `b`, which both serve the model `busy`: it returns its input, and computes for minutes if the first
/// number is negative.
struct PredictionServers {
    a: ServerProcess,
    b: ServerProcess,
    _cluster: BucketCluster,
}

impl PredictionServers {
    /// Returns `None` if PostgreSQL or moto is not installed and not required.
    fn start() -> Option<PredictionServers> {
        let cluster = BucketCluster::start()?;
        let (a, b) = (cluster.start_server("a", &[]), cluster.start_server("b", &[]));
        let plugin = guest("hostile");
        let train = ["--wait", "--", "train=well", "model=busy", "load=well", "predict=late-loop"];
        a.saggar_ok(&[&["run", plugin.to_str().unwrap()][..], &train].concat());
        for server in [&a, &b] {
            server.wait_for_version("busy", 1);
        }
        Some(PredictionServers { a, b, _cluster: cluster })
    }
}

/// Sends a request with header fields, and returns the status and the body.
fn send(server: &ServerProcess, method: &str, path: &str, headers: &[(&str, &str)], body: &Value) -> (u16, Value) {
    let config = Agent::config_builder().http_status_as_error(false).timeout_global(Some(Duration::from_secs(120)));
    let mut request = ureq::http::Request::builder().method(method).uri(format!("{}{path}", server.url()));
    request = request.header("content-type", "application/json");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(body.to_string()).unwrap();
    let mut answer = Agent::new_with_config(config.build()).run(request).unwrap();
    let status = answer.status().as_u16();
    let text = answer.body_mut().with_config().limit(1 << 28).read_to_string().unwrap();
    (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
}

fn input(first: f64) -> Value {
    json!({ "model": "busy", "input": { "x": [[first, 1.5, 2.0, 3.0]] } })
}

const ASYNC: (&str, &str) = ("prefer", "respond-async");
/// A deadline of ten minutes, so that only the test ends the prediction.
const PATIENT: (&str, &str) = ("x-saggar-deadline-ms", "600000");

fn get(server: &ServerProcess, id: &str) -> Value {
    let (status, found) = send(server, "GET", &format!("/predictions/{id}"), &[], &Value::Null);
    assert_eq!(status, 200, "{found}");
    found
}

fn wait_for_status(server: &ServerProcess, id: &str, expected: &str) -> Value {
    server.wait_for(expected, |server| {
        let found = get(server, id);
        (found["status"] == expected).then_some(found)
    })
}

/// Returns the number of predictions that a server computes.
fn in_flight(server: &ServerProcess) -> f64 {
    server.metric("saggar_predict_in_flight{model=\"busy\",version=\"1\"}").unwrap_or(0.0)
}

#[test]
fn a_prediction_of_one_server_is_read_awaited_and_repeated_on_the_other() {
    let Some(PredictionServers { a, b, _cluster }) = PredictionServers::start() else { return };
    let (status, put) = send(&a, "PUT", "/predictions/one", &[], &input(0.5));
    assert_eq!((status, &put["status"]), (200, &json!("succeeded")), "{put}");
    assert_eq!(put["output"]["y"], json!([[0.5, 1.5, 2.0, 3.0]]), "{put}");
    assert_eq!((get(&b, "one"), get(&a, "one")), (put.clone(), put.clone()));
    // The same request is answered, and not computed again.
    let computed = |server: &ServerProcess| {
        server.metric("saggar_predict_requests_total{model=\"busy\",version=\"1\",outcome=\"ok\"}")
    };
    let before = computed(&b);
    let (status, again) = send(&b, "PUT", "/predictions/one", &[], &input(0.5));
    assert_eq!((status, &again), (200, &put));
    assert_eq!(computed(&b), before);
    let (status, other) = send(&b, "PUT", "/predictions/one", &[], &input(0.75));
    assert_eq!(status, 409, "{other}");
    let (status, missing) = send(&b, "GET", "/predictions/none", &[], &Value::Null);
    assert_eq!(status, 404, "{missing}");
    // A prediction without an identifier of the client, and the events of one that is over.
    let (status, begun) = send(&a, "POST", "/predictions", &[ASYNC], &input(0.25));
    assert_eq!(status, 202, "{begun}");
    let id = begun["id"].as_str().unwrap();
    let (status, ended) = send(&b, "GET", &format!("/predictions/{id}"), &[("prefer", "wait=30")], &Value::Null);
    assert_eq!((status, &ended["status"]), (200, &json!("succeeded")), "{ended}");
    assert_eq!(get(&a, id), ended);
    let accept = [("accept", "text/event-stream")];
    let (status, events) = send(&b, "GET", &format!("/predictions/{id}"), &accept, &Value::Null);
    let events = events.as_str().unwrap().to_owned();
    assert!(status == 200 && events.contains("event: start") && events.contains("event: completed"), "{events}");
}

#[test]
fn a_prediction_that_two_servers_are_asked_for_at_once_is_computed_once_and_canceled_from_the_other() {
    let Some(PredictionServers { a, b, _cluster }) = PredictionServers::start() else { return };
    for round in 0..4 {
        let path = format!("/predictions/twice-{round}");
        let (first, second) = std::thread::scope(|scope| {
            let (a, b, path) = (&a, &b, path.as_str());
            let put = move |server: &ServerProcess| send(server, "PUT", path, &[ASYNC, PATIENT], &input(-1.0));
            let (first, second) = (scope.spawn(move || put(a)), scope.spawn(move || put(b)));
            (first.join().unwrap(), second.join().unwrap())
        });
        assert_eq!((first.0, second.0), (202, 202), "{first:?} {second:?}");
        assert_eq!(first.1["created_at"], second.1["created_at"], "both are the same prediction");
        let began = Instant::now();
        let computing = || [in_flight(&a), in_flight(&b)];
        a.wait_for("the computation", |_| (computing().iter().sum::<f64>() == 1.0).then_some(()));
        // The other server waits for the end, without computing.
        let owner = computing().iter().position(|count| *count == 1.0).unwrap();
        let (owner, other) = if owner == 0 { (&a, &b) } else { (&b, &a) };
        let id = format!("twice-{round}");
        assert_eq!(
            (&get(owner, &id)["status"], &get(other, &id)["status"]),
            (&json!("processing"), &json!("processing"))
        );
        assert_eq!(get(owner, &id), get(other, &id));
        let canceled_at = Instant::now();
        let (status, canceled) = send(other, "POST", &format!("{path}/cancel"), &[], &Value::Null);
        assert_eq!((status, &canceled["status"]), (200, &json!("canceled")), "{canceled}");
        owner.wait_for("the end of the computation", |owner| (in_flight(owner) == 0.0).then_some(()));
        println!("canceled on the owner after {:.1} s", canceled_at.elapsed().as_secs_f64());
        assert!(canceled_at.elapsed() < CANCEL_TIME_MAX && began.elapsed() < Duration::from_secs(60));
        assert_eq!((wait_for_status(owner, &id, "canceled"), get(other, &id)), (canceled.clone(), canceled));
    }
}

#[test]
fn a_prediction_of_a_killed_server_fails_on_the_other_and_a_stopped_one_learns_it() {
    let Some(PredictionServers { a, b, _cluster }) = PredictionServers::start() else { return };
    for (server, id) in [(&a, "killed"), (&b, "stopped")] {
        let (status, begun) = send(server, "PUT", &format!("/predictions/{id}"), &[ASYNC, PATIENT], &input(-1.0));
        assert_eq!(status, 202, "{begun}");
    }
    assert_eq!(get(&b, "killed")["status"], "processing");
    a.kill_and_wait();
    let killed_at = Instant::now();
    let failed = wait_for_status(&b, "killed", "failed");
    println!("failed {:.1} s after its server was killed", killed_at.elapsed().as_secs_f64());
    assert!(killed_at.elapsed() < LOST_TIME_MAX, "{:?}", killed_at.elapsed());
    let error = failed["error"].as_str().unwrap();
    assert!(error.contains("server a") && error.contains("gone"), "{error}");
    assert_eq!(get(&b, "stopped")["status"], "processing", "its own one continues");
    // The request can be sent again under another identifier, and the failed one stays.
    let (status, again) = send(&b, "PUT", "/predictions/killed", &[], &input(-1.0));
    assert_eq!((status, &again), (200, &failed));
    // A server that was stopped for a while and continues shows what was decided without it.
    let c = _cluster.start_server("c", &[]);
    c.wait_for_version("busy", 1);
    b.signal("-STOP");
    let stopped_at = Instant::now();
    let failed = wait_for_status(&c, "stopped", "failed");
    assert!(stopped_at.elapsed() < LOST_TIME_MAX, "{:?}", stopped_at.elapsed());
    b.signal("-CONT");
    assert_eq!(wait_for_status(&b, "stopped", "failed"), failed);
}

#[test]
fn the_database_can_be_away_when_a_prediction_ends() {
    let Some(PredictionServers { a, b, _cluster: cluster }) = PredictionServers::start() else { return };
    let (status, begun) = send(&a, "PUT", "/predictions/late", &[ASYNC, PATIENT], &input(-1.0));
    assert_eq!(status, 202, "{begun}");
    cluster.database.stop();
    // Nobody can say whether the identifier is in use, so nothing begins.
    let (status, refused) = send(&b, "PUT", "/predictions/new", &[], &input(0.5));
    assert_eq!((status, &refused["code"]), (503, &json!("database_unavailable")), "{refused}");
    // A prediction that only its client reads needs no row.
    let (status, plain) = send(&b, "POST", "/predictions", &[], &input(0.5));
    assert_eq!((status, &plain["status"]), (200, &json!("succeeded")), "{plain}");
    assert_eq!(get(&a, "late")["status"], "processing");
    cluster.database.start_again();
    b.wait_for("the database", |server| {
        let answer = server.request("GET", "/predictions/late", HttpPayload::Nothing);
        (answer.status == 200 && answer.json()["status"] == "processing").then_some(())
    });
    let (status, canceled) = send(&b, "POST", "/predictions/late/cancel", &[], &Value::Null);
    assert_eq!((status, &canceled["status"]), (200, &json!("canceled")), "{canceled}");
    wait_for_status(&a, "late", "canceled");
}

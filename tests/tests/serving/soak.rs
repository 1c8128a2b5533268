//! Everything at once for two minutes, or for `SOAK_SECONDS` seconds (`make soak`: an hour): clients of every kind,
//! twenty swaps, and trainings one after the other. No request may fail. This test does not measure speed.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use saggar_tests::{HttpPayload, HttpResponse, ServerProcess, copy_version, lenet, root};
use serde_json::{Value, json};

const SECONDS_DEFAULT: u64 = 120;
const SWAPS: u64 = 20;
/// Number of clients of each kind.
const CLIENTS: usize = 2;
/// A training of a few seconds, so that several fit into the shortest soak.
const EPOCHS: &str = "epochs=10";
const RAW: &str = "application/octet-stream";

/// A request and a check of its response.
struct SoakRequest {
    method: &'static str,
    path: &'static str,
    body: SoakBody,
    is_right: fn(&HttpResponse) -> bool,
}

enum SoakBody {
    Nothing,
    Json(Value),
    Bytes(&'static str, Vec<u8>),
}

/// The numbers of successes and failures.
#[derive(Default)]
struct SoakTally {
    over: AtomicBool,
    answered: AtomicU64,
    /// The first few failures are enough.
    failures: Mutex<Vec<String>>,
}

#[test]
fn mixed_load_fails_no_request() {
    let seconds = std::env::var("SOAK_SECONDS").map_or(SECONDS_DEFAULT, |seconds| seconds.parse().unwrap());
    let (home, tally) = (tempfile::tempdir().unwrap(), SoakTally::default());
    let server = ServerProcess::start_with_digits(home.path(), &[]);
    let asks = soak_requests(&server);
    let began = Instant::now();
    let (swaps, trained) = std::thread::scope(|scope| {
        for ask in asks.iter().flat_map(|ask| std::iter::repeat_n(ask, CLIENTS)) {
            scope.spawn(|| ask_until_over(&server, ask, &tally));
        }
        let trainer = scope.spawn(|| train_until_over(&server, &tally));
        // A panic here must still stop the clients.
        let swaps = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let due = |number: u64| Duration::from_secs(seconds) * u32::try_from(number).unwrap() / (SWAPS as u32 + 1);
            for number in 1..=SWAPS {
                ask_until_due(&server, &asks[0], &tally, began, due(number));
                copy_version(&home.path().join("models/digits"), 1, 1 + number);
                server.wait_for_version("digits", 1 + number);
            }
            ask_until_due(&server, &asks[0], &tally, began, due(SWAPS + 1));
            SWAPS
        }));
        tally.over.store(true, Ordering::Release);
        (swaps.unwrap(), trainer.join().unwrap())
    });
    let failures = tally.failures.into_inner();
    assert!(failures.is_empty(), "{} failures: {failures:#?}", failures.len());
    assert_eq!(server.get("/api/v1/models/digits")["serving"], 1 + swaps);
    assert!(!trained.is_empty());
    for (job, state) in &trained {
        assert_eq!(state, "SUCCEEDED", "{job}");
    }
    let answered = tally.answered.into_inner();
    assert!(answered > seconds, "{answered} answers in {seconds} s");
    assert_no_failed_predictions(&server);
}

/// Returns one request of each kind, except those of routes that this server does not have.
fn soak_requests(server: &ServerProcess) -> Vec<SoakRequest> {
    let png = std::fs::read(root().join("examples/digits/held-out/0.png")).unwrap();
    let form =
        ["--soak\r\ncontent-disposition: form-data; name=\"image\"; filename=\"0.png\"\r\n\r\n".as_bytes(), &png];
    let form = [&form.concat()[..], b"\r\n--soak--\r\n"].concat();
    let tensor = json!({ "name": "image", "datatype": "UINT8", "shape": [1, 8, 8], "data": vec![3; 64] });
    let has_label = |answer: &HttpResponse| answer.json()["label"].is_number();
    let is_fine = |_: &HttpResponse| true;
    let predict = "/models/digits/predict";
    let ask = |method, path, body, is_right| SoakRequest { method, path, body, is_right };
    let all = vec![
        ask("POST", predict, SoakBody::Json(json!({ "image": vec![vec![7; 8]; 8] })), has_label),
        ask(
            "POST",
            predict,
            SoakBody::Json(json!({ "image": vec![vec![vec![7; 8]; 8]; 5] })),
            |answer: &HttpResponse| answer.json()["label"].as_array().is_some_and(|labels| labels.len() == 5),
        ),
        ask("POST", predict, SoakBody::Bytes(RAW, vec![9; 64]), has_label),
        ask("POST", predict, SoakBody::Bytes("image/png", png), has_label),
        ask("POST", predict, SoakBody::Bytes("multipart/form-data; boundary=soak", form), has_label),
        ask(
            "POST",
            "/v2/models/digits/infer",
            SoakBody::Json(json!({ "inputs": [tensor] })),
            |answer: &HttpResponse| answer.json()["outputs"].is_array(),
        ),
        ask("GET", "/metrics", SoakBody::Nothing, |answer: &HttpResponse| {
            answer.text.contains("saggar_predict_requests_total")
        }),
        ask("GET", "/api/v1/models", SoakBody::Nothing, is_fine),
        ask("GET", "/api/v1/jobs", SoakBody::Nothing, is_fine),
        ask("GET", "/healthz", SoakBody::Nothing, is_fine),
    ];
    let is_there = |ask: &SoakRequest| send(server, ask).status != 404;
    all.into_iter().filter(is_there).collect()
}

fn send(server: &ServerProcess, ask: &SoakRequest) -> HttpResponse {
    let payload = match &ask.body {
        SoakBody::Nothing => HttpPayload::Nothing,
        SoakBody::Json(value) => HttpPayload::Json(value),
        SoakBody::Bytes(kind, bytes) => HttpPayload::Bytes(kind, bytes),
    };
    server.request(ask.method, ask.path, payload)
}

/// Sends one request. All requests here are valid, so every refusal is a failure.
fn ask_once(server: &ServerProcess, ask: &SoakRequest, tally: &SoakTally) {
    let answer = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| send(server, ask)));
    let wrong = match &answer {
        Ok(answer) if (200..300).contains(&answer.status) && (ask.is_right)(answer) => None,
        Ok(answer) => Some(format!("{}: {}", answer.status, answer.text)),
        Err(_) => Some("no answer".to_owned()),
    };
    match wrong {
        None => drop(tally.answered.fetch_add(1, Ordering::AcqRel)),
        Some(wrong) => {
            let mut failures = tally.failures.lock();
            if failures.len() < 20 {
                failures.push(format!("{} {}: {}", ask.method, ask.path, wrong.chars().take(300).collect::<String>()));
            }
        }
    }
}

fn ask_until_over(server: &ServerProcess, ask: &SoakRequest, tally: &SoakTally) {
    while !tally.over.load(Ordering::Acquire) {
        ask_once(server, ask, tally);
    }
}

fn ask_until_due(server: &ServerProcess, ask: &SoakRequest, tally: &SoakTally, began: Instant, due: Duration) {
    while began.elapsed() < due {
        ask_once(server, ask, tally);
    }
}

/// Trains repeatedly, and returns the result of each training.
fn train_until_over(server: &ServerProcess, tally: &SoakTally) -> Vec<(String, String)> {
    let plugin = lenet();
    let plugin = plugin.to_str().unwrap();
    let mut trained = Vec::new();
    loop {
        let job = format!("soak-{}", trained.len() + 1);
        let run =
            ["run", plugin, "--project", "soak", "--data", "digits", "--device", "cpu", "--", EPOCHS, "model=trained"];
        server.saggar_ok(&run);
        let state = server.wait_for_job(&job)["state"].as_str().unwrap().to_owned();
        trained.push((job, state));
        if tally.over.load(Ordering::Acquire) {
            return trained;
        }
    }
}

/// Checks the server's own counters: no prediction failed.
fn assert_no_failed_predictions(server: &ServerProcess) {
    let page = server.request("GET", "/metrics", HttpPayload::Nothing).text;
    let counts = page.lines().filter(|line| line.starts_with("saggar_predict_requests_total{model=\"digits\""));
    assert!(counts.clone().count() > 0);
    counts.for_each(|line| assert!(line.contains("outcome=\"success\"") || line.ends_with(" 0"), "{line}"));
}

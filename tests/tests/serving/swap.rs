//! Hot swaps: versions are added and reloaded while clients send requests, and no request fails. `SWAPS` sets the
//! number of reloads (`make soak`: 1,000).
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests fail by panic, and say what they measured")]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use saggar_tests::{HttpPayload, ServerProcess, copy_version, lenet, memory_kib};
use serde_json::{Value, json};

const CLIENTS: usize = 16;
const SWAPS: u64 = 30;
/// Default number of reloads.
const RELOADS_DEFAULT: u64 = 100;
/// The first fifth of the reloads, after which the server's memory is stable.
const SETTLED_PART: u64 = 5;
/// The limit on memory growth in KiB over the reloads after those: much less than one leak per reload would add.
const GROWTH_KIB_MAX: u64 = 16 << 10;
/// The limit on growth of device memory in bytes. Larger batches and additional instances can still take some.
const DEVICE_GROWTH_BYTES_MAX: u64 = 1 << 20;

#[test]
fn thirty_version_swaps_under_load_fail_no_request() {
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start_with_digits(home.path(), &[]);
    let models = home.path().join("models/digits");
    let (stop, answered) = (AtomicBool::new(false), AtomicU64::new(0));
    let body = json!({ "image": vec![[0; 8]; 8] });
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| {
                scope.spawn(|| {
                    let mut newest = 0;
                    while !stop.load(Ordering::Acquire) {
                        let answer = server.request("POST", "/models/digits/predict", HttpPayload::Json(&body));
                        assert_eq!(answer.status, 200, "{}", answer.text);
                        let version: u64 = answer.header("x-saggar-model").rsplit('@').next().unwrap().parse().unwrap();
                        assert!(version >= newest, "version {version} answered after {newest}");
                        newest = version;
                        answered.fetch_add(1, Ordering::AcqRel);
                    }
                })
            })
            .collect();
        for version in 2..2 + SWAPS {
            copy_version(&models, 1, version);
            server.wait_for_version("digits", version);
        }
        stop.store(true, Ordering::Release);
        clients.into_iter().for_each(|client| client.join().unwrap());
    });
    assert!(answered.load(Ordering::Acquire) > SWAPS * CLIENTS as u64, "{answered:?} answers");
    let metrics = server.request("GET", "/metrics", HttpPayload::Nothing).text;
    let failed = metrics.lines().filter(|line| line.starts_with("saggar_predict_requests_total{"));
    assert!(failed.clone().count() > 0);
    failed.for_each(|line| assert!(line.contains("outcome=\"success\"") || line.ends_with(" 0"), "{line}"));
}

/// Returns the bytes of device memory in use, by all owners.
fn device_bytes(server: &ServerProcess) -> u64 {
    let page = server.request("GET", "/metrics", HttpPayload::Nothing).text;
    let values = page.lines().filter(|line| line.starts_with("saggar_device_memory_bytes{"));
    values.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap() as u64).sum()
}

#[test]
fn reloads_under_load_fail_no_request_and_leak_no_memory() {
    let reloads: u64 = std::env::var("SWAPS").map_or(RELOADS_DEFAULT, |reloads| reloads.parse().unwrap());
    let settled_after = reloads / SETTLED_PART;
    assert!(settled_after > 0, "too few to tell what grows");
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start_with_digits(home.path(), &[]);
    copy_version(&home.path().join("models/digits"), 1, 2);
    server.wait_for_version("digits", 2);
    let (stop, answered) = (AtomicBool::new(false), AtomicU64::new(0));
    let body = json!({ "image": vec![[0; 8]; 8] });
    let ask = || {
        let answer = server.request("POST", "/models/digits/predict", HttpPayload::Json(&body));
        assert_eq!(answer.status, 200, "{}", answer.text);
        answered.fetch_add(1, Ordering::AcqRel);
        answer.header("x-saggar-model").to_owned()
    };
    let (settled, after) = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| {
                scope.spawn(|| {
                    while !stop.load(Ordering::Acquire) {
                        let by = ask();
                        assert!(["digits@1", "digits@2"].contains(&&*by), "{by}");
                    }
                })
            })
            .collect();
        let mut settled = (0, 0);
        for reload in 0..reloads {
            // The version that does not serve is not loaded, so that each reload loads it.
            let version = 1 + reload % 2;
            server.post("/api/v1/models/digits/promote", &json!({ "version": version }));
            assert_eq!(ask(), format!("digits@{version}"), "reload {reload}");
            if reload == settled_after {
                settled = (memory_kib(server.pid(), "VmRSS"), device_bytes(&server));
            }
        }
        let after = memory_kib(server.pid(), "VmRSS");
        stop.store(true, Ordering::Release);
        clients.into_iter().for_each(|client| client.join().unwrap());
        (settled, after)
    });
    assert!(answered.load(Ordering::Acquire) > reloads * 2, "{answered:?} answers");
    let growth = after.saturating_sub(settled.0);
    assert!(growth < GROWTH_KIB_MAX, "{growth} KiB more than {} KiB", settled.0);
    let growth_bytes = device_bytes(&server).saturating_sub(settled.1);
    assert!(growth_bytes < DEVICE_GROWTH_BYTES_MAX, "{growth_bytes} bytes of devices more than {}", settled.1);
    let swap = server.get("/api/v1/models/digits")["last_swap"].clone();
    assert_eq!(swap["to"], 1 + (reloads - 1) % 2, "{swap}");
    println!("{reloads} reloads, {answered:?} answers, {growth} KiB more than {} KiB", settled.0);
}

/// Number of requests across the swap.
const CACHED_REQUESTS: u64 = 10_000;

#[test]
fn ten_thousand_requests_across_a_swap_get_no_stale_answer_of_the_cache() {
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start_with_digits(home.path(), &[]);
    let plugin = lenet();
    // Another training: its version answers the same image with other probabilities.
    server.saggar_ok(&["run", plugin.to_str().unwrap(), "--data", "digits", "--seed", "7", "--wait", "--", "epochs=1"]);
    server.wait_for_version("digits", 2);
    server.request("PUT", "/api/v1/models/digits/config", HttpPayload::Json(&json!({"cache": {"max_bytes": 1 << 20}})));
    let body = json!({ "image": vec![[9; 8]; 8] });
    let ask = || {
        let answer = server.request("POST", "/models/digits/predict", HttpPayload::Json(&body));
        assert_eq!(answer.status, 200, "{}", answer.text);
        (answer.header("x-saggar-model").to_owned(), answer.json())
    };
    let promote = |version: u64| {
        server.post("/api/v1/models/digits/promote", &json!({ "version": version }));
        let (by, answer) = ask();
        assert_eq!(by, format!("digits@{version}"));
        answer
    };
    let expected = [promote(1), promote(2)];
    assert_ne!(expected[0], expected[1], "a stale answer would look like a new one");
    promote(1);
    let (answered, has_swapped) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                while answered.fetch_add(1, Ordering::AcqRel) < CACHED_REQUESTS {
                    let must_be_new = has_swapped.load(Ordering::Acquire);
                    let (by, answer) = ask();
                    let version: usize = by.rsplit('@').next().unwrap().parse().unwrap();
                    assert!(version == 2 || !must_be_new, "version {version} answered after the swap");
                    assert_eq!(answer, expected[version - 1], "the answer of another version than {by}");
                }
            });
        }
        while answered.load(Ordering::Acquire) < CACHED_REQUESTS / 2 {
            std::thread::yield_now();
        }
        server.post("/api/v1/models/digits/promote", &json!({ "version": 2 }));
        has_swapped.store(true, Ordering::Release);
    });
    let statistics = server.get("/v2/models/digits/stats")["model_stats"].clone();
    let hits: u64 = statistics
        .as_array()
        .unwrap()
        .iter()
        .map(|version| version["inference_stats"]["cache_hit"]["count"].as_u64().unwrap())
        .sum();
    assert!(hits > CACHED_REQUESTS / 4, "the cache answered only {hits} requests: {statistics}");
}

#[test]
fn a_bad_version_is_rejected_with_a_reason_and_the_old_one_serves() {
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start_with_digits(home.path(), &[]);
    let models = home.path().join("models/digits");
    let states = |server: &ServerProcess, version: u64| {
        server.wait_for("the state", |server| {
            let model = server.get("/api/v1/models/digits");
            let versions = model["versions"].as_array().unwrap().clone();
            // Before it is tried, its reason is that it waits.
            versions.into_iter().find(|v| {
                let has_reason = v["reason"].as_str().is_some_and(|reason| !reason.is_empty());
                v["version"] == version && has_reason && v["reason_code"] != "PENDING"
            })
        })
    };

    copy_version(&models, 1, 2);
    let weights = models.join("2/weights.safetensors");
    let whole = std::fs::read(&weights).unwrap();
    let serving = || server.get("/api/v1/models/digits")["serving"].clone();
    server.wait_for_version("digits", 2);

    // Damaged: one bit flipped. Renamed in one step, because a scan in between would find the version incomplete.
    let staged = home.path().join("staged");
    std::fs::create_dir(&staged).unwrap();
    let mut damaged = whole.clone();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    std::fs::write(staged.join("weights.safetensors"), &damaged).unwrap();
    std::fs::copy(models.join("1/plugin.wasm"), staged.join("plugin.wasm")).unwrap();
    std::fs::copy(models.join("1/manifest.json"), staged.join("manifest.json")).unwrap();
    std::fs::rename(&staged, models.join("3")).unwrap();
    let bad = states(&server, 3);
    assert!(bad["reason"].as_str().unwrap().contains("weights.safetensors"), "{bad}");
    assert_eq!(serving(), 2);

    // Half copied, without a manifest; then complete.
    std::fs::create_dir(models.join("4")).unwrap();
    std::fs::copy(models.join("1/plugin.wasm"), models.join("4/plugin.wasm")).unwrap();
    std::fs::write(models.join("4/weights.safetensors"), &whole[..whole.len() / 2]).unwrap();
    states(&server, 4);
    assert_eq!(serving(), 2);
    std::fs::write(models.join("4/weights.safetensors"), &whole).unwrap();
    std::fs::copy(models.join("1/manifest.json"), models.join("4/manifest.json")).unwrap();
    server.wait_for_version("digits", 4);

    // Repaired in place.
    std::fs::write(models.join("3/weights.safetensors"), &whole).unwrap();
    server.wait_for("the repair", |server| {
        let model = server.get("/api/v1/models/digits");
        let versions = model["versions"].as_array().unwrap().clone();
        versions.iter().any(|v| v["version"] == 3 && v["state"] != "FAILED").then_some(())
    });
    assert_eq!(serving(), 4, "an older version does not take over");
}

#[test]
fn the_command_line_promotes_and_rolls_back_versions() {
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start_with_digits(home.path(), &[]);
    copy_version(&home.path().join("models/digits"), 1, 2);
    server.wait_for_version("digits", 2);
    let models = |arguments: &[&str]| -> Value {
        let printed = server.saggar_ok(&[&["--json", "models"], arguments].concat());
        serde_json::from_str(&printed).unwrap_or_else(|_| panic!("{arguments:?}: {printed}"))
    };
    let of = |model: &Value, number: u64, key: &str| {
        let versions = model["versions"].as_array().unwrap();
        versions.iter().find(|version| version["version"] == number).unwrap()[key].clone()
    };
    assert_eq!(models(&["promote", "digits", "1"])["serving"], 1);
    assert_eq!(models(&["rollback", "digits"])["serving"], 2);
    let shared = models(&["canary", "digits", "1", "10%"]);
    assert_eq!([1, 2].map(|version| of(&shared, version, "traffic_percent")), [10, 90], "{shared}");
    assert_eq!(of(&shared, 1, "aliases"), json!(["canary"]), "{shared}");
    let whole = models(&["canary", "digits", "1", "0%"]);
    assert_eq!([1, 2].map(|version| of(&whole, version, "traffic_percent")), [0, 100], "{whole}");
    assert_ne!(of(&models(&["unload", "digits", "1"]), 1, "state"), "READY");
    // A request that names a stored version loads it.
    let body = json!({ "image": vec![[0; 8]; 8] });
    let pinned = server.request("POST", "/models/digits@1/predict", HttpPayload::Json(&body));
    assert_eq!((pinned.status, pinned.header("x-saggar-model")), (200, "digits@1"), "{}", pinned.text);
    assert_ne!(of(&models(&["unload", "digits", "1"]), 1, "state"), "READY");
    assert_eq!(of(&models(&["load", "digits", "1"]), 1, "state"), "READY");
    models(&["unload", "digits"]);
    let ask = || server.request("POST", "/models/digits/predict", HttpPayload::Json(&body)).status;
    assert_eq!(ask(), 503);
    models(&["load", "digits"]);
    models(&["warm", "digits"]);
    assert_eq!(ask(), 200);
    assert_eq!(models(&["promote", "digits", "newest"])["serving"], 2);
    for (arguments, code) in [
        (&["promote", "digits", "9"][..], 3),
        (&["promote", "nothing", "1"], 3),
        (&["unload", "dig/its"], 3),
        (&["canary", "digits", "1", "101%"], 2),
    ] {
        let refused = server.saggar(&[&["models"], arguments].concat());
        assert_eq!(refused.status.code(), Some(code), "{arguments:?}: {refused:?}");
    }
}

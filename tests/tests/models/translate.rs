//! The transformer plugin, from text files to a translated sentence, and with interruptions.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use std::fmt::Write;
use std::path::Path;

use saggar_tests::{HttpPayload, ServerProcess, kill_9, memory_kib, plugin, worker_processes};
use serde_json::{Value, json};

const ENGLISH: [&str; 10] = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"];
const GERMAN: [&str; 10] = ["null", "eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun"];

/// A small network and quick steps.
const SMALL: [&str; 9] = [
    "layers=1",
    "width=64",
    "inner=128",
    "smoothing=0",
    "vocabulary=400",
    "length=24",
    "batch-size=512",
    "warmup=100",
    "--hparams=lr=0.05,beam=2",
];

/// Returns sentences of one to seven numbers, in English and German; deterministic for each `seed`.
fn sentences(count: usize, mut seed: u64) -> Vec<(String, String)> {
    let mut draw = |below: u64| {
        // Knuth's linear congruential generator, whose upper bits are good enough here.
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((seed >> 33) % below) as usize
    };
    let mut sentence = || {
        let numbers: Vec<usize> = (0..=draw(7)).map(|_| draw(10)).collect();
        let say = |words: [&str; 10]| numbers.iter().map(|&number| words[number]).collect::<Vec<_>>().join(" ");
        (say(ENGLISH), say(GERMAN))
    };
    (0..count).map(|_| sentence()).collect()
}

/// Writes a folder of parallel text files, as a user has them.
fn write_pairs(folder: &Path) {
    std::fs::create_dir_all(folder).unwrap();
    for (part, count, seed) in [("train", 2000, 1), ("val", 100, 2)] {
        let (mut english, mut german) = (String::new(), String::new());
        for (source, target) in sentences(count, seed) {
            writeln!(english, "{source}").unwrap();
            writeln!(german, "{target}").unwrap();
        }
        std::fs::write(folder.join(format!("{part}.en")), english).unwrap();
        std::fs::write(folder.join(format!("{part}.de")), german).unwrap();
    }
    let part = |part: &str| json!({ "source": format!("{part}.en"), "target": format!("{part}.de") });
    let description = json!({ "format": "text", "parts": { "train": part("train"), "validation": part("val") } });
    std::fs::write(folder.join("dataset.json"), description.to_string()).unwrap();
}

fn start(home: &Path) -> ServerProcess {
    let server = ServerProcess::start(home);
    let folder = home.join("numbers");
    write_pairs(&folder);
    server.saggar_ok(&["data", "push", folder.to_str().unwrap(), "--name", "numbers"]);
    server
}

fn submit(server: &ServerProcess, parameters: &[&str]) -> String {
    let every = ["--device", "cpu", "--retry", "100", "--checkpoint-every", "40steps", "--"];
    run(server, &[&every[..], &SMALL, parameters].concat())
}

fn run(server: &ServerProcess, arguments: &[&str]) -> String {
    let component = plugin("transformer");
    let run = ["run", component.to_str().unwrap(), "--data", "numbers/1:/data"];
    server.saggar_ok(&[&run[..], arguments].concat()).trim().to_owned()
}

fn wait_for_success(server: &ServerProcess, job: &str) -> Value {
    let ended = server.wait_for_job(job);
    assert_eq!(ended["state"], "SUCCEEDED", "{}", server.saggar_ok(&["logs", job]));
    ended
}

fn translate(server: &ServerProcess, text: &str) -> String {
    let source = format!("source={text}");
    let answer = server.saggar_ok(&["predict", "translator", "-i", &source, "--json"]);
    let answer: Value = serde_json::from_str(&answer).unwrap();
    answer["translation"].as_str().unwrap().to_owned()
}

#[test]
fn a_trained_transformer_translates_text() {
    let home = tempfile::tempdir().unwrap();
    let server = start(home.path());
    let job = submit(&server, &["epochs=20", "dropout=0"]);
    let ended = wait_for_success(&server, &job);
    let log = server.saggar_ok(&["logs", &job]);
    assert!(log.contains("train: 2000 pairs"), "{log}");
    assert_eq!(ended["spec"]["parameters"]["hparams"], "lr=0.05,beam=2");
    let phases = server.get(&format!("/api/v1/jobs/{job}"))["phases"].clone();
    assert_eq!((&phases[0]["name"], &phases[1]["name"]), (&json!("train"), &json!("post")), "{phases}");
    assert!(home.path().join("jobs").join(ended["id"].as_str().unwrap()).join("output/subwords.txt").is_file());

    server.wait_for_version("translator", 1);
    let unseen = sentences(20, 3);
    let right = unseen.iter().filter(|(source, target)| translate(&server, source) == *target).count();
    assert!(right >= 18, "{right} of 20 are right\n{log}");
    assert_eq!(translate(&server, "  "), "");
    let body = |beam: u64| json!({ "source": unseen[0].0, "beam": beam, "alpha": 0 });
    let answer = |beam| server.request("POST", "/models/translator/predict", HttpPayload::Json(&body(beam)));
    assert_eq!(answer(1).status, 200);
    let refused = answer(3);
    assert!(refused.status == 422 && refused.text.contains("`beam` must be from 1 to 2"), "{}", refused.text);
    let long = "nine ".repeat(60);
    let refused = server.saggar(&["predict", "translator", "-i", &format!("source={long}")]);
    let message = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && message.contains("a source must be at most"), "{message}");
}

#[test]
fn a_killed_training_with_length_buckets_ends_as_an_undisturbed_one() {
    let home = tempfile::tempdir().unwrap();
    let server = start(home.path());
    wait_for_success(&server, &submit(&server, &["epochs=6", "dropout=0.1", "model=calm"]));
    let job = submit(&server, &["epochs=6", "dropout=0.1", "model=shaken"]);
    for kills in 1..=2 {
        server.wait_for("another checkpoint", |server| {
            let log = server.saggar_ok(&["logs", &job]);
            (log.matches("saved (").count() > kills).then_some(())
        });
        for worker in worker_processes(server.pid()) {
            kill_9(worker);
        }
    }
    let ended = wait_for_success(&server, &job);
    assert!(ended["attempt"].as_u64() > Some(1), "nothing was killed: {ended}");
    assert_eq!(server.weights_digest("calm"), server.weights_digest("shaken"));
}

/// Returns the device memory in bytes and the resident memory in KiB of the only job's process, after at least `step`
/// steps.
fn memory_at_step(server: &ServerProcess, job: &str, step: u64) -> (f64, u64) {
    server.wait_for("the steps", |server| {
        let now = server.get(&format!("/api/v1/jobs/{job}"));
        assert!(now["state"] == "RUNNING" || now["state"] == "QUEUED" || now["state"] == "STARTING", "{now}");
        (now["step"].as_u64() >= Some(step)).then_some(())
    });
    let page = server.request("GET", "/metrics", HttpPayload::Nothing).text;
    let bytes = page.lines().find(|line| line.starts_with("saggar_job_gpu_memory_bytes{")).unwrap();
    let worker = worker_processes(server.pid())[0];
    (bytes.rsplit(' ').next().unwrap().parse().unwrap(), memory_kib(worker, "VmRSS"))
}

#[test]
fn ten_thousand_steps_keep_memory_flat() {
    let home = tempfile::tempdir().unwrap();
    let server = start(home.path());
    let tiny = ["layers=1", "width=16", "heads=2", "inner=32", "vocabulary=300", "length=24", "batch-size=64"];
    let every = ["--device", "cpu", "--checkpoint-every", "500steps", "--"];
    let job = run(&server, &[&every[..], &tiny, &["epochs=1000"]].concat());
    let (bytes, resident) = memory_at_step(&server, &job, 2_000);
    let (bytes_after, resident_after) = memory_at_step(&server, &job, 10_000);
    // The memory of a step's temporary values can differ between two polls.
    assert!(bytes > 0.0 && (bytes_after - bytes).abs() < 65_536.0, "{bytes} bytes on the device became {bytes_after}");
    let grown = resident_after.saturating_sub(resident);
    assert!(grown < 8 * 1024, "{grown} KiB more after 8,000 steps, from {resident}");
    server.saggar_ok(&["stop", &job]);
    assert_eq!(server.wait_for_job(&job)["state"], "CANCELLED");
}

/// The format of tensor2tensor's users, on the available adapter, with a network small enough for a software adapter.
#[test]
fn the_translation_example_trains_as_documented() {
    let home = tempfile::tempdir().unwrap();
    let server = start(home.path());
    if !server.has_vulkan() {
        return;
    }
    let small = "layers=1,width=16,heads=2,inner=32,vocabulary=300,length=12,batch_size=1024,dropout=0";
    let losses = |device: &[&str]| {
        let job = run(&server, &[device, &["--seed", "3", "--", "epochs=1", "--hparams", small]].concat());
        let ended = wait_for_success(&server, &job);
        assert_eq!(ended["spec"]["parameters"]["hparams"], small, "what replaces hyper-parameters is seen");
        let series = server.get(&format!("/api/v1/jobs/{job}/metrics?series=loss"));
        let points: Vec<f64> =
            series["series"][0]["points"].as_array().unwrap().iter().map(|point| point[1].as_f64().unwrap()).collect();
        (ended["device"].as_str().unwrap().to_owned(), points)
    };
    let (device, here) = losses(&["--gpu"]);
    assert!(device.starts_with("vulkan:0"), "{device}");
    let (device, there) = losses(&["--device", "cpu"]);
    assert!(device.starts_with("cpu"), "{device}");
    assert!(!here.is_empty() && here.len() == there.len(), "{here:?} {there:?}");
    for (here, there) in here.iter().zip(&there) {
        assert!((here - there).abs() <= 1e-3 * there.abs(), "{here} on vulkan, {there} on cpu");
    }
}

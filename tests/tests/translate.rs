//! The transformer plugin, from text files to a translated sentence, and through interruptions.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use std::fmt::Write;
use std::path::Path;

use saggar_tests::{Payload, Server, children, kill_9, plugin};
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

/// Sentences of one to seven numbers, English and German; the same for the same `seed`.
fn sentences(count: usize, mut seed: u64) -> Vec<(String, String)> {
    let mut draw = |below: u64| {
        // Knuth's linear congruential generator, of which the upper bits are good enough here.
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

/// A folder of text files side by side, as a user has them.
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

fn start(home: &Path) -> Server {
    let server = Server::start(home);
    let folder = home.join("numbers");
    write_pairs(&folder);
    server.saggar_ok(&["data", "push", folder.to_str().unwrap(), "--name", "numbers"]);
    server
}

fn submit(server: &Server, parameters: &[&str]) -> String {
    let component = plugin("transformer");
    let run = ["run", component.to_str().unwrap(), "--data", "numbers", "--device", "cpu", "--retry", "100"];
    let every = ["--checkpoint-every", "40steps", "--"];
    server.saggar_ok(&[&run[..], &every, &SMALL, parameters].concat()).trim().to_owned()
}

fn finish(server: &Server, job: &str) -> Value {
    let ended = server.wait_for_job(job);
    assert_eq!(ended["state"], "SUCCEEDED", "{}", server.saggar_ok(&["logs", job]));
    ended
}

fn translate(server: &Server, text: &str) -> String {
    let source = format!("source={text}");
    let answer = server.saggar_ok(&["predict", "translator", "-i", &source, "--json"]);
    let answer: Value = serde_json::from_str(&answer).unwrap();
    answer["translation"].as_str().unwrap().to_owned()
}

#[test]
fn text_is_learnt_and_translated() {
    let home = tempfile::tempdir().unwrap();
    let server = start(home.path());
    let job = submit(&server, &["epochs=20", "dropout=0"]);
    let ended = finish(&server, &job);
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
    let answer = |beam| server.request("POST", "/models/translator/predict", Payload::Json(&body(beam)));
    assert_eq!(answer(1).status, 200);
    let refused = answer(3);
    assert!(refused.status == 422 && refused.text.contains("`beam` must be from 1 to 2"), "{}", refused.text);
    let long = "nine ".repeat(60);
    let refused = server.saggar(&["predict", "translator", "-i", &format!("source={long}")]);
    let message = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && message.contains("a source must be at most"), "{message}");
}

#[test]
fn a_killed_training_on_groups_of_lengths_ends_as_one_left_alone() {
    let home = tempfile::tempdir().unwrap();
    let server = start(home.path());
    let weights = |model: &str| {
        server.wait_for_version(model, 1);
        server.get(&format!("/api/v1/models/{model}"))["versions"][0]["weights"].as_str().unwrap().to_owned()
    };
    finish(&server, &submit(&server, &["epochs=6", "dropout=0.1", "model=calm"]));
    let job = submit(&server, &["epochs=6", "dropout=0.1", "model=shaken"]);
    for kills in 1..=2 {
        server.wait_for("another checkpoint", |server| {
            let log = server.saggar_ok(&["logs", &job]);
            (log.matches("saved (").count() > kills).then_some(())
        });
        for worker in children(server.pid()) {
            kill_9(worker);
        }
    }
    let ended = finish(&server, &job);
    assert!(ended["attempt"].as_u64() > Some(1), "nothing was killed: {ended}");
    assert_eq!(weights("calm"), weights("shaken"));
}

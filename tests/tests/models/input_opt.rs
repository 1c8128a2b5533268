//! Pictures found by gradients with respect to the input: the opened model does not change, the output files exist, and
//! the classifier recognizes the pictures.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use std::path::{Path, PathBuf};

use saggar_tests::{ServerProcess, lenet, plugin};
use serde_json::Value;

const STEPS: usize = 1000;

/// Starts a server with a classifier that is trained well enough to be confident.
fn start(home: &Path) -> ServerProcess {
    let server = ServerProcess::start(home);
    server.push_digits();
    let lenet = lenet();
    server.saggar_ok(&["run", lenet.to_str().unwrap(), "--data", "digits", "--seed", "7", "--wait", "--", "epochs=10"]);
    server.wait_for_version("digits", 1);
    server
}

fn run(server: &ServerProcess, seed: &str, parameters: &[&str]) -> Value {
    let component = plugin("input-opt");
    let run = ["run", component.to_str().unwrap(), "--data", "digits", "--seed", seed, "--"];
    let steps = format!("steps={STEPS}");
    let job = server.saggar_ok(&[&run[..], &[&steps, "target=3"], parameters].concat()).trim().to_owned();
    server.wait_for_job(&job)
}

/// Fetches the picture that the job wrote into a folder of the state directory.
fn fetch_output(server: &ServerProcess, home: &Path, job: &Value, file: &str) -> PathBuf {
    let job = job["name"].as_str().unwrap();
    let folder = home.join("fetched").join(job);
    let printed = server.saggar_ok(&["output", "get", job, "-o", folder.to_str().unwrap()]);
    assert_eq!(printed.trim(), folder.join(file).to_str().unwrap());
    folder.join(file)
}

/// Returns the classifier's label and its probability for the file.
fn classify(server: &ServerProcess, file: &Path) -> (i64, f64) {
    let input = format!("image=@{}", file.display());
    let answer = server.saggar_ok(&["predict", "digits", "-i", &input, "--json"]);
    let answer: Value = serde_json::from_str(&answer).unwrap();
    (answer["label"].as_i64().unwrap(), answer["probability"].as_f64().unwrap())
}

#[test]
fn input_optimisation_convinces_the_classifier_from_noise_and_from_an_image() {
    let home = tempfile::tempdir().unwrap();
    let server = start(home.path());
    let weights = std::fs::read(home.path().join("models/digits/1/weights.safetensors")).unwrap();

    let noise = run(&server, "1", &[]);
    let log = server.saggar_ok(&["logs", noise["name"].as_str().unwrap()]);
    assert_eq!(noise["state"], "SUCCEEDED", "{log}");
    let steps: Vec<(f64, f64)> = log.lines().filter_map(parse_step_line).collect();
    assert_eq!(steps.len(), STEPS, "{log}");
    assert!(steps.iter().all(|(loss, p)| (loss + p.ln()).abs() < 1e-4 * loss.exp()), "{log}");
    let (label, probability) = classify(&server, &fetch_output(&server, home.path(), &noise, "target-003.png"));
    assert!(label == 3 && probability > 0.99, "{label} {probability}\n{log}");

    // The same seed gives the same file, another seed a different one.
    let file = |job: &Value| std::fs::read(fetch_output(&server, home.path(), job, "target-003.png")).unwrap();
    assert_eq!(file(&run(&server, "1", &[])), file(&noise));
    assert_ne!(file(&run(&server, "2", &[])), file(&noise));

    let changed = run(&server, "1", &["item=0", "version=1"]);
    let log = server.saggar_ok(&["logs", changed["name"].as_str().unwrap()]);
    assert!(log.contains("mean change of a pixel: 0."), "{log}");
    let (label, probability) = classify(&server, &fetch_output(&server, home.path(), &changed, "target-003.png"));
    assert!(label == 3 && probability > 0.99, "{label} {probability}\n{log}");

    assert_eq!(std::fs::read(home.path().join("models/digits/1/weights.safetensors")).unwrap(), weights);
}

/// Parses a line such as `0001 - loss: 2.751234 (0.063849)`.
fn parse_step_line(line: &str) -> Option<(f64, f64)> {
    let (loss, probability) = line.split_once(" - loss: ")?.1.split_once(" (")?;
    Some((loss.parse().ok()?, probability.strip_suffix(')')?.parse().ok()?))
}

#[test]
fn a_missing_model_is_named_in_the_error() {
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start_with_digits(home.path(), &[]);
    for (parameters, expected) in [
        (["classifier=faces"].as_slice(), "model `faces`: no version is published"),
        (&["version=7"], "model `digits`: version 7 is not published"),
    ] {
        let job = run(&server, "1", parameters);
        let log = server.saggar_ok(&["logs", job["name"].as_str().unwrap()]);
        assert_eq!(job["state"], "FAILED", "{log}");
        assert!(job["message"].as_str().unwrap().contains(expected), "{}", job["message"]);
    }
}

/// Number of classes of faces; the target class has two digits.
const FACES: usize = 12;
const SIDE: usize = 96;

/// Deterministic pseudo-random numbers (Knuth's MMIX constants).
struct FaceNoise(u64);

impl FaceNoise {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }
}

/// Writes a dataset of RGB pictures of 96 x 96: a patch on a noisy background, whose position and colour depend on the
/// class.
fn write_faces(folder: &Path) {
    let mut noise = FaceNoise(1);
    let mut lines = String::new();
    for item in 0..FACES * 6 {
        let class = item % FACES;
        let (top, left) = (class / 4 * 32 + noise.below(6), class % 4 * 24 + noise.below(4));
        for at in 0..SIDE * SIDE * 3 {
            let (row, column, color) = (at / (3 * SIDE), at / 3 % SIDE, at % 3);
            let inside = (top..top + 24).contains(&row) && (left..left + 18).contains(&column);
            let light = if inside && color == class % 3 { 200 } else { 60 };
            lines += &format!("{},", light + noise.below(50));
        }
        lines += &format!("{class}\n");
    }
    let pixels = SIDE * SIDE * 3;
    let fields = serde_json::json!([
        { "name": "image", "columns": [0, pixels], "shape": [SIDE, SIDE, 3], "dtype": "uint8" },
        { "name": "label", "columns": [pixels, pixels + 1], "dtype": "uint8",
          "classes": (0..FACES).map(|face| format!("face {face}")).collect::<Vec<_>>() },
    ]);
    let description = serde_json::json!({ "format": "csv", "file": "faces.csv", "fields": fields });
    std::fs::write(folder.join("dataset.json"), description.to_string()).unwrap();
    std::fs::write(folder.join("faces.csv"), lines).unwrap();
}

/// Starts a server with a classifier of faces that classifies all of them correctly.
fn with_faces(home: &Path) -> ServerProcess {
    let folder = tempfile::tempdir().unwrap();
    write_faces(folder.path());
    let server = ServerProcess::start(home);
    server.saggar_ok(&["data", "push", folder.path().to_str().unwrap(), "--name", "faces"]);
    let lenet = lenet();
    let run = ["run", lenet.to_str().unwrap(), "--data", "faces", "--seed", "3", "--wait", "--json", "--"];
    let parameters = ["epochs=10", "batch=12", "optimizer=adam", "channels=4", "hidden=32", "model=faces"];
    let job = server.saggar_ok(&[&run[..], &parameters].concat());
    let job: Value = serde_json::from_str(job.lines().last().unwrap()).unwrap();
    assert!(job["metrics"]["epoch/accuracy"].as_f64().unwrap() > 0.95, "{}", job["metrics"]);
    server.wait_for_version("faces", 1);
    server
}

fn run_face_search(server: &ServerProcess, parameters: &[&str]) -> Value {
    let component = plugin("input-opt");
    let run = ["run", component.to_str().unwrap(), "--data", "faces", "--seed", "1", "--wait", "--json", "--"];
    let steps = format!("steps={STEPS}");
    let job = server.saggar_ok(&[&run[..], &["classifier=faces", "target=10", &steps], parameters].concat());
    serde_json::from_str(job.lines().last().unwrap()).unwrap()
}

/// Returns the values of a series of a job, by step.
fn series(server: &ServerProcess, job: &Value, name: &str) -> Vec<f64> {
    let path = format!("/api/v1/jobs/{}/metrics?series={name}", job["name"].as_str().unwrap());
    let points = server.get(&path)["series"][0]["points"].clone();
    points.as_array().unwrap().iter().map(|point| point[1].as_f64().unwrap()).collect()
}

/// Returns the classifier's three most likely classes for a file, and the probability of the first.
fn top_three(server: &ServerProcess, file: &Path) -> (Vec<usize>, f64) {
    let input = format!("image=@{}", file.display());
    let printed = server.saggar_ok(&["predict", "faces", "-i", &input, "--top-k", "3"]);
    let ranked = printed.lines().filter_map(|line| line.strip_prefix("probabilities[")?.split_once("]  "));
    let ranked: Vec<(usize, f64)> = ranked.map(|(class, p)| (class.parse().unwrap(), p.parse().unwrap())).collect();
    assert_eq!(ranked.len(), 3, "{printed}");
    (ranked.iter().map(|(class, _)| *class).collect(), ranked[0].1)
}

#[test]
fn input_optimisation_finds_a_96_by_96_colour_face() {
    let home = tempfile::tempdir().unwrap();
    let server = with_faces(home.path());
    let noise = run_face_search(&server, &[]);
    let log = server.saggar_ok(&["logs", noise["name"].as_str().unwrap()]);
    assert_eq!(noise["state"], "SUCCEEDED", "{log}");
    assert!(log.lines().any(|line| line.starts_with("0001 - loss: ")), "{log}");
    // Printed values are rounded; the series are not.
    let (losses, probabilities) = (series(&server, &noise, "loss"), series(&server, &noise, "probability"));
    assert_eq!((losses.len(), probabilities.len()), (STEPS, STEPS));
    for (loss, p) in losses.iter().zip(&probabilities) {
        assert!((loss + p.ln()).abs() < 1e-5, "loss {loss}, probability {p}");
    }
    assert!(probabilities[STEPS - 1] >= 0.999 && probabilities[0] < 0.9, "{log}");
    let (_, range) = log.split_once("pixels from ").unwrap();
    let (low, high) = range.lines().next().unwrap().split_once(" to ").unwrap();
    assert!(low.parse::<f64>().unwrap() >= 0.0 && high.parse::<f64>().unwrap() <= 1.0, "{range}");

    let file = fetch_output(&server, home.path(), &noise, "target-010.png");
    let png = std::fs::read(&file).unwrap();
    // Width, height, 8 bits per channel, RGB.
    assert_eq!(png[16..26], [0, 0, 0, 96, 0, 0, 0, 96, 8, 2]);
    let (classes, p) = top_three(&server, &file);
    assert!(classes[0] == 10 && p >= 0.99, "{classes:?} {p}");
    let again = run_face_search(&server, &[]);
    assert!(
        std::fs::read(fetch_output(&server, home.path(), &again, "target-010.png")).unwrap() == png,
        "another picture"
    );

    let changed = run_face_search(&server, &["item=0"]);
    let log = server.saggar_ok(&["logs", changed["name"].as_str().unwrap()]);
    assert!(log.contains("mean change of a pixel: 0."), "{log}");
    let (classes, p) = top_three(&server, &fetch_output(&server, home.path(), &changed, "target-010.png"));
    assert!(classes[0] == 10 && p >= 0.99, "{classes:?} {p}\n{log}");
}

//! CIFAR-10's binary format end to end: pushed, trained, and evaluated with a confusion matrix.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use std::path::Path;

use saggar_tests::{ServerProcess, lenet};
use serde_json::Value;

const NAMES: [&str; 10] = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"];
const SIDE: usize = 32;
const BLOB: usize = 8;

/// Deterministic pseudo-random numbers (Knuth's MMIX constants).
struct CifarNoise(u64);

impl CifarNoise {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }
}

/// Returns records of all classes in turn: a blob on a noisy background, whose position and colour depend on the class.
fn records(count: usize, noise: &mut CifarNoise) -> Vec<u8> {
    let mut bytes = Vec::new();
    for item in 0..count {
        let class = item % NAMES.len();
        let (place, color) = (class / 2, class % 2 * 2);
        let (top, left) = (place / 3 * 14 + noise.below(4), place % 3 * 10 + noise.below(3));
        bytes.push(class as u8);
        for plane in 0..3 {
            for at in 0..SIDE * SIDE {
                let (row, column) = (at / SIDE, at % SIDE);
                let inside = (top..top + BLOB).contains(&row) && (left..left + BLOB).contains(&column);
                let light = if inside && plane == color { 200 } else { 40 };
                bytes.push((light + noise.below(50)) as u8);
            }
        }
    }
    bytes
}

fn write_dataset(folder: &Path) {
    let mut noise = CifarNoise(1);
    // 75 is not a multiple of the batch size, so the last held-out batch is smaller.
    for (file, count) in [("data_batch_1.bin", 200), ("data_batch_2.bin", 120), ("test_batch.bin", 75)] {
        std::fs::write(folder.join(file), records(count, &mut noise)).unwrap();
    }
    std::fs::write(folder.join("batches.meta.txt"), NAMES.join("\n") + "\n\n").unwrap();
}

#[test]
fn colour_images_are_learnt_and_the_confusion_matrix_is_logged() {
    let (home, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write_dataset(folder.path());
    let server = ServerProcess::start(home.path());
    let pushed = server.saggar_ok(&["data", "push", folder.path().to_str().unwrap(), "--name", "cifar"]);
    assert_eq!(pushed.trim(), "cifar/1");
    let plugin = lenet();
    let run =
        ["run", plugin.to_str().unwrap(), "--project", "cifar", "--data", "cifar", "--seed", "1", "--wait", "--json"];
    let parameters = ["--", "epochs=12", "batch=16", "optimizer=adam", "channels=4", "hidden=32", "model=cifar"];
    let printed = server.saggar_ok(&[&run[..], &parameters].concat());
    let job: Value = serde_json::from_str(printed.lines().last().unwrap()).unwrap();
    let accuracy = job["metrics"]["validation/accuracy"].as_f64().unwrap();
    assert!(accuracy >= 0.95, "held-out accuracy {accuracy}");

    server.wait_for_version("cifar", 1);
    let input = &server.get("/api/v1/models/cifar")["signature"]["inputs"][0];
    assert_eq!(input["shape"], serde_json::json!([32, 32, 3]), "{input}");

    let log = server.saggar_ok(&["logs", "cifar-1"]);
    assert!(log.contains("a row for each true class"), "{log}");
    let fetched = tempfile::tempdir().unwrap();
    let place = fetched.path().to_str().unwrap();
    server.saggar_ok(&["output", "get", "cifar-1", "confusion.csv", "-o", place]);
    let text = std::fs::read_to_string(fetched.path().join("confusion.csv")).unwrap();
    check_confusion_matrix(&text, accuracy);

    assert!(server.saggar_ok(&["output", "ls", "cifar-1"]).contains("confusion.csv"));
    assert_eq!(server.saggar_ok(&["output", "ls", "cifar-1", "-q"]).trim(), "confusion.csv");
    let code = |arguments: &[&str]| server.saggar(arguments).status.code();
    assert_eq!(code(&["output", "get", "cifar-1", "none.csv", "-o", place]), Some(3));
    assert_eq!(code(&["output", "get", "cifar-1", "../attempt-1.log", "-o", place]), Some(7));
    assert_eq!(code(&["output", "ls", "cifar-2"]), Some(3));
}

/// Checks that every held-out item is in the row of its class, and that the diagonal matches the reported accuracy.
fn check_confusion_matrix(text: &str, accuracy: f64) {
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(rows.len(), NAMES.len() + 2, "{text}");
    assert_eq!(rows[0][1..=NAMES.len()], NAMES, "{text}");
    let (mut total, mut right) = (0, 0);
    for (class, row) in rows[1..=NAMES.len()].iter().enumerate() {
        let counts: Vec<u64> = row[1..=NAMES.len()].iter().map(|count| count.parse().unwrap()).collect();
        let items = if class < 5 { 8 } else { 7 };
        assert_eq!((row[0], counts.iter().sum::<u64>()), (NAMES[class], items), "{text}");
        assert_eq!(row[NAMES.len() + 1], items.to_string(), "{text}");
        let recall: f64 = row[NAMES.len() + 2].parse().unwrap();
        assert!((recall - counts[class] as f64 / items as f64).abs() < 1e-5, "{text}");
        total += items;
        right += counts[class];
    }
    assert_eq!(rows[NAMES.len() + 1][NAMES.len() + 1], total.to_string(), "{text}");
    assert_eq!(total, 75);
    assert!((accuracy - right as f64 / 75.0).abs() < 1e-6, "{accuracy}\n{text}");
}

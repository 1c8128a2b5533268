//! Agreement of devices: a training on the Vulkan path follows the same losses as on native kernels.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use std::collections::BTreeMap;

use saggar_tests::{ServerProcess, lenet, root, shared};
use serde_json::Value;

/// Tolerance of losses for rounding, relative and absolute. The learning rates are small enough that training does not
/// amplify rounding: at ten times the rate, a difference of 1e-7 grows to percents within 200 steps, once it decides
/// which of two nearly equal elements a pooling selects.
const RELATIVE: f64 = 0.001;
const ABSOLUTE: f64 = 0.0001;

/// Trains for at least `steps` steps on a device and returns the losses by step.
fn losses(server: &ServerProcess, device: &str, steps: u64, parameters: &[&str]) -> BTreeMap<u64, f64> {
    let plugin = lenet();
    let model = format!("model={}", device.replace(':', "-"));
    let run = ["run", plugin.to_str().unwrap(), "--data", "data", "--device", device, "--seed", "5", "--", &model];
    let job = server.saggar_ok(&[&run[..], parameters].concat());
    let job = job.trim();
    server.wait_for("the steps", |server| {
        let now = server.get(&format!("/api/v1/jobs/{job}"));
        assert_ne!(now["state"], "FAILED", "{now}");
        (now["step"].as_u64() >= Some(steps) || now["state"] == "SUCCEEDED").then_some(())
    });
    server.saggar(&["stop", job]);
    let ended = server.wait_for_job(job);
    assert_eq!(ended["device"].as_str().unwrap().starts_with("cpu"), device == "cpu", "{ended}");
    assert!(ended["gpu_seconds"].as_f64().unwrap() > 0.0, "{ended}");
    let series = server.get(&format!("/api/v1/jobs/{job}/metrics?series=loss"));
    let points = series["series"][0]["points"].as_array().unwrap().clone();
    points.iter().map(|point: &Value| (point[0].as_u64().unwrap(), point[1].as_f64().unwrap())).collect()
}

fn compare_devices(data: &str, steps: u64, parameters: &[&str]) {
    let home = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(home.path());
    if !server.has_vulkan() {
        return;
    }
    server.saggar_ok(&["data", "push", data, "--name", "data"]);
    let (cpu, gpu) = (losses(&server, "cpu", steps, parameters), losses(&server, "vulkan:0", steps, parameters));
    let mut compared = 0;
    for (step, expected) in cpu.range(..=steps) {
        let Some(actual) = gpu.get(step) else { continue };
        let difference = (actual - expected).abs();
        assert!(
            difference <= ABSOLUTE + RELATIVE * expected.abs(),
            "step {step}: {actual} on vulkan, {expected} on cpu"
        );
        compared += 1;
    }
    assert!(compared >= 3, "{compared} losses in common: {cpu:?} {gpu:?}");
    let (first, last) = (cpu.first_key_value().unwrap().1, cpu.last_key_value().unwrap().1);
    assert!(last < first, "the loss does not fall: {cpu:?}");
}

#[test]
fn digits_training_losses_agree_between_vulkan_and_cpu() {
    let data = root().join("examples/digits");
    compare_devices(data.to_str().unwrap(), 300, &["epochs=8", "channels=4", "lr=0.005"]);
}

#[test]
fn mnist_training_losses_agree_between_vulkan_and_cpu() {
    let Some(data) = shared("data/mnist") else { return };
    compare_devices(data.to_str().unwrap(), 300, &["epochs=1", "channels=4", "batch=16", "lr=0.002"]);
}

//! The optimizations of servers, of trainings and of what processes store for each other: each on and off, in turn.
//!
//! `saggar bench infer --on-off` does the same for the optimizations of programs.

use std::process::Command;
use std::time::Instant;

use saggar_compile::Optimization;
use saggar_tests::{HttpPayload, ServerProcess, binary, root};
use serde_json::{Value, json};

use crate::client::{HttpConnection, encode_post, port_of_url};
use crate::cold_start::{copy_home, start_to_first_answer_ms};
use crate::load::{LoadRequest, LoadTarget};
use crate::report::{BenchGoal, BenchReport};
use crate::stage::{BenchFixture, picture_json, vector, vector_json};
use crate::statistics::{median, percentile};

/// The model of the measurements under load: its layers cost more than the request.
const MODEL: &str = "switched";
const DEPTH: u32 = 1024;
const WIDTH: u32 = 16;
const ROUNDS: usize = 5;
/// Seconds of a load.
const SECONDS: u32 = 2;
const CONNECTIONS: u32 = 64;
/// Simultaneous first requests after a load of the model, which create as many instances.
const INSTANCES: usize = 4;
/// Swaps between two versions in a round.
const SWAPS: u64 = 4;
/// Steps of a measured training, in which most of the batches of an epoch are read.
const STEPS: &str = "40";

pub(crate) fn measure(stage: &BenchFixture, server: &ServerProcess, report: &mut BenchReport) {
    stage.publish_linear(server, MODEL, 1, DEPTH, WIDTH);
    stage.publish_linear(server, MODEL, 2, DEPTH, WIDTH);
    println!("\noptimizations on and off, {ROUNDS} rounds each in turn; {MODEL} has {DEPTH} layers of {WIDTH}");
    println!("  {:<20} {:<48} {:>10} {:>10} {:>8}", "", "", "on", "off", "off/on");
    let model = SwitchedModel::new(stage, server);
    let mut compare = |optimization: Optimization, what: &str, run: &dyn Fn(bool) -> f64| {
        let (mut on, mut off) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            on.push(run(true));
            off.push(run(false));
        }
        let (on, off) = (median(on), median(off));
        println!("  {:<20} {what:<48} {on:>10.3} {off:>10.3} {:>8.2}", optimization.name(), off / on);
        report.add_goal(format!("{optimization}: off / on"), off / on, "x", BenchGoal::AtLeast(1.0));
    };
    let load = |optimization| move |on: bool| model.ms_per_answer(optimization, on);
    compare(Optimization::Batching, "ms for each answer, 64 connections", &load(Optimization::Batching));
    compare(Optimization::ResponseCache, "ms for each answer, one input", &load(Optimization::ResponseCache));
    compare(Optimization::ProgramCache, "ms to the first answers of four instances", &|on| model.first_answers_ms(on));
    compare(Optimization::SharedInstances, "ms from a promotion to its answer", &|on| model.swap_ms(on));
    let body = picture_json(&stage.pictures()[0]);
    let home = copy_home(stage);
    let start = |optimization: Optimization, device: &str, on: bool| {
        let without = format!("--without={optimization}");
        let switch = if on { &[][..] } else { &[without.as_str()][..] };
        start_to_first_answer_ms(home.path(), &[&["--device", device], switch].concat(), &body)
    };
    compare(Optimization::ComponentCache, "ms from the start of the server to an answer", &|on| {
        start(Optimization::ComponentCache, "cpu", on)
    });
    if !server.has_vulkan() {
        report.add_skipped("shader-cache and dataset-residency", "there is no Vulkan adapter");
        return;
    }
    // The first start fills the cache.
    start(Optimization::ShaderCache, "vulkan:0", true);
    compare(Optimization::ShaderCache, "ms from the start to an answer, vulkan:0", &|on| {
        start(Optimization::ShaderCache, "vulkan:0", on)
    });
    compare(Optimization::DatasetResidency, "ms for each step of a training, vulkan:0", &|on| training_step_ms(on));
}

/// The model under test, with and without one of its optimizations.
#[derive(Clone, Copy)]
struct SwitchedModel<'a> {
    server: &'a ServerProcess,
    home: &'a std::path::Path,
}

impl<'a> SwitchedModel<'a> {
    fn new(stage: &'a BenchFixture, server: &'a ServerProcess) -> SwitchedModel<'a> {
        SwitchedModel { server, home: stage.home() }
    }

    /// Configures the model. A change of what is left out loads it again; returns when it serves.
    fn configure(self, optimization: Optimization, on: bool, mut config: Value) {
        if !on {
            config["without"] = json!([optimization.name()]);
        }
        let path = format!("/api/v1/models/{MODEL}/config");
        let answer = self.server.request("PUT", &path, HttpPayload::Json(&config));
        assert_eq!(answer.status, 200, "{}", answer.text);
        self.server.wait_for("the model to be ready", |server| {
            (server.get(&format!("/api/v1/models/{MODEL}"))["state"] == "READY").then_some(())
        });
    }

    fn predict(self) {
        let body = json!({ "x": vector() });
        let path = format!("/models/{MODEL}/predict");
        let answer = self.server.request("POST", &path, HttpPayload::Json(&body));
        assert_eq!(answer.status, 200, "{}", answer.text);
    }

    /// Returns milliseconds for each answer under a load of equal requests.
    fn ms_per_answer(self, optimization: Optimization, on: bool) -> f64 {
        let cache_bytes = if optimization == Optimization::ResponseCache { 1 << 20 } else { 0 };
        let config = json!({ "cache": { "max_bytes": cache_bytes }, "batch": { "max_items": 32 } });
        self.configure(optimization, on, config);
        self.predict();
        let request = LoadRequest::json(self.home, MODEL, &vector_json());
        let url = format!("{}/models/{MODEL}/predict", self.server.url());
        let target = LoadTarget { name: MODEL.to_owned(), url, pid: self.server.pid(), request };
        let load = target.run_load(CONNECTIONS, SECONDS);
        assert_eq!(load.failed, 0, "requests failed under load");
        1e3 / load.rate
    }

    /// Returns the time in which the first simultaneous requests after a load of the model are all answered.
    fn first_answers_ms(self, on: bool) -> f64 {
        let config = json!({ "instances": { "max": INSTANCES }, "batch": { "max_items": 1 }, "keep_alive": "1h" });
        // Another configuration first, so that this one loads the model in every round.
        self.configure(Optimization::Fusion, false, config.clone());
        self.configure(Optimization::ProgramCache, on, config);
        let began = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..INSTANCES {
                scope.spawn(|| self.predict());
            }
        });
        began.elapsed().as_secs_f64() * 1e3
    }

    /// Returns the median time from a promotion to the first answer of the promoted version.
    fn swap_ms(self, on: bool) -> f64 {
        self.configure(Optimization::SharedInstances, on, json!({}));
        let mut connection = HttpConnection::open(port_of_url(self.server.url())).unwrap();
        let request = encode_post(&format!("/models/{MODEL}/predict"), "", &vector_json());
        let mut times = Vec::new();
        for number in 0..SWAPS {
            let version = 1 + number % 2;
            let began = Instant::now();
            let body = json!({ "version": version });
            let path = format!("/api/v1/models/{MODEL}/promote");
            let answer = self.server.request("POST", &path, HttpPayload::Json(&body));
            assert_eq!(answer.status, 200, "{}", answer.text);
            self.server.wait_for_version(MODEL, version);
            assert_eq!(connection.send(&request).unwrap(), 200);
            times.push(began.elapsed().as_secs_f64() * 1e3);
        }
        percentile(times, 50.0)
    }
}

/// Returns milliseconds for each step of LeNet on the first adapter.
fn training_step_ms(on: bool) -> f64 {
    let home = tempfile::tempdir().unwrap();
    let data = root().join("examples/digits");
    let mut command = Command::new(binary());
    command.args(["bench", "train", "lenet", "--devices", "vulkan:0", "--steps", STEPS, "--json", "--data"]);
    command.arg(data).arg("--home").arg(home.path());
    if !on {
        command.args(["--without", Optimization::DatasetResidency.name()]);
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    1e3 / result["devices"][0]["steps_per_second"].as_f64().unwrap()
}

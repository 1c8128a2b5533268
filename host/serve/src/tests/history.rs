//! The history of devices, models and jobs, and what keys see of it.

use std::sync::Arc;
use std::time::Duration;

use saggar_clock::ManualClock;
use saggar_store::keys::KeyScope;
use serde_json::{Value, json};

use super::fixture::{MODEL_BYTES, ServerFixture, TRAP};
use super::key_client::KeyClient;
use super::serving_options::ServingOptions;
use super::visibility::job_spec;

const START_MS: u64 = 1_790_000_000_000;

/// A server whose time passes when the test says so.
struct SampledServer {
    fixture: ServerFixture,
    clock: Arc<ManualClock>,
    seconds: u64,
}

impl SampledServer {
    /// Starts a server without models, and takes its first snapshot.
    async fn start() -> SampledServer {
        let clock = Arc::new(ManualClock::new(START_MS));
        let options = ServingOptions { clock: Arc::<ManualClock>::clone(&clock), ..ServingOptions::default() };
        let mut server = SampledServer { fixture: ServerFixture::with_options(options), clock, seconds: 0 };
        server.sample().await;
        server
    }

    /// Takes a snapshot, a second after the one before.
    async fn sample(&mut self) {
        let app = &self.fixture.app;
        app.history().read_jobs(app.jobs()).await;
        app.history().add_snapshot(app.metrics(), app.now_ms(), Duration::from_secs(self.seconds));
        self.clock.advance(1000);
        self.seconds += 1;
    }

    async fn publish(&self, model: &str) {
        self.fixture.publish(model, "plugin", 1);
        self.fixture.loader.run_once().await;
    }
}

/// Returns the values of the series of this name, of this model or owner if it has one.
fn values(history: &Value, name: &str, of: &str) -> Value {
    let series = history["series"].as_array().unwrap();
    let found = series.iter().find(|one| {
        one["name"] == name && (of.is_empty() || [&one["model"], &one["owner"]].contains(&&Value::from(of)))
    });
    found.map_or(Value::Null, |one| one["values"].clone())
}

#[tokio::test]
async fn a_models_requests_errors_and_memory_are_sampled_each_second() {
    let mut server = SampledServer::start().await;
    server.publish("digits").await;
    for _ in 0..3 {
        assert_eq!(server.fixture.predict(7).await.status, 200);
    }
    assert_eq!(server.fixture.predict(TRAP).await.status, 500);
    server.sample().await;
    server.sample().await;
    let history = server.fixture.get("/api/v1/history").await.json();
    assert_eq!(history["times_ms"], json!([START_MS + 1000, START_MS + 2000]));
    assert_eq!((&history["step_seconds"], &history["newest_ms"]), (&json!(1), &json!(START_MS + 2000)));
    assert_eq!(values(&history, "model_requests_per_second", "digits"), json!([4.0, 0.0]));
    assert_eq!(values(&history, "model_errors_per_second", "digits"), json!([1.0, 0.0]));
    assert_eq!(values(&history, "model_queue_length", "digits"), json!([0.0, 0.0]));
    assert_eq!(values(&history, "device_memory_bytes", "models"), json!([MODEL_BYTES as f64, MODEL_BYTES as f64]));
    for name in ["model_latency_p50_seconds", "model_latency_p99_seconds", "model_batch_items"] {
        let found = values(&history, name, "digits");
        assert!(found[0].as_f64().unwrap() > 0.0 && found[1].is_null(), "{name}: {found}");
    }
    let newer = server.fixture.get(&format!("/api/v1/history?since={}", START_MS + 1000)).await.json();
    assert_eq!(newer["times_ms"], json!([START_MS + 2000]));
    let minutes = server.fixture.get("/api/v1/history?step=60").await.json();
    assert_eq!((&minutes["times_ms"], &minutes["step_seconds"]), (&json!([]), &json!(60)));
}

#[tokio::test]
async fn series_are_chosen_by_name_model_and_device() {
    let mut server = SampledServer::start().await;
    server.publish("digits").await;
    server.publish("faces").await;
    server.sample().await;
    let names = async |query: &str| {
        let history = server.fixture.get(&format!("/api/v1/history?{query}")).await.json();
        let name = |one: &Value| one["name"].as_str().unwrap().to_owned();
        history["series"].as_array().unwrap().iter().map(name).collect::<Vec<String>>()
    };
    let rates = ["model_requests_per_second", "model_errors_per_second"];
    assert_eq!(names("series=model_requests_per_second").await, [rates[0], rates[0]]);
    let both = "model=digits&series=model_requests_per_second&series=model_errors_per_second";
    assert_eq!(names(both).await, rates);
    assert_eq!(names("device=cpu&series=device_memory_bytes").await, ["device_memory_bytes"]);
    assert_eq!(names("device=none").await, [""; 0]);
    for (query, expected) in [
        ("series=requests", "series: expected the name of a series"),
        ("step=5", "step: expected 1 or 60, in seconds"),
        ("since=yesterday", "since: expected milliseconds since 1970"),
    ] {
        let (status, code, text) = server.fixture.get(&format!("/api/v1/history?{query}")).await.error();
        assert_eq!(status, 400, "{query}");
        assert!(text.contains(expected), "{query}: {code} {text}");
    }
}

#[tokio::test]
async fn a_key_sees_the_history_of_its_projects_alone() {
    let mut server = SampledServer::start().await;
    for model in ["digits", "faces", "shared"] {
        server.publish(model).await;
    }
    for model in ["digits", "faces"] {
        let assigned = server.fixture.app.parts().model_projects().set(model, vec![model.to_owned()]);
        assigned.unwrap();
    }
    for project in ["digits", "faces", "faces"] {
        let spec = job_spec(&server.fixture, project).await;
        server.fixture.post_json("/api/v1/jobs", &spec.to_string()).await;
    }
    let job = server.fixture.claim(START_MS);
    assert_eq!(job.job.project, "digits");
    let memory = &server.fixture.app.metrics().families.job_gpu_memory;
    memory.with_label_values(&["digits-1", "cpu"]).set(64.0);
    server.sample().await;

    let seen = async |name: &str, scopes: &[KeyScope], projects: &[&str]| {
        let client = KeyClient::new(&server.fixture, name, scopes, projects);
        let history = client.get_json("/api/v1/history").await;
        let rates = history["series"].as_array().unwrap().iter().filter(|one| one["name"] == "model_errors_per_second");
        let models: Vec<String> = rates.map(|one| one["model"].as_str().unwrap().to_owned()).collect();
        (models, history)
    };
    let (models, all) = seen("all", &[KeyScope::JobsRead], &[]).await;
    assert_eq!(models, ["digits", "faces", "shared"]);
    assert_eq!((values(&all, "jobs_running", ""), values(&all, "jobs_queued", "")), (json!([1.0]), json!([2.0])));
    assert_eq!(values(&all, "device_memory_bytes", "digits-1"), json!([64.0]));

    let (models, faces) = seen("faces", &[KeyScope::JobsRead], &["faces"]).await;
    assert_eq!(models, ["faces", "shared"], "a model without a project is for every key");
    assert_eq!((values(&faces, "jobs_running", ""), values(&faces, "jobs_queued", "")), (json!([0.0]), json!([2.0])));
    assert_eq!(values(&faces, "device_memory_bytes", "other jobs"), json!([64.0]));
    assert!(!faces.to_string().contains("digits"), "{faces}");

    let (models, predicts) = seen("predicts", &[KeyScope::Predict], &[]).await;
    assert_eq!(models, ["digits", "faces", "shared"]);
    assert_eq!(values(&predicts, "jobs_queued", ""), Value::Null, "a key that reads no jobs");
    assert_eq!(values(&predicts, "device_memory_bytes", "other jobs"), json!([64.0]));
}

//! Resume marks of plugins: which pair of jobs is kept, and what a valid pair is.

use saggar_store::records::{AttemptUsage, JobState, StateReason};
use serde_json::{Value, json};

use super::fixture::ServerFixture;

/// Creates a finished job with this number of attempts, each but the first resumed from a checkpoint, and returns its
/// name.
async fn finished_job(
    fixture: &ServerFixture,
    plugin: &str,
    attempts: u64,
    versions: &[u64],
    state: JobState,
) -> String {
    let spec = json!({ "project": "digits", "plugin": plugin });
    let job = fixture.post_json("/api/v1/jobs", &spec.to_string()).await.json();
    let id = job["id"].as_str().unwrap();
    for attempt in 1..=attempts {
        let lease = fixture.claim(u64::MAX >> 1).lease;
        let usage = AttemptUsage { first_step: attempt - 1, last_step: attempt, ..AttemptUsage::default() };
        fixture.records.record_progress(&lease, attempt, 9, &usage).unwrap();
        if attempt < attempts {
            fixture.records.requeue(&lease, &StateReason::new("PREEMPTED", ""), 0, 3).unwrap();
            continue;
        }
        for version in versions {
            fixture.records.record_event(id, "PUBLISHED", &format!("published digits@{version}"), 4).unwrap();
        }
        fixture.records.finish_job(&lease, state, &StateReason::default(), 5).unwrap();
    }
    job["name"].as_str().unwrap().to_owned()
}

async fn upload_plugin(fixture: &ServerFixture, plugin: &str) -> String {
    let answer = fixture.post("/api/v1/plugins", "application/wasm", plugin.to_owned()).await;
    answer.json()["digest"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn resume_marks_compare_the_newest_version_of_each_model_and_keep_the_first() {
    let fixture = ServerFixture::new();
    let plugin = upload_plugin(&fixture, "plugin trains").await;
    let (old, new) = (fixture.publish("digits", "plugin", 1), fixture.publish("digits", "plugin", 2));
    let whole = finished_job(&fixture, &plugin, 1, &[old, new], JobState::Succeeded).await;
    let interrupted = finished_job(&fixture, &plugin, 3, &[old, new], JobState::Succeeded).await;
    let again = finished_job(&fixture, &plugin, 2, &[new], JobState::Succeeded).await;
    // A version that nothing depends on was removed meanwhile.
    std::fs::remove_dir_all(fixture.version_dir("digits", old)).unwrap();
    let mark = async |whole: &str, interrupted: &str| {
        let pair = json!({ "whole": whole, "interrupted": interrupted }).to_string();
        fixture.post_json(&format!("/api/v1/plugins/{plugin}/resume-test"), &pair).await
    };
    let first = mark(&whole, &interrupted).await.json();
    let marks = (&first["whole"], &first["interrupted"], &first["resumes"]);
    assert_eq!(marks, (&json!(whole), &json!(interrupted), &json!(2)));
    let listed = async || -> Value { fixture.get("/api/v1/plugins").await.json()["plugins"][0]["resume_test"].clone() };
    assert_eq!(listed().await, first);
    assert_eq!(mark(&whole, &again).await.json(), first, "the first mark is kept");
    assert_eq!(listed().await, first);
}

#[tokio::test]
async fn an_unsuitable_job_is_refused_before_its_models_are_read() {
    let fixture = ServerFixture::new();
    let plugin = upload_plugin(&fixture, "plugin trains").await;
    let other = upload_plugin(&fixture, "plugin trains predicts").await;
    // None of these jobs has a version that could be read.
    let whole = finished_job(&fixture, &plugin, 1, &[7], JobState::Succeeded).await;
    let failed = finished_job(&fixture, &plugin, 2, &[7], JobState::Failed).await;
    let strange = finished_job(&fixture, &other, 2, &[7], JobState::Succeeded).await;
    for (job, says) in [(failed, "it is FAILED"), (strange, "ran another plugin")] {
        let pair = json!({ "whole": job, "interrupted": whole }).to_string();
        let refused = fixture.post_json(&format!("/api/v1/plugins/{plugin}/resume-test"), &pair).await.error();
        assert!(refused.0 == 409 && refused.2.contains(says), "{refused:?}");
    }
}

//! Objects: one suite on local files, in memory and in a bucket, and what only a bucket on another machine can do.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use std::sync::{Arc, Barrier};
use std::time::Duration;

use bytes::Bytes;
use object_store::memory::InMemory;
use saggar_clock::{Clock, SystemClock};
use saggar_store::objects::PutOutcome;
use saggar_store::{Checkpoint, CheckpointError, CheckpointStore, Digest, ObjectStorage, Retention, StoreError};
use saggar_tests::s3::{FaultProxy, MotoServer, RacyServer, S3Fault, s3_objects};
use tokio::task::JoinSet;

const PLUGIN: &str = "plugin";
/// More objects than one answer of S3 lists.
const LISTED: usize = 1_005;
/// Writers that create one object at the same time.
const WRITERS: usize = 8;

/// Returns a checkpoint whose content depends on the step.
fn checkpoint(step: u64) -> Checkpoint {
    Checkpoint {
        step,
        metrics: [("loss".to_owned(), 0.5)].into(),
        variables: Vec::new(),
        positions: Vec::new(),
        state: vec![step as u8; 1 << 20],
        plugin_digest: PLUGIN.to_owned(),
        device: "cpu".to_owned(),
        build: "test".to_owned(),
        kernel_tuning: [].into(),
    }
}

async fn latest_step(checkpoints: &CheckpointStore, job: &str) -> Option<u64> {
    let found = checkpoints.latest(job, PLUGIN).await.unwrap().found;
    found.map(|(_, found)| {
        assert_eq!(found, checkpoint(found.step));
        found.step
    })
}

fn names(listed: Vec<saggar_store::objects::ObjectInfo>) -> Vec<String> {
    listed.into_iter().map(|object| object.name).collect()
}

/// Checks every behaviour that the rest of the program relies on.
async fn check_objects(objects: &ObjectStorage) {
    creates_keep_what_exists(objects).await;
    listings_are_complete_and_sorted(objects).await;
    damaged_blobs_are_refused_and_repaired(objects).await;
    of_simultaneous_creates_one_succeeds(objects).await;
    folders_are_deleted_whole_and_alone(objects).await;
    checkpoints_are_saved_pruned_and_fenced(objects).await;
    for name in ["../x", "a/../x", "a//b", "a/./b"] {
        let put = objects.create(name, "x".into()).await;
        assert!(matches!(put, Err(StoreError::BadName { .. })), "{name}: {put:?}");
    }
}

async fn creates_keep_what_exists(objects: &ObjectStorage) {
    assert_eq!(objects.create("a/b", "one".into()).await.unwrap(), PutOutcome::Created);
    assert_eq!(objects.create("a/b", "two".into()).await.unwrap(), PutOutcome::Taken);
    assert_eq!(objects.create_unique("a/b", "one".into()).await.unwrap(), PutOutcome::Created);
    assert_eq!(objects.create_unique("a/b", "two".into()).await.unwrap(), PutOutcome::Taken);
    assert_eq!(objects.get("a/b").await.unwrap(), "one");
    assert_eq!(objects.size("a/b").await.unwrap(), Some(3));
    objects.replace("a/b", "three".into()).await.unwrap();
    assert_eq!(objects.get("a/b").await.unwrap(), "three");
    objects.delete("a/b").await.unwrap();
    objects.delete("a/b").await.unwrap();
    assert_eq!(objects.size("a/b").await.unwrap(), None);
    assert!(matches!(objects.get("a/b").await, Err(StoreError::NotFound { .. })));
    let large = Bytes::from((0..9_000_000_u32).map(|at| at as u8).collect::<Vec<u8>>());
    assert_eq!(objects.create("a/large", large.clone().into()).await.unwrap(), PutOutcome::Created);
    assert_eq!(objects.get("a/large").await.unwrap(), large);
}

async fn listings_are_complete_and_sorted(objects: &ObjectStorage) {
    let mut puts = JoinSet::new();
    let wanted: Vec<String> = (0..LISTED).map(|at| format!("list/{at:04}")).collect();
    for batch in wanted.chunks(LISTED / WRITERS + 1) {
        let (objects, batch) = (objects.clone(), batch.to_vec());
        puts.spawn(async move {
            for name in batch {
                objects.create(&name, "x".into()).await.unwrap();
            }
        });
    }
    puts.join_all().await;
    objects.create("list/deep/er", "xy".into()).await.unwrap();
    objects.create("listed", "x".into()).await.unwrap();
    let listed = objects.list("list").await.unwrap();
    assert!(listed.iter().all(|object| object.written_ms > 1_700_000_000_000), "{:?}", listed[0]);
    let deep = listed.iter().find(|object| object.name == "list/deep/er").unwrap();
    assert_eq!(deep.size, 2);
    assert_eq!(names(listed), [&wanted[..], &["list/deep/er".to_owned()]].concat());
    assert_eq!(names(objects.list_flat("list").await.unwrap()), wanted);
    assert_eq!(objects.list_folders("list").await.unwrap(), ["deep"]);
    assert_eq!(names(objects.list("nothing").await.unwrap()), [""; 0]);
}

async fn damaged_blobs_are_refused_and_repaired(objects: &ObjectStorage) {
    let digest = objects.put_blob(Bytes::from_static(b"content")).await.unwrap();
    assert_eq!(digest, Digest::of(b"content"));
    let name = names(objects.list("blobs").await.unwrap()).pop().unwrap();
    objects.replace(&name, "contend".into()).await.unwrap();
    let error = objects.get_blob(&digest).await.unwrap_err();
    assert!(matches!(error, StoreError::Damaged { size: 7, .. }), "{error}");
    objects.put_blob(Bytes::from_static(b"content")).await.unwrap();
    assert_eq!(objects.get_blob(&digest).await.unwrap(), "content");
}

async fn of_simultaneous_creates_one_succeeds(objects: &ObjectStorage) {
    for race in 0..5 {
        let mut creates = JoinSet::new();
        for writer in 0..WRITERS {
            let objects = objects.clone();
            creates.spawn(async move {
                let content = format!("writer {writer}");
                (objects.create(&format!("race/{race}"), content.clone().into()).await.unwrap(), content)
            });
        }
        let mut outcomes = creates.join_all().await;
        outcomes.retain(|(outcome, _)| *outcome == PutOutcome::Created);
        assert_eq!(outcomes.len(), 1, "{outcomes:?}");
        assert_eq!(objects.get(&format!("race/{race}")).await.unwrap(), outcomes[0].1.as_bytes());
    }
}

async fn folders_are_deleted_whole_and_alone(objects: &ObjectStorage) {
    for name in ["del/a", "del/b/c", "delete"] {
        objects.create(name, "x".into()).await.unwrap();
    }
    objects.delete_folder("del").await.unwrap();
    objects.delete_folder("del").await.unwrap();
    assert_eq!(names(objects.list("del").await.unwrap()), [""; 0]);
    assert_eq!(objects.size("delete").await.unwrap(), Some(1));
}

async fn checkpoints_are_saved_pruned_and_fenced(objects: &ObjectStorage) {
    let checkpoints = CheckpointStore::new(objects.clone());
    checkpoints.claim("job", 1).await.unwrap();
    for step in 1..=4 {
        checkpoints.save("job", 1, &checkpoint(step)).await.unwrap();
        // The same content again, as after an answer that was lost.
        checkpoints.save("job", 1, &checkpoint(step)).await.unwrap();
    }
    let retention = Retention::last(2);
    assert_eq!(checkpoints.prune("job", 1, &retention).await.unwrap(), 2);
    assert_eq!(latest_step(&checkpoints, "job").await, Some(4));
    let steps: Vec<u64> = checkpoints.list("job").await.unwrap().iter().map(|info| info.step).collect();
    assert_eq!(steps, [4, 3]);
    let successor = CheckpointStore::new(objects.clone());
    successor.claim("job", 2).await.unwrap();
    let error = checkpoints.save("job", 1, &checkpoint(5)).await.unwrap_err();
    assert!(matches!(error, CheckpointError::Fenced { epoch: 1, newest: 2, .. }), "{error}");
    assert!(successor.verify("job").await.unwrap().iter().all(|found| found.outcome.is_ok()));
    assert!(successor.remove_all("job").await.unwrap() > 2 << 20);
    assert_eq!(latest_step(&successor, "job").await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_in_local_files_pass_the_suite() {
    let directory = tempfile::tempdir().unwrap();
    check_objects(&ObjectStorage::local(directory.path()).unwrap()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_in_memory_pass_the_suite() {
    check_objects(&ObjectStorage::from_store(Arc::new(InMemory::new()))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_in_a_bucket_pass_the_suite_and_prefixes_separate_them() {
    let Some(server) = MotoServer::start() else { return };
    check_objects(&server.objects("one/deep")).await;
    check_objects(&server.objects("")).await;
}

/// Returns the error of a probe.
async fn refusal(objects: &ObjectStorage) -> String {
    objects.probe(|| SystemClock.now_ms()).await.unwrap_err().to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_probe_accepts_a_store_that_decides_races_and_leaves_nothing_in_it() {
    let Some(server) = MotoServer::start() else { return };
    let objects = server.objects("p");
    let probe = objects.probe(|| SystemClock.now_ms()).await.unwrap();
    assert!(probe.clock_skew.unwrap().distance() < Duration::from_secs(5), "{probe:?}");
    assert!(probe.latency > Duration::ZERO);
    let behind = objects.probe(|| SystemClock.now_ms() + 3_600_000).await.unwrap().clock_skew.unwrap();
    assert!(!behind.is_store_ahead() && behind.distance().as_secs().abs_diff(3_600) < 5, "{behind:?}");
    assert_eq!(names(objects.list("").await.unwrap_or_default()), [""; 0]);
    assert_eq!(names(objects.list("probes").await.unwrap()), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_probe_refuses_stores_that_lose_races_and_names_the_race() {
    let Some(server) = MotoServer::start() else { return };
    let proxy = FaultProxy::start(server.port());
    let objects = s3_objects(proxy.port(), "p");
    let named = "s3://saggar/p lost a race: 8 requests created one object at the same time with `If-None-Match: *`, and \
                 8 of them succeeded, expected 1";
    proxy.inject(S3Fault::IgnoreCondition, "PUT", "/", u32::MAX);
    let error = refusal(&objects).await;
    assert!(error.contains(named), "{error}");
    // A store that checks the condition and then writes passes one request after the other.
    proxy.heal();
    proxy.inject(S3Fault::CheckWithoutLock(Arc::new(Barrier::new(1))), "PUT", "/", 2);
    assert_eq!(objects.create("x", "one".into()).await.unwrap(), PutOutcome::Created);
    assert_eq!(objects.create("x", "two".into()).await.unwrap(), PutOutcome::Taken);
    proxy.heal();
    proxy.inject(S3Fault::CheckWithoutLock(Arc::new(Barrier::new(WRITERS))), "PUT", "/", u32::MAX);
    let error = refusal(&objects).await;
    assert!(error.contains(named), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_probe_refuses_s3s_fs_which_checks_the_condition_without_a_lock() {
    let Some(server) = RacyServer::start() else { return };
    let objects = server.objects("p");
    assert_eq!(objects.create("x", "one".into()).await.unwrap(), PutOutcome::Created);
    assert_eq!(objects.create("x", "two".into()).await.unwrap(), PutOutcome::Taken);
    let error = refusal(&objects).await;
    assert!(error.contains("s3://saggar/p lost a race: 8 requests created one object at the same time"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_probe_names_what_is_missing() {
    let Some(server) = MotoServer::start() else { return };
    let proxy = FaultProxy::start(server.port());
    let objects = s3_objects(proxy.port(), "p");
    let check = async |fault: S3Fault, parts: &[&str]| {
        proxy.inject(fault, "PUT", "/", u32::MAX);
        let error = refusal(&objects).await;
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
        assert!(error.contains("s3://saggar/p: object probes/"), "{error}");
        proxy.heal();
    };
    check(S3Fault::Refuse(404, "NoSuchBucket"), &["404", "create the bucket"]).await;
    check(S3Fault::Refuse(403, "AccessDenied"), &["403", "s3:PutObject"]).await;
    check(S3Fault::Refuse(403, "SignatureDoesNotMatch"), &["AWS_SECRET_ACCESS_KEY"]).await;
    check(S3Fault::Refuse(403, "RequestTimeTooSkewed"), &["saggar doctor", "clock"]).await;
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let error = refusal(&s3_objects(port, "p")).await;
    assert!(error.contains("Connection refused") && error.contains("AWS_ENDPOINT_URL"), "{error}");
}

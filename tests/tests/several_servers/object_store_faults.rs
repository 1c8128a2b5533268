//! Faults of a store of objects on another machine: nothing is overwritten, errors name the request, and retries end.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use saggar_store::objects::PutOutcome;
use saggar_store::{Checkpoint, CheckpointStore, ObjectStorage};
use saggar_tests::s3::{FaultProxy, MotoServer, S3Fault, s3_objects};

/// Requests for one operation at most: the first, and its repetitions.
const REQUESTS_MAX: usize = 7;

/// A server, a proxy before it, and the objects through each.
struct FaultySetup {
    _server: MotoServer,
    proxy: FaultProxy,
    objects: ObjectStorage,
    direct: ObjectStorage,
}

impl FaultySetup {
    fn start() -> Option<FaultySetup> {
        let server = MotoServer::start()?;
        let proxy = FaultProxy::start(server.port());
        let (objects, direct) = (s3_objects(proxy.port(), "p"), server.objects("p"));
        Some(FaultySetup { _server: server, proxy, objects, direct })
    }
}

fn checkpoint(step: u64) -> Checkpoint {
    Checkpoint {
        step,
        metrics: [].into(),
        variables: Vec::new(),
        positions: Vec::new(),
        state: vec![step as u8; 1 << 16],
        plugin_digest: "plugin".to_owned(),
        device: "cpu".to_owned(),
        build: "test".to_owned(),
        kernel_tuning: [].into(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn server_errors_are_repeated_and_then_reported() {
    let Some(FaultySetup { proxy, objects, direct, .. }) = &FaultySetup::start() else { return };
    proxy.inject(S3Fault::Refuse(500, "InternalError"), "PUT", "/a", 2);
    assert_eq!(objects.create("a", "one".into()).await.unwrap(), PutOutcome::Created);
    assert_eq!(proxy.requests("PUT", "/a"), 3);
    proxy.inject(S3Fault::Refuse(503, "SlowDown"), "PUT", "/b", u32::MAX);
    let error = objects.create("b", "one".into()).await.unwrap_err().to_string();
    for part in ["s3://saggar/p: object b: PUT answered 503", "SlowDown", "retries", "overloaded"] {
        assert!(error.contains(part), "{error}");
    }
    assert!((2..=REQUESTS_MAX).contains(&proxy.requests("PUT", "/b")), "{}", proxy.requests("PUT", "/b"));
    assert_eq!(direct.size("b").await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_put_whose_answer_is_lost_is_decided_by_its_content() {
    let Some(FaultySetup { proxy, objects, direct, .. }) = &FaultySetup::start() else { return };
    proxy.inject(S3Fault::LoseAnswer, "PUT", "/a", 1);
    assert_eq!(objects.create_unique("a", "mine".into()).await.unwrap(), PutOutcome::Created);
    assert_eq!(proxy.requests("PUT", "/a"), 2);
    proxy.inject(S3Fault::LoseAnswer, "PUT", "/a", 1);
    assert_eq!(objects.create_unique("a", "other".into()).await.unwrap(), PutOutcome::Taken);
    assert_eq!(direct.get("a").await.unwrap(), "mine");
    // Every answer of a save is lost once: that of its part and that of its manifest.
    let checkpoints = CheckpointStore::new(objects.clone());
    checkpoints.claim("job", 1).await.unwrap();
    proxy.inject(S3Fault::LoseAnswer, "PUT", "/checkpoints/job/parts/", 1);
    proxy.inject(S3Fault::LoseAnswer, "PUT", ".json", 1);
    checkpoints.save("job", 1, &checkpoint(1)).await.unwrap();
    let (_, found) = CheckpointStore::new(direct.clone()).latest("job", "plugin").await.unwrap().found.unwrap();
    assert_eq!(found, checkpoint(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cut_connection_is_opened_again() {
    let Some(FaultySetup { proxy, objects, direct, .. }) = &FaultySetup::start() else { return };
    proxy.inject(S3Fault::Cut, "PUT", "/a", 2);
    assert_eq!(objects.create("a", "one".into()).await.unwrap(), PutOutcome::Created);
    proxy.inject(S3Fault::Cut, "PUT", "/a", 1);
    objects.replace("a", "longer content".into()).await.unwrap();
    proxy.inject(S3Fault::Cut, "GET", "/a", 1);
    proxy.inject(S3Fault::CutAnswer, "GET", "/a", 1);
    assert_eq!(objects.get("a").await.unwrap(), "longer content");
    assert_eq!(direct.get("a").await.unwrap(), "longer content");
    proxy.inject(S3Fault::Cut, "GET", "/a", u32::MAX);
    let error = objects.get("a").await.unwrap_err().to_string();
    assert!(error.contains("s3://saggar/p: object a: GET failed") && error.contains("AWS_ENDPOINT_URL"), "{error}");
    assert!(proxy.requests("GET", "/a") <= 3 + REQUESTS_MAX);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_does_not_answer_is_asked_again_and_then_reported() {
    let Some(FaultySetup { proxy, objects, direct, .. }) = &FaultySetup::start() else { return };
    proxy.inject(S3Fault::Silence, "PUT", "/a", 1);
    assert_eq!(objects.create_unique("a", "mine".into()).await.unwrap(), PutOutcome::Created);
    assert_eq!((proxy.requests("PUT", "/a"), direct.get("a").await.unwrap()), (2, "mine".into()));
    proxy.inject(S3Fault::Silence, "GET", "/a", u32::MAX);
    let error = objects.get("a").await.unwrap_err().to_string();
    assert!(error.contains("GET failed: no answer in time"), "{error}");
    assert!(proxy.requests("GET", "/a") <= REQUESTS_MAX);
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_that_expire_between_saves_end_no_earlier_checkpoint() {
    let Some(FaultySetup { proxy, objects, direct, .. }) = &FaultySetup::start() else { return };
    let checkpoints = CheckpointStore::new(objects.clone());
    checkpoints.claim("job", 1).await.unwrap();
    checkpoints.save("job", 1, &checkpoint(1)).await.unwrap();
    for method in ["GET", "HEAD", "PUT", "POST"] {
        proxy.inject(S3Fault::Refuse(400, "ExpiredToken"), method, "/", u32::MAX);
    }
    let error = checkpoints.save("job", 1, &checkpoint(2)).await.unwrap_err().to_string();
    assert!(error.contains("ExpiredToken") && error.contains("renew the credentials"), "{error}");
    let (_, found) = CheckpointStore::new(direct.clone()).latest("job", "plugin").await.unwrap().found.unwrap();
    assert_eq!(found, checkpoint(1));
    proxy.heal();
    checkpoints.save("job", 1, &checkpoint(2)).await.unwrap();
    let (_, found) = CheckpointStore::new(direct.clone()).latest("job", "plugin").await.unwrap().found.unwrap();
    assert_eq!(found, checkpoint(2));
}

/// S3 answers 409 to a create while another put of the same name is in progress, and that put can fail.
#[tokio::test(flavor = "multi_thread")]
async fn a_conflict_without_an_object_is_no_taken_name() {
    let Some(FaultySetup { proxy, objects, direct, .. }) = &FaultySetup::start() else { return };
    let conflict = || S3Fault::Refuse(409, "ConditionalRequestConflict");
    proxy.inject(conflict(), "PUT", "/a", 2);
    assert_eq!(objects.create("a", "one".into()).await.unwrap(), PutOutcome::Created);
    assert_eq!(direct.get("a").await.unwrap(), "one");
    proxy.inject(conflict(), "PUT", "/a", 1);
    assert_eq!(objects.create("a", "two".into()).await.unwrap(), PutOutcome::Taken);
    proxy.inject(conflict(), "PUT", "/b", u32::MAX);
    let error = objects.create("b", "one".into()).await.unwrap_err().to_string();
    assert!(error.contains("409") && error.contains("ConditionalRequestConflict"), "{error}");
    assert!(proxy.requests("PUT", "/b") <= REQUESTS_MAX);
    assert_eq!(direct.get("a").await.unwrap(), "one");
}

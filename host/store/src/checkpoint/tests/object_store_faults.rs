//! The object store fails at its n-th operation, for every n: once or permanently, with or without executing the
//! operation.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use futures::StreamExt;
use futures::stream::BoxStream;
use object_store::path::Path;
use object_store::*;

use crate::objects::files::LocalObjectStore;

use super::{
    BestMetric, CheckpointError, CheckpointStore, JOB, MetricMode, NEWEST_EPOCH, ObjectStorage, PLUGIN, Retention,
    checkpoint, latest_step, open_store, store_with_checkpoints,
};

#[derive(Clone, Copy, Debug, PartialEq)]
enum ObjectStoreFault {
    /// One operation is not executed.
    Once,
    /// One operation is executed, but returns an error.
    LostAnswer,
    /// All operations fail from then on, as seen by a process that died.
    ForEver,
}

const FAULTS: [ObjectStoreFault; 3] = [ObjectStoreFault::Once, ObjectStoreFault::LostAnswer, ObjectStoreFault::ForEver];

#[derive(Debug)]
struct FaultyObjectStore {
    inner: Arc<dyn ObjectStore>,
    fault: ObjectStoreFault,
    /// The number of the operation that fails, from 1.
    at: u64,
    calls: AtomicU64,
}

impl FaultyObjectStore {
    /// Counts an operation and returns whether to refuse it, and whether to execute it but return an error.
    fn next(&self) -> (bool, bool) {
        let call = self.calls.fetch_add(1, Ordering::SeqCst) + 1;
        match self.fault {
            ObjectStoreFault::Once => (call == self.at, false),
            ObjectStoreFault::LostAnswer => (false, call == self.at),
            ObjectStoreFault::ForEver => (call >= self.at, false),
        }
    }

    fn injected_error() -> Error {
        Error::Generic { store: "failing", source: "disk on fire".into() }
    }

    async fn run<T>(&self, operation: impl Future<Output = Result<T>>) -> Result<T> {
        let (refuse, lose) = self.next();
        if refuse {
            return Err(FaultyObjectStore::injected_error());
        }
        let done = operation.await;
        if lose { Err(FaultyObjectStore::injected_error()) } else { done }
    }
}

impl fmt::Display for FaultyObjectStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("failing")
    }
}

#[async_trait]
impl ObjectStore for FaultyObjectStore {
    async fn put_opts(&self, at: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.run(self.inner.put_opts(at, payload, options)).await
    }

    async fn put_multipart_opts(&self, at: &Path, options: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.run(self.inner.put_multipart_opts(at, options)).await
    }

    async fn get_opts(&self, at: &Path, options: GetOptions) -> Result<GetResult> {
        self.run(self.inner.get_opts(at, options)).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let (refuse, lose) = self.next();
        if refuse {
            return futures::stream::once(async { Err(FaultyObjectStore::injected_error()) }).boxed();
        }
        let done = self.inner.delete_stream(locations);
        if lose { done.map(|_| Err(FaultyObjectStore::injected_error())).boxed() } else { done }
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        if self.next() == (false, false) {
            return self.inner.list(prefix);
        }
        futures::stream::once(async { Err(FaultyObjectStore::injected_error()) }).boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.run(self.inner.list_with_delimiter(prefix)).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.run(self.inner.copy_opts(from, to, options)).await
    }
}

fn faulty_checkpoint_store(
    directory: &std::path::Path,
    fault: ObjectStoreFault,
    at: u64,
) -> (CheckpointStore, Arc<FaultyObjectStore>) {
    let inner = Arc::new(LocalObjectStore::new(directory).unwrap());
    let calls = AtomicU64::new(0);
    let store = Arc::new(FaultyObjectStore { inner, fault, at, calls });
    (CheckpointStore::new(ObjectStorage::from_store(store.clone())), store)
}

/// Runs an action with the n-th operation failing, for n = 1, 2, ... until the action needs fewer operations, and
/// checks the store after each run.
async fn fail_each_operation(
    steps: &[u64],
    action: impl AsyncFn(&CheckpointStore) -> Result<(), CheckpointError>,
    check: impl AsyncFn(bool, &CheckpointStore),
) {
    for fault in FAULTS {
        for at in 1.. {
            let (directory, _) = store_with_checkpoints(steps).await;
            let (checkpoints, store) = faulty_checkpoint_store(directory.path(), fault, at);
            let done = action(&checkpoints).await.is_ok();
            let struck = store.calls.load(Ordering::SeqCst) >= at;
            check(done, &open_store(directory.path())).await;
            if !struck {
                assert!(done && at > 3, "{fault:?} at {at}");
                break;
            }
            // The same process retries when the disk works again.
            if fault != ObjectStoreFault::ForEver {
                action(&checkpoints).await.unwrap();
                check(true, &open_store(directory.path())).await;
            }
        }
    }
}

#[tokio::test]
async fn a_save_survives_a_fault_at_every_operation() {
    let save = async |it: &CheckpointStore| it.save(JOB, 1, &checkpoint(2)).await.map(drop);
    fail_each_operation(&[1], save, async |done, reopened| {
        let found = latest_step(reopened).await;
        assert!(found == Some(2) || (!done && found == Some(1)), "{found:?}");
    })
    .await;
}

#[tokio::test]
async fn a_prune_survives_a_fault_at_every_operation() {
    let prune = async |it: &CheckpointStore| it.prune(JOB, NEWEST_EPOCH, &Retention::last(1)).await.map(drop);
    fail_each_operation(&[1, 2, 3], prune, async |done, reopened| {
        assert_eq!(latest_step(reopened).await, Some(3));
        // The next pruning removes what an interrupted one left.
        if done {
            assert_eq!(reopened.prune(JOB, NEWEST_EPOCH, &Retention::last(1)).await.unwrap(), 0);
        }
    })
    .await;
}

#[tokio::test]
async fn a_claim_survives_a_fault_at_every_operation() {
    let claim = async |it: &CheckpointStore| it.claim(JOB, 2).await;
    fail_each_operation(&[1], claim, async |done, reopened| {
        let old = reopened.save(JOB, 1, &checkpoint(2)).await;
        assert!(!done || matches!(old, Err(CheckpointError::Fenced { newest: 2, .. })), "{old:?}");
    })
    .await;
}

#[tokio::test]
async fn a_load_survives_a_fault_at_every_operation() {
    for fault in FAULTS {
        for at in 1..12 {
            let (directory, _) = store_with_checkpoints(&[1, 2]).await;
            let (checkpoints, _) = faulty_checkpoint_store(directory.path(), fault, at);
            if let Ok(latest) = checkpoints.latest(JOB, PLUGIN).await {
                match latest.found {
                    Some((_, found)) => assert_eq!(found, checkpoint(found.step)),
                    None => assert!(fault == ObjectStoreFault::ForEver && latest.skipped.len() == 2),
                }
                // A single failure does not lose a checkpoint.
                assert!(fault == ObjectStoreFault::ForEver || latest.skipped.is_empty(), "{fault:?} at {at}");
            }
        }
    }
}

#[tokio::test]
async fn a_prune_reads_each_manifest_once() {
    let directory = super::scratch();
    let (checkpoints, store) = faulty_checkpoint_store(directory.path(), ObjectStoreFault::Once, u64::MAX);
    let keep_best = Some(BestMetric { metric: "loss".to_owned(), mode: MetricMode::Min });
    let retention = Retention { keep_last: 10, keep_best, keep_steps: Vec::new() };
    let mut operations = Vec::new();
    for step in 1..=6 {
        checkpoints.save(JOB, 1, &checkpoint(step)).await.unwrap();
        let before = store.calls.load(Ordering::SeqCst);
        assert_eq!(checkpoints.prune(JOB, NEWEST_EPOCH, &retention).await.unwrap(), 0);
        operations.push(store.calls.load(Ordering::SeqCst) - before);
    }
    // Three operations list parts, manifests and announced epochs, and one reads the new manifest.
    assert_eq!(operations, [4; 6]);
    // Removing the job's checkpoints clears the cache.
    checkpoints.remove_all(JOB).await.unwrap();
    checkpoints.save(JOB, 1, &checkpoint(7)).await.unwrap();
    assert_eq!(checkpoints.prune(JOB, NEWEST_EPOCH, &Retention::last(1)).await.unwrap(), 0);
    assert_eq!(latest_step(&checkpoints).await, Some(7));
}

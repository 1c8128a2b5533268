//! The store fails at its n-th operation, for every n: once or from then on, with the operation
//! done or not.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use futures::StreamExt;
use futures::stream::BoxStream;
use object_store::path::Path;
use object_store::*;

use crate::objects::files::Files;

use super::{
    BestBy, CheckpointError, Checkpoints, JOB, Mode, Objects, PLUGIN, Retention, checkpoint, latest_step, open, saved,
};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    /// One operation is refused.
    Once,
    /// One operation is done and its answer lost.
    LostAnswer,
    /// Nothing works any more: what a process that died saw.
    ForEver,
}

const FAULTS: [Fault; 3] = [Fault::Once, Fault::LostAnswer, Fault::ForEver];

#[derive(Debug)]
struct Failing {
    inner: Arc<dyn ObjectStore>,
    fault: Fault,
    /// The operation that fails, counted from 1.
    at: u64,
    calls: AtomicU64,
}

impl Failing {
    /// Counts an operation; says whether to refuse it, or to lose its answer.
    fn next(&self) -> (bool, bool) {
        let call = self.calls.fetch_add(1, Ordering::SeqCst) + 1;
        match self.fault {
            Fault::Once => (call == self.at, false),
            Fault::LostAnswer => (false, call == self.at),
            Fault::ForEver => (call >= self.at, false),
        }
    }

    fn broken() -> Error {
        Error::Generic { store: "failing", source: "disk on fire".into() }
    }

    async fn run<T>(&self, operation: impl Future<Output = Result<T>>) -> Result<T> {
        let (refuse, lose) = self.next();
        if refuse {
            return Err(Failing::broken());
        }
        let done = operation.await;
        if lose { Err(Failing::broken()) } else { done }
    }
}

impl fmt::Display for Failing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("failing")
    }
}

#[async_trait]
impl ObjectStore for Failing {
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
            return futures::stream::once(async { Err(Failing::broken()) }).boxed();
        }
        let done = self.inner.delete_stream(locations);
        if lose { done.map(|_| Err(Failing::broken())).boxed() } else { done }
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        if self.next() == (false, false) {
            return self.inner.list(prefix);
        }
        futures::stream::once(async { Err(Failing::broken()) }).boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.run(self.inner.list_with_delimiter(prefix)).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.run(self.inner.copy_opts(from, to, options)).await
    }
}

fn failing(directory: &std::path::Path, fault: Fault, at: u64) -> (Checkpoints, Arc<Failing>) {
    let inner = Arc::new(Files::new(directory).unwrap());
    let calls = AtomicU64::new(0);
    let store = Arc::new(Failing { inner, fault, at, calls });
    (Checkpoints::new(Objects::over(store.clone())), store)
}

/// Runs an action with the n-th operation failing, for n = 1 until there is none left to fail, and
/// checks the store after each.
async fn at_every_operation(
    steps: &[u64],
    action: impl AsyncFn(&Checkpoints) -> Result<(), CheckpointError>,
    check: impl AsyncFn(bool, &Checkpoints),
) {
    for fault in FAULTS {
        for at in 1.. {
            let (directory, _) = saved(steps).await;
            let (checkpoints, store) = failing(directory.path(), fault, at);
            let done = action(&checkpoints).await.is_ok();
            let struck = store.calls.load(Ordering::SeqCst) >= at;
            check(done, &open(directory.path())).await;
            if !struck {
                assert!(done && at > 3, "{fault:?} at {at}");
                break;
            }
            // The same process tries again once the disk is well.
            if fault != Fault::ForEver {
                action(&checkpoints).await.unwrap();
                check(true, &open(directory.path())).await;
            }
        }
    }
}

#[tokio::test]
async fn saving() {
    let save = async |it: &Checkpoints| it.save(JOB, 1, &checkpoint(2)).await.map(drop);
    at_every_operation(&[1], save, async |done, reopened| {
        let found = latest_step(reopened).await;
        assert!(found == Some(2) || (!done && found == Some(1)), "{found:?}");
    })
    .await;
}

#[tokio::test]
async fn pruning() {
    let prune = async |it: &Checkpoints| it.prune(JOB, &Retention::last(1)).await.map(drop);
    at_every_operation(&[1, 2, 3], prune, async |done, reopened| {
        assert_eq!(latest_step(reopened).await, Some(3));
        // Whatever a cut-off pruning left, the next one takes away.
        if done {
            assert_eq!(reopened.prune(JOB, &Retention::last(1)).await.unwrap(), 0);
        }
    })
    .await;
}

#[tokio::test]
async fn claiming() {
    let claim = async |it: &Checkpoints| it.claim(JOB, 2).await;
    at_every_operation(&[1], claim, async |done, reopened| {
        let old = reopened.save(JOB, 1, &checkpoint(2)).await;
        assert!(!done || matches!(old, Err(CheckpointError::Fenced { newest: 2, .. })), "{old:?}");
    })
    .await;
}

#[tokio::test]
async fn loading() {
    for fault in FAULTS {
        for at in 1..12 {
            let (directory, _) = saved(&[1, 2]).await;
            let (checkpoints, _) = failing(directory.path(), fault, at);
            if let Ok(latest) = checkpoints.latest(JOB, PLUGIN).await {
                match latest.found {
                    Some((_, found)) => assert_eq!(found, checkpoint(found.step)),
                    None => assert!(fault == Fault::ForEver && latest.skipped.len() == 2),
                }
                // One hiccup does not cost a checkpoint.
                assert!(fault == Fault::ForEver || latest.skipped.is_empty(), "{fault:?} at {at}");
            }
        }
    }
}

#[tokio::test]
async fn pruning_reads_no_manifest_twice() {
    let directory = super::scratch();
    let (checkpoints, store) = failing(directory.path(), Fault::Once, u64::MAX);
    let keep_best = Some(BestBy { metric: "loss".to_owned(), mode: Mode::Min });
    let retention = Retention { keep_last: 10, keep_best };
    let mut operations = Vec::new();
    for step in 1..=6 {
        checkpoints.save(JOB, 1, &checkpoint(step)).await.unwrap();
        let before = store.calls.load(Ordering::SeqCst);
        assert_eq!(checkpoints.prune(JOB, &retention).await.unwrap(), 0);
        operations.push(store.calls.load(Ordering::SeqCst) - before);
    }
    // Parts and manifests are listed, and what is new is read.
    assert_eq!(operations, [3; 6]);
    // Removed, they are forgotten.
    checkpoints.remove_all(JOB).await.unwrap();
    checkpoints.save(JOB, 1, &checkpoint(7)).await.unwrap();
    assert_eq!(checkpoints.prune(JOB, &Retention::last(1)).await.unwrap(), 0);
    assert_eq!(latest_step(&checkpoints).await, Some(7));
}

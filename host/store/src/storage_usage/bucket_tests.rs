//! The bytes of a bucket that several servers use.

use std::sync::Arc;

use bytes::Bytes;
use object_store::memory::InMemory;

use super::*;
use crate::bucket_usage::BucketUsage;
use crate::objects::{BlockingObjects, ObjectStorage};
use crate::records;

#[test]
fn the_bytes_of_a_bucket_are_counted_by_one_server_and_known_to_all() {
    let directory = tempfile::tempdir().unwrap();
    let records = records::open(directory.path().join("records.db")).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    let objects = ObjectStorage::from_store(Arc::new(InMemory::new()));
    let bucket = BlockingObjects::new(objects.clone(), runtime.handle().clone());
    let put = |name: &str, bytes: usize| {
        runtime.block_on(objects.replace(name, Bytes::from(vec![0; bytes]).into())).unwrap();
    };
    for (at, name) in ["datasets/d/1.json", "datasets-parts/d/x/0", "models-parts/m/x/0", "checkpoints/j/1.json"]
        .into_iter()
        .chain(["jobs/j/output/a/b", "jobs/j/logged/1-a.png", "jobs/j/attempt-1/0", "blobs/sha256/ab"])
        .enumerate()
    {
        put(name, 1 << at);
    }
    let homes = ["a", "b"].map(|name| {
        let home = StateDir::open(directory.path().join(name)).unwrap().with_bucket(bucket.clone());
        home.with_bucket_usage(Arc::new(BucketUsage::default()))
    });
    let refresh = |at: usize, now_ms| {
        homes[at].bucket_usage().unwrap().refresh(&*records, &bucket, now_ms).unwrap();
        homes[at].stored_bytes(&homes[at].models()).unwrap()
    };
    assert_eq!(refresh(0, 100_000), 255);
    let usage = homes[0].usage(&homes[0].models()).unwrap();
    let found: Vec<_> = usage.iter().map(|(kind, bytes)| format!("{} {bytes}", kind.name())).collect();
    let expected = "datasets 3, checkpoints 8, outputs 48, logs 64, models 4, plugins 128, records 0, cache 0";
    assert_eq!(found.join(", "), expected);
    put("plugins/p.json", 1000);
    homes[1].bucket_usage().unwrap().add(7);
    assert_eq!(refresh(1, 101_000), 255, "it is counted already, and the server's own bytes are older");
    homes[1].bucket_usage().unwrap().add(7);
    assert_eq!(refresh(1, 102_000), 262);
    assert_eq!(refresh(1, 130_000), 1255);
    assert_eq!(refresh(0, 131_000), 1255);
}

#[test]
fn copies_of_models_count_as_cache_if_the_bucket_counts() {
    let directory = tempfile::tempdir().unwrap();
    let home = StateDir::open(directory.path().join("home")).unwrap();
    std::fs::create_dir_all(home.models().join("m/1")).unwrap();
    std::fs::write(home.models().join("m/1/plugin.wasm"), [0; 64]).unwrap();
    assert_eq!(home.stored_bytes(&home.models()).unwrap(), 64);
    let home = home.with_bucket_usage(Arc::new(BucketUsage::default()));
    assert_eq!(home.stored_bytes(&home.models()).unwrap(), 0);
    assert_eq!(home.usage(&home.models()).unwrap().bytes_of(StorageKind::Cache), 64);
}

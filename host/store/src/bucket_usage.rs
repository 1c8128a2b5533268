//! The bytes in a bucket that several servers use.
//!
//! One of the servers lists the bucket each [`COUNT_INTERVAL`] and records the sums; the others read them. Between two counts
//! each process adds what it stores itself. So a quota can be exceeded by what the others store in that time, and what was
//! removed counts until the next count.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use saggar_clock::UnixMillis;
use serde::{Deserialize, Serialize};

use crate::bucket_folders::{DATASETS_FOLDER, MODELS_FOLDER, PREDICTIONS_FOLDER, UPLOADS_FOLDER};
use crate::error::{RecordError, StoreError};
use crate::logged_items::LOGGED_FOLDER;
use crate::objects::{BlockingObjects, ObjectInfo};
use crate::outputs::OUTPUT_FOLDER;
use crate::records::DocumentRecords;
use crate::storage_kind::{StorageKind, StorageUsage};

/// The time between two counts.
pub const COUNT_INTERVAL: Duration = Duration::from_secs(30);

/// The name of the document with the sums.
pub(crate) const BUCKET_USAGE_DOCUMENT: &str = "storage/usage";

/// The folders of a bucket, and the kind of their objects. The kind of files of jobs follows from their names.
const FOLDERS: [(&str, StorageKind); 12] = [
    (DATASETS_FOLDER, StorageKind::Datasets),
    ("datasets-parts", StorageKind::Datasets),
    ("datasets-projects", StorageKind::Datasets),
    (UPLOADS_FOLDER, StorageKind::Datasets),
    (MODELS_FOLDER, StorageKind::Models),
    ("models-parts", StorageKind::Models),
    ("models-projects", StorageKind::Models),
    ("checkpoints", StorageKind::Checkpoints),
    ("jobs", StorageKind::Logs),
    ("blobs", StorageKind::Plugins),
    ("plugins", StorageKind::Plugins),
    (PREDICTIONS_FOLDER, StorageKind::Plugins),
];

/// The reason why the bytes of a bucket are not known.
#[derive(Debug, thiserror::Error)]
pub enum BucketCountError {
    /// An error of the bucket.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// An error of the records.
    #[error(transparent)]
    Records(#[from] RecordError),
}

/// The bytes that a count has found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BucketCount {
    /// When the count began, by the clock of the server that counted.
    pub counted_ms: UnixMillis,
    /// The bytes of each kind.
    pub bytes: BTreeMap<StorageKind, u64>,
}

/// The bytes in a bucket, as far as this process knows.
#[derive(Debug, Default)]
pub struct BucketUsage(Mutex<KnownUsage>);

#[derive(Debug, Default)]
struct KnownUsage {
    count: BucketCount,
    /// The bytes that this process has stored since the count became known.
    added: u64,
}

impl BucketUsage {
    /// Replaces the count by a newer one.
    pub fn set(&self, count: BucketCount) {
        let mut known = self.0.lock();
        if known.count.counted_ms != count.counted_ms {
            *known = KnownUsage { count, added: 0 };
        }
    }

    /// Adds bytes that this process is about to store.
    pub fn add(&self, bytes: u64) {
        let mut known = self.0.lock();
        known.added = known.added.saturating_add(bytes);
    }

    /// Returns the newest count.
    pub fn count(&self) -> BucketCount {
        self.0.lock().count.clone()
    }

    /// Returns the bytes that this process has added to the count.
    pub(crate) fn added(&self) -> u64 {
        self.0.lock().added
    }

    /// Adds the count to a usage.
    pub(crate) fn add_to(&self, usage: &mut StorageUsage) {
        for (kind, bytes) in &self.0.lock().count.bytes {
            usage.add(*kind, *bytes);
        }
    }

    /// Reads the sums of the records, and counts again if they are older than [`COUNT_INTERVAL`]. Blocks.
    ///
    /// # Errors
    /// Returns an error if the records or the bucket cannot be reached.
    pub fn refresh(
        &self,
        records: &dyn DocumentRecords,
        bucket: &BlockingObjects,
        now_ms: UnixMillis,
    ) -> Result<(), BucketCountError> {
        let document = records.document(BUCKET_USAGE_DOCUMENT, 0)?;
        let revision = document.as_ref().map_or(0, |document| document.revision);
        let known = document.and_then(|document| serde_json::from_str::<BucketCount>(&document.text).ok());
        let known = known.unwrap_or_default();
        // The clocks of servers differ; a time in the future is from a clock that was set back.
        let is_fresh = now_ms.abs_diff(known.counted_ms) < COUNT_INTERVAL.as_millis() as u64;
        // The server that replaces the time of the count counts.
        let claim = BucketCount { counted_ms: now_ms, bytes: known.bytes.clone() };
        if is_fresh || !records.replace_document(BUCKET_USAGE_DOCUMENT, revision, &to_text(&claim))? {
            self.set(known);
            return Ok(());
        }
        let count = BucketCount { counted_ms: now_ms, bytes: count_objects(bucket)? };
        records.replace_document(BUCKET_USAGE_DOCUMENT, revision + 1, &to_text(&count))?;
        self.set(count);
        Ok(())
    }
}

fn to_text(count: &BucketCount) -> String {
    serde_json::to_string(count).expect("numbers under names are JSON")
}

fn count_objects(bucket: &BlockingObjects) -> Result<BTreeMap<StorageKind, u64>, StoreError> {
    let mut bytes = BTreeMap::new();
    for (folder, kind) in FOLDERS {
        for object in bucket.wait(|objects| async move { objects.list(folder).await })? {
            *bytes.entry(if folder == "jobs" { kind_of_file(&object) } else { kind }).or_default() += object.size;
        }
    }
    Ok(bytes)
}

/// Returns the kind of `jobs/<job>/<folder>/...`.
fn kind_of_file(object: &ObjectInfo) -> StorageKind {
    match object.name.split('/').nth(2) {
        Some(OUTPUT_FOLDER | LOGGED_FOLDER) => StorageKind::Outputs,
        Some(_) | None => StorageKind::Logs,
    }
}

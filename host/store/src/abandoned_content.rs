//! Content that nobody is going to use: uploads that were not continued, and parts of versions whose publication never ended.

use std::collections::BTreeSet;

use saggar_clock::UnixMillis;

use crate::bucket_folders::{DATASETS_FOLDER, MODELS_FOLDER};
use crate::dataset::upload::UploadStore;
use crate::limits::{ABANDONED_PARTS_AGE, ABANDONED_UPLOAD_AGE};
use crate::records::PublicationRecords;
use crate::state_dir::StateDir;
use crate::versions::objects::ObjectVersions;

/// The number of things that were removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemovedContent {
    /// Uploads of datasets.
    pub uploads: usize,
    /// Versions of datasets and models that never became visible.
    pub versions: usize,
}

/// Removes uploads that were announced [`ABANDONED_UPLOAD_AGE`] ago, and parts in the bucket that belong to no version and are
/// older than [`ABANDONED_PARTS_AGE`]. Several servers can do it at the same time. Blocks.
///
/// # Errors
/// Returns an error if the uploads, the records or the bucket cannot be read. What was removed by then stays removed.
pub fn remove_abandoned_content(
    home: &StateDir,
    uploads: &UploadStore,
    records: &dyn PublicationRecords,
    now_ms: UnixMillis,
) -> Result<RemovedContent, Box<dyn std::error::Error + Send + Sync>> {
    let before = |age: std::time::Duration| now_ms.saturating_sub(u64::try_from(age.as_millis()).unwrap_or(u64::MAX));
    let mut removed =
        RemovedContent { uploads: uploads.discard_older_than(before(ABANDONED_UPLOAD_AGE))?, versions: 0 };
    let Some(bucket) = home.bucket() else { return Ok(removed) };
    // Read before the parts are listed, because a publication that ends meanwhile leaves the records.
    let registered: BTreeSet<String> =
        records.unfinished_publications()?.into_iter().map(|publication| publication.id).collect();
    for folder in [DATASETS_FOLDER, MODELS_FOLDER] {
        let versions = ObjectVersions::new(bucket.clone(), folder, home.fetched_versions());
        removed.versions += versions.remove_abandoned_parts(before(ABANDONED_PARTS_AGE), &registered)?;
    }
    Ok(removed)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::dataset::DatasetStore;
    use crate::objects::{BlockingObjects, ObjectStorage};
    use crate::records::{self, JobRecords};

    #[test]
    fn parts_of_no_version_are_removed_after_a_day() {
        let directory = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        std::fs::create_dir(directory.path().join("bucket")).unwrap();
        let objects = ObjectStorage::local(&directory.path().join("bucket")).unwrap();
        let bucket = BlockingObjects::new(objects.clone(), runtime.handle().clone());
        let home = StateDir::open(directory.path().join("state")).unwrap().with_bucket(bucket.clone());
        let uploads = UploadStore::new(home.uploads(), DatasetStore::of_home(&home)).with_bucket(bucket);
        let records: Arc<dyn JobRecords> = records::open(home.database()).unwrap();
        let write = |name: &str, text: &str| {
            let put = objects.create(name, bytes::Bytes::copy_from_slice(text.as_bytes()).into());
            runtime.block_on(put).unwrap();
        };
        let source = directory.path().join("source");
        std::fs::create_dir(&source).unwrap();
        std::fs::write(source.join("d.csv"), "x,label\n1,0\n2,1\n").unwrap();
        DatasetStore::of_home(&home).ingest("d", &source, 1).unwrap();
        let whole = runtime.block_on(objects.list("")).unwrap();
        write("models-parts/m/0123/0", "sent by a worker that ended");
        write("datasets-parts/d/4567/0", "sent by a server that ended");
        let now = saggar_clock::Clock::now_ms(&saggar_clock::SystemClock);
        let remove = |now| remove_abandoned_content(&home, &uploads, &*records, now);
        assert_eq!(remove(now).unwrap(), RemovedContent::default(), "a publication can still go on");
        let tomorrow = now + u64::try_from(ABANDONED_PARTS_AGE.as_millis()).unwrap() + 60_000;
        write("datasets/d/2.json", "no index");
        write("datasets-parts/d/89ab/0", "more folders than versions, so that indexes are read");
        assert!(remove(tomorrow).is_err(), "a damaged index could name any parts");
        runtime.block_on(objects.delete("datasets/d/2.json")).unwrap();
        assert_eq!(remove(tomorrow).unwrap(), RemovedContent { uploads: 0, versions: 3 });
        assert_eq!(
            runtime.block_on(objects.list("")).unwrap(),
            whole,
            "the version is whole, and nothing else is left"
        );
    }
}

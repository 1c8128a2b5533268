//! Assignments to projects in a bucket: an object for each change, of which the one with the highest number counts.
//!
//! ```text
//! <folder>-projects/<name>/<revision, 20 digits>     ["digits","faces"]
//! ```
//!
//! An object is only created if its name is free, so of two changes that follow from the same assignment, one is refused
//! and repeated.

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use saggar_clock::UnixMillis;

use crate::error::StoreError;
use crate::objects::{BlockingObjects, PutOutcome};

/// How long an assignment that was read is used, because a listing of models or datasets reads one for each.
const READ_AGE_MAX: Duration = Duration::from_secs(2);

/// The assignments below one folder of a bucket.
#[derive(Debug)]
pub(super) struct BucketAssignments {
    objects: BlockingObjects,
    folder: String,
    read: Mutex<ReadAssignments>,
}

/// What was read last.
#[derive(Debug, Default)]
struct ReadAssignments {
    at: Option<Instant>,
    by_name: BTreeMap<String, Assignment>,
}

/// The newest assignment of a name.
#[derive(Clone, Debug)]
struct Assignment {
    revision: u64,
    /// When the object was written. In a folder that was removed meanwhile, revisions begin again.
    written_ms: UnixMillis,
    projects: Vec<String>,
}

impl BucketAssignments {
    /// Returns the assignments of the versions below `folder`.
    pub(super) fn new(objects: BlockingObjects, folder: &str) -> BucketAssignments {
        BucketAssignments { objects, folder: format!("{folder}-projects"), read: Mutex::default() }
    }

    /// Returns the projects of a name, as they were at most [`READ_AGE_MAX`] ago; empty if it belongs to none.
    pub(super) fn projects(&self, name: &str) -> Result<Vec<String>, StoreError> {
        let mut read = self.read.lock();
        if read.at.is_none_or(|at| at.elapsed() > READ_AGE_MAX) {
            self.refresh(&mut read)?;
        }
        Ok(read.by_name.get(name).map(|it| it.projects.clone()).unwrap_or_default())
    }

    /// Changes the projects of a name to those that `decide` returns, from the newest ones, which
    /// [`projects`](Self::projects) returns meanwhile. Changes nothing if it returns `None`.
    pub(super) fn change<E: From<StoreError>>(
        &self,
        name: &str,
        mut decide: impl FnMut() -> Result<Option<Vec<String>>, E>,
    ) -> Result<(), E> {
        loop {
            let revision = {
                let mut read = self.read.lock();
                self.refresh(&mut read)?;
                read.by_name.get(name).map_or(0, |it| it.revision)
            };
            let Some(projects) = decide()? else { return Ok(()) };
            let text = Bytes::from(serde_json::to_vec(&projects).expect("names are JSON"));
            let object = self.object_name(name, revision + 1);
            let put = self.objects.wait(|objects| async move { objects.create(&object, text.into()).await })?;
            self.read.lock().at = None;
            // If this process wrote it and the answer was lost, the repetition finds its own assignment.
            if put == PutOutcome::Created {
                let former = self.object_name(name, revision);
                if revision > 0 {
                    // What is left of former revisions does not count.
                    let _ = self.objects.wait(|objects| async move { objects.delete(&former).await });
                }
                return Ok(());
            }
        }
    }

    fn object_name(&self, name: &str, revision: u64) -> String {
        format!("{}/{name}/{revision:020}", self.folder)
    }

    /// Reads the assignments that have changed.
    fn refresh(&self, read: &mut ReadAssignments) -> Result<(), StoreError> {
        let folder = self.folder.clone();
        let listed = self.objects.wait(|objects| async move { objects.list(&folder).await })?;
        let mut newest = BTreeMap::new();
        for object in listed {
            let path = object.name.strip_prefix(&self.folder).and_then(|rest| rest.strip_prefix('/'));
            let Some((name, revision)) = path.and_then(|path| path.split_once('/')) else { continue };
            let Ok(revision) = revision.parse::<u64>() else { continue };
            // The listing is sorted, so the highest revision is last.
            newest.insert(name.to_owned(), (revision, object.written_ms, object.name.clone()));
        }
        read.by_name.retain(|name, it| {
            newest.get(name).is_some_and(|(revision, written, _)| (*revision, *written) == (it.revision, it.written_ms))
        });
        let changed: Vec<_> = newest.into_iter().filter(|(name, _)| !read.by_name.contains_key(name)).collect();
        let objects = changed.iter().map(|(_, (_, _, object))| object.clone()).collect();
        let texts = self.objects.wait(|storage| async move { storage.get_all(objects).await })?;
        for ((name, (revision, written_ms, object)), text) in changed.into_iter().zip(texts) {
            // It was replaced after the listing, and is read the next time.
            let Some(text) = text else { continue };
            let projects = serde_json::from_slice(&text)
                .map_err(|error| StoreError::io(&object)(io::Error::new(io::ErrorKind::InvalidData, error)))?;
            read.by_name.insert(name, Assignment { revision, written_ms, projects });
        }
        read.at = Some(Instant::now());
        Ok(())
    }
}

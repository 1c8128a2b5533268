//! Object storage: named bytes that are created once and never changed.
//!
//! Built on [`object_store`]. The objects are local files ([`files`]), each synced with its directory before a put
//! returns, or in a bucket of another machine ([`s3`]). A synchronous caller waits with
//! `tokio::runtime::Handle::block_on`.

use std::io;
use std::path::Path as FsPath;
use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{Error, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload};
use saggar_clock::UnixMillis;

use crate::digest::Digest;
use crate::error::StoreError;
use crate::limits::{CONCURRENT_READS_MAX, S3_CREATES_MAX};

mod blocking;
pub(crate) mod files;
mod probe;
mod s3;

pub use blocking::BlockingObjects;
pub use probe::StoreProbe;
pub use s3::{ClockSkew, S3Settings};

use files::{LocalObjectStore, ObjectPin};
use s3::RemoteStore;

/// The object of a bucket, and the file of a state directory, that say that a migration into it is not complete.
pub(crate) const MIGRATION_MARK: &str = "migration.json";

/// An entry of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectInfo {
    /// Its full name, with `/` between the parts.
    pub name: String,
    /// Its size in bytes.
    pub size: u64,
    /// The time it was written, by the store's clock.
    pub written_ms: UnixMillis,
}

/// The result of a create-only put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutOutcome {
    /// The name was free; the object now exists.
    Created,
    /// The name was taken; nothing changed.
    Taken,
}

/// An object store. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ObjectStorage {
    store: Arc<dyn ObjectStore>,
    /// The same store, if it is local files.
    files: Option<LocalObjectStore>,
    /// The same store, if it is a bucket.
    remote: Option<RemoteStore>,
}

impl ObjectStorage {
    /// Opens the store of local files under `root`, which must exist.
    ///
    /// # Errors
    /// Returns `Io` if `root` is not a directory.
    pub fn local(root: &FsPath) -> Result<ObjectStorage, StoreError> {
        let files = LocalObjectStore::new(root).map_err(StoreError::io(root))?;
        Ok(ObjectStorage { store: Arc::new(files.clone()), files: Some(files), remote: None })
    }

    /// Opens the store at an address, `s3://BUCKET/PREFIX`, without sending a request; [`probe`](Self::probe) does that.
    /// Credentials, region and endpoint come from the environment variables that Amazon's programs read.
    ///
    /// # Errors
    /// Returns `BadStoreAddress` if the address or a variable is not valid.
    pub fn open(address: &str) -> Result<ObjectStorage, StoreError> {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        ObjectStorage::open_bucket(S3Settings::read(address, &variable)?)
    }

    /// Opens the store at an address, or that of local files under `root` without one.
    ///
    /// # Errors
    /// The errors of [`ObjectStorage::open`] and [`ObjectStorage::local`].
    pub fn open_or_local(address: Option<&str>, root: &FsPath) -> Result<ObjectStorage, StoreError> {
        address.map_or_else(|| ObjectStorage::local(root), ObjectStorage::open)
    }

    /// Opens a bucket with these settings, without sending a request.
    ///
    /// # Errors
    /// Returns `BadStoreAddress`.
    pub fn open_bucket(settings: S3Settings) -> Result<ObjectStorage, StoreError> {
        let remote = s3::open(settings)?;
        Ok(ObjectStorage { store: Arc::clone(&remote.store), files: None, remote: Some(remote) })
    }

    /// Wraps another store: in memory, or one that injects faults in a test.
    pub fn from_store(store: Arc<dyn ObjectStore>) -> ObjectStorage {
        ObjectStorage { store, files: None, remote: None }
    }

    /// Returns the address of a bucket, or a description of another store.
    pub fn address(&self) -> &str {
        self.remote.as_ref().map_or("the local store", |remote| &remote.address)
    }

    /// Returns a text that is the same for every server with this bucket, or `None` for another store.
    pub fn bucket_identity(&self) -> Option<&str> {
        self.remote.as_ref().map(|remote| remote.identity.as_str())
    }

    /// Returns the store's clock minus that of this machine, whose time is `now_ms`, or `None` if no answer of the store
    /// had a time.
    pub fn clock_skew(&self, now_ms: UnixMillis) -> Option<ClockSkew> {
        self.remote.as_ref()?.clock.skew(now_ms)
    }

    /// Returns `IncompleteMigration` if a migration into the store was interrupted.
    ///
    /// # Errors
    /// Also returns `Object` and `Remote`.
    pub async fn check_is_complete(&self) -> Result<(), StoreError> {
        match self.size(MIGRATION_MARK).await? {
            None => Ok(()),
            Some(_) => Err(StoreError::IncompleteMigration { place: self.address().to_owned() }),
        }
    }

    /// Returns a function that adds an object's name to an error of the store.
    fn failure(&self, name: &str) -> impl FnOnce(Error) -> StoreError {
        move |error| match &self.remote {
            Some(remote) => s3::explain_failure(&remote.address, name)(error),
            None => StoreError::object(name)(error),
        }
    }

    /// Writes an object unless its name is taken. The object is durable when this returns. A store on another machine can
    /// lose the answer to a put that it carried out: then the object that this call wrote can be `Taken`.
    ///
    /// # Errors
    /// Returns `Object`; the object may or may not exist then.
    pub async fn create(&self, name: &str, payload: PutPayload) -> Result<PutOutcome, StoreError> {
        let path = self.path(name)?;
        let mut tries = 0;
        loop {
            tries += 1;
            let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
            match self.store.put_opts(&path, payload.clone(), options).await {
                Ok(_) => return Ok(PutOutcome::Created),
                Err(error @ Error::AlreadyExists { .. }) => {
                    // A store can refuse a put because another one is in progress, and that one can still fail. The crate
                    // reports both alike: https://github.com/apache/arrow-rs-object-store/issues/852
                    if self.remote.is_none() || self.size(name).await?.is_some() {
                        return Ok(PutOutcome::Taken);
                    }
                    if tries >= S3_CREATES_MAX {
                        return Err(self.failure(name)(error));
                    }
                }
                Err(error) => return Err(self.failure(name)(error)),
            }
        }
    }

    /// Writes an object whose content no other caller writes, unless its name is taken. If the answer to an earlier put was
    /// lost, the object that it wrote counts as created.
    ///
    /// # Errors
    /// Returns `Object`; the object may or may not exist then.
    pub async fn create_unique(&self, name: &str, content: Bytes) -> Result<PutOutcome, StoreError> {
        match self.create(name, content.clone().into()).await? {
            PutOutcome::Created => Ok(PutOutcome::Created),
            // Another process can remove it meanwhile.
            PutOutcome::Taken => match self.get(name).await {
                Ok(found) if found == content => Ok(PutOutcome::Created),
                Ok(_) | Err(StoreError::NotFound { .. }) => Ok(PutOutcome::Taken),
                Err(error) => Err(error),
            },
        }
    }

    /// Writes an object, replacing any object of the same name. The object is durable when this returns.
    ///
    /// # Errors
    /// Returns `Object`; the object has its previous or its new content then.
    pub async fn replace(&self, name: &str, payload: PutPayload) -> Result<(), StoreError> {
        let put = self.store.put(&self.path(name)?, payload).await;
        put.map(drop).map_err(self.failure(name))
    }

    /// Makes sure that the object `name` holds exactly these bytes, whose digest is `digest`.
    ///
    /// The name must be derived from the content. An existing object is verified and synced, because an earlier process
    /// may have died between writing and syncing it. A damaged object is replaced.
    ///
    /// # Errors
    /// Returns `Object` or `Io`.
    pub async fn ensure(&self, name: &str, digest: &Digest, payload: PutPayload) -> Result<(), StoreError> {
        if self.create(name, payload.clone()).await? == PutOutcome::Created {
            return Ok(());
        }
        match self.get_verified(name, digest).await {
            Ok(_) => self.sync(name).await,
            Err(StoreError::Damaged { .. } | StoreError::NotFound { .. }) => {
                tracing::warn!(object = name, "damaged object replaced");
                self.replace(name, payload).await
            }
            Err(error) => Err(error),
        }
    }

    /// Stores bytes under the name of their content, `blobs/sha256/ab/<digest>`.
    ///
    /// # Errors
    /// Returns `Object` or `Io`.
    pub async fn put_blob(&self, bytes: Bytes) -> Result<Digest, StoreError> {
        let digest = Digest::of(&bytes);
        self.ensure(&blob_name(&digest), &digest, bytes.into()).await?;
        Ok(digest)
    }

    /// Returns the blob with this digest, verified.
    ///
    /// # Errors
    /// Returns `NotFound`, `Damaged` or `Object`.
    pub async fn get_blob(&self, digest: &Digest) -> Result<Bytes, StoreError> {
        self.get_verified(&blob_name(digest), digest).await
    }

    /// Returns an object's bytes without verifying them.
    ///
    /// # Errors
    /// Returns `NotFound` or `Object`.
    pub async fn get(&self, name: &str) -> Result<Bytes, StoreError> {
        let got = self.store.get(&self.path(name)?).await.map_err(self.failure(name))?;
        got.bytes().await.map_err(self.failure(name))
    }

    /// Returns an object's bytes without verifying them, or `None` if it does not exist.
    ///
    /// # Errors
    /// Returns `Object`.
    pub async fn find(&self, name: &str) -> Result<Option<Bytes>, StoreError> {
        match self.get(name).await {
            Ok(bytes) => Ok(Some(bytes)),
            Err(StoreError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the bytes of several objects without verifying them, in the order of the names; `None` for one that does not
    /// exist. Sends some requests at the same time.
    ///
    /// # Errors
    /// Returns `Object`.
    pub(crate) async fn get_all(&self, names: Vec<String>) -> Result<Vec<Option<Bytes>>, StoreError> {
        let read = |name: String| async move { self.find(&name).await };
        futures::stream::iter(names).map(read).buffered(CONCURRENT_READS_MAX).try_collect().await
    }

    /// Returns an object's bytes, verified against `digest`.
    ///
    /// # Errors
    /// Returns `NotFound`; `Damaged` if the content has another digest; `Object`.
    pub async fn get_verified(&self, name: &str, digest: &Digest) -> Result<Bytes, StoreError> {
        let bytes = self.get(name).await?;
        // Hashing a large object would block the executor's other tasks.
        let (bytes, found) = if bytes.len() < 1 << 16 {
            let found = Digest::of(&bytes);
            (bytes, found)
        } else {
            tokio::task::spawn_blocking(move || {
                let found = Digest::of(&bytes);
                (bytes, found)
            })
            .await
            .map_err(|_| StoreError::Interrupted { name: name.to_owned() })?
        };
        if found == *digest {
            return Ok(bytes);
        }
        let size = bytes.len() as u64;
        Err(StoreError::Damaged { name: name.to_owned(), expected: *digest, found, size })
    }

    /// Returns the size of an object in bytes, or `None` if it does not exist.
    ///
    /// # Errors
    /// Returns `Object`.
    pub async fn size(&self, name: &str) -> Result<Option<u64>, StoreError> {
        match self.store.head(&self.path(name)?).await {
            Ok(meta) => Ok(Some(meta.size)),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(self.failure(name)(error)),
        }
    }

    /// Returns the objects whose names begin with the folder `prefix`, sorted by name.
    ///
    /// # Errors
    /// Returns `Object`.
    pub async fn list(&self, prefix: &str) -> Result<Vec<ObjectInfo>, StoreError> {
        let listing = self.store.list(Some(&self.path(prefix)?)).map_ok(object_info);
        let mut found: Vec<_> = listing.try_collect().await.map_err(self.failure(prefix))?;
        found.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(found)
    }

    /// Returns the objects directly in the folder `prefix`, sorted by name.
    ///
    /// # Errors
    /// Returns `Object`.
    pub async fn list_flat(&self, prefix: &str) -> Result<Vec<ObjectInfo>, StoreError> {
        let listing = self.store.list_with_delimiter(Some(&self.path(prefix)?)).await;
        let objects = listing.map_err(self.failure(prefix))?.objects;
        let mut found: Vec<_> = objects.into_iter().map(object_info).collect();
        found.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(found)
    }

    /// Returns the names of the folders directly in the folder `prefix`, sorted.
    ///
    /// # Errors
    /// Returns `Object`.
    pub async fn list_folders(&self, prefix: &str) -> Result<Vec<String>, StoreError> {
        let listing = self.store.list_with_delimiter(Some(&self.path(prefix)?)).await;
        let folders = listing.map_err(self.failure(prefix))?.common_prefixes;
        let mut names: Vec<_> = folders.iter().filter_map(|path| path.filename().map(str::to_owned)).collect();
        names.sort();
        Ok(names)
    }

    /// Deletes an object. Does nothing if it does not exist. After a power loss a deleted object may exist again, so
    /// nothing may depend on its absence.
    ///
    /// # Errors
    /// Returns `Object`.
    pub async fn delete(&self, name: &str) -> Result<(), StoreError> {
        match self.store.delete(&self.path(name)?).await {
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(self.failure(name)(error)),
        }
    }

    /// Deletes every object whose name begins with the folder `prefix`, durably. Missing objects are ignored.
    ///
    /// # Errors
    /// Returns `Object` or `Io`. Some objects may be deleted then; deleting again is safe.
    pub async fn delete_folder(&self, prefix: &str) -> Result<(), StoreError> {
        if let Some(files) = &self.files {
            return files.delete_folder(self.path(prefix)?.as_ref()).await.map_err(StoreError::io(prefix));
        }
        for object in self.list(prefix).await? {
            self.delete(&object.name).await?;
        }
        Ok(())
    }

    /// Deletes an object unless it is pinned, and returns whether it is gone.
    pub(crate) async fn delete_unless_pinned(&self, name: &str) -> Result<bool, StoreError> {
        match &self.files {
            Some(files) => files.delete_unless_pinned(name).map_err(StoreError::io(name)),
            None => self.delete(name).await.map(|()| true),
        }
    }

    /// Pins an object: [`delete_unless_pinned`](Self::delete_unless_pinned) keeps it, in every process of this machine.
    pub(crate) fn pin(&self, name: &str) -> Result<ObjectPin, StoreError> {
        let Some(files) = &self.files else { return Ok(ObjectPin::none()) };
        files.pin(name).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => StoreError::NotFound { name: name.to_owned() },
            _ => StoreError::io(name)(error),
        })
    }

    /// Makes earlier deletions directly in a folder durable.
    pub(crate) fn sync_folder(&self, prefix: &str) -> Result<(), StoreError> {
        self.files.as_ref().map_or(Ok(()), |files| files.sync_folder(prefix)).map_err(StoreError::io(prefix))
    }

    /// Removes leftovers of killed puts in a folder and below. Puts in progress there fail.
    pub(crate) fn sweep(&self, prefix: &str) -> Result<(), StoreError> {
        self.files.as_ref().map_or(Ok(()), |files| files.sweep(prefix)).map_err(StoreError::io(prefix))
    }

    /// Makes an existing object durable, with its parent folders.
    pub(crate) async fn sync(&self, name: &str) -> Result<(), StoreError> {
        let Some(files) = &self.files else { return Ok(()) };
        files.sync(name).await.map_err(StoreError::io(name))
    }

    fn path(&self, name: &str) -> Result<Path, StoreError> {
        Path::parse(name).map_err(|_| StoreError::BadName { name: name.to_owned() })
    }
}

fn object_info(meta: ObjectMeta) -> ObjectInfo {
    ObjectInfo {
        name: meta.location.to_string(),
        size: meta.size,
        written_ms: u64::try_from(meta.last_modified.timestamp_millis()).unwrap_or(0),
    }
}

fn blob_name(digest: &Digest) -> String {
    let hex = digest.hex();
    format!("blobs/sha256/{}/{hex}", &hex[..2])
}

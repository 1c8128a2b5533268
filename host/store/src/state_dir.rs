//! The state directory: the paths of all durable state, and the lock of the server that uses it.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read, Seek, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

use crate::bucket_usage::BucketUsage;
use crate::durable::{self, disk};
use crate::error::StoreError;
use crate::job_files::{JobFiles, LocalJobFiles, ObjectJobFiles};
use crate::keys::{KeyFile, KeyUsageFile};
use crate::limits::{INHERITED_LOCK_WAIT_MAX, LOCK_POLL_INTERVAL};
use crate::objects::{BlockingObjects, MIGRATION_MARK};
use crate::records::LogRecords;

/// The state directory of one installation.
///
/// ```text
/// saggar.db     job records          objects/   checkpoints, blobs
/// server.lock   held by the server   models/    <name>/<version>/
/// jobs/         <job>/ logs, output  datasets/  <name>/<version>/
/// uploads/      unfinished uploads   cache/     can be deleted at any time
/// keys.json     keys, hashed         key-usage.json  what they used of their quotas
/// secrets.json  secrets that jobs can be granted
/// audit.log     changes by clients
/// external-runs.db  runs of programs that are not jobs
/// ```
/// Each directory in it, and `objects/checkpoints`, can be a symbolic link to a directory elsewhere, also on another
/// disk: files are never moved from one of them to another.
/// With a [bucket](StateDir::with_bucket), datasets and files of jobs are in it, and not in `datasets/` and `jobs/`.
#[derive(Clone, Debug)]
pub struct StateDir {
    root: PathBuf,
    bucket: Option<BlockingObjects>,
    /// The bytes in the bucket, if they count towards the storage quota.
    bucket_usage: Option<Arc<BucketUsage>>,
}

/// The parts of the state directory that can be symbolic links to another disk.
pub const RELOCATABLE_DIRECTORIES: [&str; 7] =
    ["objects", "objects/checkpoints", "models", "jobs", "cache", "datasets", "uploads"];

/// Permissions of the state directory: only its owner can enter it.
pub const PRIVATE_DIRECTORY_MODE: u32 = durable::PRIVATE_DIRECTORY_MODE;

impl StateDir {
    /// Wraps an existing directory, in a test.
    #[cfg(test)]
    pub(crate) fn from_existing(root: &Path) -> StateDir {
        StateDir { root: root.to_owned(), bucket: None, bucket_usage: None }
    }

    /// Opens the directory and creates the parts that are missing. Takes no lock: workers and clients call this too.
    ///
    /// # Errors
    /// Returns `Io` if a directory cannot be created; `LinkToNothing` if a part is a symbolic link whose target does
    /// not exist; `IncompleteMigration`.
    pub fn open(root: impl Into<PathBuf>) -> Result<StateDir, StoreError> {
        let root = root.into();
        if root.join(MIGRATION_MARK).exists() {
            return Err(StoreError::IncompleteMigration { place: root.display().to_string() });
        }
        StateDir::open_incomplete(root)
    }

    /// Opens the directory as [`open`](Self::open) does, also if a migration into it is not complete.
    pub(crate) fn open_incomplete(root: impl Into<PathBuf>) -> Result<StateDir, StoreError> {
        let root = std::path::absolute(root.into()).map_err(StoreError::io("."))?;
        let home = StateDir { root, bucket: None, bucket_usage: None };
        for place in RELOCATABLE_DIRECTORIES.map(|place| home.root.join(place)) {
            // If created here, the directory would hide the data of a disk that is only not mounted.
            if let Ok(target) = std::fs::read_link(&place)
                && !place.is_dir()
            {
                return Err(StoreError::LinkToNothing { place, target });
            }
        }
        for directory in [home.objects(), home.models(), home.jobs(), home.cache(), home.datasets(), home.uploads()] {
            durable::create_directories_below(&home.root, &directory).map_err(StoreError::io(&directory))?;
        }
        home.restrict_to_owner()?;
        let parent = home.root.parent().unwrap_or(Path::new("/"));
        match disk::sync_directory(parent) {
            // A user who cannot read the link did not create the directory behind it.
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {}
            synced => synced.map_err(StoreError::io(parent))?,
        }
        Ok(home)
    }

    /// Keeps datasets and files of jobs in a bucket, which other servers can share.
    #[must_use]
    pub fn with_bucket(self, bucket: BlockingObjects) -> StateDir {
        StateDir { bucket: Some(bucket), ..self }
    }

    /// Counts the bytes in the bucket, which several servers use, instead of the copies of this machine.
    #[must_use]
    pub fn with_bucket_usage(self, usage: Arc<BucketUsage>) -> StateDir {
        StateDir { bucket_usage: Some(usage), ..self }
    }

    /// Returns the bytes in the bucket, or `None` if they do not count.
    pub fn bucket_usage(&self) -> Option<&Arc<BucketUsage>> {
        self.bucket_usage.as_ref()
    }

    /// Returns the bucket, or `None` if everything is in the directory.
    pub fn bucket(&self) -> Option<&BlockingObjects> {
        self.bucket.as_ref()
    }

    /// Denies other users access to the directory, if it is this user's. Earlier builds may have created files in it
    /// that all can read; the directory's permissions protect these too.
    fn restrict_to_owner(&self) -> Result<(), StoreError> {
        let Some(mode) = self.public_mode()? else { return Ok(()) };
        match fs::set_permissions(&self.root, fs::Permissions::from_mode(durable::PRIVATE_DIRECTORY_MODE)) {
            Ok(()) => {
                let path = self.root.display();
                tracing::info!(%path, mode = format!("{mode:o}"), "the state directory is now for its owner alone (700)");
                Ok(())
            }
            // The directory is another user's, or its file system has no permissions: `saggar doctor` reports it.
            Err(error) if matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::Unsupported) => Ok(()),
            Err(error) => Err(StoreError::io(&self.root)(error)),
        }
    }

    /// Returns the directory's permissions if other users can list it, or `None`.
    ///
    /// # Errors
    /// Returns `Io`.
    pub fn public_mode(&self) -> Result<Option<u32>, StoreError> {
        let data = fs::metadata(&self.root).map_err(StoreError::io(&self.root))?;
        let mode = data.permissions().mode() & 0o777;
        Ok((mode & !durable::PRIVATE_DIRECTORY_MODE != 0).then_some(mode))
    }

    /// Takes the server's lock until the guard is dropped. The operating system releases it when the process ends,
    /// however it ends.
    ///
    /// # Errors
    /// Returns `HomeInUse` if another process holds it; `Io`.
    pub fn lock(&self) -> Result<StateDirLock, StoreError> {
        let path = self.root.join("server.lock");
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(durable::PRIVATE_FILE_MODE)
            .open(&path)
            .map_err(StoreError::io(&path))?;
        let began = Instant::now();
        while let Err(refused) = file.try_lock() {
            if let TryLockError::Error(error) = refused {
                return Err(StoreError::io(&path)(error));
            }
            let mut holder = String::new();
            let read = file.rewind().and_then(|()| (&mut file).take(32).read_to_string(&mut holder));
            let holder = read.map_or("", |_| holder.trim());
            // A process that a killed server was just starting inherits the lock and holds it until it executes its own
            // program.
            if is_process_gone(holder) && began.elapsed() < INHERITED_LOCK_WAIT_MAX {
                std::thread::sleep(LOCK_POLL_INTERVAL);
                continue;
            }
            return Err(StoreError::HomeInUse { home: self.root.clone(), process: holder.to_owned() });
        }
        let write = |file: &mut File| {
            file.set_len(0)?;
            file.rewind()?;
            writeln!(file, "{}", std::process::id())
        };
        write(&mut file).map_err(StoreError::io(&path))?;
        Ok(StateDirLock { _file: file })
    }

    /// Returns the directory itself, as an absolute path.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the root of the object store.
    pub fn objects(&self) -> PathBuf {
        self.root.join("objects")
    }

    /// Returns the directory of model versions: `<name>/<version>/`.
    pub fn models(&self) -> PathBuf {
        self.root.join("models")
    }

    /// Returns the directory of jobs, with a directory of logs and outputs for each.
    pub fn jobs(&self) -> PathBuf {
        self.root.join("jobs")
    }

    /// Returns the directory of one job.
    pub fn job(&self, id: &str) -> PathBuf {
        self.jobs().join(id)
    }

    /// Returns the outputs and logs of jobs.
    pub fn job_files(&self) -> Arc<dyn JobFiles> {
        match &self.bucket {
            Some(bucket) => Arc::new(ObjectJobFiles::new(bucket.clone(), self.fetched_outputs())),
            None => Arc::new(LocalJobFiles::new(&self.root)),
        }
    }

    /// Returns the outputs and logs of jobs for a server. With a bucket, the logs of running attempts are in `logs`.
    pub fn server_job_files(&self, logs: Arc<dyn LogRecords>) -> Arc<dyn JobFiles> {
        match &self.bucket {
            Some(bucket) => {
                let files = ObjectJobFiles::new(bucket.clone(), self.fetched_outputs());
                Arc::new(files.with_recorded_logs(logs))
            }
            None => self.job_files(),
        }
    }

    /// Returns the directory of dataset versions that were fetched from the bucket.
    pub(crate) fn fetched_versions(&self) -> PathBuf {
        self.cache().join("versions")
    }

    /// Returns the directory of outputs that were fetched from the bucket.
    fn fetched_outputs(&self) -> PathBuf {
        self.cache().join("outputs")
    }

    /// Returns the directory of data that can be recreated: compiled components, pipelines.
    pub fn cache(&self) -> PathBuf {
        self.root.join("cache")
    }

    /// Returns the directory of files that are being fetched from other servers.
    pub fn fetched(&self) -> PathBuf {
        self.cache().join("fetch")
    }

    /// Returns the directory of the drivers' pipeline caches: one file per kind of adapter.
    pub fn shaders(&self) -> PathBuf {
        self.cache().join("shaders")
    }

    /// Returns the directory of dataset versions: `<name>/<version>/`.
    pub fn datasets(&self) -> PathBuf {
        self.root.join("datasets")
    }

    /// Returns the directory of uploads that are not committed yet.
    pub fn uploads(&self) -> PathBuf {
        self.root.join("uploads")
    }

    /// Returns the file of the clients' keys.
    pub fn keys(&self) -> KeyFile {
        KeyFile::new(self.root.join("keys.json"))
    }

    /// Returns the file of the keys' usage of their quotas.
    pub fn key_usage(&self) -> KeyUsageFile {
        KeyUsageFile::new(self.root.join("key-usage.json"))
    }

    /// Returns the path of the audit log: which client changed which model or key.
    pub fn audit_log(&self) -> PathBuf {
        self.root.join("audit.log")
    }

    /// Returns the path of the database of external runs.
    pub fn external_runs(&self) -> PathBuf {
        self.root.join("external-runs.db")
    }

    /// Returns the path of the job database.
    pub fn database(&self) -> PathBuf {
        self.root.join("saggar.db")
    }
}

/// Proof that this process is the only server of its state directory.
#[derive(Debug)]
pub struct StateDirLock {
    _file: File,
}

/// Returns whether no process with this number exists. Returns `false` if `process` is not a number.
fn is_process_gone(process: &str) -> bool {
    let pid = process.parse().ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| test_kill_process(pid) == Err(Errno::SRCH))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The server was killed, and a child that it was starting still holds its lock.
    #[test]
    fn a_lock_inherited_by_a_child_of_a_killed_server_is_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let home = StateDir::open(directory.path()).unwrap();
        let mut ended = std::process::Command::new("true").spawn().unwrap();
        let holder = ended.id();
        ended.wait().unwrap();
        let path = home.root().join("server.lock");
        fs::write(&path, format!("{holder}\n")).unwrap();
        let inherited = File::open(&path).unwrap();
        inherited.lock().unwrap();
        let began = Instant::now();
        let refusal = home.lock().unwrap_err();
        assert!(matches!(&refusal, StoreError::HomeInUse { process, .. } if *process == holder.to_string()));
        assert!(began.elapsed() >= INHERITED_LOCK_WAIT_MAX, "it waited");
        let _lock = std::thread::scope(|scope| {
            // The child executes its program.
            scope.spawn(|| {
                std::thread::sleep(5 * LOCK_POLL_INTERVAL);
                inherited.unlock().unwrap();
            });
            home.lock().unwrap()
        });
        assert_eq!(fs::read_to_string(&path).unwrap().trim(), std::process::id().to_string());
    }

    #[test]
    fn only_one_server_locks_the_state_directory_and_workers_need_no_lock() {
        let directory = tempfile::tempdir().unwrap();
        let home = StateDir::open(directory.path().join("a/b")).unwrap();
        let lock = home.lock().unwrap();
        let worker = StateDir::open(home.root()).unwrap();
        assert!(worker.objects().is_dir());
        let refusal = worker.lock().unwrap_err();
        assert!(matches!(&refusal, StoreError::HomeInUse { home, process }
            if *home == *worker.root() && *process == std::process::id().to_string()));
        drop(lock);
        worker.lock().unwrap();
    }

    #[test]
    fn the_state_directory_is_readable_by_its_owner_alone() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("home");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        fs::create_dir(&root).unwrap();
        fs::set_permissions(&root, fs::Permissions::from_mode(0o755)).unwrap();
        let home = StateDir::open(&root).unwrap();
        assert_eq!((mode(&root), home.public_mode().unwrap()), (0o700, None));
        fs::set_permissions(&root, fs::Permissions::from_mode(0o750)).unwrap();
        assert_eq!(home.public_mode().unwrap(), Some(0o750));
        let _lock = home.lock().unwrap();
        home.job_files().write_output("j", "a/b.txt", b"x").unwrap();
        let _locked = durable::lock_for_update(&root.join("keys.json")).unwrap();
        drop(crate::records::open(home.database()).unwrap());
        for file in ["server.lock", "keys.lock", "saggar.db", "jobs/j/output/a/b.txt"] {
            assert_eq!(mode(&root.join(file)), 0o600, "{file}");
        }
    }

    #[test]
    fn a_dangling_symbolic_link_in_the_state_directory_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let (root, elsewhere) = (directory.path().join("home"), directory.path().join("elsewhere"));
        std::fs::create_dir(&root).unwrap();
        std::os::unix::fs::symlink(&elsewhere, root.join("datasets")).unwrap();
        let error = StateDir::open(&root).unwrap_err();
        assert!(matches!(&error, StoreError::LinkToNothing { target, .. } if *target == elsewhere), "{error}");
        assert!(error.to_string().contains("bring back the disk"), "{error}");
        assert!(!elsewhere.exists() && !root.join("objects").exists(), "nothing was made");
        std::fs::create_dir(&elsewhere).unwrap();
        let home = StateDir::open(&root).unwrap();
        std::fs::write(home.datasets().join("x"), [0; 7]).unwrap();
        assert_eq!(home.usage(&home.models()).unwrap().bytes_of(crate::storage_usage::StorageKind::Datasets), 7);
    }

    #[test]
    fn a_state_directory_that_cannot_be_created_is_named_in_the_error() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        std::fs::write(&file, "x").unwrap();
        let error = StateDir::open(file.join("home")).unwrap_err().to_string();
        assert!(error.contains("file"), "{error}");
    }
}

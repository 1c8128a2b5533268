//! Something that is done to a directory, tried on every disk that fails: each operation of it in turn, in each way, and
//! the power after each. Whoever tries says what must hold.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use tempfile::TempDir;

use super::crash_model::{DiskModel, PowerLoss};
use super::fault_injection::{DiskFault, FaultPlan, FaultyDisk, LoggedOperation, OperationRecord};

/// What a disk says when it cannot: full, over quota, broken, read-only.
const ERRORS: [Errno; 4] = [Errno::NOSPC, Errno::DQUOT, Errno::IO, Errno::ROFS];

/// Random losses tried after each operation, besides the four that are not.
const RANDOM_LOSSES: u64 = 2;

/// A directory for a test, where syncing costs nothing if there is such a place with room for all that run at once.
pub(crate) fn scratch() -> TempDir {
    let memory = Path::new("/dev/shm");
    let has_room = super::free_bytes(memory).is_ok_and(|bytes| bytes >= 1 << 30);
    let made = has_room.then(|| tempfile::tempdir_in(memory)).and_then(Result::ok);
    made.unwrap_or_else(|| tempfile::tempdir().unwrap())
}

/// What is tried.
pub(crate) struct CrashTest<P, A, C> {
    /// Makes a directory what it is before; it is empty.
    pub(crate) prepare: P,
    /// What is done. Doing it again where it was done, or half done, must work too.
    pub(crate) act: A,
    /// Looks at a directory where it was done (`true`), or may have been, in part.
    pub(crate) check: C,
}

impl<P, A, C, E> CrashTest<P, A, C>
where
    P: Fn(&Path),
    A: Fn(&Path) -> Result<(), E>,
    C: Fn(&Path, bool),
    E: Display,
{
    /// Every trial there is.
    pub(crate) fn run_all(&self) {
        self.fail_each_operation();
        self.lose_power_after_each_operation();
        self.kill_then_lose_power();
    }

    fn prepare_directory(&self) -> (TempDir, PathBuf) {
        let directory = scratch();
        let root = directory.path().join("state");
        std::fs::create_dir(&root).unwrap();
        (self.prepare)(&root);
        (directory, root)
    }

    /// The n-th operation fails, for n = 1 until there is none left to fail: once or from then on, done or not or half.
    /// The error says what the disk said; doing it again, in the same process, works.
    pub(crate) fn fail_each_operation(&self) {
        let ways = [
            (DiskFault::Refused, false),
            (DiskFault::Refused, true),
            (DiskFault::Torn, false),
            (DiskFault::Unanswered, false),
        ];
        for (number, (fault, for_ever)) in ways.into_iter().enumerate() {
            for at in 1.. {
                // Each error at each operation would say the same four times.
                let error = ERRORS[(at as usize + number) % ERRORS.len()];
                let plan = FaultPlan { at, fault, is_permanent: for_ever, error };
                if !self.run_with_fault(plan) {
                    assert!(at > 3, "{plan:?}: there was nothing to fail");
                    break;
                }
            }
        }
    }

    /// Whether the planned operation came.
    fn run_with_fault(&self, plan: FaultPlan) -> bool {
        let (_directory, root) = self.prepare_directory();
        let disk = FaultyDisk::attach(&root, Some(plan));
        let outcome = (self.act)(&root);
        if let Err(error) = &outcome {
            let (said, expected) = (error.to_string(), std::io::Error::from(plan.error).to_string());
            assert!(said.contains(&expected), "{plan:?} was told as: {said}");
        }
        assert_no_file_is_synced_again(&disk.records());
        let struck = disk.has_fired();
        assert!(struck || outcome.is_ok(), "{plan:?}");
        disk.clear_fault();
        (self.check)(&root, outcome.is_ok());
        if let Err(error) = (self.act)(&root) {
            panic!("{plan:?}: the second try failed: {error}");
        }
        (self.check)(&root, true);
        struck
    }

    /// The power fails after each operation, and the disk keeps of what was not synced all, nothing, or anything.
    pub(crate) fn lose_power_after_each_operation(&self) {
        let (directory, root) = self.prepare_directory();
        let mut model = DiskModel::from_directory(&root);
        let disk = FaultyDisk::attach(&root, None);
        (self.act)(&root).map_err(|error| error.to_string()).unwrap();
        let records = disk.records();
        let last = records.len();
        self.check_crash_images(&model, directory.path(), false);
        for (record, number) in records.iter().zip(1..) {
            model.apply(record);
            if record.operation != LoggedOperation::Look || number == last {
                self.check_crash_images(&model, directory.path(), number == last);
            }
        }
    }

    /// A process is killed before its n-th operation, another does it all again, and then the power fails.
    pub(crate) fn kill_then_lose_power(&self) {
        for at in 1.. {
            let (directory, root) = self.prepare_directory();
            let mut model = DiskModel::from_directory(&root);
            let disk = FaultyDisk::attach(
                &root,
                Some(FaultPlan { at, fault: DiskFault::Refused, is_permanent: true, error: Errno::IO }),
            );
            let _ = (self.act)(&root);
            let struck = disk.has_fired();
            disk.clear_fault();
            (self.act)(&root).map_err(|error| error.to_string()).unwrap();
            disk.records().iter().for_each(|record| model.apply(record));
            self.check_crash_images(&model, directory.path(), true);
            if !struck {
                break;
            }
        }
    }

    fn check_crash_images(&self, model: &DiskModel, directory: &Path, was_done: bool) {
        for loss in PowerLoss::kinds(RANDOM_LOSSES) {
            let image = directory.join("image");
            model.write_crash_image(loss, &image);
            (self.check)(&image, was_done);
            if let Err(error) = (self.act)(&image) {
                panic!("after {loss:?} was lost: {error}");
            }
            (self.check)(&image, true);
            std::fs::remove_dir_all(&image).unwrap();
        }
    }
}

/// A file that could not be synced is given up: neither synced again nor given another name.
fn assert_no_file_is_synced_again(records: &[OperationRecord]) {
    for (at, record) in records.iter().enumerate() {
        let LoggedOperation::Sync(file) = &record.operation else { continue };
        if record.reported_success {
            continue;
        }
        let again = records[at + 1..].iter().find(|later| match &later.operation {
            LoggedOperation::Sync(path) | LoggedOperation::Rename(path, _) | LoggedOperation::Link(path, _) => {
                path == file
            }
            _ => false,
        });
        assert!(again.is_none(), "{} could not be synced, and then: {again:?}", file.display());
    }
}

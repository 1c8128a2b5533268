//! Crash tests of an action on a directory: each disk operation fails in turn, in each way, and the power fails after
//! each. The test defines what must hold afterwards.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use tempfile::TempDir;

use super::crash_model::{DiskModel, PowerLoss};
use super::fault_injection::{DiskFault, FaultPlan, FaultyDisk, LoggedOperation, OperationRecord};

/// The errors of a failing disk: full, over quota, broken, read-only.
const ERRORS: [Errno; 4] = [Errno::NOSPC, Errno::DQUOT, Errno::IO, Errno::ROFS];

/// Number of random losses tried after each operation, in addition to the four fixed ones.
const RANDOM_LOSSES: u64 = 2;

/// Returns a directory for a test, in memory if possible, where syncing is free and there is enough space for all tests
/// at once.
pub(crate) fn scratch() -> TempDir {
    let memory = Path::new("/dev/shm");
    let has_room = super::free_bytes(memory).is_ok_and(|bytes| bytes >= 1 << 30);
    let made = has_room.then(|| tempfile::tempdir_in(memory)).and_then(Result::ok);
    made.unwrap_or_else(|| tempfile::tempdir().unwrap())
}

/// A crash test.
pub(crate) struct CrashTest<P, A, C> {
    /// Prepares the empty directory.
    pub(crate) prepare: P,
    /// The action. Repeating it must succeed, whether it was completed or interrupted.
    pub(crate) act: A,
    /// Checks a directory in which the action completed (`true`), or possibly ran in part.
    pub(crate) check: C,
}

impl<P, A, C, E> CrashTest<P, A, C>
where
    P: Fn(&Path),
    A: Fn(&Path) -> Result<(), E>,
    C: Fn(&Path, bool),
    E: Display,
{
    /// Runs all variants.
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

    /// Makes the n-th operation fail, for n = 1, 2, ... until the action needs fewer: once or permanently, not
    /// executed, half executed or executed. The error must contain the disk's error, and repeating the action in the
    /// same process must succeed.
    pub(crate) fn fail_each_operation(&self) {
        let ways = [
            (DiskFault::Refused, false),
            (DiskFault::Refused, true),
            (DiskFault::Torn, false),
            (DiskFault::Unanswered, false),
        ];
        for (number, (fault, for_ever)) in ways.into_iter().enumerate() {
            for at in 1.. {
                // All four errors at each operation would test the same path four times.
                let error = ERRORS[(at as usize + number) % ERRORS.len()];
                let plan = FaultPlan { at, fault, is_permanent: for_ever, error };
                if !self.run_with_fault(plan) {
                    assert!(at > 3, "{plan:?}: there was nothing to fail");
                    break;
                }
            }
        }
    }

    /// Returns whether the planned fault occurred.
    fn run_with_fault(&self, plan: FaultPlan) -> bool {
        let (_directory, root) = self.prepare_directory();
        let disk = FaultyDisk::attach(&root, Some(plan));
        let outcome = (self.act)(&root);
        if let Err(error) = &outcome {
            let (said, expected) = (error.to_string(), std::io::Error::from(plan.error).to_string());
            assert!(said.contains(&expected), "{plan:?} was reported as: {said}");
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

    /// Loses power after each operation; of the unsynced data the disk keeps all, nothing, or a random part.
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

    /// Kills the process before its n-th operation, repeats the action in another process, and then loses power.
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

/// Checks that a file whose sync failed is discarded: neither synced again nor renamed.
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

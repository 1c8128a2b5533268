//! Something that is done to a directory, tried on every disk that fails: each operation of it in turn, in each way, and
//! the power after each. Whoever tries says what must hold.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use tempfile::TempDir;

use super::crash::{Loss, Model};
use super::faults::{Disk, Fault, Operation, Plan, Record};

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
pub(crate) struct Trial<P, A, C> {
    /// Makes a directory what it is before; it is empty.
    pub(crate) prepare: P,
    /// What is done. Doing it again where it was done, or half done, must work too.
    pub(crate) act: A,
    /// Looks at a directory where it was done (`true`), or may have been, in part.
    pub(crate) check: C,
}

impl<P, A, C, E> Trial<P, A, C>
where
    P: Fn(&Path),
    A: Fn(&Path) -> Result<(), E>,
    C: Fn(&Path, bool),
    E: Display,
{
    /// Every trial there is.
    pub(crate) fn everything(&self) {
        self.an_operation_fails();
        self.the_power_fails();
        self.a_kill_and_then_the_power_fails();
    }

    fn prepared(&self) -> (TempDir, PathBuf) {
        let directory = scratch();
        let root = directory.path().join("state");
        std::fs::create_dir(&root).unwrap();
        (self.prepare)(&root);
        (directory, root)
    }

    /// The n-th operation fails, for n = 1 until there is none left to fail: once or from then on, done or not or half.
    /// The error says what the disk said; doing it again, in the same process, works.
    pub(crate) fn an_operation_fails(&self) {
        let ways = [(Fault::Refused, false), (Fault::Refused, true), (Fault::Torn, false), (Fault::Unanswered, false)];
        for (number, (fault, for_ever)) in ways.into_iter().enumerate() {
            for at in 1.. {
                // Each error at each operation would say the same four times.
                let error = ERRORS[(at as usize + number) % ERRORS.len()];
                let plan = Plan { at, fault, for_ever, error };
                if !self.fails(plan) {
                    assert!(at > 3, "{plan:?}: there was nothing to fail");
                    break;
                }
            }
        }
    }

    /// Whether the planned operation came.
    fn fails(&self, plan: Plan) -> bool {
        let (_directory, root) = self.prepared();
        let disk = Disk::over(&root, Some(plan));
        let outcome = (self.act)(&root);
        if let Err(error) = &outcome {
            let (said, expected) = (error.to_string(), std::io::Error::from(plan.error).to_string());
            assert!(said.contains(&expected), "{plan:?} was told as: {said}");
        }
        no_file_is_synced_again(&disk.records());
        let struck = disk.struck();
        assert!(struck || outcome.is_ok(), "{plan:?}");
        disk.mend();
        (self.check)(&root, outcome.is_ok());
        if let Err(error) = (self.act)(&root) {
            panic!("{plan:?}: the second try failed: {error}");
        }
        (self.check)(&root, true);
        struck
    }

    /// The power fails after each operation, and the disk keeps of what was not synced all, nothing, or anything.
    pub(crate) fn the_power_fails(&self) {
        let (directory, root) = self.prepared();
        let mut model = Model::of(&root);
        let disk = Disk::over(&root, None);
        (self.act)(&root).map_err(|error| error.to_string()).unwrap();
        let records = disk.records();
        let last = records.len();
        self.images(&model, directory.path(), false);
        for (record, number) in records.iter().zip(1..) {
            model.apply(record);
            if record.operation != Operation::Look || number == last {
                self.images(&model, directory.path(), number == last);
            }
        }
    }

    /// A process is killed before its n-th operation, another does it all again, and then the power fails.
    pub(crate) fn a_kill_and_then_the_power_fails(&self) {
        for at in 1.. {
            let (directory, root) = self.prepared();
            let mut model = Model::of(&root);
            let disk = Disk::over(&root, Some(Plan { at, fault: Fault::Refused, for_ever: true, error: Errno::IO }));
            let _ = (self.act)(&root);
            let struck = disk.struck();
            disk.mend();
            (self.act)(&root).map_err(|error| error.to_string()).unwrap();
            disk.records().iter().for_each(|record| model.apply(record));
            self.images(&model, directory.path(), true);
            if !struck {
                break;
            }
        }
    }

    fn images(&self, model: &Model, directory: &Path, was_done: bool) {
        for loss in Loss::kinds(RANDOM_LOSSES) {
            let image = directory.join("image");
            model.image(loss, &image);
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
fn no_file_is_synced_again(records: &[Record]) {
    for (at, record) in records.iter().enumerate() {
        let Operation::Sync(file) = &record.operation else { continue };
        if record.told {
            continue;
        }
        let again = records[at + 1..].iter().find(|later| match &later.operation {
            Operation::Sync(path) | Operation::Rename(path, _) | Operation::Link(path, _) => path == file,
            _ => false,
        });
        assert!(again.is_none(), "{} could not be synced, and then: {again:?}", file.display());
    }
}

//! A disk that fails when a test wants it to, and remembers what was done to it.
//!
//! A test lays a [`Disk`] over a directory; every operation below it goes through there, whichever thread does it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::disk::Step;

/// An operation that was done, or tried.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Operation {
    MakeDirectory(PathBuf),
    CreateFile(PathBuf),
    Write(PathBuf, Vec<u8>),
    Sync(PathBuf),
    SyncDirectory(PathBuf),
    Rename(PathBuf, PathBuf),
    Link(PathBuf, PathBuf),
    RemoveFile(PathBuf),
    RemoveDirectory(PathBuf),
    /// Listing and opening: they change nothing.
    Look,
}

/// An operation and what became of it.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) operation: Operation,
    /// Whether the disk did it.
    pub(crate) done: bool,
    /// Whether the program was told so.
    pub(crate) told: bool,
}

/// How an operation fails.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Fault {
    /// It is not done.
    Refused,
    /// Half of a write is done; other operations are not.
    Torn,
    /// It is done, and an error told all the same.
    Unanswered,
}

/// Which operation fails, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// Counted from 1.
    pub(crate) at: u64,
    pub(crate) fault: Fault,
    /// Whether all after it are refused too.
    pub(crate) for_ever: bool,
    /// The system's number of the error.
    pub(crate) error: rustix::io::Errno,
}

/// A directory of which the operations are counted, and fail as planned.
#[derive(Clone, Debug)]
pub(crate) struct Disk(Arc<Below>);

#[derive(Debug)]
struct Below {
    root: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    plan: Option<Plan>,
    calls: u64,
    records: Vec<Record>,
}

static DISKS: Mutex<Vec<std::sync::Weak<Below>>> = Mutex::new(Vec::new());

impl Disk {
    /// Lays a disk over a directory, until it is dropped. `plan` counts from now on.
    pub(crate) fn over(root: &Path, plan: Option<Plan>) -> Disk {
        let state = Mutex::new(State { plan, ..State::default() });
        let below = Arc::new(Below { root: root.to_owned(), state });
        let mut disks = DISKS.lock().unwrap_or_else(PoisonError::into_inner);
        disks.retain(|disk| disk.strong_count() > 0);
        disks.push(Arc::downgrade(&below));
        Disk(below)
    }

    /// Whether the planned operation came.
    pub(crate) fn struck(&self) -> bool {
        let state = self.state();
        state.plan.is_some_and(|plan| state.calls >= plan.at)
    }

    /// From now on everything works.
    pub(crate) fn mend(&self) {
        self.state().plan = None;
    }

    /// What was done so far, in order.
    pub(crate) fn records(&self) -> Vec<Record> {
        self.state().records.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The disk over a path, if there is one.
    fn of(path: &Path) -> Option<Disk> {
        let disks = DISKS.lock().unwrap_or_else(PoisonError::into_inner);
        let found = disks.iter().filter_map(std::sync::Weak::upgrade).find(|disk| path.starts_with(&disk.root));
        found.map(Disk)
    }

    fn note(&self, step: &Step<'_>, done: bool, told: bool) {
        let operation = Operation::from(step);
        self.state().records.push(Record { operation, done, told });
    }
}

impl State {
    /// Counts an operation; says whether it fails.
    fn next(&mut self) -> Option<(Fault, io::Error)> {
        self.calls += 1;
        let plan = self.plan?;
        match self.calls {
            call if call == plan.at => Some((plan.fault, plan.error.into())),
            call if call > plan.at && plan.for_ever => Some((Fault::Refused, plan.error.into())),
            _ => None,
        }
    }
}

/// Does an operation, or has it fail as planned.
pub(crate) fn take<T>(step: &Step<'_>, act: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let Some(disk) = Disk::of(step.path()) else { return act() };
    let verdict = disk.state().next();
    if let Some((Fault::Refused | Fault::Torn, error)) = verdict {
        disk.note(step, false, false);
        return Err(error);
    }
    let done = act();
    disk.note(step, done.is_ok(), done.is_ok() && verdict.is_none());
    match verdict {
        Some((_, error)) => done.and(Err(error)),
        None => done,
    }
}

/// How much of a write is done before it fails, if that is planned for it.
pub(crate) fn cut(step: &Step<'_>) -> Option<(usize, io::Error)> {
    let Step::Write(path, bytes) = step else { return None };
    let disk = Disk::of(path)?;
    let mut state = disk.state();
    let plan = state.plan.filter(|plan| plan.fault == Fault::Torn && plan.at == state.calls + 1)?;
    state.calls += 1;
    let half = bytes.len() / 2;
    let operation = Operation::Write(path.to_path_buf(), bytes[..half].to_vec());
    state.records.push(Record { operation, done: true, told: false });
    Some((half, plan.error.into()))
}

impl Step<'_> {
    fn path(&self) -> &Path {
        match self {
            Step::MakeDirectory(path)
            | Step::CreateFile(path)
            | Step::Write(path, _)
            | Step::Sync(path)
            | Step::SyncDirectory(path)
            | Step::Rename(path, _)
            | Step::Link(path, _)
            | Step::RemoveFile(path)
            | Step::RemoveDirectory(path)
            | Step::List(path)
            | Step::Read(path) => path,
        }
    }
}

impl From<&Step<'_>> for Operation {
    fn from(step: &Step<'_>) -> Operation {
        let path = step.path().to_owned();
        match step {
            Step::MakeDirectory(_) => Operation::MakeDirectory(path),
            Step::CreateFile(_) => Operation::CreateFile(path),
            Step::Write(_, bytes) => Operation::Write(path, bytes.to_vec()),
            Step::Sync(_) => Operation::Sync(path),
            Step::SyncDirectory(_) => Operation::SyncDirectory(path),
            Step::Rename(_, to) => Operation::Rename(path, to.to_path_buf()),
            Step::Link(_, to) => Operation::Link(path, to.to_path_buf()),
            Step::RemoveFile(_) => Operation::RemoveFile(path),
            Step::RemoveDirectory(_) => Operation::RemoveDirectory(path),
            Step::List(_) | Step::Read(_) => Operation::Look,
        }
    }
}

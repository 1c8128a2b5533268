//! Fault injection: a disk that fails as a test planned and logs all operations.
//!
//! A test attaches a [`FaultyDisk`] to a directory. It intercepts every operation below that directory, on every
//! thread.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use super::file_operation::FileOperation;

/// An operation that was run or tried.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum LoggedOperation {
    MakeDirectory(PathBuf),
    CreateFile(PathBuf),
    Write(PathBuf, Vec<u8>),
    Sync(PathBuf),
    SyncDirectory(PathBuf),
    Rename(PathBuf, PathBuf),
    Link(PathBuf, PathBuf),
    RemoveFile(PathBuf),
    RemoveDirectory(PathBuf),
    /// Listing and opening, which change nothing.
    Look,
}

/// An operation and its result.
#[derive(Clone, Debug)]
pub(crate) struct OperationRecord {
    pub(crate) operation: LoggedOperation,
    /// Whether the disk executed it.
    pub(crate) done: bool,
    /// Whether the program received a success.
    pub(crate) reported_success: bool,
}

/// The way in which an operation fails.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum DiskFault {
    /// It is not executed.
    Refused,
    /// Half of a write is executed; other operations are not executed.
    Torn,
    /// It is executed, but an error is returned.
    Unanswered,
}

/// Selects the operation that fails, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FaultPlan {
    /// The number of the operation, from 1.
    pub(crate) at: u64,
    pub(crate) fault: DiskFault,
    /// Whether all later operations fail too.
    pub(crate) is_permanent: bool,
    /// The error number.
    pub(crate) error: rustix::io::Errno,
}

/// A directory whose operations are counted and fail as planned.
#[derive(Clone, Debug)]
pub(crate) struct FaultyDisk(Arc<FaultyDiskInner>);

#[derive(Debug)]
struct FaultyDiskInner {
    root: PathBuf,
    state: Mutex<FaultyDiskState>,
}

#[derive(Debug, Default)]
struct FaultyDiskState {
    plan: Option<FaultPlan>,
    calls: u64,
    records: Vec<OperationRecord>,
}

static ACTIVE_DISKS: Mutex<Vec<std::sync::Weak<FaultyDiskInner>>> = Mutex::new(Vec::new());

impl FaultyDisk {
    /// Attaches a disk to a directory until it is dropped. `plan` counts from now on.
    pub(crate) fn attach(root: &Path, plan: Option<FaultPlan>) -> FaultyDisk {
        let state = Mutex::new(FaultyDiskState { plan, ..FaultyDiskState::default() });
        let below = Arc::new(FaultyDiskInner { root: root.to_owned(), state });
        let mut disks = ACTIVE_DISKS.lock();
        disks.retain(|disk| disk.strong_count() > 0);
        disks.push(Arc::downgrade(&below));
        FaultyDisk(below)
    }

    /// Returns whether the planned fault has occurred.
    pub(crate) fn has_fired(&self) -> bool {
        let state = self.state();
        state.plan.is_some_and(|plan| state.calls >= plan.at)
    }

    /// Removes the fault: from now on all operations succeed.
    pub(crate) fn clear_fault(&self) {
        self.state().plan = None;
    }

    /// Returns the operations so far, in order.
    pub(crate) fn records(&self) -> Vec<OperationRecord> {
        self.state().records.clone()
    }

    fn state(&self) -> MutexGuard<'_, FaultyDiskState> {
        self.0.state.lock()
    }

    /// Returns the disk that covers a path, if any.
    fn find_for(path: &Path) -> Option<FaultyDisk> {
        let disks = ACTIVE_DISKS.lock();
        let found = disks.iter().filter_map(std::sync::Weak::upgrade).find(|disk| path.starts_with(&disk.root));
        found.map(FaultyDisk)
    }

    fn log(&self, step: &FileOperation<'_>, done: bool, reported_success: bool) {
        let operation = LoggedOperation::from(step);
        self.state().records.push(OperationRecord { operation, done, reported_success });
    }
}

impl FaultyDiskState {
    /// Counts an operation and returns its fault, if any.
    fn next_fault(&mut self) -> Option<(DiskFault, io::Error)> {
        self.calls += 1;
        let plan = self.plan?;
        match self.calls {
            call if call == plan.at => Some((plan.fault, plan.error.into())),
            call if call > plan.at && plan.is_permanent => Some((DiskFault::Refused, plan.error.into())),
            _ => None,
        }
    }
}

/// Runs an operation, or makes it fail as planned.
pub(crate) fn perform<T>(step: &FileOperation<'_>, act: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let Some(disk) = FaultyDisk::find_for(step.path()) else { return act() };
    let verdict = disk.state().next_fault();
    if let Some((DiskFault::Refused | DiskFault::Torn, error)) = verdict {
        disk.log(step, false, false);
        return Err(error);
    }
    let done = act();
    disk.log(step, done.is_ok(), done.is_ok() && verdict.is_none());
    match verdict {
        Some((_, error)) => done.and(Err(error)),
        None => done,
    }
}

/// Returns how many bytes of a write are executed before it fails, if the plan requires it.
pub(crate) fn cut_write(step: &FileOperation<'_>) -> Option<(usize, io::Error)> {
    let FileOperation::Write(path, bytes) = step else { return None };
    let disk = FaultyDisk::find_for(path)?;
    let mut state = disk.state();
    let plan = state.plan.filter(|plan| plan.fault == DiskFault::Torn && plan.at == state.calls + 1)?;
    state.calls += 1;
    let half = bytes.len() / 2;
    let operation = LoggedOperation::Write(path.to_path_buf(), bytes[..half].to_vec());
    state.records.push(OperationRecord { operation, done: true, reported_success: false });
    Some((half, plan.error.into()))
}

impl From<&FileOperation<'_>> for LoggedOperation {
    fn from(step: &FileOperation<'_>) -> LoggedOperation {
        let path = step.path().to_owned();
        match step {
            FileOperation::MakeDirectory(_) => LoggedOperation::MakeDirectory(path),
            FileOperation::CreateFile(_) => LoggedOperation::CreateFile(path),
            FileOperation::Write(_, bytes) => LoggedOperation::Write(path, bytes.to_vec()),
            FileOperation::Sync(_) => LoggedOperation::Sync(path),
            FileOperation::SyncDirectory(_) => LoggedOperation::SyncDirectory(path),
            FileOperation::Rename(_, to) => LoggedOperation::Rename(path, to.to_path_buf()),
            FileOperation::Link(_, to) => LoggedOperation::Link(path, to.to_path_buf()),
            FileOperation::RemoveFile(_) => LoggedOperation::RemoveFile(path),
            FileOperation::RemoveDirectory(_) => LoggedOperation::RemoveDirectory(path),
            FileOperation::List(_) | FileOperation::Read(_) => LoggedOperation::Look,
        }
    }
}

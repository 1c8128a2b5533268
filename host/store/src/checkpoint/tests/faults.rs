//! Every fault of a disk, a clock and a neighbour that a checkpoint must survive, by number; kills are in `tests/kill.rs`.
//!
//! What must hold after each: the newest checkpoint that was acknowledged is found whole, or the one before where the save
//! was not; nothing half-written is taken for one; and the next save works.

use super::*;
use crate::durable::crash_test::CrashTest;

mod damage;
mod disk;
mod size;
mod writers;

/// Waits for a future, as a worker's thread does.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

/// A directory with checkpoints of these steps, of epoch 1, made once and copied.
fn prepared_checkpoints(steps: &[u64]) -> impl Fn(&Path) {
    let made = scratch();
    let checkpoints = open_store(made.path());
    steps.iter().for_each(|step| drop(block_on(checkpoints.save(JOB, 1, &checkpoint(*step))).unwrap()));
    move |root| copy_directory(made.path(), root)
}

fn copy_directory(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            std::fs::create_dir(&target).unwrap();
            copy_directory(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// The steps that are there, newest first, if all of them are whole.
fn intact_steps(root: &Path) -> Vec<u64> {
    let verified = block_on(open_store(root).verify(JOB)).unwrap();
    let damaged: Vec<_> = verified.iter().filter(|it| it.outcome.is_err()).collect();
    assert!(damaged.is_empty(), "{damaged:?}");
    verified.iter().map(|it| it.step).collect()
}

/// The step that a resume begins with.
fn resume_step(root: &Path) -> Option<u64> {
    block_on(async {
        let latest = open_store(root).latest(JOB, PLUGIN).await.unwrap();
        assert!(latest.skipped.is_empty(), "{:?}", latest.skipped);
        latest.found.map(|(_, found)| {
            assert_eq!(found, checkpoint(found.step), "a checkpoint is whole or none");
            found.step
        })
    })
}

/// Files that somebody was writing.
fn temporary_files(root: &Path) -> usize {
    files_below(root).keys().filter(|path| path.to_string_lossy().contains('#')).count()
}

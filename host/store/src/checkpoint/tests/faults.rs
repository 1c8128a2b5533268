//! Fault tests of checkpoints: faults of the disk, the clock and concurrent writers, by number. Kills are in
//! `tests/kill.rs`.
//!
//! After each fault, the newest acknowledged checkpoint is found intact, or the previous one if the save failed; no
//! unfinished checkpoint is found; and the next save succeeds.

use super::*;
use crate::durable::crash_test::CrashTest;

mod damage;
mod disk;
mod size;
mod writers;

/// Blocks on a future, as a worker's thread does.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

/// Returns a function that fills a directory with checkpoints of these steps, of epoch 1. They are created once and
/// copied.
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

/// Returns the existing steps, newest first, and checks that all are intact.
fn intact_steps(root: &Path) -> Vec<u64> {
    let verified = block_on(open_store(root).verify(JOB)).unwrap();
    let damaged: Vec<_> = verified.iter().filter(|it| it.outcome.is_err()).collect();
    assert!(damaged.is_empty(), "{damaged:?}");
    verified.iter().map(|it| it.step).collect()
}

/// Returns the step from which a job resumes.
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

/// Returns the number of temporary files of writers.
fn temporary_files(root: &Path) -> usize {
    files_below(root).keys().filter(|path| path.to_string_lossy().contains('#')).count()
}

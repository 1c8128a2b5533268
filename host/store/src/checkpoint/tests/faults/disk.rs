//! Rows 6, 7 and 8, and what a power loss may leave: each system call of a save, a claim, a pruning and a removal in turn.

use super::*;

type Done = Result<(), CheckpointError>;

fn save(root: &Path) -> Done {
    wait(open(root).save(JOB, 1, &checkpoint(2))).map(drop)
}

/// Step 1 was saved, and step 2 is.
fn saved_or_not(root: &Path, done: bool) {
    let found = resumes_at(root);
    assert!(found == Some(2) || !done && found == Some(1), "{found:?}, {done}");
    assert!(whole_steps(root).contains(&1));
}

#[test]
fn fault_06_the_disk_has_names_and_not_what_they_name() {
    let trial = Trial { prepare: prepare(&[1]), act: save, check: saved_or_not };
    trial.the_power_fails();
    trial.a_kill_and_then_the_power_fails();
}

#[test]
fn fault_07_and_08_a_system_call_of_a_save_fails() {
    Trial { prepare: prepare(&[1]), act: save, check: saved_or_not }.an_operation_fails();
}

#[test]
fn fault_07_the_first_save_of_a_job_fails() {
    let prepare = |_: &Path| {};
    let check = |root: &Path, done: bool| {
        let found = resumes_at(root);
        assert!(found == Some(2) || !done && found.is_none(), "{found:?}");
    };
    Trial { prepare, act: save, check }.everything();
}

#[test]
fn fault_07_a_claim_fails() {
    let act = |root: &Path| wait(open(root).claim(JOB, 2));
    let check = |root: &Path, done: bool| {
        assert_eq!(resumes_at(root), Some(1));
        let old = wait(open(root).save(JOB, 1, &checkpoint(1)));
        assert!(!done || matches!(old, Err(CheckpointError::Fenced { newest: 2, .. })), "{old:?}");
        if done {
            // The next claim takes away what a power loss brought back of this one.
            wait(open(root).claim(JOB, 2)).unwrap();
            assert_eq!(half_written(root), 0);
        }
    };
    Trial { prepare: prepare(&[1]), act, check }.everything();
}

#[test]
fn fault_02_and_07_a_pruning_is_cut_off() {
    let act = |root: &Path| wait(open(root).prune(JOB, &Retention::last(1))).map(drop);
    let check = |root: &Path, done: bool| {
        assert_eq!(resumes_at(root), Some(3));
        if done {
            // What a power loss brought back goes the next time.
            wait(open(root).prune(JOB, &Retention::last(1))).unwrap();
            assert_eq!(whole_steps(root), [3]);
            assert_eq!(files(&root.join("checkpoints").join(JOB).join("parts")).len(), 2);
        }
    };
    Trial { prepare: prepare(&[1, 2, 3]), act, check }.everything();
}

#[test]
fn fault_07_a_removal_is_cut_off() {
    let act = |root: &Path| wait(open(root).remove_all(JOB)).map(drop);
    let check = |root: &Path, done: bool| {
        let left = files(root);
        assert!(!done || left.is_empty(), "{left:?}");
        let steps = whole_steps(root);
        assert!(steps.is_empty() || !done, "{steps:?}");
    };
    Trial { prepare: prepare(&[1, 2]), act, check }.everything();
}

#[test]
fn fault_07_a_full_disk_is_told_from_a_broken_one() {
    use std::io::ErrorKind;

    use crate::durable::faults::{Disk, Fault, Plan};
    use crate::error::StoreError;
    let directory = scratch();
    let checkpoints = open(directory.path());
    wait(checkpoints.save(JOB, 1, &checkpoint(1))).unwrap();
    for (error, is_full) in [
        (rustix::io::Errno::NOSPC, true),
        (rustix::io::Errno::DQUOT, true),
        (rustix::io::Errno::IO, false),
        (rustix::io::Errno::ROFS, false),
    ] {
        let plan = Plan { at: 6, fault: Fault::Torn, for_ever: true, error };
        let disk = Disk::over(directory.path(), Some(plan));
        let failure = wait(checkpoints.save(JOB, 1, &checkpoint(2))).unwrap_err();
        let CheckpointError::Store(StoreError::Io { source, .. }) = &failure else {
            panic!("a disk's error is the store's");
        };
        let told = matches!(source.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded);
        assert_eq!(told, is_full, "{failure}");
        disk.mend();
        assert_eq!(resumes_at(directory.path()), Some(1));
    }
    // Once there is room, the same process saves.
    wait(checkpoints.save(JOB, 1, &checkpoint(2))).unwrap();
    assert_eq!(resumes_at(directory.path()), Some(2));
}

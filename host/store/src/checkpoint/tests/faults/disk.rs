//! Faults 6, 7 and 8, and all states that a power loss can leave: fails each system call of a save, a claim, a pruning
//! and a removal in turn.

use super::*;

type CheckpointResult = Result<(), CheckpointError>;

fn save_step_2(root: &Path) -> CheckpointResult {
    block_on(open_store(root).save(JOB, 1, &checkpoint(2))).map(drop)
}

/// Checks a directory in which step 1 was saved, and step 2 was being saved (`done`: was acknowledged).
fn check_step_2(root: &Path, done: bool) {
    let found = resume_step(root);
    assert!(found == Some(2) || !done && found == Some(1), "{found:?}, {done}");
    assert!(intact_steps(root).contains(&1));
}

#[test]
fn a_save_survives_a_power_loss_after_every_system_call() {
    let trial = CrashTest { prepare: prepared_checkpoints(&[1]), act: save_step_2, check: check_step_2 };
    trial.lose_power_after_each_operation();
    trial.kill_then_lose_power();
}

#[test]
fn a_save_survives_a_failure_at_every_system_call() {
    CrashTest { prepare: prepared_checkpoints(&[1]), act: save_step_2, check: check_step_2 }.fail_each_operation();
}

#[test]
fn the_first_save_of_a_job_survives_a_failure_at_every_system_call() {
    let prepare = |_: &Path| {};
    let check = |root: &Path, done: bool| {
        let found = resume_step(root);
        assert!(found == Some(2) || !done && found.is_none(), "{found:?}");
    };
    CrashTest { prepare, act: save_step_2, check }.run_all();
}

#[test]
fn a_claim_survives_a_failure_at_every_system_call() {
    let act = |root: &Path| block_on(open_store(root).claim(JOB, 2));
    let check = |root: &Path, done: bool| {
        assert_eq!(resume_step(root), Some(1));
        let old = block_on(open_store(root).save(JOB, 1, &checkpoint(1)));
        assert!(!done || matches!(old, Err(CheckpointError::Fenced { newest: 2, .. })), "{old:?}");
        if done {
            // The next claim removes what a power loss restored of this one.
            block_on(open_store(root).claim(JOB, 2)).unwrap();
            assert_eq!(temporary_files(root), 0);
        }
    };
    CrashTest { prepare: prepared_checkpoints(&[1]), act, check }.run_all();
}

#[test]
fn an_interrupted_prune_leaves_whole_checkpoints() {
    let act = |root: &Path| block_on(open_store(root).prune(JOB, NEWEST_EPOCH, &Retention::last(1))).map(drop);
    let check = |root: &Path, done: bool| {
        assert_eq!(resume_step(root), Some(3));
        if done {
            // The next pruning removes what a power loss restored.
            block_on(open_store(root).prune(JOB, NEWEST_EPOCH, &Retention::last(1))).unwrap();
            assert_eq!(intact_steps(root), [3]);
            assert_eq!(files_below(&root.join("checkpoints").join(JOB).join("parts")).len(), 2);
        }
    };
    CrashTest { prepare: prepared_checkpoints(&[1, 2, 3]), act, check }.run_all();
}

#[test]
fn removing_all_checkpoints_survives_a_failure_at_every_system_call() {
    let act = |root: &Path| block_on(open_store(root).remove_all(JOB)).map(drop);
    let check = |root: &Path, done: bool| {
        let left = files_below(root);
        assert!(!done || left.is_empty(), "{left:?}");
        let steps = intact_steps(root);
        assert!(steps.is_empty() || !done, "{steps:?}");
    };
    CrashTest { prepare: prepared_checkpoints(&[1, 2]), act, check }.run_all();
}

#[test]
fn a_full_disk_is_distinguished_from_a_broken_disk() {
    use std::io::ErrorKind;

    use crate::durable::fault_injection::{DiskFault, FaultPlan, FaultyDisk};
    use crate::error::StoreError;
    let directory = scratch();
    let checkpoints = open_store(directory.path());
    block_on(checkpoints.save(JOB, 1, &checkpoint(1))).unwrap();
    for (error, is_full) in [
        (rustix::io::Errno::NOSPC, true),
        (rustix::io::Errno::DQUOT, true),
        (rustix::io::Errno::IO, false),
        (rustix::io::Errno::ROFS, false),
    ] {
        let plan = FaultPlan { at: 6, fault: DiskFault::Torn, is_permanent: true, error };
        let disk = FaultyDisk::attach(directory.path(), Some(plan));
        let failure = block_on(checkpoints.save(JOB, 1, &checkpoint(2))).unwrap_err();
        let CheckpointError::Store(StoreError::Io { source, .. }) = &failure else {
            panic!("a disk's error is the store's");
        };
        let reports_full_disk = matches!(source.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded);
        assert_eq!(reports_full_disk, is_full, "{failure}");
        disk.clear_fault();
        assert_eq!(resume_step(directory.path()), Some(1));
    }
    // Once there is space, the same process can save.
    block_on(checkpoints.save(JOB, 1, &checkpoint(2))).unwrap();
    assert_eq!(resume_step(directory.path()), Some(2));
}

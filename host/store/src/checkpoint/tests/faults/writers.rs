//! Faults 9 and 10: two writers of one job, and clocks that jump.

use std::fs::FileTimes;
use std::time::{Duration, SystemTime};

use super::*;

#[test]
fn of_two_writers_the_newer_lease_wins_and_the_older_is_fenced() {
    // The writers share only the directory, like two processes.
    for round in 0..20u64 {
        let directory = scratch();
        block_on(open_store(directory.path()).save(JOB, 1, &checkpoint(1))).unwrap();
        let run = |epoch: u64| {
            let checkpoints = open_store(directory.path());
            let mut saved = Vec::new();
            let outcome = block_on(async {
                checkpoints.claim(JOB, epoch).await?;
                for step in 2..6 {
                    checkpoints.save(JOB, epoch, &checkpoint(step)).await?;
                    saved.push(step);
                }
                Ok::<_, CheckpointError>(())
            });
            (saved, outcome)
        };
        let (old, new) = std::thread::scope(|scope| {
            let old = scope.spawn(|| run(2 + round));
            let new = scope.spawn(|| run(3 + round));
            (old.join().unwrap(), new.join().unwrap())
        });
        // The sweep of the newer writer can remove files that the older one is writing, which also stops only the older
        // one.
        assert!(new.1.is_ok(), "{:?}", new.1);
        assert_eq!(new.0, [2, 3, 4, 5]);
        assert_eq!(
            block_on(open_store(directory.path()).latest(JOB, PLUGIN)).unwrap().found.unwrap().0.fencing_epoch,
            3 + round
        );
        intact_steps(directory.path());
        let late = block_on(open_store(directory.path()).save(JOB, 2 + round, &checkpoint(9)));
        assert!(matches!(late, Err(CheckpointError::Fenced { .. })), "{late:?} after {:?}", old.1);
    }
}

#[test]
fn a_clock_jump_does_not_affect_resuming_or_pruning() {
    let directory = scratch();
    let checkpoints = open_store(directory.path());
    let hour = Duration::from_secs(3600);
    for (step, time) in [
        (1, SystemTime::now() + 24 * hour),
        (2, SystemTime::now()),
        (3, SystemTime::now() - hour),
        (4, SystemTime::UNIX_EPOCH - hour),
    ] {
        let before = files_below(directory.path());
        block_on(checkpoints.save(JOB, 1, &checkpoint(step))).unwrap();
        for path in files_below(directory.path()).keys().filter(|path| !before.contains_key(*path)) {
            let file = std::fs::File::options().write(true).open(path).unwrap();
            file.set_times(FileTimes::new().set_modified(time)).unwrap();
        }
    }
    assert_eq!(resume_step(directory.path()), Some(4));
    assert_eq!(block_on(checkpoints.prune(JOB, NEWEST_EPOCH, &Retention::last(2))).unwrap(), 2);
    assert_eq!(intact_steps(directory.path()), [4, 3]);
    assert_eq!(block_on(checkpoints.list(JOB)).unwrap()[0].written_ms, 0, "before 1970 reads as 1970");
}

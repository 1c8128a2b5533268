//! How many children run at a time, and how many requests wait for one.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How often a waiting request checks whether it was cancelled.
const CANCEL_POLL: Duration = Duration::from_millis(20);

/// A semaphore whose waiters are bounded.
#[derive(Debug)]
pub(super) struct CompileSlots {
    counts: Mutex<Counts>,
    freed: Condvar,
    running_max: usize,
    waiting_max: usize,
}

#[derive(Debug, Default)]
struct Counts {
    running: usize,
    waiting: usize,
}

/// Why there is no slot.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NoSlot {
    /// As many requests wait as may.
    Full { waiting: usize },
    /// None became free by the deadline, while this many requests waited.
    Deadline { waiting: usize },
    /// The request was cancelled.
    Cancelled,
}

/// The right to run one child, until it is dropped.
#[derive(Debug)]
pub(super) struct CompileSlot<'a>(&'a CompileSlots);

impl Drop for CompileSlot<'_> {
    fn drop(&mut self) {
        self.0.counts().running -= 1;
        self.0.freed.notify_one();
    }
}

impl CompileSlots {
    pub(super) fn new(running_max: usize, waiting_max: usize) -> CompileSlots {
        CompileSlots { counts: Mutex::default(), freed: Condvar::new(), running_max, waiting_max }
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a free slot. Blocks.
    ///
    /// # Errors
    /// `Full` at once where `waiting_max` requests wait already; `Deadline`; `Cancelled`.
    pub(super) fn acquire(
        &self,
        deadline: Instant,
        is_cancelled: &dyn Fn() -> bool,
    ) -> Result<CompileSlot<'_>, NoSlot> {
        let mut counts = self.counts();
        if counts.running >= self.running_max && counts.waiting >= self.waiting_max {
            return Err(NoSlot::Full { waiting: counts.waiting });
        }
        counts.waiting += 1;
        let refused = loop {
            if counts.running < self.running_max {
                break None;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break Some(NoSlot::Deadline { waiting: counts.waiting });
            }
            if is_cancelled() {
                break Some(NoSlot::Cancelled);
            }
            let waited = self.freed.wait_timeout(counts, left.min(CANCEL_POLL));
            counts = waited.unwrap_or_else(PoisonError::into_inner).0;
        };
        counts.waiting -= 1;
        match refused {
            Some(refused) => Err(refused),
            None => {
                counts.running += 1;
                Ok(CompileSlot(self))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEVER: &dyn Fn() -> bool = &|| false;

    fn soon() -> Instant {
        Instant::now() + Duration::from_millis(30)
    }

    fn far() -> Instant {
        Instant::now() + Duration::from_secs(600)
    }

    #[test]
    fn no_more_run_and_wait_than_may() {
        let slots = CompileSlots::new(2, 1);
        let first = slots.acquire(far(), NEVER).unwrap();
        let _second = slots.acquire(far(), NEVER).unwrap();
        assert_eq!(slots.acquire(soon(), NEVER).unwrap_err(), NoSlot::Deadline { waiting: 1 });
        assert_eq!(slots.acquire(far(), &|| true).unwrap_err(), NoSlot::Cancelled);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| slots.acquire(far(), NEVER).map(drop));
            while slots.counts().waiting == 0 {
                std::thread::yield_now();
            }
            assert_eq!(slots.acquire(far(), NEVER).unwrap_err(), NoSlot::Full { waiting: 1 });
            drop(first);
            assert_eq!(waits.join().unwrap(), Ok(()));
        });
        drop(slots.acquire(far(), NEVER).unwrap());
    }
}

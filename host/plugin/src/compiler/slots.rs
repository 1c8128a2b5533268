//! Limits how many children run concurrently and how many requests wait for one.

use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

/// Interval at which a waiting request checks for cancellation.
const SLOT_CANCEL_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A semaphore with a limited number of waiters.
#[derive(Debug)]
pub(super) struct CompileSlots {
    counts: Mutex<SlotCounts>,
    freed: Condvar,
    running_max: usize,
    waiting_max: usize,
}

#[derive(Debug, Default)]
struct SlotCounts {
    running: usize,
    waiting: usize,
}

/// Reasons why no slot was acquired.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum AcquireSlotError {
    /// The maximum number of requests is waiting already.
    Full { waiting: usize },
    /// No slot was freed by the deadline; this many requests were waiting.
    Deadline { waiting: usize },
    /// The request was cancelled.
    Cancelled,
}

/// The permission to run one child, until it is dropped.
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

    fn counts(&self) -> MutexGuard<'_, SlotCounts> {
        self.counts.lock()
    }

    /// Waits for a free slot. Blocks.
    ///
    /// # Errors
    /// `Full` immediately if `waiting_max` requests wait already; `Deadline`; `Cancelled`.
    pub(super) fn acquire(
        &self,
        deadline: Instant,
        is_cancelled: &dyn Fn() -> bool,
    ) -> Result<CompileSlot<'_>, AcquireSlotError> {
        let mut counts = self.counts();
        if counts.running >= self.running_max && counts.waiting >= self.waiting_max {
            return Err(AcquireSlotError::Full { waiting: counts.waiting });
        }
        counts.waiting += 1;
        let refused = loop {
            if counts.running < self.running_max {
                break None;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break Some(AcquireSlotError::Deadline { waiting: counts.waiting });
            }
            if is_cancelled() {
                break Some(AcquireSlotError::Cancelled);
            }
            self.freed.wait_for(&mut counts, left.min(SLOT_CANCEL_POLL_INTERVAL));
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

    fn near_deadline() -> Instant {
        Instant::now() + Duration::from_millis(30)
    }

    fn far_deadline() -> Instant {
        Instant::now() + Duration::from_secs(600)
    }

    #[test]
    fn running_and_waiting_compilations_are_bounded() {
        let slots = CompileSlots::new(2, 1);
        let first = slots.acquire(far_deadline(), NEVER).unwrap();
        let _second = slots.acquire(far_deadline(), NEVER).unwrap();
        assert_eq!(slots.acquire(near_deadline(), NEVER).unwrap_err(), AcquireSlotError::Deadline { waiting: 1 });
        assert_eq!(slots.acquire(far_deadline(), &|| true).unwrap_err(), AcquireSlotError::Cancelled);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| slots.acquire(far_deadline(), NEVER).map(drop));
            while slots.counts().waiting == 0 {
                std::thread::yield_now();
            }
            assert_eq!(slots.acquire(far_deadline(), NEVER).unwrap_err(), AcquireSlotError::Full { waiting: 1 });
            drop(first);
            assert_eq!(waits.join().unwrap(), Ok(()));
        });
        drop(slots.acquire(far_deadline(), NEVER).unwrap());
    }
}

//! The threads that run the code of models. They can block, so they never serve connections at the same time.
//!
//! A batch that is known to be quick runs on the thread that gathered it, after another thread has taken over that
//! thread's connections ([`tokio::task::block_in_place`]), so that its answer needs no thread to be woken. Every other
//! batch runs on a thread of the runtime's blocking pool. Both numbers are bounded below the size of that pool, because
//! the threads that take over connections come from it too. Slow models therefore never exhaust the pool.

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task::JoinError;

use crate::limits::{GUEST_THREADS_MAX, IN_PLACE_BATCHES_MAX};

static IN_PLACE: Semaphore = Semaphore::const_new(IN_PLACE_BATCHES_MAX);
static BLOCKING: Semaphore = Semaphore::const_new(GUEST_THREADS_MAX);

/// The permit to run a batch on the current thread.
#[derive(Debug)]
pub(crate) struct InPlacePermit {
    _permit: SemaphorePermit<'static>,
}

impl InPlacePermit {
    /// Returns `None` if `IN_PLACE_BATCHES_MAX` batches run in place already, or if the runtime has no other thread to
    /// serve this one's connections.
    pub(crate) fn acquire() -> Option<InPlacePermit> {
        let has_threads = Handle::try_current().is_ok_and(|it| it.runtime_flavor() == RuntimeFlavor::MultiThread);
        let permit = has_threads.then(|| IN_PLACE.try_acquire().ok()).flatten();
        permit.map(|permit| InPlacePermit { _permit: permit })
    }

    /// Hands this thread's connections to another thread, and runs `work`.
    pub(crate) fn run<T>(self, work: impl FnOnce() -> T) -> T {
        tokio::task::block_in_place(work)
    }
}

/// Runs `work` on a thread of the blocking pool, once fewer than `GUEST_THREADS_MAX` of them run the code of models.
pub(crate) fn spawn(runtime: &Handle, work: impl FnOnce() + Send + 'static) {
    if let Ok(permit) = BLOCKING.try_acquire() {
        runtime.spawn_blocking(move || run_holding(permit, work));
        return;
    }
    runtime.spawn(spawn_and_wait(work));
}

/// Runs `work` as [`spawn`] does, and waits for it.
///
/// # Errors
/// Returns an error if `work` panicked or the runtime shuts down.
pub(crate) async fn spawn_and_wait<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, JoinError> {
    // The semaphore is never closed.
    let permit = BLOCKING.acquire().await;
    tokio::task::spawn_blocking(move || run_holding(permit, work)).await
}

fn run_holding<P, T>(permit: P, work: impl FnOnce() -> T) -> T {
    let done = work();
    drop(permit);
    done
}

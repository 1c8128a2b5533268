//! Cancellation of a program on the CPU. Kernels cannot return errors, so a cancelled task unwinds: up to the thread
//! that runs the program, and from there up to the program's dispatch. Its outputs are left half written.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::cancel::CancelToken;
use crate::error::DeviceError;

thread_local! {
    /// The token of the task that this thread runs.
    static CURRENT: RefCell<CancelToken> = const { RefCell::new(CancelToken::never()) };
}

/// The payload of the unwinding.
struct CancelUnwind;

/// Unwinds out of the program that this thread runs.
pub(super) fn unwind_cancelled() -> ! {
    // Skips the panic hook: a cancellation is not an error.
    resume_unwind(Box::new(CancelUnwind))
}

/// Unwinds if the task that this thread runs is cancelled. For the outer loops of tasks that can take long.
pub(super) fn check() {
    let is_cancelled = CURRENT.with_borrow(CancelToken::is_cancelled);
    if is_cancelled {
        unwind_cancelled();
    }
}

/// Runs a task under `token`.
pub(super) fn with_token<T>(token: &CancelToken, task: impl FnOnce() -> T) -> T {
    /// Restores the previous token, also if the task unwinds.
    struct RestoreToken(CancelToken);
    impl Drop for RestoreToken {
        fn drop(&mut self) {
            let before = std::mem::take(&mut self.0);
            CURRENT.with_borrow_mut(|current| *current = before);
        }
    }
    let _restore = RestoreToken(CURRENT.replace(token.clone()));
    task()
}

/// Runs a program.
///
/// # Errors
/// Returns `Cancelled` if the program was cancelled.
pub(super) fn catch_cancelled<T>(program: impl FnOnce() -> T) -> Result<T, DeviceError> {
    catch_unwind(AssertUnwindSafe(program))
        .map_err(|panic| if panic.is::<CancelUnwind>() { DeviceError::Cancelled } else { resume_unwind(panic) })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn a_cancelled_task_unwinds_and_the_next_one_runs() {
        let looks = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&looks);
        let token = CancelToken::new(move || counted.fetch_add(1, Ordering::Relaxed) >= 3);
        let endless = catch_cancelled(|| {
            with_token(&token, || {
                loop {
                    check()
                }
            })
        });
        assert!(matches!(endless, Err(DeviceError::Cancelled)));
        assert_eq!(looks.load(Ordering::Relaxed), 4);
        check();
        assert_eq!(catch_cancelled(|| 7).unwrap(), 7);
    }

    #[test]
    fn a_panic_is_not_reported_as_a_cancellation() {
        let panic = catch_unwind(|| catch_cancelled(|| resume_unwind(Box::new("broken")))).unwrap_err();
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"broken"));
    }
}

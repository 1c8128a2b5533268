//! Giving up a program on the CPU. Kernels have no way to fail, so a task that is given up unwinds: to the thread that runs the
//! program, and there no further than to the program's dispatch. What it was to write is left half written.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::cancel::CancelToken;
use crate::error::DeviceError;

thread_local! {
    /// The token of the task that this thread computes.
    static CURRENT: RefCell<CancelToken> = const { RefCell::new(CancelToken::never()) };
}

/// What unwinds.
struct CancelUnwind;

/// Gives up the program that this thread computes.
pub(super) fn unwind_cancelled() -> ! {
    // Without the hook of a panic: nothing is wrong.
    resume_unwind(Box::new(CancelUnwind))
}

/// Unwinds if the task that this thread computes must be given up. For the outer loops of tasks that may take long.
pub(super) fn check() {
    let is_cancelled = CURRENT.with_borrow(CancelToken::is_cancelled);
    if is_cancelled {
        unwind_cancelled();
    }
}

/// Runs a task to which `token` belongs.
pub(super) fn with_token<T>(token: &CancelToken, task: impl FnOnce() -> T) -> T {
    /// Puts back what was there, also where the task unwinds.
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
/// `Cancelled` if it was given up.
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

//! Interruption of long computations on graphs. Computations poll the caller at short intervals, because this crate has
//! no clock.

use thiserror::Error;

/// The error of a computation that was interrupted before it completed.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("interrupted")]
pub struct InterruptedError;

/// Polled by long computations to find out whether to stop.
///
/// [`InterruptCheck::check`] is called for every node, kernel or similar step, from one thread at a time. So the
/// closure must be cheap: an atomic flag, or a comparison with the clock. Once it has returned true, it must always
/// return true.
#[derive(Clone, Copy)]
pub struct InterruptCheck<'a> {
    is_due: &'a (dyn Fn() -> bool + Sync),
}

impl<'a> InterruptCheck<'a> {
    /// Creates a check that interrupts when `is_due` returns true.
    pub const fn from_condition(is_due: &'a (dyn Fn() -> bool + Sync)) -> InterruptCheck<'a> {
        InterruptCheck { is_due }
    }

    /// Creates a check that never interrupts.
    pub const fn never() -> InterruptCheck<'static> {
        InterruptCheck { is_due: &|| false }
    }

    /// Polls the caller.
    ///
    /// # Errors
    /// Returns `InterruptedError` if the computation must stop.
    pub fn check(&self) -> Result<(), InterruptedError> {
        if (self.is_due)() { Err(InterruptedError) } else { Ok(()) }
    }
}

impl std::fmt::Debug for InterruptCheck<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Interrupt").finish_non_exhaustive()
    }
}

//! Interruption of long computations on graphs. They ask the caller at short intervals whether to stop: there is no clock here,
//! so the caller supplies the question.

use thiserror::Error;

/// The caller asked a computation to stop before it was complete.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("interrupted")]
pub struct InterruptedError;

/// Tells a long computation whether to stop.
///
/// [`InterruptCheck::check`] is called for every node, kernel or similar step, from one thread at a time. So the closure must be
/// cheap: an atomic flag, or a comparison with the clock. Once it has returned true, it must go on to do so.
#[derive(Clone, Copy)]
pub struct InterruptCheck<'a> {
    is_due: &'a (dyn Fn() -> bool + Sync),
}

impl<'a> InterruptCheck<'a> {
    /// An interrupt for when `is_due` returns true.
    pub const fn from_condition(is_due: &'a (dyn Fn() -> bool + Sync)) -> InterruptCheck<'a> {
        InterruptCheck { is_due }
    }

    /// An interrupt that never comes.
    pub const fn never() -> InterruptCheck<'static> {
        InterruptCheck { is_due: &|| false }
    }

    /// Asks the caller whether to stop.
    ///
    /// # Errors
    /// `InterruptedError` if the caller says so.
    pub fn check(&self) -> Result<(), InterruptedError> {
        if (self.is_due)() { Err(InterruptedError) } else { Ok(()) }
    }
}

impl std::fmt::Debug for InterruptCheck<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Interrupt").finish_non_exhaustive()
    }
}

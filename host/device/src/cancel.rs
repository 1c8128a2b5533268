//! Cancellation of device work. Long operations check a token between their parts.

use std::sync::Arc;

use crate::error::DeviceError;

/// A cancellation token. Clones are the same token.
#[derive(Clone, Default)]
pub struct CancelToken(Option<Arc<dyn Fn() -> bool + Send + Sync>>);

impl CancelToken {
    /// Returns a token that is cancelled when `is_cancelled` returns true, after which it must always return true. It
    /// is called often, from several threads, and must return immediately.
    pub fn new(is_cancelled: impl Fn() -> bool + Send + Sync + 'static) -> CancelToken {
        CancelToken(Some(Arc::new(is_cancelled)))
    }

    /// Returns a token that is never cancelled.
    pub const fn never() -> CancelToken {
        CancelToken(None)
    }

    /// Returns whether the work must stop.
    pub fn is_cancelled(&self) -> bool {
        self.0.as_ref().is_some_and(|is_cancelled| is_cancelled())
    }

    /// Returns whether the token can never be cancelled.
    pub(crate) fn is_never(&self) -> bool {
        self.0.is_none()
    }

    /// Checks that the work can continue.
    ///
    /// # Errors
    /// Returns `Cancelled` if the token is cancelled.
    pub fn check(&self) -> Result<(), DeviceError> {
        if self.is_cancelled() { Err(DeviceError::Cancelled) } else { Ok(()) }
    }
}

impl std::fmt::Debug for CancelToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("CancelToken").field(&!self.is_never()).finish()
    }
}

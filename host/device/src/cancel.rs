//! Giving up work before its end: whatever takes long on a device asks a token between its parts.

use std::sync::Arc;

use crate::error::DeviceError;

/// Tells whether the work that it is given to must be given up. Clones are the same token.
#[derive(Clone, Default)]
pub struct CancelToken(Option<Arc<dyn Fn() -> bool + Send + Sync>>);

impl CancelToken {
    /// Gives work up once `is_cancelled` is true, for good. It is called often, from several threads, and must answer at
    /// once.
    pub fn new(is_cancelled: impl Fn() -> bool + Send + Sync + 'static) -> CancelToken {
        CancelToken(Some(Arc::new(is_cancelled)))
    }

    /// Never gives work up.
    pub const fn never() -> CancelToken {
        CancelToken(None)
    }

    /// Whether the work must be given up.
    pub fn is_cancelled(&self) -> bool {
        self.0.as_ref().is_some_and(|is_cancelled| is_cancelled())
    }

    /// Whether it never will be.
    pub(crate) fn is_never(&self) -> bool {
        self.0.is_none()
    }

    /// # Errors
    /// `Cancelled`.
    pub fn check(&self) -> Result<(), DeviceError> {
        if self.is_cancelled() { Err(DeviceError::Cancelled) } else { Ok(()) }
    }
}

impl std::fmt::Debug for CancelToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("CancelToken").field(&!self.is_never()).finish()
    }
}

//! Checks repeatedly that the key of a long-running response is still valid. The key was checked when the request
//! arrived, but a stream can last for days.

use std::convert::Infallible;
use std::sync::{Arc, Weak};

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use saggar_clock::UnixMillis;

use super::access_error::AccessError;
use super::keyring::ActiveKey;

/// The key of a request, or `None` if none was required.
#[derive(Clone, Debug, Default)]
pub(crate) struct StreamAuthorization(Option<Weak<ActiveKey>>);

impl StreamAuthorization {
    pub(super) fn from_key(holder: &Arc<ActiveKey>) -> StreamAuthorization {
        StreamAuthorization(Some(Arc::downgrade(holder)))
    }

    /// Returns the key, or `None` if none was required.
    ///
    /// # Errors
    /// Returns `UnknownKey` if it is not valid any more.
    pub(super) fn current_key(&self, now_ms: UnixMillis) -> Result<Option<Arc<ActiveKey>>, AccessError> {
        let Some(holder) = &self.0 else { return Ok(None) };
        let key = holder.upgrade().filter(|holder| !holder.record.is_expired(now_ms));
        key.map(Some).ok_or(AccessError::UnknownKey)
    }

    /// Returns false if the key was revoked or changed or has expired. The client must then send a new request, which
    /// is authorized again.
    pub(crate) fn is_still_valid(&self, now_ms: UnixMillis) -> bool {
        self.current_key(now_ms).is_ok()
    }
}

impl<S: Sync> FromRequestParts<S> for StreamAuthorization {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<StreamAuthorization, Infallible> {
        Ok(parts.extensions.get::<StreamAuthorization>().cloned().unwrap_or_default())
    }
}

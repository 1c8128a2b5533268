//! Whether the key of an answer that goes on for long is still good: it was looked at when the request came, and a stream
//! may last for days.

use std::convert::Infallible;
use std::sync::{Arc, Weak};

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use saggar_store::clock::UnixMillis;

use super::keyring::ActiveKey;

/// The key that a request came with, where it needed one.
#[derive(Clone, Debug, Default)]
pub(crate) struct StreamAuthorization(Option<Weak<ActiveKey>>);

impl StreamAuthorization {
    pub(super) fn from_key(holder: &Arc<ActiveKey>) -> StreamAuthorization {
        StreamAuthorization(Some(Arc::downgrade(holder)))
    }

    /// False once the key was revoked, was changed, or has expired. Its client asks again, and is judged anew.
    pub(crate) fn is_still_valid(&self, now_ms: UnixMillis) -> bool {
        let good = |holder: &Weak<ActiveKey>| holder.upgrade().is_some_and(|holder| !holder.record.is_expired(now_ms));
        self.0.as_ref().is_none_or(good)
    }
}

impl<S: Sync> FromRequestParts<S> for StreamAuthorization {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<StreamAuthorization, Infallible> {
        Ok(parts.extensions.get::<StreamAuthorization>().cloned().unwrap_or_default())
    }
}

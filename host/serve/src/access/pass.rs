//! Whether the key of an answer that goes on for long is still good: it was looked at when the request came, and a stream
//! may last for days.

use std::convert::Infallible;
use std::sync::{Arc, Weak};

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use saggar_store::clock::Millis;

use super::keyring::Holder;

/// The key that a request came with, where it needed one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pass(Option<Weak<Holder>>);

impl Pass {
    pub(super) fn of(holder: &Arc<Holder>) -> Pass {
        Pass(Some(Arc::downgrade(holder)))
    }

    /// False once the key was revoked, was changed, or has expired. Its client asks again, and is judged anew.
    pub(crate) fn holds(&self, now_ms: Millis) -> bool {
        let good = |holder: &Weak<Holder>| holder.upgrade().is_some_and(|holder| !holder.record.expired(now_ms));
        self.0.as_ref().is_none_or(good)
    }
}

impl<S: Sync> FromRequestParts<S> for Pass {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Pass, Infallible> {
        Ok(parts.extensions.get::<Pass>().cloned().unwrap_or_default())
    }
}

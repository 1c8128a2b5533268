//! Permits for event streams. Every stream polls the records separately, so their number is limited in total and for
//! each holder.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::Extensions;
use axum::http::request::Parts;
use parking_lot::{Mutex, MutexGuard};

use crate::access::Principal;
use crate::connection::{ConnectionActivity, PeerAddress};
use crate::error::ApiError;
use crate::limits::{EVENT_STREAMS_EACH_MAX, EVENT_STREAMS_MAX};

/// The party whose streams are counted together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum StreamHolder {
    /// Clients with the key of this name.
    Key(Arc<str>),
    /// A machine that needs no key.
    Peer(PeerAddress),
    /// The user of this machine.
    Local,
}

impl StreamHolder {
    fn from_extensions(extensions: &Extensions) -> StreamHolder {
        if let Some(Principal::Key(name)) = extensions.get() {
            return StreamHolder::Key(Arc::clone(name));
        }
        let peer = extensions.get::<Arc<ConnectionActivity>>().and_then(|connection| connection.peer());
        peer.filter(|peer| !peer.is_loopback()).map_or(StreamHolder::Local, StreamHolder::Peer)
    }
}

impl<S: Sync> FromRequestParts<S> for StreamHolder {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<StreamHolder, Infallible> {
        Ok(StreamHolder::from_extensions(&parts.extensions))
    }
}

/// The counts of open streams. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct EventStreams {
    open: Arc<Mutex<HashMap<StreamHolder, usize>>>,
}

impl EventStreams {
    /// Reserves a permit, which is held for as long as the stream lasts.
    ///
    /// # Errors
    /// Returns `StreamsFull` if the holder, or all holders together, have reached the limit.
    pub(crate) fn open(&self, holder: StreamHolder) -> Result<EventStreamPermit, ApiError> {
        let mut open = self.lock();
        let full = |streams_max, whose| Err(ApiError::StreamsFull { streams_max, whose });
        if open.get(&holder).is_some_and(|count| *count >= EVENT_STREAMS_EACH_MAX) {
            return full(EVENT_STREAMS_EACH_MAX, "one client");
        }
        if open.values().sum::<usize>() >= EVENT_STREAMS_MAX {
            return full(EVENT_STREAMS_MAX, "all clients");
        }
        *open.entry(holder.clone()).or_default() += 1;
        Ok(EventStreamPermit { streams: self.clone(), holder })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<StreamHolder, usize>> {
        self.open.lock()
    }
}

/// Permission for one open stream; dropping it releases the place.
#[derive(Debug)]
pub(crate) struct EventStreamPermit {
    streams: EventStreams,
    holder: StreamHolder,
}

impl Drop for EventStreamPermit {
    fn drop(&mut self) {
        let mut open = self.streams.lock();
        if let Some(count) = open.get_mut(&self.holder) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.holder);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use saggar_rest::errors::ErrorCode;

    use super::*;

    #[test]
    fn one_key_cannot_take_every_stream() {
        let streams = EventStreams::default();
        let key = |name: &str| StreamHolder::Key(name.into());
        let mut places: Vec<_> = (0..EVENT_STREAMS_EACH_MAX).map(|_| streams.open(key("a")).unwrap()).collect();
        let refused = streams.open(key("a")).unwrap_err();
        assert_eq!((refused.status().as_u16(), refused.code()), (429, ErrorCode::StreamsFull));
        assert!(streams.open(key("b")).is_ok() && streams.open(StreamHolder::Local).is_ok());
        places.pop();
        assert!(streams.open(key("a")).is_ok());
    }

    #[test]
    fn the_number_of_streams_of_all_keys_is_limited() {
        let streams = EventStreams::default();
        let holder = |at: usize| StreamHolder::Key(format!("k{}", at / EVENT_STREAMS_EACH_MAX).into());
        let places: Vec<_> = (0..EVENT_STREAMS_MAX).map(|at| streams.open(holder(at)).unwrap()).collect();
        assert!(streams.open(StreamHolder::Local).is_err());
        drop(places);
        assert!(streams.open(StreamHolder::Local).is_ok() && streams.lock().is_empty());
    }
}

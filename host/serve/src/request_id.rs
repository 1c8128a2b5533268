//! The identifier of a request.

/// A request's ID, for handlers that write it themselves.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestId(pub(crate) String);

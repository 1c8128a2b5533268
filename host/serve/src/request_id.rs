//! The identifier of a request.

/// The header with the request ID.
pub(crate) const REQUEST_ID_HEADER: &str = "x-request-id";

/// A request's ID, for handlers that write it themselves.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestId(pub(crate) String);

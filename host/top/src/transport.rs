//! How the sources reach a server. The command line implements it with its client, which has the key and certificates.

use serde::de::DeserializeOwned;

/// Requests documents of one server.
pub trait ServerTransport: Send {
    /// Returns the server's URL.
    fn url(&self) -> &str;

    /// Requests a path and returns the body. Blocks for at most a few seconds. `query` has names and values that are not
    /// encoded.
    ///
    /// # Errors
    /// The server does not answer, or refuses.
    fn get(&self, path: &str, query: &[(&str, &str)]) -> Result<String, TransportError>;
}

/// A request that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct TransportError {
    /// What is wrong.
    pub message: String,
    /// Whether the server did not answer at all.
    pub is_unreachable: bool,
    /// Whether the server does not have the path.
    pub is_missing: bool,
}

/// Requests a document of JSON.
pub(crate) fn get_document<T: DeserializeOwned>(
    transport: &dyn ServerTransport,
    path: &str,
    query: &[(&str, &str)],
) -> Result<T, TransportError> {
    let text = transport.get(path, query)?;
    serde_json::from_str(&text).map_err(|error| TransportError {
        message: format!("{} does not answer {path} as expected: {error}", transport.url()),
        is_unreachable: false,
        is_missing: false,
    })
}

//! The body of every error response.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ErrorBody")]
pub struct ErrorDocument {
    /// What is wrong, as text.
    pub error: String,
    /// What is wrong, from a closed set.
    pub code: ErrorCode,
    /// How to fix it; can be empty.
    pub hint: String,
    /// The request's identifier, which the server's log contains too.
    pub request_id: String,
}

/// Declares the codes, each with its text. `saggar_plugin` has a similar macro, and neither serves both: these codes are
/// documents with schemas and serde's names, on which the plugin host does not depend, and this crate depends on no other.
macro_rules! error_codes {
    ($($(#[doc = $doc:literal])+ $name:ident = $text:literal,)+) => {
        /// What is wrong, from a closed set.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
        pub enum ErrorCode {
            $($(#[doc = $doc])+ #[serde(rename = $text)] $name,)+
        }

        impl ErrorCode {
            /// Every code.
            pub const ALL: &[ErrorCode] = &[$(ErrorCode::$name),+];

            /// Returns the code as text, such as `not_found`.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(ErrorCode::$name => $text,)+
                }
            }
        }
    };
}

error_codes! {
    /// The body of a request broke off or is malformed.
    BadBody = "bad_body",
    /// The content of a dataset cannot be read.
    BadDataset = "bad_dataset",
    /// A file to import cannot be read.
    BadFile = "bad_file",
    /// A form is malformed or lacks a field.
    BadForm = "bad_form",
    /// The header `Host` is missing or malformed.
    BadHost = "bad_host",
    /// The input does not fit the model.
    BadInput = "bad_input",
    /// The body is not the expected JSON.
    BadJson = "bad_json",
    /// A key with these properties cannot exist.
    BadKey = "bad_key",
    /// A name has characters or a length that are not allowed.
    BadName = "bad_name",
    /// A plugin's output does not match its signature.
    BadOutput = "bad_output",
    /// A parameter or header has an invalid value.
    BadParameter = "bad_parameter",
    /// An uploaded plugin can never run here.
    BadPlugin = "bad_plugin",
    /// The request contradicts itself or the state of its object.
    BadRequest = "bad_request",
    /// A secret has a length that is not allowed.
    BadSecret = "bad_secret",
    /// A file is not signed, or not by a trusted key, or was changed after it was signed.
    BadSignature = "bad_signature",
    /// A job's specification is invalid.
    BadSpec = "bad_spec",
    /// The job's state does not allow the operation.
    BadState = "bad_state",
    /// The header `Transfer-Encoding` is not supported.
    BadTransferEncoding = "bad_transfer_encoding",
    /// The body arrived too slowly.
    BodyTimeout = "body_timeout",
    /// Chunks of an upload are missing.
    ChunksMissing = "chunks_missing",
    /// Too many plugins are being compiled.
    CompilerBusy = "compiler_busy",
    /// The state of the object does not allow the operation.
    Conflict = "conflict",
    /// A page of another site sent the request.
    CrossSite = "cross_site",
    /// The database that several servers use cannot be reached.
    DatabaseUnavailable = "database_unavailable",
    /// The prediction took longer than its deadline.
    Deadline = "deadline",
    /// The deadline passed while the prediction was queued.
    DeadlineQueued = "deadline_queued",
    /// The device was lost.
    DeviceLost = "device_lost",
    /// The server's disk is full.
    DiskFull = "disk_full",
    /// The key has expired.
    ExpiredKey = "expired_key",
    /// A file of another server could not be fetched.
    FetchFailed = "fetch_failed",
    /// The server does not fetch from this address.
    FetchRefused = "fetch_refused",
    /// The header `Host` names another server.
    ForeignHost = "foreign_host",
    /// The key is not for this project.
    ForeignProject = "foreign_project",
    /// The port accepts only HTTPS.
    HttpsOnly = "https_only",
    /// Another dataset is being created.
    IngestBusy = "ingest_busy",
    /// An internal error.
    Internal = "internal",
    /// A key with this name exists, or too many keys exist.
    KeyExists = "key_exists",
    /// A version failed to load.
    LoadFailed = "load_failed",
    /// The request is malformed.
    MalformedRequest = "malformed_request",
    /// Other requests use the memory for requests.
    MemoryFull = "memory_full",
    /// The request needs more memory than one client can use.
    MemoryShare = "memory_share",
    /// The path does not support the method.
    MethodNotAllowed = "method_not_allowed",
    /// A file that an imported model refers to is missing.
    MissingFile = "missing_file",
    /// The key lacks a scope.
    MissingScope = "missing_scope",
    /// The plugin that imports models is not installed.
    NoImporter = "no_importer",
    /// A key is required.
    NoKey = "no_key",
    /// The plugin does not train.
    NoTrainer = "no_trainer",
    /// The model cannot answer in an accepted form.
    NotAcceptable = "not_acceptable",
    /// The object or route does not exist.
    NotFound = "not_found",
    /// The model is not ready yet.
    NotReady = "not_ready",
    /// A request to a notebook lacks its token.
    NotebookToken = "notebook_token",
    /// The server runs no notebooks.
    NotebooksOff = "notebooks_off",
    /// The server's records are its own, so that no worker can join.
    NoWorkers = "no_workers",
    /// The device's memory is exhausted.
    OutOfMemory = "out_of_memory",
    /// The plugin failed.
    PluginError = "plugin_error",
    /// The plugin rejected the input.
    PluginRejected = "plugin_rejected",
    /// The plugin trapped.
    PluginTrap = "plugin_trap",
    /// A queue is full.
    QueueFull = "queue_full",
    /// A quota of requests or storage is used up.
    QuotaExceeded = "quota_exceeded",
    /// Too many requests in a short time.
    RateLimited = "rate_limited",
    /// The server is stopping.
    Stopping = "stopping",
    /// The store of objects does not answer, or refuses the server's requests.
    StoreUnavailable = "store_unavailable",
    /// Too many event streams are open.
    StreamsFull = "streams_full",
    /// The body consists of too many small pieces.
    TinyPieces = "tiny_pieces",
    /// The body or content is too large.
    TooLarge = "too_large",
    /// Too many objects of this kind exist.
    TooMany = "too_many",
    /// The key does not exist.
    UnknownKey = "unknown_key",
    /// The model does not exist.
    UnknownModel = "unknown_model",
    /// The media type is not supported.
    UnsupportedMediaType = "unsupported_media_type",
    /// The version is not loaded.
    VersionNotServing = "version_not_serving",
    /// The versions of client and server are too far apart.
    VersionSkew = "version_skew",
    /// The address of a webhook is not allowed.
    WebhookRefused = "webhook_refused",
    /// Content differs from its announced digest or size.
    WrongContent = "wrong_content",
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_distinct_snake_case_texts() {
        for code in ErrorCode::ALL {
            let text = code.as_str();
            assert!(text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{text}");
            assert_eq!(serde_json::from_value::<ErrorCode>(text.into()).unwrap(), *code);
        }
        let distinct: std::collections::HashSet<_> = ErrorCode::ALL.iter().map(|code| code.as_str()).collect();
        assert_eq!(distinct.len(), ErrorCode::ALL.len());
    }
}

//! Error responses. Only this module and its submodules map errors to HTTP status codes.
//!
//! Every error body has the form `{"error", "code", "hint", "request_id"}`. The causes of internal errors are logged
//! and not sent to clients.

mod access;
mod mlflow;
mod protocol_error;
mod serving;
mod status_map;
mod success;

use std::time::Duration;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use saggar_fetch::FetchError;
use saggar_jobs::JobError;
use saggar_pipelines::PipelineError;
use saggar_plugin::PluginError;
use saggar_rest::errors::{ErrorCode, ErrorDocument};
use saggar_serving::{ImportError, PredictionFailure, PredictionOutcome, ReferenceError, ServingError};
use saggar_store::SecretError;
use saggar_store::error::{
    CheckpointError, DatasetError, ModelError, StoreError, database_outage, is_disk_full, is_store_unavailable,
};
use saggar_store::keys::KeyError;
use saggar_store::signature::SignatureError;
use saggar_sweeps::SweepError;
use thiserror::Error;

use crate::access::AccessError;

pub(crate) use access::plain_http_on_tls_response;
pub(crate) use mlflow::mlflow_error_json;
pub use protocol_error::ProtocolError;
pub(crate) use success::{
    AcceptedResponse, CreatedResponse, NoContent, ProbeResponse, SerializedJson, is_switching_protocols, not_modified,
    plugin_response,
};

/// Why a request failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ApiError {
    /// The client is not allowed to make the request.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// A key cannot be created or revoked.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The request does not conform to its protocol, or the output cannot be encoded in it.
    #[error("{0}")]
    Protocol(Box<dyn ProtocolError>),
    /// A multipart form that is malformed or lacks a required field.
    #[error("form: {reason}")]
    Form {
        /// The reason.
        reason: String,
    },
    /// A body that is not the JSON expected by this route.
    #[error("body: {reason}")]
    Json {
        /// The position of the error, and what was expected there.
        reason: String,
        /// An example of a valid body.
        example: &'static str,
    },
    /// A header or parameter with an invalid value.
    #[error("{name}: expected {expected}, got {got:?}")]
    Parameter {
        /// The name of the header or parameter.
        name: &'static str,
        /// The accepted values.
        expected: &'static str,
        /// The value received.
        got: String,
    },
    /// A body larger than the maximum.
    #[error("body: more than {bytes_max} bytes")]
    TooLarge {
        /// The maximum in bytes.
        bytes_max: usize,
    },
    /// A body that stopped arriving.
    #[error("body: it came too slowly, or nothing for {} s", quiet.as_secs())]
    BodyQuiet {
        /// The time without data.
        quiet: Duration,
    },
    /// A body in too many very small pieces.
    #[error("body: {pieces} pieces of {bytes} bytes in all")]
    BodyPieces {
        /// The number of pieces.
        pieces: usize,
        /// Their bytes in total.
        bytes: usize,
    },
    /// A body that was cut off.
    #[error("body: {reason}")]
    BodyBroken {
        /// The reason.
        reason: String,
    },
    /// A media type that the route does not support.
    #[error("content-type: {got:?} is not taken here; expected {expected}")]
    MediaType {
        /// The value received.
        got: String,
        /// The supported media types.
        expected: &'static str,
    },
    /// A content encoding that the server does not support.
    #[error("content-encoding: {got:?} is not taken here; expected gzip, deflate or none")]
    Coding {
        /// The value received.
        got: String,
    },
    /// The route does not exist.
    #[error("no route {path}")]
    NoRoute {
        /// The path.
        path: String,
    },
    /// The route does not support this method.
    #[error("{method} is not a method of {path}{}", allowed_text(allow))]
    Method {
        /// The method.
        method: String,
        /// The path.
        path: String,
        /// The methods of the path as the value of `allow`, or empty if the router adds that header.
        allow: String,
    },
    /// The named object does not exist.
    #[error("no {kind} {name}; {hint}")]
    NotFound {
        /// The kind of object.
        kind: &'static str,
        /// Its name.
        name: String,
        /// How to list the existing ones.
        hint: String,
    },
    /// The operation is not possible in the current state.
    #[error("{what}: {reason}")]
    Conflict {
        /// The object of the operation.
        what: String,
        /// The reason.
        reason: String,
    },
    /// A prediction was not answered, or a command on a model failed.
    #[error(transparent)]
    Serving(#[from] ServingError),
    /// The uploaded plugin is refused.
    #[error("the plugin is refused: {0}")]
    PluginRefused(#[source] PluginError),
    /// A file of another server was not fetched.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// A file could not be imported as a model.
    #[error(transparent)]
    Import(#[from] ImportError),
    /// A file is not signed as this server demands.
    #[error("the bundle is refused: {0}")]
    Signature(#[from] SignatureError),
    /// A job operation failed.
    #[error(transparent)]
    Job(#[from] JobError),
    /// A pipeline error.
    #[error(transparent)]
    Pipeline(#[from] PipelineError),
    /// A sweep operation failed.
    #[error(transparent)]
    Sweep(SweepError),
    /// A dataset operation failed.
    #[error(transparent)]
    Dataset(#[from] DatasetError),
    /// Reading or writing a model's files failed.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// Reading or writing files or objects failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A secret cannot be stored.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// A checkpoint operation failed.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The limit of open event streams is reached.
    #[error("{streams_max} event streams are open, the maximum for {whose}")]
    StreamsFull {
        /// The maximum number of streams.
        streams_max: usize,
        /// The party that the limit applies to: `one client` or `all clients`.
        whose: &'static str,
    },
    /// A running notebook does not answer.
    #[error("the notebook {job} does not answer: {reason}")]
    NotebookSilent {
        /// The notebook's job.
        job: String,
        /// The error of the connection.
        reason: String,
    },
    /// The server is stopping.
    #[error("the server is stopping")]
    Stopping,
    /// An internal error.
    #[error("internal error")]
    Internal {
        /// The cause, for the log only.
        cause: String,
    },
}

impl From<SweepError> for ApiError {
    fn from(error: SweepError) -> ApiError {
        match error {
            SweepError::Job(error) => ApiError::Job(error),
            error => ApiError::Sweep(error),
        }
    }
}

/// The HTTP representation of an error.
#[derive(Debug)]
pub struct ErrorMapping {
    status: StatusCode,
    code: ErrorCode,
    hint: String,
}

/// The fields of an error's body. The observing layer, which knows the request's identifier, serializes them.
#[derive(Clone, Debug)]
pub(crate) struct ErrorBody {
    pub(crate) error: String,
    pub(crate) code: ErrorCode,
    pub(crate) hint: String,
}

impl ErrorBody {
    /// Returns the body as JSON for the request with this identifier.
    pub(crate) fn json(&self, request_id: &str) -> String {
        let ErrorBody { error, code, hint } = self.clone();
        let document = ErrorDocument { error, code, hint, request_id: request_id.to_owned() };
        serde_json::to_string(&document).expect("an error is plain data")
    }
}

impl ApiError {
    /// Returns the body for a response whose head is already sent, and logs the cause of an internal error.
    pub(crate) fn body(&self) -> ErrorBody {
        self.log_cause();
        let ErrorMapping { code, hint, .. } = self.mapping();
        ErrorBody { error: self.public_message(), code, hint }
    }

    /// Returns the response's status code.
    pub fn status(&self) -> StatusCode {
        self.mapping().status
    }

    /// Returns the error's code, from a closed set.
    pub fn code(&self) -> ErrorCode {
        self.mapping().code
    }

    fn mapping(&self) -> ErrorMapping {
        let meaning = self.mapping_of_kind();
        // A full disk, and a store or a database that does not answer, are reported alike on every route: they are not the
        // client's fault, and the remedy is the same.
        if meaning.code != ErrorCode::Internal {
            return meaning;
        }
        match database_outage(self) {
            Some(outage) => status_map::database_unavailable(outage),
            None if is_disk_full(self) => status_map::disk_full(),
            None if is_store_unavailable(self) => status_map::store_unavailable(),
            None => meaning,
        }
    }

    fn mapping_of_kind(&self) -> ErrorMapping {
        let of = |status, code, hint: &str| ErrorMapping { status, code, hint: hint.to_owned() };
        let bad = |code, hint| of(StatusCode::BAD_REQUEST, code, hint);
        let missing = |hint| of(StatusCode::NOT_FOUND, ErrorCode::NotFound, hint);
        match self {
            ApiError::Protocol(error) => error.mapping(),
            ApiError::Form { .. } => bad(ErrorCode::BadForm, "send one field a model input: curl -F image=@digit.png"),
            ApiError::Json { example, .. } => bad(ErrorCode::BadJson, &format!("for example: {example}")),
            ApiError::Parameter { .. } => bad(ErrorCode::BadParameter, ""),
            ApiError::TooLarge { .. } => {
                of(StatusCode::PAYLOAD_TOO_LARGE, ErrorCode::TooLarge, "send fewer items at once")
            }
            ApiError::Access(error) => access::map_access_error(error),
            ApiError::Key(error) => access::map_key_error(error),
            ApiError::BodyPieces { .. } => bad(ErrorCode::TinyPieces, "send larger chunks"),
            ApiError::BodyQuiet { .. } => of(StatusCode::REQUEST_TIMEOUT, ErrorCode::BodyTimeout, ""),
            ApiError::BodyBroken { .. } => bad(ErrorCode::BadBody, ""),
            ApiError::MediaType { .. } | ApiError::Coding { .. } => {
                of(StatusCode::UNSUPPORTED_MEDIA_TYPE, ErrorCode::UnsupportedMediaType, "")
            }
            ApiError::NoRoute { .. } => missing("GET / with Accept: application/json lists the routes"),
            ApiError::Method { .. } => of(StatusCode::METHOD_NOT_ALLOWED, ErrorCode::MethodNotAllowed, ""),
            ApiError::NotFound { .. } => missing(""),
            ApiError::Conflict { .. } => of(StatusCode::CONFLICT, ErrorCode::Conflict, ""),
            ApiError::StreamsFull { .. } => {
                of(StatusCode::TOO_MANY_REQUESTS, ErrorCode::StreamsFull, "ask for a list instead")
            }
            ApiError::Import(error) => status_map::map_import_error(error),
            ApiError::Signature(_) => {
                of(StatusCode::UNPROCESSABLE_ENTITY, ErrorCode::BadSignature, "nothing was published")
            }
            ApiError::PluginRefused(error) => status_map::map_uploaded_plugin_error(error),
            ApiError::Fetch(error) => status_map::map_fetch_error(error),
            ApiError::Job(error) => status_map::map_job_error(error),
            ApiError::Pipeline(error) => status_map::map_pipeline_error(error),
            ApiError::Sweep(error) => status_map::map_sweep_error(error),
            ApiError::Dataset(error) => status_map::map_dataset_error(error),
            ApiError::Secret(error) => status_map::map_secret_error(error),
            ApiError::Serving(error) => serving::map_serving_error(error),
            ApiError::Model(error) => serving::map_model_error(error),
            ApiError::Stopping => retryable(ErrorCode::Stopping),
            ApiError::NotebookSilent { .. } => retryable(ErrorCode::NotReady),
            ApiError::Store(error) => serving::map_store_error(error),
            ApiError::Checkpoint(_) | ApiError::Internal { .. } => internal_mapping(),
        }
    }

    /// Returns the message for the client. Messages of internal errors are withheld, since they name files of this
    /// machine.
    fn public_message(&self) -> String {
        match self {
            ApiError::Serving(ServingError::Plugin(PluginError::Trap { .. })) => "the plugin trapped".to_owned(),
            ApiError::Serving(ServingError::Plugin(error @ PluginError::Deadline { .. })) => error.to_string(),
            ApiError::Serving(ServingError::Plugin(error))
                if status_map::map_plugin_error(error).status.is_server_error() =>
            {
                format!("the plugin failed: {}", error.reason())
            }
            error if error.code() == ErrorCode::Internal => "internal error".to_owned(),
            ApiError::Dataset(error @ DatasetError::DiskFull { .. }) => error.to_string(),
            error if error.code() == ErrorCode::DiskFull => "the server's disk is full".to_owned(),
            error if error.code() == ErrorCode::StoreUnavailable => "the store of objects does not answer".to_owned(),
            error if error.code() == ErrorCode::DatabaseUnavailable => "the database does not answer".to_owned(),
            error => error.to_string(),
        }
    }

    /// Logs the cause of an internal error.
    fn log_cause(&self) {
        let ErrorMapping { status, code, .. } = self.mapping();
        let is_logged =
            matches!(code, ErrorCode::DiskFull | ErrorCode::StoreUnavailable | ErrorCode::DatabaseUnavailable);
        if status == StatusCode::INTERNAL_SERVER_ERROR || is_logged {
            let cause = match self {
                ApiError::Import(ImportError::Internal { cause })
                | ApiError::Internal { cause }
                | ApiError::Serving(ServingError::Internal { cause }) => cause.clone(),
                error => error.to_string(),
            };
            tracing::error!(%code, %cause, "request failed");
        }
    }
}

fn allowed_text(allow: &str) -> String {
    if allow.is_empty() { String::new() } else { format!("; it has {allow}") }
}

fn retryable(code: ErrorCode) -> ErrorMapping {
    let hint = "try again; GET /readyz?verbose shows what it waits for".to_owned();
    ErrorMapping { status: StatusCode::SERVICE_UNAVAILABLE, code, hint }
}

fn internal_mapping() -> ErrorMapping {
    let hint = "the server's log has the cause under this request_id".to_owned();
    ErrorMapping { status: StatusCode::INTERNAL_SERVER_ERROR, code: ErrorCode::Internal, hint }
}

impl<E: ProtocolError> From<E> for ApiError {
    fn from(error: E) -> ApiError {
        ApiError::Protocol(Box::new(error))
    }
}

impl From<ReferenceError> for ApiError {
    fn from(error: ReferenceError) -> ApiError {
        ApiError::Serving(error.into())
    }
}

impl PredictionFailure for ApiError {
    fn outcome(&self) -> PredictionOutcome {
        match self {
            ApiError::Serving(error) => error.outcome(),
            ApiError::Protocol(error) => error.outcome(),
            ApiError::Internal { .. } => PredictionOutcome::HostError,
            _ => PredictionOutcome::Rejected,
        }
    }

    fn plugin_error(&self) -> Option<&PluginError> {
        if let ApiError::Serving(error) = self { error.plugin_error() } else { None }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = self.status();
        let mut response = status.into_response();
        if matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        if let ApiError::Method { allow, .. } = &self
            && !allow.is_empty()
            && let Ok(allow) = HeaderValue::from_str(allow)
        {
            response.headers_mut().insert(header::ALLOW, allow);
        }
        if let ApiError::Access(error) = &self {
            access::insert_access_headers(error, response.headers_mut());
        }
        response.extensions_mut().insert(self.body());
        response
    }
}

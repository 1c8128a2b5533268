//! What clients are told when something goes wrong. Only this module and those below it know HTTP status codes.
//!
//! Every answer has the form `{"error", "code", "hint", "request_id"}`. Causes of our own faults go to the log, not out.

mod access;
mod status_map;
mod success;

use std::time::Duration;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use saggar_jobs::JobError;
use saggar_plugin::PluginError;
use saggar_store::SecretError;
use saggar_store::error::{CheckpointError, DatasetError, ModelError, StoreError, is_disk_full};
use saggar_store::keys::KeyError;
use thiserror::Error;

use crate::access::AccessError;
use crate::cog::error::PredictionError;
use crate::models::ImportError;
use crate::models::desired_state::DesiredStateError;
use crate::models::model_config::ModelConfigError;
use crate::oip::InferError;
use crate::predict::decode::DecodeError;
use crate::predict::encode::EncodeError;
use crate::predict::image::ImageError;
use crate::tfs::error::TfsError;

pub(crate) use access::plain_http_on_tls_response;
pub(crate) use success::{accepted, created, json_text, no_content, not_modified, not_ready};

/// Why a request gets no answer of its own.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ApiError {
    /// The request is not let in.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// A key cannot be made, or not ended.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The input does not fit the model.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// The picture cannot be taken.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// A request of TensorFlow Serving's interface that is refused.
    #[error(transparent)]
    Tfs(#[from] TfsError),
    /// A prediction cannot be had, or not so.
    #[error(transparent)]
    Prediction(#[from] PredictionError),
    /// A multipart form that is none, or lacks what is needed.
    #[error("form: {reason}")]
    Form {
        /// What is wrong.
        reason: String,
    },
    /// A body that is not the JSON this route takes.
    #[error("body: {reason}")]
    Json {
        /// Where, and what was expected.
        reason: String,
        /// A body that it takes.
        example: &'static str,
    },
    /// A header or parameter with a value it cannot have.
    #[error("{name}: expected {expected}, got {got:?}")]
    Parameter {
        /// The header or parameter.
        name: &'static str,
        /// What it takes.
        expected: &'static str,
        /// What came.
        got: String,
    },
    /// A body over its maximum.
    #[error("body: more than {bytes_max} bytes")]
    TooLarge {
        /// The maximum.
        bytes_max: usize,
    },
    /// A body that stopped coming.
    #[error("body: it came too slowly, or nothing for {} s", quiet.as_secs())]
    BodyQuiet {
        /// How long.
        quiet: Duration,
    },
    /// A body in very many very small pieces.
    #[error("body: {pieces} pieces of {bytes} bytes in all")]
    BodyPieces {
        /// How many pieces.
        pieces: usize,
        /// Their bytes.
        bytes: usize,
    },
    /// A body that broke off.
    #[error("body: {reason}")]
    BodyBroken {
        /// Why.
        reason: String,
    },
    /// A type of body that the route does not take.
    #[error("content-type: {got:?} is not taken here; expected {expected}")]
    MediaType {
        /// What came.
        got: String,
        /// What is taken.
        expected: &'static str,
    },
    /// A body in a coding that the server does not know.
    #[error("content-encoding: {got:?} is not taken here; expected gzip, deflate or none")]
    Coding {
        /// What came.
        got: String,
    },
    /// The inference request is not one for the model.
    #[error(transparent)]
    Infer(#[from] InferError),
    /// No such route.
    #[error("no route {path}")]
    NoRoute {
        /// The path.
        path: String,
    },
    /// A route that has no such method.
    #[error("{method} is not a method of {path}")]
    Method {
        /// The method.
        method: String,
        /// The path.
        path: String,
    },
    /// No such thing.
    #[error("no {kind} {name}; {hint}")]
    NotFound {
        /// What it is.
        kind: &'static str,
        /// Its name.
        name: String,
        /// How to see what there is.
        hint: String,
    },
    /// No such model.
    #[error("no model {name}; {}", known_models(known))]
    NoModel {
        /// The name asked for.
        name: String,
        /// The names there are.
        known: Vec<String>,
    },
    /// A version that is not loaded.
    #[error("version {version} of model {model} is {state}; {}", serving_version_text(*serving))]
    VersionNotServing {
        /// The model.
        model: String,
        /// The version asked for.
        version: u64,
        /// Its state.
        state: &'static str,
        /// The version that serves.
        serving: Option<u64>,
    },
    /// A model none of whose versions serves yet.
    #[error("model {model} is not ready: {reason}")]
    NotReady {
        /// The model.
        model: String,
        /// Why.
        reason: String,
    },
    /// A version that did not come up when it was asked for.
    #[error("{model}{} did not come up: {reason}", version_suffix(*version))]
    LoadFailed {
        /// The model.
        model: String,
        /// The version, where one was named.
        version: Option<u64>,
        /// Why.
        reason: String,
    },
    /// Something that cannot be done as things stand.
    #[error("{what}: {reason}")]
    Conflict {
        /// What it was about.
        what: String,
        /// Why not.
        reason: String,
    },
    /// A decision about a model that makes no sense.
    #[error(transparent)]
    Plan(#[from] DesiredStateError),
    /// Settings of a model that make no sense.
    #[error(transparent)]
    Settings(#[from] ModelConfigError),
    /// Nothing serves.
    #[error("no model is ready")]
    NothingReady,
    /// The model's queue is full.
    #[error("model {model} has {waiting} predictions waiting or running, the most it takes")]
    QueueFull {
        /// The model.
        model: String,
        /// How many.
        waiting: usize,
    },
    /// Other requests hold the memory that this one needs.
    #[error("the memory for requests is in use: by your other requests, or by those of other clients")]
    MemoryFull,
    /// A request that needs more memory than one client can have.
    #[error("the request takes up to {bytes} bytes of memory, and one client has at most {share_bytes}")]
    MemoryShare {
        /// What it takes.
        bytes: u64,
        /// What a client has.
        share_bytes: u64,
    },
    /// What is before it in the model's queue takes longer than it has.
    #[error(
        "model {model} has {waiting} predictions waiting or running, which leave no time for another by its deadline"
    )]
    NoTimeLeft {
        /// The model.
        model: String,
        /// How many.
        waiting: usize,
    },
    /// The time was over before the prediction began.
    #[error("the deadline of {} ms passed while the prediction was queued", limit.as_millis())]
    DeadlineQueued {
        /// The time given.
        limit: Duration,
    },
    /// The plugin failed, or refused.
    #[error("{0}")]
    Plugin(#[from] PluginError),
    /// A plugin that was uploaded is refused.
    #[error("the plugin is refused: {0}")]
    PluginRefused(#[source] PluginError),
    /// A file did not become a model.
    #[error(transparent)]
    Import(#[from] ImportError),
    /// The plugin answered what its signature does not promise.
    #[error(transparent)]
    Encode(#[from] EncodeError),
    /// A job cannot be had, or not so.
    #[error(transparent)]
    Job(#[from] JobError),
    /// A dataset cannot be had, or not so.
    #[error(transparent)]
    Dataset(#[from] DatasetError),
    /// A model's files failed.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// Files or objects failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A secret cannot be kept.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// Checkpoints failed.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// As many streams of events as there may be.
    #[error("{streams_max} streams of events are open, as many as {whose} may have")]
    StreamsFull {
        /// The maximum.
        streams_max: usize,
        /// Whom it is for: `one client`, `all clients`.
        whose: &'static str,
    },
    /// The server is stopping.
    #[error("the server is stopping")]
    Stopping,
    /// A fault of ours.
    #[error("internal error")]
    Internal {
        /// What happened, for the log.
        cause: String,
    },
}

/// What helps where a request's memory is short.
const MEMORY_HINT: &str =
    "send fewer or smaller requests at once, or start the server with a larger --request-memory-limit";

fn known_models(known: &[String]) -> String {
    if known.is_empty() { "there is none yet".to_owned() } else { format!("known are {}", known.join(", ")) }
}

fn version_suffix(version: Option<u64>) -> String {
    version.map_or_else(String::new, |version| format!("@{version}"))
}

fn serving_version_text(serving: Option<u64>) -> String {
    serving.map_or_else(|| "no version serves".to_owned(), |version| format!("version {version} serves"))
}

/// What an error is to a client.
struct ErrorMapping {
    status: StatusCode,
    code: &'static str,
    hint: String,
}

/// The parts of an error's body, until the observing layer, which knows the request's identifier, writes it.
#[derive(Clone, Debug)]
pub(crate) struct ErrorBody {
    pub(crate) error: String,
    pub(crate) code: &'static str,
    pub(crate) hint: String,
}

impl ErrorBody {
    /// The body, for the request of this identifier.
    pub(crate) fn json(&self, request_id: &str) -> String {
        let ErrorBody { error, code, hint } = self;
        serde_json::json!({ "error": error, "code": code, "hint": hint, "request_id": request_id }).to_string()
    }
}

impl ApiError {
    /// The body of an answer whose head is out already, and a line in the log where the fault is ours.
    pub(crate) fn body(&self) -> ErrorBody {
        self.log_cause();
        let ErrorMapping { code, hint, .. } = self.mapping();
        ErrorBody { error: self.public_message(), code, hint }
    }

    /// The answer's status.
    pub fn status(&self) -> StatusCode {
        self.mapping().status
    }

    /// The error's code, from a closed set.
    pub fn code(&self) -> &'static str {
        self.mapping().code
    }

    fn mapping(&self) -> ErrorMapping {
        let meaning = self.mapping_of_kind();
        // A full disk is nobody's fault on any route, and what helps is the same.
        if meaning.code == "internal" && is_disk_full(self) { status_map::disk_full() } else { meaning }
    }

    fn mapping_of_kind(&self) -> ErrorMapping {
        let of = |status, code, hint: &str| ErrorMapping { status, code, hint: hint.to_owned() };
        let bad = |code, hint| of(StatusCode::BAD_REQUEST, code, hint);
        let missing = |hint| of(StatusCode::NOT_FOUND, "not_found", hint);
        match self {
            ApiError::Decode(_) => bad("bad_input", "GET /api/v1/models/NAME shows what the model takes"),
            ApiError::Image(ImageError::TooLarge { .. }) => {
                of(StatusCode::PAYLOAD_TOO_LARGE, "too_large", "make the picture smaller")
            }
            ApiError::Image(ImageError::NotPicture { .. } | ImageError::NotImage { .. }) => {
                of(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", "send a PNG, a JPEG, or JSON")
            }
            ApiError::Image(ImageError::OneAtATime { .. }) => of(StatusCode::NOT_ACCEPTABLE, "not_acceptable", ""),
            ApiError::Image(ImageError::Broken { .. }) => bad("bad_input", "the file may have been cut off"),
            ApiError::Tfs(TfsError::NoServable { .. } | TfsError::NoVersions { .. }) => {
                of(StatusCode::NOT_FOUND, "unknown_model", "GET /v1/models lists the models")
            }
            ApiError::Tfs(TfsError::Malformed { .. }) => bad("malformed_request", "GET /openapi.json has every path"),
            ApiError::Tfs(_) => bad("bad_input", "GET /v1/models/NAME/metadata shows what the model takes"),
            ApiError::Prediction(error) => prediction_mapping(error),
            ApiError::Form { .. } => bad("bad_form", "send one field a model input: curl -F image=@digit.png"),
            ApiError::Json { example, .. } => bad("bad_json", &format!("for example: {example}")),
            ApiError::Parameter { .. } => bad("bad_parameter", ""),
            ApiError::TooLarge { .. } => of(StatusCode::PAYLOAD_TOO_LARGE, "too_large", "send fewer items at once"),
            ApiError::Access(error) => access::map_access_error(error),
            ApiError::Key(error) => access::map_key_error(error),
            ApiError::BodyPieces { .. } => bad("tiny_pieces", "send larger chunks"),
            ApiError::BodyQuiet { .. } => of(StatusCode::REQUEST_TIMEOUT, "body_timeout", ""),
            ApiError::BodyBroken { .. } => bad("bad_body", ""),
            ApiError::Infer(_) => bad("bad_input", "GET /v2/models/NAME shows what the model takes"),
            ApiError::MediaType { .. } | ApiError::Coding { .. } => {
                of(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", "")
            }
            ApiError::NoRoute { .. } => missing("GET / with Accept: application/json lists the routes"),
            ApiError::Method { .. } => of(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", ""),
            ApiError::NotFound { .. } => missing(""),
            ApiError::NoModel { .. } => of(StatusCode::NOT_FOUND, "unknown_model", "GET /api/v1/models lists them"),
            ApiError::VersionNotServing { state: "LOADING", .. } => retryable("not_ready"),
            ApiError::VersionNotServing { model, version, state, .. } => {
                let mut hint = "leave the version out to get the one that serves".to_owned();
                if *state != "unknown" {
                    hint = format!("`saggar models load {model} {version}` loads it; or {hint}");
                }
                of(StatusCode::NOT_FOUND, "version_not_serving", &hint)
            }
            ApiError::NotReady { .. } | ApiError::NothingReady => retryable("not_ready"),
            ApiError::LoadFailed { .. } => of(StatusCode::UNPROCESSABLE_ENTITY, "load_failed", ""),
            ApiError::Conflict { .. } => of(StatusCode::CONFLICT, "conflict", ""),
            ApiError::Plan(_) | ApiError::Settings(_) => bad("bad_request", ""),
            ApiError::QueueFull { .. } | ApiError::NoTimeLeft { .. } => {
                of(StatusCode::TOO_MANY_REQUESTS, "queue_full", "try again a little later")
            }
            ApiError::MemoryFull => of(StatusCode::SERVICE_UNAVAILABLE, "memory_full", MEMORY_HINT),
            ApiError::MemoryShare { .. } => of(StatusCode::PAYLOAD_TOO_LARGE, "memory_share", MEMORY_HINT),
            ApiError::StreamsFull { .. } => of(StatusCode::TOO_MANY_REQUESTS, "streams_full", "ask for a list instead"),
            ApiError::DeadlineQueued { .. } => of(StatusCode::REQUEST_TIMEOUT, "deadline_queued", "give it more time"),
            ApiError::Plugin(error) => status_map::map_plugin_error(error),
            ApiError::Import(error) => status_map::map_import_error(error),
            ApiError::PluginRefused(error) => status_map::map_uploaded_plugin_error(error),
            ApiError::Encode(_) => of(StatusCode::INTERNAL_SERVER_ERROR, "bad_output", "this is a fault of the plugin"),
            ApiError::Job(error) => status_map::map_job_error(error),
            ApiError::Dataset(error) => status_map::map_dataset_error(error),
            ApiError::Secret(error) => status_map::map_secret_error(error),
            ApiError::Model(ModelError::NotFound { .. }) => missing("GET /api/v1/models lists what there is"),
            ApiError::Model(ModelError::BadName { .. }) => bad("bad_name", ""),
            ApiError::Stopping => retryable("stopping"),
            ApiError::Store(StoreError::QuotaExceeded { .. }) => status_map::quota_exceeded(),
            ApiError::Model(_) | ApiError::Store(_) | ApiError::Checkpoint(_) | ApiError::Internal { .. } => {
                internal_mapping()
            }
        }
    }

    /// What the client reads. Messages of our own faults stay inside: they name files of this machine.
    fn public_message(&self) -> String {
        match self {
            ApiError::Plugin(PluginError::Trap { .. }) => "the plugin trapped".to_owned(),
            ApiError::Plugin(error @ PluginError::Deadline { .. }) => error.to_string(),
            ApiError::Plugin(error) if status_map::map_plugin_error(error).status.is_server_error() => {
                format!("the plugin failed: {}", error.reason())
            }
            error if error.code() == "internal" => "internal error".to_owned(),
            ApiError::Dataset(error @ DatasetError::DiskFull { .. }) => error.to_string(),
            error if error.code() == "disk_full" => "the server's disk is full".to_owned(),
            error => error.to_string(),
        }
    }

    /// Says the cause in the log where it is worth a line: the client did nothing wrong.
    fn log_cause(&self) {
        let ErrorMapping { status, code, .. } = self.mapping();
        if status == StatusCode::INTERNAL_SERVER_ERROR || code == "disk_full" {
            let cause = match self {
                ApiError::Internal { cause } => cause.clone(),
                error => error.to_string(),
            };
            tracing::error!(code, %cause, "request failed");
        }
    }
}

fn retryable(code: &'static str) -> ErrorMapping {
    let hint = "try again; GET /readyz?verbose tells what it waits for".to_owned();
    ErrorMapping { status: StatusCode::SERVICE_UNAVAILABLE, code, hint }
}

fn internal_mapping() -> ErrorMapping {
    let hint = "the server's log has the cause under this request_id".to_owned();
    ErrorMapping { status: StatusCode::INTERNAL_SERVER_ERROR, code: "internal", hint }
}

fn prediction_mapping(error: &PredictionError) -> ErrorMapping {
    let of = |status, code, hint: &str| ErrorMapping { status, code, hint: hint.to_owned() };
    match error {
        PredictionError::Body { .. } => {
            of(StatusCode::BAD_REQUEST, "bad_json", "for example: {\"input\": {\"x\": [1, 2]}}")
        }
        PredictionError::Id { .. } => of(StatusCode::BAD_REQUEST, "bad_parameter", ""),
        PredictionError::NotFound { .. } => of(StatusCode::NOT_FOUND, "not_found", "PUT /predictions/ID makes it"),
        PredictionError::Conflict { .. } => of(StatusCode::CONFLICT, "conflict", "choose another identifier"),
        PredictionError::TooMany { .. } => of(StatusCode::TOO_MANY_REQUESTS, "queue_full", "try again a little later"),
        PredictionError::Webhook { .. } => of(StatusCode::UNPROCESSABLE_ENTITY, "webhook_refused", ""),
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = self.status();
        let mut response = status.into_response();
        if matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        if let ApiError::Access(error) = &self {
            access::insert_access_headers(error, response.headers_mut());
        }
        response.extensions_mut().insert(self.body());
        response
    }
}

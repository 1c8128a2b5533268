//! Maps errors of the lower crates to HTTP: plugins, imports, jobs and datasets.

use axum::http::StatusCode;
use saggar_fetch::FetchError;
use saggar_jobs::JobError;
use saggar_pipelines::PipelineError;
use saggar_plugin::{FailureReason, GuestErrorCode, PluginError};
use saggar_rest::errors::ErrorCode;
use saggar_serving::{ImportError, LoadError};
use saggar_store::SecretError;
use saggar_store::error::{DatabaseOutage, DatasetError, ModelError, RecordError, StoreError};
use saggar_sweeps::SweepError;

use super::{ErrorMapping, internal_mapping, retryable};

/// Maps an import error.
pub(super) fn map_import_error(error: &ImportError) -> ErrorMapping {
    let of = |status, code, hint: &str| ErrorMapping { status, code, hint: hint.to_owned() };
    match error {
        ImportError::NoPlugin { .. } => of(
            StatusCode::SERVICE_UNAVAILABLE,
            ErrorCode::NoImporter,
            "start the server without `--onnx-plugin` to use the plugin inside the program, or name a component that it can read",
        ),
        ImportError::Plugin(PluginError::CompilerBusy { .. }) => compiler_busy(),
        ImportError::Plugin(PluginError::CompilerStopped) => retryable(ErrorCode::Stopping),
        ImportError::MissingFile { name } => {
            let hint = format!(
                "send both in one form: curl -F model=@MODEL.onnx -F data=@{name}; `saggar import` sends them automatically"
            );
            of(StatusCode::UNPROCESSABLE_ENTITY, ErrorCode::MissingFile, &hint)
        }
        ImportError::TooLarge { .. } => of(StatusCode::PAYLOAD_TOO_LARGE, ErrorCode::TooLarge, ""),
        ImportError::BadFileName { .. }
        | ImportError::UnknownFile { .. }
        | ImportError::TooManyFiles { .. }
        | ImportError::Unreadable { .. }
        | ImportError::BadWeights { .. }
        | ImportError::BadText { .. }
        | ImportError::ImageInputs(_)
        | ImportError::Options { .. }
        | ImportError::Bundle(_) => of(StatusCode::UNPROCESSABLE_ENTITY, ErrorCode::BadFile, "nothing was published"),
        ImportError::Model(ModelError::BadName { .. }) => of(StatusCode::BAD_REQUEST, ErrorCode::BadName, ""),
        ImportError::Plugin(error) | ImportError::Load(LoadError::TimedOut { error }) => match error.reason() {
            FailureReason::DeviceLost => retryable(ErrorCode::DeviceLost),
            FailureReason::OutOfMemory => retryable(ErrorCode::OutOfMemory),
            FailureReason::Device | FailureReason::Engine => internal_mapping(),
            _ => of(StatusCode::UNPROCESSABLE_ENTITY, ErrorCode::BadFile, "nothing was published"),
        },
        ImportError::Store(StoreError::QuotaExceeded { .. }) => quota_exceeded(),
        ImportError::Store(_) | ImportError::Model(_) | ImportError::Load(_) | ImportError::Internal { .. } => {
            internal_mapping()
        }
    }
}

/// Maps the refusal of an uploaded plugin.
pub(super) fn map_uploaded_plugin_error(error: &PluginError) -> ErrorMapping {
    match error {
        PluginError::CompilerBusy { .. } => compiler_busy(),
        PluginError::CompilerStopped => retryable(ErrorCode::Stopping),
        _ => ErrorMapping { status: StatusCode::UNPROCESSABLE_ENTITY, code: ErrorCode::BadPlugin, hint: String::new() },
    }
}

/// Returns the response if too many plugins are being compiled or models imported.
fn compiler_busy() -> ErrorMapping {
    let hint = "try again a little later".to_owned();
    ErrorMapping { status: StatusCode::SERVICE_UNAVAILABLE, code: ErrorCode::CompilerBusy, hint }
}

/// Maps a plugin's failure during a prediction.
pub(super) fn map_plugin_error(error: &PluginError) -> ErrorMapping {
    let of = |status, code, hint: &str| ErrorMapping { status, code, hint: hint.to_owned() };
    match error {
        PluginError::BadInput { .. } => of(StatusCode::BAD_REQUEST, ErrorCode::BadInput, ""),
        PluginError::Guest {
            code: GuestErrorCode::InvalidArgument | GuestErrorCode::Unsupported | GuestErrorCode::NotFound,
            ..
        } => of(StatusCode::UNPROCESSABLE_ENTITY, ErrorCode::PluginRejected, ""),
        PluginError::Deadline { .. } => {
            of(StatusCode::GATEWAY_TIMEOUT, ErrorCode::Deadline, "give it more time with X-Saggar-Deadline-Ms")
        }
        PluginError::Busy { .. } => of(StatusCode::REQUEST_TIMEOUT, ErrorCode::DeadlineQueued, "give it more time"),
        error => match error.reason() {
            FailureReason::Trap | FailureReason::StackOverflow => {
                of(StatusCode::INTERNAL_SERVER_ERROR, ErrorCode::PluginTrap, "")
            }
            FailureReason::DeviceLost => retryable(ErrorCode::DeviceLost),
            FailureReason::OutOfMemory => retryable(ErrorCode::OutOfMemory),
            _ => of(StatusCode::INTERNAL_SERVER_ERROR, ErrorCode::PluginError, ""),
        },
    }
}

/// Maps the error of a fetch.
pub(super) fn map_fetch_error(error: &FetchError) -> ErrorMapping {
    let of = |status, code| ErrorMapping { status, code, hint: String::new() };
    match error {
        FetchError::BadUrl { .. } => of(StatusCode::BAD_REQUEST, ErrorCode::BadParameter),
        FetchError::Disabled { .. } | FetchError::NotAllowed { .. } | FetchError::PrivateAddress { .. } => {
            of(StatusCode::FORBIDDEN, ErrorCode::FetchRefused)
        }
        FetchError::WrongDigest { .. } => of(StatusCode::BAD_REQUEST, ErrorCode::WrongContent),
        FetchError::TooLarge { .. } => of(StatusCode::PAYLOAD_TOO_LARGE, ErrorCode::TooLarge),
        FetchError::Busy => of(StatusCode::SERVICE_UNAVAILABLE, ErrorCode::FetchFailed),
        FetchError::Redirects { .. } | FetchError::Status { .. } | FetchError::Connection { .. } => {
            of(StatusCode::BAD_GATEWAY, ErrorCode::FetchFailed)
        }
        _ => internal_mapping(),
    }
}

/// Maps a job error.
pub(super) fn map_job_error(error: &JobError) -> ErrorMapping {
    let of = |status, code| ErrorMapping { status, code, hint: String::new() };
    match error {
        JobError::Spec(_) | JobError::Records(RecordError::Invalid { .. }) => {
            of(StatusCode::BAD_REQUEST, ErrorCode::BadSpec)
        }
        JobError::NotebooksOff => of(StatusCode::FORBIDDEN, ErrorCode::NotebooksOff),
        JobError::NoWorkers => of(StatusCode::CONFLICT, ErrorCode::NoWorkers),
        JobError::WorkerVersion { .. } => of(StatusCode::CONFLICT, ErrorCode::VersionSkew),
        JobError::NoQueue { .. } | JobError::Override { .. } | JobError::Cron { .. } => {
            of(StatusCode::BAD_REQUEST, ErrorCode::BadSpec)
        }
        JobError::Records(RecordError::QueueFull { .. }) => of(StatusCode::TOO_MANY_REQUESTS, ErrorCode::QueueFull),
        JobError::NotFound { .. } => of(StatusCode::NOT_FOUND, ErrorCode::NotFound),
        JobError::NoTrainer { .. } => of(StatusCode::UNPROCESSABLE_ENTITY, ErrorCode::NoTrainer),
        JobError::State { .. } | JobError::Read { .. } | JobError::Unresolved { .. } => {
            of(StatusCode::CONFLICT, ErrorCode::BadState)
        }
        _ => internal_mapping(),
    }
}

/// Maps a pipeline error.
pub(super) fn map_pipeline_error(error: &PipelineError) -> ErrorMapping {
    let of = |status, code, hint: &str| ErrorMapping { status, code, hint: hint.to_owned() };
    match error {
        PipelineError::Plan { mistakes } => {
            let hint = mistakes.first().map_or("", |(_, mistake)| mistake.hint.as_str());
            of(StatusCode::BAD_REQUEST, ErrorCode::BadSpec, hint)
        }
        PipelineError::Parameter(_)
        | PipelineError::Step { .. }
        | PipelineError::Cron { .. }
        | PipelineError::Records(RecordError::Invalid { .. }) => of(StatusCode::BAD_REQUEST, ErrorCode::BadSpec, ""),
        PipelineError::ScheduledReuse { .. } => {
            let hint = "leave from_failed out; `saggar pipeline run NAME --from-failed RUN` takes them once";
            of(StatusCode::BAD_REQUEST, ErrorCode::BadSpec, hint)
        }
        PipelineError::NotFound { .. } => {
            of(StatusCode::NOT_FOUND, ErrorCode::NotFound, "`saggar pipeline ls` lists the runs")
        }
        PipelineError::NoSchedule { .. } => {
            of(StatusCode::NOT_FOUND, ErrorCode::NotFound, "GET /api/v1/pipelines lists the schedules")
        }
        PipelineError::State { .. } => of(StatusCode::CONFLICT, ErrorCode::BadState, ""),
        PipelineError::Records(RecordError::TooManyRuns { .. }) => {
            of(StatusCode::TOO_MANY_REQUESTS, ErrorCode::QueueFull, "")
        }
        PipelineError::Records(_) | PipelineError::Io(_) => internal_mapping(),
    }
}

/// Maps a sweep error.
pub(super) fn map_sweep_error(error: &SweepError) -> ErrorMapping {
    let of = |status, code| ErrorMapping { status, code, hint: String::new() };
    match error {
        SweepError::Spec(_) | SweepError::Records(RecordError::Invalid { .. }) => {
            of(StatusCode::BAD_REQUEST, ErrorCode::BadSpec)
        }
        SweepError::NotFound { .. } => of(StatusCode::NOT_FOUND, ErrorCode::NotFound),
        SweepError::Over { .. }
        | SweepError::NotOver { .. }
        | SweepError::NoResult { .. }
        | SweepError::JobRemoved { .. }
        | SweepError::NoModel { .. }
        | SweepError::NoWeights { .. } => of(StatusCode::CONFLICT, ErrorCode::BadState),
        SweepError::NotPromoted { hint, .. } => ErrorMapping {
            status: StatusCode::CONFLICT,
            code: ErrorCode::Conflict,
            hint: format!("`{hint}` serves it all the same"),
        },
        SweepError::Job(error) => map_job_error(error),
        _ => internal_mapping(),
    }
}

/// Returns the response if a storage quota is exceeded.
pub(super) fn quota_exceeded() -> ErrorMapping {
    ErrorMapping { status: StatusCode::INSUFFICIENT_STORAGE, code: ErrorCode::QuotaExceeded, hint: String::new() }
}

/// Returns the response if the server's disk is full.
pub(super) fn disk_full() -> ErrorMapping {
    let hint =
        "make room on the server's disk, with `saggar gc` or by removing other files, then send it again".to_owned();
    ErrorMapping { status: StatusCode::INSUFFICIENT_STORAGE, code: ErrorCode::DiskFull, hint }
}

/// Returns the response if the store of objects does not answer.
pub(super) fn store_unavailable() -> ErrorMapping {
    let hint = "try again; `saggar doctor` on the server's machine checks the store".to_owned();
    ErrorMapping { status: StatusCode::SERVICE_UNAVAILABLE, code: ErrorCode::StoreUnavailable, hint }
}

/// Returns the response if the database of several servers does not answer.
pub(super) fn database_unavailable(outage: DatabaseOutage) -> ErrorMapping {
    let hint = match outage {
        DatabaseOutage::NothingRecorded => "nothing was changed; try again",
        DatabaseOutage::DiskFull => {
            "the disk of the database is full, and nothing was changed: make room there, and try again"
        }
        DatabaseOutage::OutcomeUnknown => "it is not known whether the change was made: look before you try again",
    };
    let hint = format!("{hint}; `saggar doctor` on the server's machine checks the database");
    ErrorMapping { status: StatusCode::SERVICE_UNAVAILABLE, code: ErrorCode::DatabaseUnavailable, hint }
}

/// Maps a secret error.
pub(super) fn map_secret_error(error: &SecretError) -> ErrorMapping {
    let of = |status, code| ErrorMapping { status, code, hint: String::new() };
    match error {
        SecretError::BadName { .. } | SecretError::Projects(_) => of(StatusCode::BAD_REQUEST, ErrorCode::BadName),
        SecretError::BadLength { .. } => of(StatusCode::BAD_REQUEST, ErrorCode::BadSecret),
        SecretError::TooMany => of(StatusCode::CONFLICT, ErrorCode::TooMany),
        _ => internal_mapping(),
    }
}

/// Maps a dataset error.
pub(super) fn map_dataset_error(error: &DatasetError) -> ErrorMapping {
    let of = |status, code| ErrorMapping { status, code, hint: String::new() };
    match error {
        DatasetError::Store(StoreError::QuotaExceeded { .. }) => quota_exceeded(),
        DatasetError::Store(_) | DatasetError::Damaged { .. } => internal_mapping(),
        DatasetError::NotFound { .. } => of(StatusCode::NOT_FOUND, ErrorCode::NotFound),
        DatasetError::ChunksMissing { .. } => of(StatusCode::CONFLICT, ErrorCode::ChunksMissing),
        DatasetError::TooLarge { .. } | DatasetError::Expands { .. } => {
            of(StatusCode::PAYLOAD_TOO_LARGE, ErrorCode::TooLarge)
        }
        DatasetError::DiskFull { .. } => disk_full(),
        DatasetError::Busy { .. } => retryable(ErrorCode::IngestBusy),
        DatasetError::BadName { .. } | DatasetError::BadPath { .. } => of(StatusCode::BAD_REQUEST, ErrorCode::BadName),
        DatasetError::WrongDigest { .. } | DatasetError::WrongSize { .. } => {
            of(StatusCode::BAD_REQUEST, ErrorCode::WrongContent)
        }
        _ => of(StatusCode::UNPROCESSABLE_ENTITY, ErrorCode::BadDataset),
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::super::ApiError;
    use super::*;

    #[test]
    fn a_full_disk_has_the_same_status_on_every_route() {
        let full = |kind: io::ErrorKind| StoreError::Io { path: "/state/x".into(), source: kind.into() };
        for kind in [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded] {
            let errors = [
                ApiError::Store(full(kind)),
                ApiError::Dataset(full(kind).into()),
                ApiError::Model(full(kind).into()),
                ApiError::Secret(full(kind).into()),
            ];
            for error in errors {
                assert_eq!((error.status(), error.code()), (StatusCode::INSUFFICIENT_STORAGE, ErrorCode::DiskFull));
                let body = error.body();
                assert!(body.hint.contains("saggar gc") && !body.error.contains("/state"), "{body:?}");
            }
        }
        let other = ApiError::Store(full(io::ErrorKind::PermissionDenied));
        assert_eq!((other.status(), other.code()), (StatusCode::INTERNAL_SERVER_ERROR, ErrorCode::Internal));
    }
}

//! What failures of the floors below are to a client: of plugins, imports, jobs and datasets.

use axum::http::StatusCode;
use saggar_jobs::JobError;
use saggar_plugin::PluginError;
use saggar_store::SecretError;
use saggar_store::error::{DatasetError, ModelError, RecordError, StoreError};

use super::{Meaning, internal, retry};
use crate::models::ImportError;

/// A file that did not become a model.
pub(super) fn import(error: &ImportError) -> Meaning {
    let of = |status, code, hint: &str| Meaning { status, code, hint: hint.to_owned() };
    match error {
        ImportError::NoPlugin { .. } => of(
            StatusCode::SERVICE_UNAVAILABLE,
            "no_importer",
            "build it with `saggar build plugins/onnx`, or name it with `saggar serve --onnx-plugin`",
        ),
        ImportError::Plugin(PluginError::CompilerBusy { .. }) => compiler_busy(),
        ImportError::Plugin(PluginError::CompilerStopped) => retry("stopping"),
        ImportError::MissingFile { name } => {
            let hint = format!(
                "send both in one form: curl -F model=@MODEL.onnx -F data=@{name}; `saggar import` sends them by itself"
            );
            of(StatusCode::UNPROCESSABLE_ENTITY, "missing_file", &hint)
        }
        ImportError::TooLarge { .. } => of(StatusCode::PAYLOAD_TOO_LARGE, "too_large", ""),
        ImportError::BadFileName { .. }
        | ImportError::UnknownFile { .. }
        | ImportError::TooManyFiles { .. }
        | ImportError::Unreadable { .. }
        | ImportError::Plugin(_) => of(StatusCode::UNPROCESSABLE_ENTITY, "bad_file", "nothing was published"),
        ImportError::Model(ModelError::BadName { .. }) => of(StatusCode::BAD_REQUEST, "bad_name", ""),
        ImportError::Model(_) => internal(),
    }
}

/// A plugin that was uploaded and is refused.
pub(super) fn refused_plugin(error: &PluginError) -> Meaning {
    match error {
        PluginError::CompilerBusy { .. } => compiler_busy(),
        PluginError::CompilerStopped => retry("stopping"),
        _ => Meaning { status: StatusCode::UNPROCESSABLE_ENTITY, code: "bad_plugin", hint: String::new() },
    }
}

/// More is being compiled and imported than may be at a time.
fn compiler_busy() -> Meaning {
    let hint = "try again a little later".to_owned();
    Meaning { status: StatusCode::SERVICE_UNAVAILABLE, code: "compiler_busy", hint }
}

/// A plugin's failure while it predicts.
pub(super) fn plugin(error: &PluginError) -> Meaning {
    let of = |status, code, hint: &str| Meaning { status, code, hint: hint.to_owned() };
    match error {
        PluginError::BadInput { .. } => of(StatusCode::BAD_REQUEST, "bad_input", ""),
        PluginError::Guest { code: "invalid-argument" | "unsupported" | "not-found", .. } => {
            of(StatusCode::UNPROCESSABLE_ENTITY, "plugin_rejected", "")
        }
        PluginError::Deadline { .. } => {
            of(StatusCode::GATEWAY_TIMEOUT, "deadline", "give it more time with X-Saggar-Deadline-Ms")
        }
        PluginError::Busy { .. } => of(StatusCode::REQUEST_TIMEOUT, "deadline_queued", "give it more time"),
        error => match error.reason() {
            "TRAP" | "STACK_OVERFLOW" => of(StatusCode::INTERNAL_SERVER_ERROR, "plugin_trap", ""),
            "DEVICE_LOST" => retry("device_lost"),
            "OUT_OF_MEMORY" => retry("out_of_memory"),
            _ => of(StatusCode::INTERNAL_SERVER_ERROR, "plugin_error", ""),
        },
    }
}

/// A job that cannot be had, or not so.
pub(super) fn job(error: &JobError) -> Meaning {
    let of = |status, code| Meaning { status, code, hint: String::new() };
    match error {
        JobError::Spec(_) | JobError::Records(RecordError::Invalid { .. }) => of(StatusCode::BAD_REQUEST, "bad_spec"),
        JobError::NoQueue { .. } | JobError::Override { .. } | JobError::Cron { .. } => {
            of(StatusCode::BAD_REQUEST, "bad_spec")
        }
        JobError::Records(RecordError::QueueFull { .. }) => of(StatusCode::TOO_MANY_REQUESTS, "queue_full"),
        JobError::NotFound { .. } => of(StatusCode::NOT_FOUND, "not_found"),
        JobError::NoTrainer { .. } => of(StatusCode::UNPROCESSABLE_ENTITY, "no_trainer"),
        JobError::State { .. } | JobError::Read { .. } | JobError::Unresolved { .. } => {
            of(StatusCode::CONFLICT, "bad_state")
        }
        _ => internal(),
    }
}

/// More than may be stored.
pub(super) fn quota_exceeded() -> Meaning {
    Meaning { status: StatusCode::INSUFFICIENT_STORAGE, code: "quota_exceeded", hint: String::new() }
}

/// No room on the server's disk.
pub(super) fn disk_full() -> Meaning {
    let hint =
        "make room on the server's disk, with `saggar gc` or by removing other files, then send it again".to_owned();
    Meaning { status: StatusCode::INSUFFICIENT_STORAGE, code: "disk_full", hint }
}

/// A secret that cannot be kept.
pub(super) fn secret(error: &SecretError) -> Meaning {
    let of = |status, code| Meaning { status, code, hint: String::new() };
    match error {
        SecretError::BadName { .. } | SecretError::Projects(_) => of(StatusCode::BAD_REQUEST, "bad_name"),
        SecretError::BadLength { .. } => of(StatusCode::BAD_REQUEST, "bad_secret"),
        SecretError::TooMany => of(StatusCode::CONFLICT, "too_many"),
        _ => internal(),
    }
}

/// A dataset that cannot be had, or not so.
pub(super) fn dataset(error: &DatasetError) -> Meaning {
    let of = |status, code| Meaning { status, code, hint: String::new() };
    match error {
        DatasetError::Store(StoreError::QuotaExceeded { .. }) => quota_exceeded(),
        DatasetError::Store(_) | DatasetError::Damaged { .. } => internal(),
        DatasetError::NotFound { .. } => of(StatusCode::NOT_FOUND, "not_found"),
        DatasetError::ChunksMissing { .. } => of(StatusCode::CONFLICT, "chunks_missing"),
        DatasetError::TooLarge { .. } | DatasetError::Expands { .. } => of(StatusCode::PAYLOAD_TOO_LARGE, "too_large"),
        DatasetError::DiskFull { .. } => disk_full(),
        DatasetError::Busy { .. } => retry("ingest_busy"),
        DatasetError::BadName { .. } | DatasetError::BadPath { .. } => of(StatusCode::BAD_REQUEST, "bad_name"),
        DatasetError::WrongDigest { .. } | DatasetError::WrongSize { .. } => {
            of(StatusCode::BAD_REQUEST, "wrong_content")
        }
        _ => of(StatusCode::UNPROCESSABLE_ENTITY, "bad_dataset"),
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::super::ApiError;
    use super::*;

    #[test]
    fn a_full_disk_is_no_fault_of_the_server_on_any_route() {
        let full = |kind: io::ErrorKind| StoreError::Io { path: "/state/x".into(), source: kind.into() };
        for kind in [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded] {
            let errors = [
                ApiError::Store(full(kind)),
                ApiError::Dataset(full(kind).into()),
                ApiError::Model(full(kind).into()),
                ApiError::Secret(full(kind).into()),
            ];
            for error in errors {
                assert_eq!((error.status(), error.code()), (StatusCode::INSUFFICIENT_STORAGE, "disk_full"));
                let body = error.body();
                assert!(body.hint.contains("saggar gc") && !body.error.contains("/state"), "{body:?}");
            }
        }
        let other = ApiError::Store(full(io::ErrorKind::PermissionDenied));
        assert_eq!((other.status(), other.code()), (StatusCode::INTERNAL_SERVER_ERROR, "internal"));
    }
}

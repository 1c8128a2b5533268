//! The store of objects of a server: local files, or a bucket, which is checked before the server uses it.

use saggar_clock::Clock;
use saggar_store::{BlockingObjects, ObjectStorage, StateDir, StoreError};
use tokio::runtime::{Builder, Handle};

use super::unexpected_error;
use crate::exit::{self, CliError};

/// Number of threads that send requests. They wait most of the time.
const REQUEST_THREADS: usize = 2;

/// Opens the state directory, with the bucket at this address, and the store of objects, without sending a request.
///
/// # Errors
/// Fails if the address or an environment variable about it is not valid.
pub(in crate::commands) fn open(address: Option<&str>, home: StateDir) -> Result<(StateDir, ObjectStorage), CliError> {
    let Some(address) = address else {
        let objects = ObjectStorage::local(&home.objects()).map_err(store_error)?;
        return Ok((home, objects));
    };
    let objects = ObjectStorage::open(address).map_err(store_error)?;
    Ok((home.with_bucket(BlockingObjects::new(objects.clone(), requests_runtime()?)), objects))
}

/// Starts the threads that send requests to the bucket for code that blocks, as long as the process runs.
pub(in crate::commands) fn requests_runtime() -> Result<Handle, CliError> {
    let mut runtime = Builder::new_multi_thread();
    let runtime = runtime.worker_threads(REQUEST_THREADS).thread_name("objects").enable_all().build();
    let runtime = runtime.map_err(unexpected_error)?;
    let handle = runtime.handle().clone();
    // Dropping it would wait for requests, also at the end of the process.
    std::mem::forget(runtime);
    Ok(handle)
}

/// Logs data of the state directory that is not used, because the bucket has its place.
pub(super) fn warn_about_unused_data(home: &StateDir) {
    if home.bucket().is_none() {
        return;
    }
    let visible = |entry: &std::fs::DirEntry| !entry.file_name().to_string_lossy().starts_with('.');
    for (directory, remedy) in [
        (home.datasets(), "`saggar data push` stores a dataset in the bucket"),
        (home.jobs(), "start the server without --objects to see the outputs and logs of these jobs"),
    ] {
        let count = std::fs::read_dir(&directory).into_iter().flatten().flatten().filter(visible).count();
        if count > 0 {
            let directory = directory.display();
            tracing::warn!(%directory, count, "what is in this directory is not used, because the server has a bucket; {remedy}");
        }
    }
}

/// Checks that the server can use the store, unless it is local files. Waits at most as long as a request is repeated.
///
/// # Errors
/// Fails if a request fails, or if the store does not decide races.
pub(in crate::commands) async fn check(
    address: Option<&str>,
    objects: &ObjectStorage,
    clock: &dyn Clock,
) -> Result<(), CliError> {
    if address.is_none() {
        return Ok(());
    }
    let store = objects.address();
    tracing::info!(store, "checking the store of objects");
    objects.check_is_complete().await.map_err(store_error)?;
    let probe = objects.probe(|| clock.now_ms()).await.map_err(store_error)?;
    tracing::info!(store, latency_ms = probe.latency.as_millis(), "objects are in the store");
    Ok(())
}

pub(in crate::commands) fn store_error(error: StoreError) -> CliError {
    let (exit, code) = match &error {
        StoreError::BadStoreAddress { .. } => (exit::INVALID, "bad_object_store"),
        StoreError::UnsafeStore { .. } => (exit::CONFLICT, "unsafe_object_store"),
        StoreError::IncompleteMigration { .. } => (exit::CONFLICT, "incomplete_migration"),
        StoreError::Remote { .. } => (exit::UNREACHABLE, "object_store_unreachable"),
        _ => (exit::UNEXPECTED, "unexpected"),
    };
    CliError::new(exit, code, error.to_string())
}

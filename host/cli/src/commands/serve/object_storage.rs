//! The store of objects of a server: local files, or a bucket, which is checked before the server uses it.

use saggar_clock::Clock;
use saggar_store::{ObjectStorage, StateDir, StoreError};

use crate::exit::{self, CliError};

/// Opens the store at this address, or local files, without sending a request.
///
/// # Errors
/// Fails if the address or an environment variable about it is not valid.
pub(super) fn open(address: Option<&str>, home: &StateDir) -> Result<ObjectStorage, CliError> {
    ObjectStorage::open_or_local(address, &home.objects()).map_err(store_error)
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
    let probe = objects.probe(|| clock.now_ms()).await.map_err(store_error)?;
    tracing::info!(store, latency_ms = probe.latency.as_millis(), "objects are in the store");
    Ok(())
}

fn store_error(error: StoreError) -> CliError {
    let (exit, code) = match &error {
        StoreError::BadStoreAddress { .. } => (exit::INVALID, "bad_object_store"),
        StoreError::UnsafeStore { .. } => (exit::CONFLICT, "unsafe_object_store"),
        StoreError::Remote { .. } => (exit::UNREACHABLE, "object_store_unreachable"),
        _ => (exit::UNEXPECTED, "unexpected"),
    };
    CliError::new(exit, code, error.to_string())
}

//! The store of objects of a server: local files, or a bucket, which is checked before the server uses it.

use saggar_clock::Clock;
use saggar_store::{ObjectStorage, StateDir, StoreError};

use crate::args::ServeArgs;
use crate::exit::{self, CliError};

/// Opens the store that the arguments name, without sending a request.
///
/// # Errors
/// Fails if the address or an environment variable about it is not valid.
pub(super) fn open(args: &ServeArgs, home: &StateDir) -> Result<ObjectStorage, CliError> {
    ObjectStorage::open_or_local(args.objects.as_deref(), &home.objects()).map_err(store_error)
}

/// Checks that the server can use the store, unless it is local files. Waits at most as long as a request is repeated.
///
/// # Errors
/// Fails if a request fails, or if the store does not decide races.
pub(super) async fn check(args: &ServeArgs, objects: &ObjectStorage, clock: &dyn Clock) -> Result<(), CliError> {
    if args.objects.is_none() {
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

//! Objects in a bucket with Amazon's S3 interface: Amazon S3, MinIO, Ceph, Cloudflare R2 and others.
//!
//! The address is `s3://BUCKET` or `s3://BUCKET/PREFIX` ([`address`]). Credentials, region and endpoint come from the
//! environment variables of Amazon's own programs ([`settings`]), so that no secret is part of the address.

use std::sync::Arc;

use object_store::ObjectStore;
use object_store::aws::{AmazonS3ConfigKey, S3ConditionalPut};
use object_store::path::Path;
use object_store::prefix::PrefixStore;

use crate::error::StoreError;

mod address;
mod credentials_file;
mod failure;
mod http_client;
mod settings;
mod store_clock;

pub(super) use failure::explain_failure;
use http_client::HyperConnector;
pub use settings::S3Settings;
pub use store_clock::ClockSkew;
use store_clock::StoreClock;

/// A bucket on another machine.
#[derive(Clone, Debug)]
pub(super) struct RemoteStore {
    pub(super) store: Arc<dyn ObjectStore>,
    /// The address, for messages.
    pub(super) address: String,
    /// The address and the endpoint, which differs between stores that have the same address.
    pub(super) identity: String,
    pub(super) clock: Arc<StoreClock>,
}

/// Opens a bucket, without sending a request.
///
/// # Errors
/// Returns `BadStoreAddress`.
pub(super) fn open(settings: S3Settings) -> Result<RemoteStore, StoreError> {
    let address = settings.address.to_string();
    connect(settings).map_err(|reason| StoreError::BadStoreAddress { address, reason })
}

fn connect(settings: S3Settings) -> Result<RemoteStore, String> {
    let clock = Arc::new(StoreClock::default());
    let address = settings.address.to_string();
    let endpoint = settings.builder.get_config_value(&AmazonS3ConfigKey::Endpoint).unwrap_or_default();
    let identity = format!("{address} {}", endpoint.trim_end_matches('/'));
    let connector = HyperConnector::new(settings.authorities.as_deref(), settings.timeouts, Arc::clone(&clock))?;
    let builder = settings
        .builder
        .with_bucket_name(&settings.address.bucket)
        .with_conditional_put(S3ConditionalPut::ETagMatch)
        .with_retry(settings.retry)
        .with_http_connector(connector);
    let store = builder.build().map_err(|error| error.to_string())?;
    if settings.address.prefix.is_empty() {
        return Ok(RemoteStore { store: Arc::new(store), address, identity, clock });
    }
    let store = Arc::new(PrefixStore::new(store, Path::from(settings.address.prefix)));
    Ok(RemoteStore { store, address, identity, clock })
}

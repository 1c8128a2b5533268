//! A version that serves, and the leases by which requests hold on to it.

use std::sync::Arc;

use saggar_store::digest::Digest;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::predictor::Predictor;
use crate::limits::{COMPUTING_MAX, PREDICTIONS_MAX};

/// Where a version stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionState {
    /// It is being brought up.
    Loading,
    /// It serves.
    Ready,
    /// Another one serves; requests that came before finish here.
    Draining,
    /// Its files are there, and nothing else.
    Unloaded,
    /// It could not be brought up, and is not tried again until its files change.
    Failed,
}

impl VersionState {
    /// Every state.
    pub const ALL: [VersionState; 5] = [
        VersionState::Loading,
        VersionState::Ready,
        VersionState::Draining,
        VersionState::Unloaded,
        VersionState::Failed,
    ];

    /// The name users see.
    pub const fn name(self) -> &'static str {
        match self {
            VersionState::Loading => "LOADING",
            VersionState::Ready => "READY",
            VersionState::Draining => "DRAINING",
            VersionState::Unloaded => "UNLOADED",
            VersionState::Failed => "FAILED",
        }
    }
}

/// What a manifest says about where a version comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Digest of the plugin.
    pub plugin: Digest,
    /// Digest of the weights.
    pub weights: Digest,
    /// When it was published.
    pub created_ms: u64,
    /// The job that published it, or empty.
    pub source_job: String,
}

/// A version that serves, or did until a moment ago.
#[derive(Debug)]
pub struct Serving {
    /// The model.
    pub model: String,
    /// The version.
    pub version: u64,
    /// Where it comes from.
    pub origin: Origin,
    /// The device it runs on.
    pub device: String,
    predictor: Box<dyn Predictor>,
    /// One permit for each prediction that is queued or computed.
    places: Arc<Semaphore>,
    /// One permit for each that is computed.
    computing: Arc<Semaphore>,
}

/// The right to use a version until this is dropped. The version is not freed before.
#[derive(Debug)]
pub struct Lease {
    // Dropped first: the permit that comes back last tells the drain that nobody else holds the version.
    serving: Arc<Serving>,
    _place: OwnedSemaphorePermit,
}

impl Serving {
    /// A version that is up.
    pub fn new(model: &str, version: u64, origin: Origin, device: String, predictor: Box<dyn Predictor>) -> Serving {
        Serving {
            model: model.to_owned(),
            version,
            origin,
            device,
            predictor,
            places: Arc::new(Semaphore::new(PREDICTIONS_MAX)),
            computing: Arc::new(Semaphore::new(COMPUTING_MAX)),
        }
    }

    /// The model itself.
    pub fn predictor(&self) -> &dyn Predictor {
        &*self.predictor
    }

    /// A place in the version's queue, if one is free.
    pub fn lease(self: &Arc<Serving>) -> Option<Lease> {
        let place = Arc::clone(&self.places).try_acquire_owned().ok()?;
        Some(Lease { serving: Arc::clone(self), _place: place })
    }

    /// Waits until every lease is back, and lets no new one out.
    pub(super) async fn drained(&self) {
        let all = u32::try_from(PREDICTIONS_MAX).unwrap_or(u32::MAX);
        if let Ok(places) = self.places.acquire_many(all).await {
            places.forget();
        }
    }
}

impl Lease {
    /// The version.
    pub fn serving(&self) -> &Serving {
        &self.serving
    }

    /// Waits for a turn to compute. First come, first served.
    pub async fn turn(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.serving.computing).acquire_owned().await.ok()
    }
}

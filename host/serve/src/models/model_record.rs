//! What is kept of a model between reconciliations, and why it is reconciled.

use std::collections::BTreeMap;
use std::time::Instant;

use super::desired_state::DesiredState;
use super::model_config::ModelConfig;
use super::persisted_state::LoadFailure;
use super::version_scan::VersionFingerprint;

/// The state of a model that is kept between reconciliations.
#[derive(Debug, Default)]
pub(super) struct ModelRecord {
    pub(super) desired: DesiredState,
    pub(super) config: ModelConfig,
    /// The text of the configuration file as last read.
    pub(super) config_text: Option<Vec<u8>>,
    pub(super) desired_read: bool,
    /// Loaded versions, with the fingerprints of their files at load time.
    pub(super) loaded: BTreeMap<u64, VersionFingerprint>,
    /// Refused versions: the fingerprint of their files then, and the reason.
    pub(super) refused: BTreeMap<u64, (VersionFingerprint, String)>,
    /// Versions that an earlier server process could not load and this one has not tried yet.
    pub(super) persisted_failures: BTreeMap<u64, LoadFailure>,
    /// The failures that were last saved.
    pub(super) failures_saved: BTreeMap<u64, LoadFailure>,
    /// Versions that are loaded because requests named them, in loading order.
    pub(super) on_demand: Vec<u64>,
    /// The newest version that was logged as stored and not served.
    pub(super) newest_logged: u64,
    /// Time at which the model was last loaded or requested.
    pub(super) last_woken: Option<Instant>,
}

impl ModelRecord {
    /// Returns every version that could not be loaded.
    pub(super) fn failures(&self) -> BTreeMap<u64, LoadFailure> {
        let failure = |(version, (fingerprint, reason)): (&u64, &(VersionFingerprint, String))| {
            (*version, LoadFailure { fingerprint: *fingerprint, reason: reason.clone() })
        };
        let mut failures = self.persisted_failures.clone();
        failures.extend(self.refused.iter().map(failure));
        failures
    }
}

/// The reason for a reconciliation of a model.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReconcileCause {
    /// `NEWEST`, `PROMOTED` and so on, as in [`VersionSwap::reason`](super::model_state::VersionSwap::reason).
    pub(super) reason: &'static str,
    /// Whether it loads a model that is asleep.
    pub(super) wakes: bool,
    pub(super) began: Instant,
}

impl ReconcileCause {
    pub(super) fn new(reason: &'static str) -> ReconcileCause {
        ReconcileCause { reason, wakes: true, began: Instant::now() }
    }
}

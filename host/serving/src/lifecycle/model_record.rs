//! What is kept of a model between reconciliations, and why it is reconciled.

use std::collections::BTreeMap;
use std::time::Instant;

use saggar_plugin::FailureReason;
use serde::{Deserialize, Serialize};

use super::version_scan::VersionFingerprint;
use crate::desired_state::DesiredState;
use crate::model_config::ModelConfig;

/// The state of a model that is kept between reconciliations.
#[derive(Debug, Default)]
pub(crate) struct ModelRecord {
    pub(crate) desired: DesiredState,
    pub(crate) config: ModelConfig,
    /// The text of the configuration file as last read.
    pub(crate) config_text: Option<Vec<u8>>,
    pub(crate) desired_read: bool,
    /// Loaded versions, with the fingerprints of their files at load time.
    pub(crate) loaded: BTreeMap<u64, VersionFingerprint>,
    /// Versions that this process could not load.
    pub(crate) refused: BTreeMap<u64, RefusedVersion>,
    /// Versions that an earlier server process could not load and this one has not tried yet.
    pub(crate) persisted_failures: BTreeMap<u64, LoadFailure>,
    /// The failures that were last saved.
    pub(crate) failures_saved: BTreeMap<u64, LoadFailure>,
    /// Versions that are loaded because requests named them, in loading order.
    pub(crate) on_demand: Vec<u64>,
    /// The newest version that was logged as stored and not served.
    pub(crate) newest_logged: u64,
    /// Time at which the model was last loaded or requested.
    pub(crate) last_woken: Option<Instant>,
}

impl ModelRecord {
    /// Records that this process could not load a version: the fingerprint of its files, the reason, and how its plugin
    /// failed. Returns the previous record of the version.
    pub(crate) fn refuse(
        &mut self,
        version: u64,
        fingerprint: VersionFingerprint,
        reason: &str,
        plugin_failure: Option<FailureReason>,
    ) -> Option<RefusedVersion> {
        let failure = LoadFailure { fingerprint, reason: reason.to_owned() };
        self.refused.insert(version, RefusedVersion { failure, plugin_failure })
    }

    /// Returns whether this process could not load the version with these files.
    pub(crate) fn has_refused(&self, version: u64, fingerprint: &VersionFingerprint) -> bool {
        self.refused.get(&version).is_some_and(|refused| refused.failure.fingerprint == *fingerprint)
    }

    /// Returns every version that could not be loaded.
    pub(crate) fn failures(&self) -> BTreeMap<u64, LoadFailure> {
        let mut failures = self.persisted_failures.clone();
        failures.extend(self.refused.iter().map(|(version, refused)| (*version, refused.failure.clone())));
        failures
    }
}

/// A version that this process could not load.
#[derive(Debug)]
pub(crate) struct RefusedVersion {
    pub(crate) failure: LoadFailure,
    /// How its plugin failed, or `None` if something else did.
    pub(crate) plugin_failure: Option<FailureReason>,
}

/// The failure to load a version, by this process or an earlier one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LoadFailure {
    /// The fingerprint of its files at the time.
    pub(crate) fingerprint: VersionFingerprint,
    /// The reason.
    pub(crate) reason: String,
}

/// The reason for a reconciliation of a model.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReconcileCause {
    /// `NEWEST`, `PROMOTED` and so on, as in [`VersionSwap::reason`](crate::model_state::VersionSwap::reason).
    pub(crate) reason: &'static str,
    /// Whether it loads a model that is asleep.
    pub(crate) wakes: bool,
    pub(crate) began: Instant,
}

impl ReconcileCause {
    pub(crate) fn new(reason: &'static str) -> ReconcileCause {
        ReconcileCause { reason, wakes: true, began: Instant::now() }
    }
}

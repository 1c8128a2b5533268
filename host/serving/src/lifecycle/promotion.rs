//! Which versions become the default by themselves, and what a change of the default means for the model's metrics.

use std::collections::BTreeMap;

use super::model_record::ModelRecord;
use super::version_scan::FingerprintedVersion;
use crate::lifecycle::ModelLifecycle;
use crate::model_state::VersionSwap;

impl ModelLifecycle {
    /// Returns whether a version does not meet the condition of the model's configuration to become the default.
    pub(super) fn is_held_back(
        &self,
        version: u64,
        versions: &BTreeMap<u64, FingerprintedVersion>,
        memory: &ModelRecord,
    ) -> bool {
        self.refusal_reason(version, versions, memory).is_some()
    }

    /// Returns why a version does not meet the condition of the model's configuration, or `None` if it does.
    pub(super) fn refusal_reason(
        &self,
        version: u64,
        versions: &BTreeMap<u64, FingerprintedVersion>,
        memory: &ModelRecord,
    ) -> Option<String> {
        let origin = |version: u64| versions.get(&version).and_then(|on_disk| on_disk.origin.as_ref());
        let reference = memory.desired.last_default.and_then(|serving| Some((serving, origin(serving)?)));
        let (gate, candidate) = (memory.config.promote.as_ref()?, origin(version)?);
        gate.refusal((version, candidate), reference)
    }

    /// Logs the training metrics of the new default and of the one that it replaces.
    pub(super) fn log_swap(&self, name: &str, swap: Option<&VersionSwap>) {
        let Some(VersionSwap { from: Some(from), to: Some(to), reason, .. }) = swap else { return };
        let (Some(old), Some(new)) = (self.router.ready_version(name, *from), self.router.ready_version(name, *to))
        else {
            return;
        };
        let (measured, before) = (new.origin.summarize_metrics(), old.origin.summarize_metrics());
        if new.origin.is_less_accurate_than(&old.origin) {
            tracing::warn!(
                model = name,
                version = to,
                measured,
                replaced = from,
                before,
                reason,
                "the new default version is less accurate than the one that it replaces; `saggar models rollback` goes back"
            );
        } else {
            tracing::info!(
                model = name,
                version = to,
                measured,
                replaced = from,
                before,
                reason,
                "new default version"
            );
        }
    }
}

//! On-demand versions: loaded by the first request that names them, and unloaded when they are idle, when a model has
//! too many of them, or when memory is short.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use saggar_plugin::FailureReason;

use super::model_record::{ModelRecord, ReconcileCause};
use crate::lifecycle::ModelLifecycle;
use crate::limits::{ON_DEMAND_IDLE_MAX, ON_DEMAND_VERSIONS_MAX};
use crate::model_state::{ModelStatus, Residency};
use crate::router::WakeRequest;

impl ModelLifecycle {
    /// Loads the model or version that a request waits for, unless it was loaded for another request already.
    pub(crate) async fn handle_wake_request(self: Arc<ModelLifecycle>, wake: WakeRequest) {
        let name = &wake.model;
        let entry = self.model_record(name);
        let mut memory = entry.lock().await;
        let rest = self.router.status(name).map_or(Residency::Unloaded, |status| status.residency);
        let missing = wake.version.filter(|version| self.router.ready_version(name, *version).is_none());
        match (rest, missing) {
            (Residency::Unloaded, _) => {}
            (rest, Some(version)) => {
                self.retire_least_recently_used_on_demand(name, &mut memory);
                memory.on_demand.push(version);
                let reason = if rest.wakes_on_request() { "WOKEN" } else { "NEWEST" };
                self.reconcile(name, &mut memory, ReconcileCause::new(reason)).await;
                if self.router.ready_version(name, version).is_none() {
                    memory.on_demand.retain(|it| *it != version);
                    drop(memory);
                    // A version whose files were just removed is then no longer listed.
                    self.rescan().await;
                } else {
                    memory.last_woken = Some(Instant::now());
                }
            }
            (rest, None) if rest.wakes_on_request() => {
                self.reconcile(name, &mut memory, ReconcileCause::new("WOKEN")).await
            }
            (_, None) => {}
        }
    }

    /// Removes the least recently used on-demand version if one more would exceed the limit.
    fn retire_least_recently_used_on_demand(&self, name: &str, memory: &mut ModelRecord) {
        let idle_since = |version: &u64| self.router.ready_version(name, *version).map(|serving| serving.idle_since());
        while memory.on_demand.len() >= ON_DEMAND_VERSIONS_MAX {
            let Some(at) = (0..memory.on_demand.len()).min_by_key(|at| idle_since(&memory.on_demand[*at])) else {
                return;
            };
            // The following reconciliation takes it out of service.
            memory.on_demand.remove(at);
        }
    }

    /// Takes one on-demand version of the model out of service. The one that was loaded last is only taken if `all` is
    /// true. Returns false if no version was taken.
    pub(crate) fn retire_one_on_demand(
        self: &Arc<ModelLifecycle>,
        name: &str,
        memory: &mut ModelRecord,
        all: bool,
    ) -> bool {
        let spared = usize::from(!all);
        if memory.on_demand.len() <= spared {
            return false;
        }
        let version = memory.on_demand.remove(0);
        self.retire_versions(name, memory, &BTreeSet::from([version]));
        true
    }

    /// Takes idle on-demand versions out of service.
    pub(crate) fn retire_idle_on_demand(self: &Arc<ModelLifecycle>, status: &ModelStatus) {
        let entry = self.model_record(&status.name);
        // A model that is being changed is checked at the next poll.
        let Ok(mut memory) = entry.try_lock() else { return };
        let is_idle = |version: &u64| {
            let serving = self.router.ready_version(&status.name, *version);
            serving.is_none_or(|serving| {
                let since = memory.last_woken.map_or(serving.idle_since(), |woken| woken.max(serving.idle_since()));
                !serving.is_busy() && since.elapsed() >= ON_DEMAND_IDLE_MAX
            })
        };
        let idle: BTreeSet<u64> = memory.on_demand.iter().copied().filter(is_idle).collect();
        if !idle.is_empty() {
            memory.on_demand.retain(|version| !idle.contains(version));
            self.retire_versions(&status.name, &mut memory, &idle);
        }
    }

    fn retire_versions(self: &Arc<ModelLifecycle>, name: &str, memory: &mut ModelRecord, versions: &BTreeSet<u64>) {
        memory.loaded.retain(|version, _| !versions.contains(version));
        self.router.update_model(name, |model| model.retire_except(|version| !versions.contains(&version)));
        tracing::info!(model = name, ?versions, "on-demand versions are unloaded");
    }

    /// Refuses the on-demand version that was loaded last, because it does not fit beside the others.
    pub(crate) fn refuse_last_on_demand(self: &Arc<ModelLifecycle>, name: &str, memory: &mut ModelRecord) {
        let Some(version) = memory.on_demand.last().copied() else { return };
        let Some(on_disk) = self.scanned_versions(name).remove(&version) else { return };
        let reason = format!(
            "{}: it does not fit beside the versions that serve; see `saggar serve --model-memory-limit`",
            FailureReason::OutOfMemory
        );
        memory.refuse(version, on_disk.fingerprint, &reason, Some(FailureReason::OutOfMemory));
        self.router.set_load_failed(name, version, reason);
        while self.retire_one_on_demand(name, memory, true) {}
    }
}

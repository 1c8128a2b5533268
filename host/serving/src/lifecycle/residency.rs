//! Residency: which models stay loaded. Idle models are put to sleep, the least recently used model is evicted if
//! memory is short, and a request wakes a sleeping model.

use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

use super::model_record::ModelRecord;
use crate::lifecycle::ModelLifecycle;
use crate::limits::IDLE_MODEL_POLL;
use crate::live_version::LiveVersion;
use crate::model_config::KeepAlive;
use crate::model_state::{Residency, VersionSwap};
use crate::shutdown::wait_for_shutdown;

/// The reasons of `saggar_model_evictions_total`.
pub const EVICTION_REASONS: [&str; 4] = ["lru", "idle", "device", "manual"];

impl ModelLifecycle {
    /// Wakes models that requests wait for and evicts idle ones, until `shutdown` is true.
    pub async fn run_residency_loop(self: Arc<ModelLifecycle>, mut shutdown: watch::Receiver<bool>) {
        let Some(mut wakes) = self.router.take_wake_receiver() else { return };
        let mut idle = interval(IDLE_MODEL_POLL);
        idle.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                wake = wakes.recv() => match wake {
                    Some(wake) => drop(tokio::spawn(Arc::clone(&self).handle_wake_request(wake))),
                    None => return,
                },
                _ = idle.tick() => {
                    self.evict_idle_models();
                    // Models grow by programs for further batch sizes that are built after loading.
                    while self.device_bytes_held() > self.bytes_max && self.evict_least_recently_used("") {}
                }
                () = wait_for_shutdown(&mut shutdown) => return,
            }
        }
    }

    /// Puts models to sleep whose keep-alive time has passed.
    fn evict_idle_models(self: &Arc<ModelLifecycle>) {
        for status in self.router.list() {
            self.retire_idle_on_demand(&status);
            let KeepAlive::For(keep) = status.keep_alive() else { continue };
            let up: Vec<&Arc<LiveVersion>> = status.versions.iter().filter_map(|it| it.serving.as_ref()).collect();
            if up.is_empty() || up.iter().any(|serving| serving.is_busy()) {
                continue;
            }
            let entry = self.model_record(&status.name);
            // A model that is being changed is not idle.
            let Ok(mut memory) = entry.try_lock() else { continue };
            let idle_since = up.iter().map(|serving| serving.idle_since()).max().max(memory.last_woken);
            if idle_since.is_some_and(|since| since.elapsed() >= keep) {
                self.take_out_of_service(&status.name, &mut memory, Residency::Asleep("IDLE"), "IDLE");
            }
        }
    }

    /// Takes a model's versions out of service. Their memory is freed when their last requests are done.
    pub(crate) fn take_out_of_service(
        self: &Arc<ModelLifecycle>,
        name: &str,
        memory: &mut ModelRecord,
        rest: Residency,
        reason: &'static str,
    ) {
        memory.loaded.clear();
        memory.on_demand.clear();
        let at_ms = self.clock.now_ms();
        let was_up = self.router.update_model(name, |model| {
            let (from, was_up) = (model.default, !model.ready.is_empty());
            model.residency = rest;
            model.retire_except(|_| false);
            if was_up {
                model.last_swap = Some(VersionSwap { at_ms, from, to: None, kind: "unload", reason, seconds: 0.0 });
            }
            was_up
        });
        if was_up {
            let label = match reason {
                "IDLE" => "idle",
                "MEMORY" => "lru",
                "DEVICE" => "device",
                _ => "manual",
            };
            debug_assert!(EVICTION_REASONS.contains(&label), "{label}");
            self.metrics.families.model_evictions.with_label_values(&[label]).inc();
            tracing::info!(model = name, reason, "model taken out of service");
        }
    }

    /// Retires on-demand versions of this model, then puts other models to sleep, until the loaded versions fit the
    /// memory limit. If that is not enough, refuses the version that was loaded for a request.
    pub(crate) fn free_device_memory(self: &Arc<ModelLifecycle>, name: &str, memory: &mut ModelRecord) {
        let is_full = || self.device_bytes_held() > self.bytes_max;
        while is_full() && (self.retire_one_on_demand(name, memory, false) || self.evict_least_recently_used(name)) {}
        if is_full() {
            self.refuse_last_on_demand(name, memory);
        }
    }

    /// Returns the device bytes that all versions hold.
    fn device_bytes_held(&self) -> u64 {
        self.router.ready_versions().iter().map(|serving| serving.predictor().device_bytes()).sum()
    }

    /// Retires an on-demand version of this model, or puts the least recently used other model to sleep, and waits
    /// until its memory is free. Returns false if there is nothing to evict.
    pub(crate) async fn evict_one(self: &Arc<ModelLifecycle>, name: &str, memory: &mut ModelRecord) -> bool {
        if !self.retire_one_on_demand(name, memory, false) && !self.evict_least_recently_used(name) {
            return false;
        }
        self.router.wait_until_drained().await;
        true
    }

    /// Puts the least recently used model to sleep, except `name`. An empty name excludes no model.
    fn evict_least_recently_used(self: &Arc<ModelLifecycle>, name: &str) -> bool {
        let mut candidates = Vec::new();
        for status in self.router.list() {
            let up: Vec<&Arc<LiveVersion>> = status.versions.iter().filter_map(|it| it.serving.as_ref()).collect();
            let pinned = status.config.pin || status.name == name || status.config.ensemble.is_some();
            if up.is_empty() || pinned || up.iter().any(|serving| serving.is_busy()) {
                continue;
            }
            candidates.push((up.iter().map(|serving| serving.idle_since()).max(), status.name));
        }
        candidates.sort();
        for (_, name) in candidates {
            let entry = self.model_record(&name);
            let Ok(mut memory) = entry.try_lock() else { continue };
            self.take_out_of_service(&name, &mut memory, Residency::Asleep("MEMORY"), "MEMORY");
            return true;
        }
        false
    }
}

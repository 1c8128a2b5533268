//! Which models stay loaded: those that nobody asks for sleep after a while, the one that was not asked for longest makes
//! room where memory is short, and a request wakes what sleeps.

use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

use super::lifecycle::{Lifecycle, Memory};
use super::settings::KeepAlive;
use super::state::{Rest, Swap};
use super::version::Serving;
use crate::connection::told;
use crate::limits::IDLE_LOOK;

/// Reasons of `saggar_model_evictions_total`.
pub(crate) const EVICTION_REASONS: [&str; 4] = ["lru", "idle", "device", "manual"];

impl Lifecycle {
    /// Wakes models that requests wait for and puts idle ones to sleep, until `shutdown` is true.
    pub async fn keep_house(self: Arc<Lifecycle>, mut shutdown: watch::Receiver<bool>) {
        let Some(mut wakes) = self.router.wakes() else { return };
        let mut idle = interval(IDLE_LOOK);
        idle.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                wake = wakes.recv() => match wake {
                    Some(wake) => drop(tokio::spawn(Arc::clone(&self).wake(wake))),
                    None => return,
                },
                _ = idle.tick() => {
                    self.put_idle_to_sleep();
                    // Models grow by batch sizes that are built after they came up.
                    while self.bytes_held() > self.bytes_max && self.evict("") {}
                }
                () = told(&mut shutdown) => return,
            }
        }
    }

    /// Has models sleep that nobody has asked for as long as they are to be kept.
    fn put_idle_to_sleep(self: &Arc<Lifecycle>) {
        for status in self.router.list() {
            self.drop_idle_on_demand(&status);
            let KeepAlive::For(keep) = status.keep_alive() else { continue };
            let up: Vec<&Arc<Serving>> = status.versions.iter().filter_map(|it| it.serving.as_ref()).collect();
            if up.is_empty() || up.iter().any(|serving| serving.is_busy()) {
                continue;
            }
            let entry = self.entry(&status.name);
            // One that is being changed is not idle.
            let Ok(mut memory) = entry.try_lock() else { continue };
            let idle_since = up.iter().map(|serving| serving.idle_since()).max().max(memory.woken);
            if idle_since.is_some_and(|since| since.elapsed() >= keep) {
                self.put_down(&status.name, &mut memory, Rest::Asleep("IDLE"), "IDLE");
            }
        }
    }

    /// Takes a model's versions out of service. What they hold is freed when their last requests are done.
    pub(super) fn put_down(self: &Arc<Lifecycle>, name: &str, memory: &mut Memory, rest: Rest, reason: &'static str) {
        memory.up.clear();
        memory.on_demand.clear();
        let at_ms = self.clock.now_ms();
        let was_up = self.router.change(name, |model| {
            let (from, was_up) = (model.default, !model.ready.is_empty());
            model.rest = rest;
            model.retire(|_| false);
            if was_up {
                model.last_swap = Some(Swap { at_ms, from, to: None, kind: "unload", reason, seconds: 0.0 });
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
            tracing::info!(model = name, reason, "model put down");
        }
    }

    /// Puts down versions of this model that only requests brought up, and then has other models sleep, until what is up
    /// fits the memory that there is for them. A version that was brought up for a request gives way where that is not
    /// enough.
    pub(super) fn make_room(self: &Arc<Lifecycle>, name: &str, memory: &mut Memory) {
        let is_full = || self.bytes_held() > self.bytes_max;
        while is_full() && (self.give_up_on_demand(name, memory, false) || self.evict(name)) {}
        if is_full() {
            self.refuse_on_demand(name, memory);
        }
    }

    /// Device bytes that all versions hold.
    fn bytes_held(&self) -> u64 {
        self.router.all_ready().iter().map(|serving| serving.predictor().bytes()).sum()
    }

    /// Puts down a version of this model that only requests brought up, or has the model sleep that was not asked for
    /// longest, and waits until its memory is free.
    pub(super) async fn evict_one(self: &Arc<Lifecycle>, name: &str, memory: &mut Memory) -> bool {
        if !self.give_up_on_demand(name, memory, false) && !self.evict(name) {
            return false;
        }
        self.router.settled().await;
        true
    }

    /// Has the model sleep that was not asked for longest, but not the one of this name; an empty name is no model's.
    fn evict(self: &Arc<Lifecycle>, name: &str) -> bool {
        let mut candidates = Vec::new();
        for status in self.router.list() {
            let up: Vec<&Arc<Serving>> = status.versions.iter().filter_map(|it| it.serving.as_ref()).collect();
            let pinned = status.settings.pin || status.name == name || status.settings.ensemble.is_some();
            if up.is_empty() || pinned || up.iter().any(|serving| serving.is_busy()) {
                continue;
            }
            candidates.push((up.iter().map(|serving| serving.idle_since()).max(), status.name));
        }
        candidates.sort();
        for (_, name) in candidates {
            let entry = self.entry(&name);
            let Ok(mut memory) = entry.try_lock() else { continue };
            self.put_down(&name, &mut memory, Rest::Asleep("MEMORY"), "MEMORY");
            return true;
        }
        false
    }
}

//! Any rank but the first: the job as its plugin sees it, answered as rank 0 answers it. What it reports, saves or
//! publishes goes nowhere.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use saggar_plugin::{Beginning, JobContext, LogLevel, Mean, OpenedModel, PluginError, Shards};
use saggar_store::digest::Hasher;
use saggar_store::{Checkpoint, SavedVariable, digest_of_variables};
use serde::de::DeserializeOwned;

use super::link::{Broken, Kind, Link};
use super::{RANKS_DIFFER, differ, lost, saved};
use crate::protocol::{EXIT_FAILED, EXIT_TRY_AGAIN, Event, Start};
use crate::worker::context::Context;

/// The job of several ranks, as one of them sees it.
pub(crate) struct Follower {
    job: Context,
    link: Arc<Link>,
    shards: Shards,
    turn: AtomicU64,
}

impl Follower {
    pub(crate) fn new(job: Context, start: &Start, link: Arc<Link>) -> Follower {
        let shards = Shards::of_rank(super::shards(start), start.rank, start.spec.replicas);
        Follower { job, link, shards, turn: AtomicU64::new(1) }
    }

    fn turn(&self) -> u64 {
        self.turn.fetch_add(1, Ordering::Relaxed)
    }

    fn hear(&self, turn: u64, kind: Kind) -> Result<Vec<u8>, PluginError> {
        self.link.receive(turn, kind).map_err(|broken| match broken {
            Broken::Gone(error) => lost(format!("the first worker process is gone: {error}")),
            Broken::Event(event) => differ(format!("the first worker process sent {event:?}")),
            Broken::Other(found) => differ(found),
        })
    }

    /// Whether rank 0 says so. Where it says nothing, there is nothing to go on with.
    fn told(&self, kind: Kind) -> bool {
        match self.hear(self.turn(), kind) {
            Ok(said) => said == [1],
            Err(error) if error.reason() == RANKS_DIFFER => {
                let _ = self.link.event(&Event::Failed { reason: RANKS_DIFFER.to_owned(), message: error.to_string() });
                std::process::exit(EXIT_FAILED)
            }
            Err(_) => std::process::exit(EXIT_TRY_AGAIN),
        }
    }

    /// What rank 0 was answered.
    fn answer<T: DeserializeOwned>(&self, kind: Kind) -> Result<T, PluginError> {
        let said = self.hear(self.turn(), kind)?;
        let said: Result<T, String> = serde_json::from_slice(&said).map_err(|error| differ(error.to_string()))?;
        said.map_err(PluginError::job)
    }

    fn send(&self, turn: u64, kind: Kind, payload: &[u8]) -> Result<(), PluginError> {
        let sent = self.link.send(turn, kind, &[payload]);
        sent.map_err(|error| lost(format!("the first worker process is gone: {error}")))
    }
}

impl JobContext for Follower {
    fn parameters(&self) -> String {
        self.job.parameters()
    }

    fn seed(&self) -> u64 {
        self.job.seed()
    }

    fn attempt(&self) -> u32 {
        self.job.attempt()
    }

    fn shards(&self) -> Shards {
        self.shards.clone()
    }

    fn leaves_out(&self) -> bool {
        self.job.leaves_out()
    }

    fn is_mixed(&self) -> bool {
        self.job.is_mixed()
    }

    fn all_reduce(&mut self, own: Vec<Vec<u8>>, mean: Mean) -> Result<Vec<u8>, PluginError> {
        let turn = self.turn();
        own.iter().try_for_each(|part| self.send(turn, Kind::Part, part))?;
        let means = self.hear(turn, Kind::Mean)?;
        if means.len() == mean.bytes() { Ok(means) } else { Err(differ("the first has other gradients".to_owned())) }
    }

    fn log(&mut self, _: LogLevel, _: &str) {}

    fn metric(&mut self, _: u64, _: &str, _: f64) {}

    fn progress(&mut self, _: u64, _: u64) {}

    fn drawn(&mut self, _: u64, _: Duration) {}

    fn secret(&self, name: &str) -> Result<String, PluginError> {
        self.job.secret(name)
    }

    fn restore(&mut self) -> Result<Beginning, PluginError> {
        let message = self.hear(self.turn(), Kind::Restored)?;
        if message.is_empty() {
            return Ok(Beginning::Nothing);
        }
        let (with, state, variables) = saved::read(message).ok_or_else(|| differ("no checkpoint came".to_owned()))?;
        let Some((step, positions, plugin_digest, device, build)) = with else {
            return Ok(Beginning::Weights(variables));
        };
        // Series are rank 0's to know, and processes in step take the compiler's ways.
        let (metrics, ways) = (BTreeMap::new(), BTreeMap::new());
        Ok(Beginning::Checkpoint(Checkpoint {
            step,
            metrics,
            variables,
            positions,
            state,
            plugin_digest,
            device,
            build,
            ways,
        }))
    }

    fn checkpoint_due(&mut self, _: u64) -> bool {
        self.told(Kind::Due)
    }

    fn save(&mut self, checkpoint: Checkpoint) -> Result<(), PluginError> {
        self.send(self.turn(), Kind::Digest, &digest(&checkpoint))
    }

    fn stop_requested(&self) -> bool {
        self.told(Kind::Stop)
    }

    fn phase(&mut self, _: &str) {}

    fn publish(&mut self, _: &str, _: Vec<SavedVariable>, _: &str) -> Result<u64, PluginError> {
        self.answer(Kind::Published)
    }

    fn open_model(&mut self, _: &str, _: Option<u64>) -> Result<OpenedModel, PluginError> {
        let message = self.hear(self.turn(), Kind::Opened)?;
        let (opened, _, variables) = saved::read(message).ok_or_else(|| differ("no model came".to_owned()))?;
        let opened: Result<(u64, String), String> = opened;
        let (version, config) = opened.map_err(PluginError::job)?;
        Ok(OpenedModel { version, variables, config })
    }

    fn write_output(&mut self, _: &str, _: &[u8]) -> Result<(), PluginError> {
        self.answer(Kind::Written)
    }
}

/// Digest of what a training goes on from: the same in every rank.
pub(super) fn digest(checkpoint: &Checkpoint) -> Vec<u8> {
    let mut hasher = Hasher::new();
    hasher.update_u64(checkpoint.step);
    hasher.update_field(digest_of_variables(&checkpoint.variables).hex().as_bytes());
    hasher.update_field(&serde_json::to_vec(&checkpoint.positions).expect("positions are plain data"));
    hasher.update_field(&checkpoint.state);
    hasher.finish().hex().into_bytes()
}

//! Any rank except rank 0: a job context that answers as rank 0 does. Its reports, checkpoints and publications are
//! discarded.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use saggar_plugin::{
    BatchShards, FailureReason, InitialState, JobContext, LogLevel, OpenedModel, PluginError, ShardMean,
};
use saggar_store::digest::Sha256Hasher;
use saggar_store::{Checkpoint, ImageInputs, LoggedItem, LoggedKey, SavedVariable, digest_of_variables};
use serde::de::DeserializeOwned;

use super::rank_link::{RankLink, RankLinkError, RankMessageKind};
use super::{ranks_differ_error, state_transfer};
use crate::protocol::{AttemptConfig, EXIT_FAILED, EXIT_TRY_AGAIN, WorkerEvent};
use crate::worker::job_context::WorkerJobContext;
use crate::worker::lost_worker::worker_lost_error;

/// The job context of a rank other than 0.
pub(crate) struct FollowerContext {
    job: WorkerJobContext,
    link: Arc<RankLink>,
    shards: BatchShards,
    turn: AtomicU64,
}

impl FollowerContext {
    pub(crate) fn new(job: WorkerJobContext, start: &AttemptConfig, link: Arc<RankLink>) -> FollowerContext {
        let shards = BatchShards::for_rank(start.shard_count(), start.rank, start.spec.replicas);
        FollowerContext { job, link, shards, turn: AtomicU64::new(1) }
    }

    fn next_turn(&self) -> u64 {
        self.turn.fetch_add(1, Ordering::Relaxed)
    }

    fn receive_payload(&self, turn: u64, kind: RankMessageKind) -> Result<Vec<u8>, PluginError> {
        self.link.receive(turn, kind).map_err(|broken| match broken {
            RankLinkError::Gone(error) => worker_lost_error(format!("the first worker process is gone: {error}")),
            RankLinkError::Event(event) => ranks_differ_error(format!("the first worker process sent {event:?}")),
            RankLinkError::UnexpectedMessage(found) => ranks_differ_error(found),
        })
    }

    /// Receives a flag from rank 0. Exits the process if rank 0 is gone or out of step.
    fn receive_flag(&self, kind: RankMessageKind) -> bool {
        match self.receive_payload(self.next_turn(), kind) {
            Ok(said) => said == [1],
            Err(error) if error.reason() == FailureReason::RanksDiffer => {
                let _ = self.link.forward_event(&WorkerEvent::Failed {
                    reason: FailureReason::RanksDiffer.as_str().to_owned(),
                    message: error.to_string(),
                });
                std::process::exit(EXIT_FAILED)
            }
            Err(_) => std::process::exit(EXIT_TRY_AGAIN),
        }
    }

    /// Receives the result that rank 0 got.
    fn receive_result<T: DeserializeOwned>(&self, kind: RankMessageKind) -> Result<T, PluginError> {
        let said = self.receive_payload(self.next_turn(), kind)?;
        let said: Result<T, String> =
            serde_json::from_slice(&said).map_err(|error| ranks_differ_error(error.to_string()))?;
        said.map_err(PluginError::job)
    }

    fn send_payload(&self, turn: u64, kind: RankMessageKind, payload: &[u8]) -> Result<(), PluginError> {
        let sent = self.link.send(turn, kind, &[payload]);
        sent.map_err(|error| worker_lost_error(format!("the first worker process is gone: {error}")))
    }
}

impl JobContext for FollowerContext {
    fn parameters(&self) -> String {
        self.job.parameters()
    }

    fn seed(&self) -> u64 {
        self.job.seed()
    }

    fn attempt(&self) -> u32 {
        self.job.attempt()
    }

    fn shards(&self) -> BatchShards {
        self.shards.clone()
    }

    fn skips_nonfinite(&self) -> bool {
        self.job.skips_nonfinite()
    }

    fn is_mixed_precision(&self) -> bool {
        self.job.is_mixed_precision()
    }

    fn all_reduce(&mut self, own: Vec<Vec<u8>>, mean: ShardMean) -> Result<Vec<u8>, PluginError> {
        let turn = self.next_turn();
        own.iter().try_for_each(|part| self.send_payload(turn, RankMessageKind::Part, part))?;
        let means = self.receive_payload(turn, RankMessageKind::Mean)?;
        if means.len() == mean.mean_bytes() {
            Ok(means)
        } else {
            Err(ranks_differ_error("the first has gradients of other shapes".to_owned()))
        }
    }

    fn log(&mut self, _: LogLevel, _: &str) {}

    fn metric(&mut self, _: u64, _: &str, _: f64) {}

    fn log_item(&mut self, _: LoggedKey, _: LoggedItem) {}

    fn progress(&mut self, _: u64, _: u64) {}

    fn items_drawn(&mut self, _: u64, _: Duration) {}

    fn secret(&self, name: &str) -> Result<String, PluginError> {
        self.job.secret(name)
    }

    fn initial_state(&mut self) -> Result<InitialState, PluginError> {
        let message = self.receive_payload(self.next_turn(), RankMessageKind::Restored)?;
        if message.is_empty() {
            return Ok(InitialState::Nothing);
        }
        let (with, state, variables) =
            state_transfer::decode_state(message).ok_or_else(|| ranks_differ_error("no checkpoint came".to_owned()))?;
        let Some((step, positions, plugin_digest, device, build)) = with else {
            return Ok(InitialState::Weights(variables));
        };
        // Only rank 0 keeps series, and synchronized processes use the compiler's default tuning.
        let (metrics, ways) = (BTreeMap::new(), BTreeMap::new());
        Ok(InitialState::Checkpoint(Checkpoint {
            step,
            metrics,
            variables,
            positions,
            state,
            plugin_digest,
            device,
            build,
            kernel_tuning: ways,
        }))
    }

    fn checkpoint_due(&mut self, _: u64) -> bool {
        self.receive_flag(RankMessageKind::Due)
    }

    fn save(&mut self, checkpoint: Checkpoint) -> Result<(), PluginError> {
        self.send_payload(self.next_turn(), RankMessageKind::Digest, &state_digest(&checkpoint))
    }

    fn stop_requested(&self, _: u64) -> bool {
        self.receive_flag(RankMessageKind::Stop)
    }

    fn phase(&mut self, _: &str) {}

    fn publish(&mut self, _: &str, _: Vec<SavedVariable>, _: &str, _: &ImageInputs) -> Result<u64, PluginError> {
        self.receive_result(RankMessageKind::Published)
    }

    fn open_model(&mut self, _: &str, _: Option<u64>) -> Result<OpenedModel, PluginError> {
        let message = self.receive_payload(self.next_turn(), RankMessageKind::Opened)?;
        let (opened, _, variables) =
            state_transfer::decode_state(message).ok_or_else(|| ranks_differ_error("no model came".to_owned()))?;
        let opened: Result<(u64, String), String> = opened;
        let (version, config) = opened.map_err(PluginError::job)?;
        Ok(OpenedModel { version, variables, config })
    }

    fn write_output(&mut self, _: &str, _: &[u8]) -> Result<(), PluginError> {
        self.receive_result(RankMessageKind::Written)
    }
}

/// Returns the digest of the state that a training continues from, which must be the same in every rank.
pub(super) fn state_digest(checkpoint: &Checkpoint) -> Vec<u8> {
    let mut hasher = Sha256Hasher::new();
    hasher.update_u64(checkpoint.step);
    hasher.update_field(digest_of_variables(&checkpoint.variables).hex().as_bytes());
    hasher.update_field(&serde_json::to_vec(&checkpoint.positions).expect("positions are plain data"));
    hasher.update_field(&checkpoint.state);
    hasher.finish().hex().into_bytes()
}

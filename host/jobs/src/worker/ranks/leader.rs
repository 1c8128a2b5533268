//! Rank 0: a job context that sends its answers to the other ranks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use saggar_plugin::{BatchShards, InitialState, JobContext, LogLevel, OpenedModel, PluginError, ShardMean};
use saggar_store::{Checkpoint, ImageInputs, LoggedItem, LoggedKey, SavedVariable};

use super::rank_link::RankMessageKind;
use super::{RankGroup, ranks_differ_error, state_transfer};
use crate::limits::ALL_REDUCE_TIMES_BUFFERED;
use crate::protocol::WorkerEvent;
use crate::worker::channel::EventChannel;
use crate::worker::job_context::WorkerJobContext;

/// The job context of rank 0 in a job of several ranks.
pub(crate) struct LeaderContext {
    job: WorkerJobContext,
    group: Arc<RankGroup>,
    channel: EventChannel,
    shards: BatchShards,
    turn: AtomicU64,
    /// The error of a broadcast in a function that could not return it.
    broadcast_error: Mutex<Option<PluginError>>,
    /// Seconds of all-reduce operations that are not reported yet.
    all_reduce_seconds: Vec<f64>,
}

impl LeaderContext {
    /// Returns the context; `shards` is the number of shards of each batch.
    pub(crate) fn new(
        job: WorkerJobContext,
        group: Arc<RankGroup>,
        channel: EventChannel,
        shards: u32,
    ) -> LeaderContext {
        let shards = BatchShards::for_rank(shards, 0, group.peers.len() as u32 + 1);
        let (turn, broken) = (AtomicU64::new(1), Mutex::default());
        LeaderContext { job, group, channel, shards, turn, broadcast_error: broken, all_reduce_seconds: Vec::new() }
    }

    fn next_turn(&self) -> u64 {
        self.turn.fetch_add(1, Ordering::Relaxed)
    }

    /// Sends a flag to all ranks. On failure, the next function that can return an error returns it.
    fn broadcast_flag(&self, kind: RankMessageKind, payload: &[u8]) {
        if let Err(error) = self.group.broadcast(self.next_turn(), kind, &[payload]) {
            self.broadcast_error.lock().get_or_insert(error);
        }
    }

    fn check_broadcasts(&self) -> Result<(), PluginError> {
        self.broadcast_error.lock().clone().map_or(Ok(()), Err)
    }

    /// Sends a result to all ranks, and returns it.
    fn broadcast_result<T>(
        &mut self,
        kind: RankMessageKind,
        done: Result<T, PluginError>,
        encode: impl FnOnce(Result<&T, &str>) -> Vec<u8>,
    ) -> Result<T, PluginError> {
        let refused = done.as_ref().err().map(ToString::to_string);
        let message = encode(done.as_ref().map_err(|_| refused.as_deref().unwrap_or_default()));
        self.check_broadcasts()?;
        self.group.broadcast(self.next_turn(), kind, &[&message])?;
        done
    }

    fn report_all_reduce_times(&mut self) {
        if !self.all_reduce_seconds.is_empty() {
            self.channel.send(&WorkerEvent::AllReduced { seconds: std::mem::take(&mut self.all_reduce_seconds) });
        }
    }
}

impl JobContext for LeaderContext {
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

    fn all_reduce(&mut self, own: Vec<Vec<u8>>, mut mean: ShardMean) -> Result<Vec<u8>, PluginError> {
        self.check_broadcasts()?;
        let began = Instant::now();
        let (turn, bytes) = (self.next_turn(), mean.part_bytes());
        own.iter().for_each(|part| mean.add(part));
        // In rank order, so in shard order.
        for peer in &self.group.peers {
            for _ in self.shards.own.clone() {
                let part = self.group.receive_from(peer, turn, RankMessageKind::Part)?;
                if part.len() != bytes {
                    return Err(ranks_differ_error(format!(
                        "worker process {} has other gradients than the first",
                        peer.rank
                    )));
                }
                mean.add(&part);
            }
        }
        let means = mean.finish();
        self.group.broadcast(turn, RankMessageKind::Mean, &[&means])?;
        let time = began.elapsed();
        self.job.usage_counters().add_all_reduce(time);
        self.all_reduce_seconds.push(time.as_secs_f64());
        if self.all_reduce_seconds.len() >= ALL_REDUCE_TIMES_BUFFERED {
            self.report_all_reduce_times();
        }
        Ok(means)
    }

    fn log(&mut self, level: LogLevel, line: &str) {
        self.job.log(level, line);
    }

    fn metric(&mut self, step: u64, name: &str, value: f64) {
        self.job.metric(step, name, value);
    }

    fn log_item(&mut self, key: LoggedKey, item: LoggedItem) {
        self.job.log_item(key, item);
    }

    fn progress(&mut self, step: u64, of: u64) {
        self.job.progress(step, of);
    }

    fn items_drawn(&mut self, items: u64, time: Duration) {
        self.job.items_drawn(items, time);
    }

    fn secret(&self, name: &str) -> Result<String, PluginError> {
        self.job.secret(name)
    }

    fn initial_state(&mut self) -> Result<InitialState, PluginError> {
        let beginning = self.job.initial_state()?;
        let message = match &beginning {
            InitialState::Nothing => Vec::new(),
            InitialState::Checkpoint(checkpoint) => {
                let Checkpoint { step, positions, plugin_digest, device, build, .. } = checkpoint;
                let with = Some((step, positions, plugin_digest, device, build));
                state_transfer::encode_state(with, &checkpoint.state, &checkpoint.variables)
            }
            InitialState::Weights(weights) => state_transfer::encode_state(None::<()>, &[], weights),
        };
        self.group.broadcast(self.next_turn(), RankMessageKind::Restored, &[&message])?;
        Ok(beginning)
    }

    fn checkpoint_due(&mut self, step: u64) -> bool {
        let due = self.job.checkpoint_due(step);
        self.broadcast_flag(RankMessageKind::Due, &[u8::from(due)]);
        due
    }

    fn save(&mut self, checkpoint: Checkpoint) -> Result<(), PluginError> {
        self.check_broadcasts()?;
        self.report_all_reduce_times();
        let (turn, digest) = (self.next_turn(), super::follower::state_digest(&checkpoint));
        for peer in &self.group.peers {
            if self.group.receive_from(peer, turn, RankMessageKind::Digest)? != digest {
                let (rank, step) = (peer.rank, checkpoint.step);
                return Err(ranks_differ_error(format!(
                    "worker process {rank} has another state than the first at step {step}"
                )));
            }
        }
        self.job.save(checkpoint)
    }

    fn stop_requested(&self, step: u64) -> bool {
        let stop = self.job.stop_requested(step);
        self.broadcast_flag(RankMessageKind::Stop, &[u8::from(stop)]);
        stop
    }

    fn phase(&mut self, name: &str) {
        self.job.phase(name);
    }

    fn publish(
        &mut self,
        model: &str,
        variables: Vec<SavedVariable>,
        config: &str,
        inputs: &ImageInputs,
    ) -> Result<u64, PluginError> {
        let published = self.job.publish(model, variables, config, inputs);
        self.broadcast_result(RankMessageKind::Published, published, |done| {
            serde_json::to_vec(&done).expect("a number or a text")
        })
    }

    fn open_model(&mut self, model: &str, version: Option<u64>) -> Result<OpenedModel, PluginError> {
        let opened = self.job.open_model(model, version);
        self.broadcast_result(RankMessageKind::Opened, opened, |done| match done {
            Ok(opened) => {
                state_transfer::encode_state(Ok::<_, &str>((opened.version, &opened.config)), &[], &opened.variables)
            }
            Err(refused) => state_transfer::encode_state(Err::<(u64, &str), _>(refused), &[], &[]),
        })
    }

    fn write_output(&mut self, path: &str, data: &[u8]) -> Result<(), PluginError> {
        let written = self.job.write_output(path, data);
        self.broadcast_result(RankMessageKind::Written, written, |done| {
            serde_json::to_vec(&done).expect("nothing or a text")
        })
    }
}

impl Drop for LeaderContext {
    fn drop(&mut self) {
        self.report_all_reduce_times();
    }
}

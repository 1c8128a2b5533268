//! Rank 0: the job as its plugin sees it, with what it answers told to the other ranks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use saggar_plugin::{Beginning, JobContext, LogLevel, Mean, OpenedModel, PluginError, Shards};
use saggar_store::{Checkpoint, SavedVariable};

use super::link::Kind;
use super::{Group, differ, saved};
use crate::limits::ALL_REDUCES_KEPT;
use crate::protocol::Event;
use crate::worker::channel::Channel;
use crate::worker::context::Context;

/// The job of several ranks.
pub(crate) struct Leader {
    job: Context,
    group: Arc<Group>,
    channel: Channel,
    shards: Shards,
    turn: AtomicU64,
    /// What went wrong where nothing could be answered.
    broken: Mutex<Option<PluginError>>,
    /// Seconds of sums that are not reported yet.
    seconds: Vec<f64>,
}

impl Leader {
    /// `shards` are those of all batches.
    pub(crate) fn new(job: Context, group: Arc<Group>, channel: Channel, shards: u32) -> Leader {
        let shards = Shards::of_rank(shards, 0, group.peers.len() as u32 + 1);
        let (turn, broken) = (AtomicU64::new(1), Mutex::default());
        Leader { job, group, channel, shards, turn, broken, seconds: Vec::new() }
    }

    fn turn(&self) -> u64 {
        self.turn.fetch_add(1, Ordering::Relaxed)
    }

    /// Tells all ranks something, where nothing can be answered if it fails: the next turn that can fails then.
    fn tell(&self, kind: Kind, payload: &[u8]) {
        if let Err(error) = self.group.tell(self.turn(), kind, &[payload]) {
            self.broken.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        }
    }

    fn check(&self) -> Result<(), PluginError> {
        self.broken.lock().unwrap_or_else(PoisonError::into_inner).clone().map_or(Ok(()), Err)
    }

    /// Tells all ranks how something went, and answers it.
    fn share<T>(
        &mut self,
        kind: Kind,
        done: Result<T, PluginError>,
        encode: impl FnOnce(Result<&T, &str>) -> Vec<u8>,
    ) -> Result<T, PluginError> {
        let refused = done.as_ref().err().map(ToString::to_string);
        let message = encode(done.as_ref().map_err(|_| refused.as_deref().unwrap_or_default()));
        self.check()?;
        self.group.tell(self.turn(), kind, &[&message])?;
        done
    }

    fn report(&mut self) {
        if !self.seconds.is_empty() {
            self.channel.send(&Event::AllReduced { seconds: std::mem::take(&mut self.seconds) });
        }
    }
}

impl JobContext for Leader {
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

    fn all_reduce(&mut self, own: Vec<Vec<u8>>, mut mean: Mean) -> Result<Vec<u8>, PluginError> {
        self.check()?;
        let began = Instant::now();
        let (turn, bytes) = (self.turn(), mean.part_bytes());
        own.iter().for_each(|part| mean.add(part));
        // In the order of the ranks, so in the order of the shards.
        for peer in &self.group.peers {
            for _ in self.shards.own.clone() {
                let part = self.group.hear(peer, turn, Kind::Part)?;
                if part.len() != bytes {
                    return Err(differ(format!("worker process {} has other gradients than the first", peer.rank)));
                }
                mean.add(&part);
            }
        }
        let means = mean.finish();
        self.group.tell(turn, Kind::Mean, &[&means])?;
        let time = began.elapsed();
        self.job.spending().reduced(time);
        self.seconds.push(time.as_secs_f64());
        if self.seconds.len() >= ALL_REDUCES_KEPT {
            self.report();
        }
        Ok(means)
    }

    fn log(&mut self, level: LogLevel, line: &str) {
        self.job.log(level, line);
    }

    fn metric(&mut self, step: u64, name: &str, value: f64) {
        self.job.metric(step, name, value);
    }

    fn progress(&mut self, step: u64, of: u64) {
        self.job.progress(step, of);
    }

    fn drawn(&mut self, items: u64, time: Duration) {
        self.job.drawn(items, time);
    }

    fn secret(&self, name: &str) -> Result<String, PluginError> {
        self.job.secret(name)
    }

    fn restore(&mut self) -> Result<Beginning, PluginError> {
        let beginning = self.job.restore()?;
        let message = match &beginning {
            Beginning::Nothing => Vec::new(),
            Beginning::Checkpoint(checkpoint) => {
                let Checkpoint { step, positions, plugin_digest, device, build, .. } = checkpoint;
                let with = Some((step, positions, plugin_digest, device, build));
                saved::write(with, &checkpoint.state, &checkpoint.variables)
            }
            Beginning::Weights(weights) => saved::write(None::<()>, &[], weights),
        };
        self.group.tell(self.turn(), Kind::Restored, &[&message])?;
        Ok(beginning)
    }

    fn checkpoint_due(&mut self, step: u64) -> bool {
        let due = self.job.checkpoint_due(step);
        self.tell(Kind::Due, &[u8::from(due)]);
        due
    }

    fn save(&mut self, checkpoint: Checkpoint) -> Result<(), PluginError> {
        self.check()?;
        self.report();
        let (turn, digest) = (self.turn(), super::follower::digest(&checkpoint));
        for peer in &self.group.peers {
            if self.group.hear(peer, turn, Kind::Digest)? != digest {
                let (rank, step) = (peer.rank, checkpoint.step);
                return Err(differ(format!("worker process {rank} has another state than the first at step {step}")));
            }
        }
        self.job.save(checkpoint)
    }

    fn stop_requested(&self) -> bool {
        let stop = self.job.stop_requested();
        self.tell(Kind::Stop, &[u8::from(stop)]);
        stop
    }

    fn phase(&mut self, name: &str) {
        self.job.phase(name);
    }

    fn publish(&mut self, model: &str, variables: Vec<SavedVariable>, config: &str) -> Result<u64, PluginError> {
        let published = self.job.publish(model, variables, config);
        self.share(Kind::Published, published, |done| serde_json::to_vec(&done).expect("a number or a text"))
    }

    fn open_model(&mut self, model: &str, version: Option<u64>) -> Result<OpenedModel, PluginError> {
        let opened = self.job.open_model(model, version);
        self.share(Kind::Opened, opened, |done| match done {
            Ok(opened) => saved::write(Ok::<_, &str>((opened.version, &opened.config)), &[], &opened.variables),
            Err(refused) => saved::write(Err::<(u64, &str), _>(refused), &[], &[]),
        })
    }

    fn write_output(&mut self, path: &str, data: &[u8]) -> Result<(), PluginError> {
        let written = self.job.write_output(path, data);
        self.share(Kind::Written, written, |done| serde_json::to_vec(&done).expect("nothing or a text"))
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        self.report();
    }
}

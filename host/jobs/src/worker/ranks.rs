//! Data-parallel training: an attempt of several worker processes, its ranks, that train one model together.
//!
//! Rank 0 is the worker that the supervisor started, and the only one visible from outside: it reports, saves,
//! publishes and decides. It starts the others as its child processes, also `saggar worker attempt`. They run the same plugin
//! over the same batches, and rank 0 sends them every answer of the job that could differ. So they do the same, except
//! that each computes the gradients of other shards. Before a checkpoint is saved, all ranks must have the same state.
//!
//! A rank's standard input is a pipe that ends with rank 0, and the rank ends with it; its standard output is a socket
//! for messages between the ranks ([`rank_link`]). If one rank is gone, the attempt fails.
//!
//! If the job has several hosts, rank 0 starts only the ranks of this host. It opens a port ([`rank_listener`]) and reports
//! the meeting point to its supervisor, which records it; the other hosts read it and start their ranks, which connect to
//! that port ([`remote_leader`]).

pub(super) mod follower;
pub(super) mod leader;
mod rank_key;
pub(super) mod rank_link;
mod rank_listener;
pub(super) mod remote_leader;
mod state_transfer;
#[cfg(test)]
mod tests;
mod tls_stream;

use std::collections::BTreeMap;
use std::io::Write;
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use saggar_plugin::{FailureReason, PluginError};
use tokio::runtime::Handle;

use super::channel::{EventChannel, WorkerControl};
use super::locations::WorkerLocations;
use super::lost_worker::worker_lost_error;
use crate::credentials::{CREDENTIALS_FILE_VARIABLE, CREDENTIALS_VARIABLE};
use crate::launcher::ATTEMPT_SUBCOMMAND;
use crate::limits::RANK_REFUSALS_LOGGED_MAX;
use crate::protocol::{AttemptConfig, WorkerCommand as Order, WorkerEvent, WorkerUsage};
use crate::rank_network::RankIdentity;
use rank_link::{RankLink, RankLinkError, RankMessageKind};
use rank_listener::{AdmittedRank, RankListener};

/// The other ranks of an attempt. They end with rank 0.
#[derive(Debug)]
pub(super) struct RankGroup {
    peers: Vec<RankPeer>,
    /// The last usage report of each rank.
    usage: Mutex<BTreeMap<u32, WorkerUsage>>,
}

#[derive(Debug)]
struct RankPeer {
    rank: u32,
    link: RankLink,
    place: RankPlace,
}

/// Where a rank runs.
#[derive(Debug)]
enum RankPlace {
    /// A child process of rank 0.
    Child {
        child: Mutex<Child>,
        /// Held open as long as the rank should run.
        _stdin: ChildStdin,
    },
    /// On another host, from which it connected.
    OtherHost(SocketAddr),
}

impl RankGroup {
    /// Starts the other ranks of an attempt, and waits for those of other hosts.
    ///
    /// # Errors
    /// `WORKER_LOST` if the system cannot start a process, or a rank of another host does not connect.
    pub(super) fn start(
        start: &AttemptConfig,
        locations: &WorkerLocations,
        runtime: &Handle,
        channel: &EventChannel,
        control: &WorkerControl,
    ) -> Result<RankGroup, PluginError> {
        let peer = |rank| {
            let peer = RankPeer::start(&AttemptConfig { rank, ..start.clone() }, locations);
            peer.map_err(|error| worker_lost_error(format!("worker process {rank} could not be started: {error}")))
        };
        let on_each_host = start.spec.replicas_on_each_host();
        let mut peers = (1..on_each_host).map(peer).collect::<Result<Vec<_>, _>>()?;
        if start.spec.hosts > 1 {
            let others = admit_other_hosts(start, on_each_host..start.spec.replicas, runtime, channel, control);
            peers.extend(others.map_err(worker_lost_error)?);
        }
        Ok(RankGroup { peers, usage: Mutex::default() })
    }

    /// Returns the usage of the other ranks so far.
    pub(super) fn usage(&self) -> Vec<WorkerUsage> {
        self.usage.lock().values().copied().collect()
    }

    /// Sends one message to every rank.
    fn broadcast(&self, turn: u64, kind: RankMessageKind, payload: &[&[u8]]) -> Result<(), PluginError> {
        self.peers.iter().try_for_each(|peer| {
            peer.link.send(turn, kind, payload).map_err(|error| peer.receive_error(RankLinkError::Gone(error)))
        })
    }

    /// Receives a rank's next message, which must be of this kind. Usage events before it are stored.
    fn receive_from(&self, peer: &RankPeer, turn: u64, kind: RankMessageKind) -> Result<Vec<u8>, PluginError> {
        loop {
            match peer.link.receive(turn, kind) {
                Ok(payload) => return Ok(payload),
                Err(RankLinkError::Event(WorkerEvent::Usage(usage))) => {
                    self.usage.lock().insert(peer.rank, usage);
                }
                Err(broken) => return Err(peer.receive_error(broken)),
            }
        }
    }

    /// Waits until every rank has ended like rank 0. Their work is done, so a failure now is only logged.
    pub(super) fn wait_for_ends(&self) {
        for peer in &self.peers {
            // A rank's last message is its end, so there is always an end to receive.
            if let Err(error) = self.receive_from(peer, u64::MAX, RankMessageKind::End) {
                tracing::warn!(rank = peer.rank, %error, "a worker process did not end as the others did");
            }
        }
    }
}

impl Drop for RankGroup {
    fn drop(&mut self) {
        for peer in &self.peers {
            // A rank of another host ends with its connection.
            if let RankPlace::Child { child, .. } = &peer.place {
                let mut child = child.lock();
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }
}

/// Opens a port, reports the meeting point, and admits the ranks of other hosts, each of which gets its configuration.
fn admit_other_hosts(
    start: &AttemptConfig,
    ranks: Range<u32>,
    runtime: &Handle,
    channel: &EventChannel,
    control: &WorkerControl,
) -> Result<Vec<RankPeer>, String> {
    let network = start.rank_network.unwrap_or_default();
    let listener = RankListener::bind(&network)
        .map_err(|error| format!("rank 0 cannot listen at {} for ranks of other hosts: {error}", network.address))?;
    channel.send(&WorkerEvent::RanksAwaited { point: listener.meeting_point() });
    let AttemptConfig { job, attempt, epoch, .. } = start;
    let identity = RankIdentity { job: job.clone(), attempt: *attempt, epoch: *epoch, rank: 0 };
    let is_over = || control.stop.load(Ordering::Acquire);
    let refused = AtomicUsize::new(0);
    let log = |line: String| channel.send(&WorkerEvent::Log { level: "warn".to_owned(), line });
    let report = |line: String| {
        if refused.fetch_add(1, Ordering::Relaxed) < RANK_REFUSALS_LOGGED_MAX {
            log(line);
        }
    };
    let admitted = runtime.block_on(listener.admit(ranks, &identity, is_over, report));
    let unnamed = refused.load(Ordering::Relaxed).saturating_sub(RANK_REFUSALS_LOGGED_MAX);
    if unnamed > 0 {
        log(format!("{unnamed} further connections to the port of the ranks were refused"));
    }
    let admitted = admitted?;
    let mut peers = Vec::with_capacity(admitted.len());
    for (rank, AdmittedRank { link, address }) in admitted {
        let config = serde_json::to_vec(&AttemptConfig { rank, ..start.clone() }).map_err(|error| error.to_string())?;
        link.send(0, RankMessageKind::Config, &[&config])
            .map_err(|error| format!("worker process {rank} at {address} is gone: {error}"))?;
        peers.push(RankPeer { rank, link, place: RankPlace::OtherHost(address) });
    }
    Ok(peers)
}

impl RankPeer {
    fn start(start: &AttemptConfig, locations: &WorkerLocations) -> std::io::Result<RankPeer> {
        let (ours, theirs) = UnixStream::pair()?;
        let mut command = Command::new(own_executable()?);
        command.arg0("saggar").args(["worker", ATTEMPT_SUBCOMMAND]).args(locations.arguments());
        command.stdin(Stdio::piped()).stdout(Stdio::from(OwnedFd::from(theirs)));
        command.env_remove(CREDENTIALS_VARIABLE).env_remove(CREDENTIALS_FILE_VARIABLE);
        let mut child = command.spawn()?;
        let mut stdin = child.stdin.take().ok_or_else(|| std::io::Error::other("a child without its pipe"))?;
        let mut line = serde_json::to_vec(&Order::Start(Box::new(start.clone())))?;
        line.push(b'\n');
        stdin.write_all(&line)?;
        let place = RankPlace::Child { child: Mutex::new(child), _stdin: stdin };
        Ok(RankPeer { rank: start.rank, link: RankLink::new(ours)?, place })
    }

    /// Returns why a rank no longer takes part.
    fn receive_error(&self, broken: RankLinkError) -> PluginError {
        let rank = self.rank;
        match broken {
            RankLinkError::Gone(error) => {
                let child = match &self.place {
                    RankPlace::Child { child, .. } => child,
                    RankPlace::OtherHost(address) => {
                        return worker_lost_error(format!("worker process {rank} at {address} is gone: {error}"));
                    }
                };
                let mut child = child.lock();
                // Its socket is closed, so it is ending already, unless it hangs.
                let _ = child.kill();
                let how = match child.wait() {
                    Ok(status) => match status.signal() {
                        Some(signal) => format!("was killed by signal {signal}"),
                        None => format!("ended with {status}"),
                    },
                    Err(_) => format!("is gone: {error}"),
                };
                worker_lost_error(format!("worker process {rank} {how}"))
            }
            RankLinkError::Event(WorkerEvent::Failed { reason, message })
                if FailureReason::from_name(&reason) == Some(FailureReason::RanksDiffer) =>
            {
                ranks_differ_error(message)
            }
            RankLinkError::Event(WorkerEvent::Failed { message, .. }) => {
                worker_lost_error(format!("worker process {rank} failed: {message}"))
            }
            RankLinkError::Event(_) => worker_lost_error(format!("worker process {rank} ended before the others")),
            RankLinkError::UnexpectedMessage(found) => {
                ranks_differ_error(format!("worker process {rank} does not do the same as the first: {found}"))
            }
        }
    }
}

/// Returns the path of this program. On Linux `/proc/self/exe` is the running program even if its file was replaced.
fn own_executable() -> std::io::Result<PathBuf> {
    let running = Path::new("/proc/self/exe");
    if running.exists() { Ok(running.to_owned()) } else { std::env::current_exe() }
}

fn ranks_differ_error(message: String) -> PluginError {
    PluginError::Ranks { reason: FailureReason::RanksDiffer, message }
}

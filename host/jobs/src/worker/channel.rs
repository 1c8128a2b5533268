//! The worker's end of its connection to the supervisor, or to the attempt's first worker process.

use std::io::{self, BufRead, BufReader};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use saggar_store::bucket_usage::BucketUsage;
use thiserror::Error;

use super::lease_guard::{LeaseGuard, end_fenced};
use super::pause_control::PauseControl;
use super::ranks::rank_link::RankLink;
use super::ranks::remote_leader;
use super::supervisor_link::{SupervisorLink, write_line};
use super::write_permission::WritePermissions;
use crate::credentials::{CredentialsError, WorkerCredentials};
use crate::limits::{LEASE_LOST_GRACE, WORKER_HEARTBEAT_INTERVAL};
use crate::protocol::{
    AttemptConfig, EXIT_BROKEN, EXIT_TRY_AGAIN, PROTOCOL_VERSION, WorkerCommand, WorkerEvent, WorkerHello,
};
use crate::rank_network::{RANK_CREDENTIALS_VARIABLE, RankCredentials};
use crate::transport;

/// A channel for events. Clones share the connection, and each event is written as one complete line.
#[derive(Clone, Debug)]
pub(crate) struct EventChannel(EventSink);

#[derive(Clone, Debug)]
enum EventSink {
    /// To the supervisor.
    Supervisor(Arc<SupervisorLink>),
    /// To the attempt's first worker process, which forwards the relevant ones.
    Leader(Arc<RankLink>),
}

/// The supervisor's requests since the attempt began.
#[derive(Debug, Default)]
pub(crate) struct WorkerControl {
    /// Whether the attempt still owns its job.
    pub(crate) lease: Arc<LeaseGuard>,
    /// The bytes in the bucket, as the server reports them.
    pub(crate) bucket_usage: Arc<BucketUsage>,
    /// Permissions for what the attempt makes visible.
    pub(crate) permissions: WritePermissions,
    /// Save and return.
    pub(crate) stop: AtomicBool,
    /// Save and continue; reset when done.
    pub(crate) checkpoint: AtomicBool,
    /// Where to save and return, because the job pauses.
    pub(crate) pause: PauseControl,
}

/// Why a worker process has no attempt to run.
#[derive(Debug, Error)]
pub(crate) enum StartError {
    /// The process has no valid credentials.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    /// The server, or the attempt's first worker process, is gone.
    #[error("{peer}: {source}")]
    Gone {
        /// The server's address, or `standard input`.
        peer: String,
        /// The operating system's error.
        source: io::Error,
    },
    /// The server expects no such worker.
    #[error("the server refused this worker: {0}")]
    Refused(String),
    /// The first command is not the start of an attempt.
    #[error("the first command must be start: {0}")]
    Command(String),
}

impl StartError {
    /// Returns the exit code of the process.
    pub(crate) fn exit_code(&self) -> i32 {
        match self {
            StartError::Gone { .. } => EXIT_TRY_AGAIN,
            StartError::Credentials(_) | StartError::Refused(_) | StartError::Command(_) => EXIT_BROKEN,
        }
    }

    fn gone(peer: impl ToString) -> impl FnOnce(io::Error) -> StartError {
        move |source| StartError::Gone { peer: peer.to_string(), source }
    }
}

/// The start of a worker process: its channel, its attempt and the supervisor's further requests.
#[derive(Debug)]
pub(crate) struct WorkerStart {
    pub(crate) channel: EventChannel,
    pub(crate) config: AttemptConfig,
    pub(crate) control: Arc<WorkerControl>,
}

impl EventChannel {
    /// Connects to the process that started this one: to the supervisor with the credentials of the environment, or to
    /// the attempt's first worker process, whose other processes have none.
    ///
    /// # Errors
    /// The process has no attempt to run.
    pub(crate) fn connect() -> Result<WorkerStart, StartError> {
        if let Ok(text) = std::env::var(RANK_CREDENTIALS_VARIABLE) {
            let place = RANK_CREDENTIALS_VARIABLE.to_owned();
            let credentials = serde_json::from_str(&text).map_err(|source| CredentialsError::Text { place, source })?;
            return EventChannel::connect_to_other_host(&credentials);
        }
        match WorkerCredentials::from_environment()? {
            Some(credentials) => EventChannel::connect_to_supervisor(&credentials),
            None => EventChannel::connect_to_leader(),
        }
    }

    /// Connects to the attempt's first worker process on another host, and receives the attempt from it. The process ends
    /// with it.
    fn connect_to_other_host(credentials: &RankCredentials) -> Result<WorkerStart, StartError> {
        let gone = || StartError::gone(format!("rank 0 at {}", credentials.meeting_point.address));
        remote_leader::end_with_host().map_err(gone())?;
        let (link, config) = remote_leader::connect(credentials).map_err(gone())?;
        let channel = EventChannel(EventSink::Leader(Arc::new(link)));
        Ok(WorkerStart { channel, config, control: Arc::default() })
    }

    /// Connects to the supervisor and waits for the attempt. Continues to read commands on a separate thread.
    pub(crate) fn connect_to_supervisor(credentials: &WorkerCredentials) -> Result<WorkerStart, StartError> {
        let gone = || StartError::gone(&credentials.address);
        let mut stream = transport::connect(&credentials.address).map_err(gone())?;
        let hello = WorkerHello {
            protocol: PROTOCOL_VERSION,
            lease: credentials.lease.clone(),
            token: credentials.token.clone(),
        };
        write_line(&mut stream, &hello).map_err(gone())?;
        let mut commands = BufReader::new(stream.try_clone_stream().map_err(gone())?);
        let config = match receive_start(&mut commands, &credentials.address) {
            Ok(config) => config,
            Err(error) => {
                if let StartError::Command(message) = &error {
                    let (reason, message) = ("BAD_COMMAND".to_owned(), message.clone());
                    write_line(&mut stream, &WorkerEvent::Failed { reason, message }).map_err(gone())?;
                }
                return Err(error);
            }
        };
        let link = Arc::new(SupervisorLink::new(stream));
        let (control, ending) = (Arc::new(WorkerControl::default()), Arc::clone(&link));
        control.pause.set_point(config.pause.clone());
        if config.renews_lease {
            control.lease.watch().map_err(gone())?;
        }
        follow_commands(commands, Arc::clone(&control), move || ending.handle_end()).map_err(gone())?;
        Ok(WorkerStart { channel: EventChannel(EventSink::Supervisor(link)), config, control })
    }

    /// Receives the attempt from the attempt's first worker process on standard input. The process ends with it.
    fn connect_to_leader() -> Result<WorkerStart, StartError> {
        let gone = || StartError::gone("standard input, from the attempt's first worker process");
        let mut commands = BufReader::new(io::stdin());
        let config = receive_start(&mut commands, "standard input")?;
        let link = RankLink::from_stdout().map_err(gone())?;
        let control = Arc::new(WorkerControl::default());
        follow_commands(commands, Arc::clone(&control), || std::process::exit(EXIT_TRY_AGAIN)).map_err(gone())?;
        Ok(WorkerStart { channel: EventChannel(EventSink::Leader(Arc::new(link))), config, control })
    }

    /// Waits until the supervisor has received all events. Later ones are discarded.
    pub(crate) fn close(&self) {
        match &self.0 {
            EventSink::Supervisor(link) => link.close(),
            EventSink::Leader(_) => {}
        }
    }

    /// Returns the link to the attempt's first worker process, or `None` in that process.
    pub(crate) fn leader_link(&self) -> Option<Arc<RankLink>> {
        match &self.0 {
            EventSink::Supervisor(_) => None,
            EventSink::Leader(link) => Some(Arc::clone(link)),
        }
    }

    /// Redacts these values from all further events. The first worker process does it for the others.
    pub(crate) fn redact(&self, secrets: Vec<String>) {
        if let EventSink::Supervisor(link) = &self.0 {
            link.redact(secrets);
        }
    }

    /// Sends one event. Ends the process if the supervisor is gone, because the result would be lost and another
    /// attempt may already be running.
    pub(crate) fn send(&self, event: &WorkerEvent) {
        let sent = match &self.0 {
            EventSink::Supervisor(link) => link.send(event),
            EventSink::Leader(link) => link.forward_event(event),
        };
        if sent.is_err() {
            std::process::exit(EXIT_TRY_AGAIN);
        }
    }

    /// Sends heartbeats until the process ends, on a thread that waits for nothing else. The first worker process sends
    /// them for the others, whose messages it waits for.
    pub(crate) fn start_heartbeat(&self, lease: Arc<LeaseGuard>) {
        if matches!(self.0, EventSink::Leader(_)) {
            return;
        }
        let channel = self.clone();
        let beat = move || loop {
            channel.send(&WorkerEvent::Alive { heartbeat: lease.begin_heartbeat() });
            std::thread::sleep(WORKER_HEARTBEAT_INTERVAL);
        };
        // If the system cannot start this thread, it cannot start the training either, which reports the error.
        let _ = std::thread::Builder::new().name("heartbeat".to_owned()).spawn(beat);
    }
}

/// Waits for the first command.
fn receive_start(commands: &mut impl BufRead, peer: impl ToString) -> Result<AttemptConfig, StartError> {
    let mut line = String::new();
    let read = commands.read_line(&mut line);
    let read = read.and_then(|bytes| if bytes == 0 { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) });
    read.map_err(StartError::gone(peer))?;
    match serde_json::from_str(&line) {
        Ok(WorkerCommand::Start(start)) => Ok(*start),
        Ok(WorkerCommand::Refuse { reason, .. }) => Err(StartError::Refused(reason)),
        Ok(other) => Err(StartError::Command(format!("{other:?} came first"))),
        Err(error) => Err(StartError::Command(error.to_string())),
    }
}

/// Reads commands on a separate thread, and calls `end` after the last one.
fn follow_commands(
    commands: impl BufRead + Send + 'static,
    control: Arc<WorkerControl>,
    end: impl FnOnce() + Send + 'static,
) -> io::Result<()> {
    let follow = move || {
        for line in commands.lines().map_while(Result::ok) {
            match serde_json::from_str(&line) {
                Ok(WorkerCommand::Stop) => control.stop.store(true, Ordering::Release),
                Ok(WorkerCommand::Checkpoint) => control.checkpoint.store(true, Ordering::Release),
                Ok(WorkerCommand::Pause { point }) => control.pause.set_point(point),
                Ok(WorkerCommand::Alive) => {}
                Ok(WorkerCommand::LeaseRenewed { heartbeat, bucket }) => {
                    if let Some(count) = bucket {
                        control.bucket_usage.set(count);
                    }
                    control.lease.record_renewal(heartbeat);
                }
                Ok(WorkerCommand::PermissionGranted { request }) => control.permissions.grant(request),
                Ok(WorkerCommand::LeaseLost) => {
                    if control.permissions.refuse() {
                        // The thread that publishes removes what it has sent, and ends the process.
                        std::thread::sleep(LEASE_LOST_GRACE / 2);
                    }
                    end_fenced(&"another server owns the job now");
                }
                Ok(WorkerCommand::Start(_) | WorkerCommand::Refuse { .. }) | Err(_) => std::process::exit(EXIT_BROKEN),
            }
        }
        end();
    };
    std::thread::Builder::new().name("commands".to_owned()).spawn(follow)?;
    Ok(())
}

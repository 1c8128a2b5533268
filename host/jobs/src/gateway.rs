//! Accepts the connections of workers, checks their first line, and hands each connection to the supervisor that
//! expects it. A token is accepted once.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use saggar_store::Digest;
use saggar_store::records::JobLease;
use serde::Deserialize;
use thiserror::Error;
use tokio::io::{AsyncWrite, AsyncWriteExt, BufReader, ReadHalf, WriteHalf};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinHandle;

use crate::credentials::{WorkerCredentials, WorkerToken};
use crate::limits::{COMMAND_TIME_MAX, HELLO_BYTES_MAX, HELLO_TIME_MAX, HELLOS_MAX};
use crate::line_reader::{LineRead, read_line};
use crate::protocol::{PROTOCOL_VERSION, WorkerCommand, WorkerHello};
use crate::transport::{WorkerAddress, WorkerListener, WorkerStream};

/// Time before connections are accepted again after the system refused one.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// Why a connection is not that of a worker.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub(crate) enum HelloError {
    /// The worker is of another build.
    #[error(
        "the worker uses version {found} of the protocol, and this server version {PROTOCOL_VERSION}: both must be the \
         same build, as `saggar version` shows"
    )]
    OtherVersion {
        /// The worker's version.
        found: u32,
    },
    /// The token is that of another attempt.
    #[error("the token is not that of attempt {} of job {} with epoch {}", lease.attempt, lease.job, lease.epoch)]
    OtherAttempt {
        /// The attempt that the worker names.
        lease: JobLease,
    },
    /// No supervisor expects a worker with this token, or it was already used.
    #[error("no worker is expected with this token")]
    UnknownToken,
    /// The line is not the first line of a worker.
    #[error("the first line is not a worker's hello: {reason}")]
    NotHello {
        /// What is wrong with it.
        reason: String,
    },
}

/// The stream of a worker's events.
pub(crate) type EventReader = BufReader<ReadHalf<Box<dyn WorkerStream>>>;

/// A worker's connection after its first line.
#[derive(Debug)]
pub(crate) struct WorkerConnection {
    /// The worker's events, one on each line.
    pub(crate) events: EventReader,
    /// The commands to the worker.
    pub(crate) commands: CommandWriter,
}

/// Writes commands to a worker, one on each line.
#[derive(Debug)]
pub(crate) struct CommandWriter(WriteHalf<Box<dyn WorkerStream>>);

impl CommandWriter {
    /// Sends a command.
    ///
    /// # Errors
    /// An I/O error if the worker is gone, or does not read the command within [`COMMAND_TIME_MAX`]. A part of the
    /// command can have been sent, so the connection must be closed.
    pub(crate) async fn send(&mut self, command: &WorkerCommand) -> std::io::Result<()> {
        let mut line = serde_json::to_vec(command).expect("commands are plain data");
        line.push(b'\n');
        tokio::time::timeout(COMMAND_TIME_MAX, write_all(&mut self.0, &line)).await?
    }

    /// Sends the end of the commands, which ends the worker. Its last events can still be read.
    pub(crate) async fn close(mut self) {
        let _ = self.0.shutdown().await;
    }
}

async fn write_all(stream: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> std::io::Result<()> {
    stream.write_all(bytes).await?;
    stream.flush().await
}

/// The outcome of an expected worker's first line.
pub(crate) type ConnectionResult = Result<WorkerConnection, HelloError>;

/// A worker that a supervisor expects.
#[derive(Debug)]
struct ExpectedWorker {
    lease: JobLease,
    connected: oneshot::Sender<ConnectionResult>,
}

/// The expected workers by the digests of their tokens, so that the time of a look-up depends on no token.
type ExpectedWorkers = Arc<Mutex<HashMap<Digest, ExpectedWorker>>>;

/// Accepts workers until it is dropped.
#[derive(Debug)]
pub(crate) struct WorkerGateway {
    address: WorkerAddress,
    expected: ExpectedWorkers,
    accepting: JoinHandle<()>,
}

impl WorkerGateway {
    /// Accepts workers on `listener`. Must be called in a Tokio runtime.
    pub(crate) fn start(listener: Box<dyn WorkerListener>) -> WorkerGateway {
        let (address, expected) = (listener.address(), ExpectedWorkers::default());
        let accepting = tokio::spawn(accept_workers(listener, Arc::clone(&expected)));
        WorkerGateway { address, expected, accepting }
    }

    /// Expects the worker of an attempt until the result is dropped. Returns the credentials for its launcher.
    pub(crate) fn expect(&self, lease: JobLease) -> (WorkerCredentials, PendingConnection) {
        let (token, (connected, receiver)) = (WorkerToken::random(), oneshot::channel());
        let key = Digest::of(token.as_bytes());
        let worker = ExpectedWorker { lease: lease.clone(), connected };
        self.expected.lock().insert(key, worker);
        let pending = PendingConnection { receiver, key, expected: Arc::clone(&self.expected) };
        (WorkerCredentials { address: self.address.clone(), lease, token }, pending)
    }
}

impl Drop for WorkerGateway {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// A connection that has not come yet. When it is dropped, the worker's token becomes invalid.
#[derive(Debug)]
pub(crate) struct PendingConnection {
    receiver: oneshot::Receiver<ConnectionResult>,
    key: Digest,
    expected: ExpectedWorkers,
}

impl PendingConnection {
    /// Waits for the worker's first line. Never returns if the worker does not connect. Can be dropped and called again
    /// while it waits.
    pub(crate) async fn wait(&mut self) -> ConnectionResult {
        match (&mut self.receiver).await {
            Ok(connected) => connected,
            // The gateway has ended, so nobody can connect.
            Err(_) => std::future::pending().await,
        }
    }

    /// Returns why the worker was refused, if it was.
    pub(crate) fn refusal(mut self) -> Option<HelloError> {
        self.receiver.try_recv().ok()?.err()
    }
}

impl Drop for PendingConnection {
    fn drop(&mut self) {
        self.expected.lock().remove(&self.key);
    }
}

async fn accept_workers(listener: Box<dyn WorkerListener>, expected: ExpectedWorkers) {
    let hellos = Arc::new(Semaphore::new(HELLOS_MAX));
    loop {
        let permit = Arc::clone(&hellos).acquire_owned().await.expect("the semaphore is never closed");
        match listener.accept().await {
            Ok(stream) => {
                let expected = Arc::clone(&expected);
                tokio::spawn(async move {
                    let _permit = permit;
                    admit_worker(stream, &expected).await;
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a worker's connection cannot be accepted; trying again");
                tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
            }
        }
    }
}

/// Hands the connection to its supervisor, or tells the worker why it is refused.
async fn admit_worker(stream: Box<dyn WorkerStream>, expected: &ExpectedWorkers) {
    let (read, write) = tokio::io::split(stream);
    let (mut events, mut commands) = (BufReader::new(read), CommandWriter(write));
    let mut line = Vec::new();
    let received = tokio::time::timeout(HELLO_TIME_MAX, read_line(&mut events, &mut line, HELLO_BYTES_MAX)).await;
    let error = match received {
        Ok(LineRead::Complete) => match check_hello(&line, expected) {
            Ok(connected) => {
                // If the supervisor has given up, dropping the connection ends the worker.
                let _ = connected.send(Ok(WorkerConnection { events, commands }));
                return;
            }
            Err(error) => error,
        },
        Ok(LineRead::TooLong) => HelloError::NotHello { reason: format!("it has more than {HELLO_BYTES_MAX} bytes") },
        Ok(LineRead::EndOfStream) => HelloError::NotHello { reason: "the connection ended".to_owned() },
        Err(_) => HelloError::NotHello { reason: "it did not come in time".to_owned() },
    };
    tracing::warn!(%error, "a worker was refused");
    let _ = commands.send(&WorkerCommand::Refuse { protocol: PROTOCOL_VERSION, reason: error.to_string() }).await;
}

/// The part of a hello that has the same meaning in every version of the protocol.
#[derive(Deserialize)]
struct HelloHeader {
    protocol: u32,
    token: WorkerToken,
}

/// Returns the supervisor that expects the worker with this first line. A supervisor whose worker is refused gets the
/// error too.
fn check_hello(line: &[u8], expected: &ExpectedWorkers) -> Result<oneshot::Sender<ConnectionResult>, HelloError> {
    let not_hello = |error: serde_json::Error| HelloError::NotHello { reason: error.to_string() };
    let header: HelloHeader = serde_json::from_slice(line).map_err(not_hello)?;
    let key = Digest::of(header.token.as_bytes());
    let worker = expected.lock().remove(&key);
    let ExpectedWorker { lease, connected } = worker.ok_or(HelloError::UnknownToken)?;
    let checked = match (header.protocol, serde_json::from_slice::<WorkerHello>(line)) {
        (PROTOCOL_VERSION, Ok(hello)) if hello.lease == lease => return Ok(connected),
        (PROTOCOL_VERSION, Ok(hello)) => HelloError::OtherAttempt { lease: hello.lease },
        (PROTOCOL_VERSION, Err(error)) => not_hello(error),
        (found, _) => HelloError::OtherVersion { found },
    };
    let _ = connected.send(Err(checked.clone()));
    Err(checked)
}

#[cfg(test)]
mod tests;

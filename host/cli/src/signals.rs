//! Ctrl-C and SIGTERM, one after the other: the first asks for an orderly end, the next one for an end at once.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit;

/// Receives both signals, which no longer end the process by themselves.
#[derive(Debug)]
pub(crate) struct ShutdownSignals {
    interrupt: Signal,
    terminate: Signal,
}

impl ShutdownSignals {
    /// Must be called within a runtime, which then has to be driven.
    ///
    /// # Errors
    /// The system's, if it takes no handlers: both signals end the process then.
    pub(crate) fn install() -> io::Result<ShutdownSignals> {
        Ok(ShutdownSignals { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// Waits for the next signal, and returns the exit code of a process that it ends.
    pub(crate) async fn recv(&mut self) -> i32 {
        tokio::select! {
            _ = self.interrupt.recv() => exit::INTERRUPTED,
            _ = self.terminate.recv() => exit::TERMINATED,
        }
    }
}

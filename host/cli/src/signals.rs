//! Ctrl-C and SIGTERM: the first one requests a graceful end, the next one an immediate end.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit;

/// A receiver of both signals, which no longer end the process automatically.
#[derive(Debug)]
pub(crate) struct ShutdownSignals {
    interrupt: Signal,
    terminate: Signal,
}

impl ShutdownSignals {
    /// Installs the handlers. Must be called within a runtime, which must then be driven.
    ///
    /// # Errors
    /// Returns the system's error if handlers cannot be installed; both signals then end the process.
    pub(crate) fn install() -> io::Result<ShutdownSignals> {
        Ok(ShutdownSignals { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// Waits for the next signal and returns the exit code for it.
    pub(crate) async fn recv(&mut self) -> i32 {
        tokio::select! {
            _ = self.interrupt.recv() => exit::INTERRUPTED,
            _ = self.terminate.recv() => exit::TERMINATED,
        }
    }
}

//! Signals that the view handles: the end, and the continuation after a stop.

use std::io;
use std::thread;

use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};

/// A signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SystemSignal {
    /// SIGTERM.
    Terminate,
    /// SIGINT, from outside: in the terminal, Ctrl-C is a key.
    Interrupt,
    /// SIGCONT: the shell continues the program after a stop.
    Continue,
}

/// Passes signals to `pass` from a thread, until it returns `false`.
///
/// # Errors
/// The handlers cannot be installed.
pub(crate) fn watch_signals(pass: impl Fn(SystemSignal) -> bool + Send + 'static) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let guard = runtime.enter();
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut resumed = signal(SignalKind::from_raw(Signal::CONT.as_raw()))?;
    drop(guard);
    let watch = async move {
        loop {
            let signal = tokio::select! {
                _ = terminate.recv() => SystemSignal::Terminate,
                _ = interrupt.recv() => SystemSignal::Interrupt,
                _ = resumed.recv() => SystemSignal::Continue,
            };
            if !pass(signal) {
                return;
            }
        }
    };
    thread::Builder::new().name("signals".to_owned()).spawn(move || runtime.block_on(watch)).map(drop)
}

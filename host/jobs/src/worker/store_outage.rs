//! The patience of an attempt with a store of objects on another machine that does not answer: what the attempt reads and
//! writes there is repeated, so that an outage delays a training and does not end it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use saggar_plugin::{FailureReason, PluginError};

use super::AttemptFailure;
use super::channel::{EventChannel, WorkerControl};
use crate::limits::{STORE_OUTAGE_MAX, STORE_OUTAGE_PAUSE_MAX, STORE_OUTAGE_PAUSE_MIN, STORE_OUTAGE_POLL_INTERVAL};
use crate::protocol::WorkerEvent;

/// An error that says whether its cause can pass, so that the operation can be repeated.
pub(super) trait PassingError: std::fmt::Display {
    /// Returns whether a repetition can succeed.
    fn can_pass(&self) -> bool;
}

impl PassingError for PluginError {
    fn can_pass(&self) -> bool {
        self.reason() == FailureReason::WorkerLost
    }
}

impl PassingError for AttemptFailure {
    fn can_pass(&self) -> bool {
        matches!(self, AttemptFailure::Plugin(error) if error.can_pass())
    }
}

/// Repeats operations of one attempt during outages of the store.
#[derive(Clone, Debug)]
pub(super) struct OutageRetry {
    channel: EventChannel,
    control: Arc<WorkerControl>,
}

impl OutageRetry {
    pub(super) fn new(channel: &EventChannel, control: &Arc<WorkerControl>) -> OutageRetry {
        OutageRetry { channel: channel.clone(), control: Arc::clone(control) }
    }

    /// Runs the operation, and repeats it while its error can pass, for up to [`STORE_OUTAGE_MAX`] and until the attempt
    /// is asked to stop. The first such error goes to the attempt's log. A repeated operation must not do twice what it
    /// has done already.
    ///
    /// # Errors
    /// The last error of the operation.
    pub(super) fn run<T, E: PassingError>(&self, mut operation: impl FnMut() -> Result<T, E>) -> Result<T, E> {
        let began = Instant::now();
        let mut pause = STORE_OUTAGE_PAUSE_MIN;
        let mut is_reported = false;
        loop {
            let error = match operation() {
                Err(error) if error.can_pass() => error,
                done => {
                    if is_reported && done.is_ok() {
                        self.log(format!("the store answers again after {} s", began.elapsed().as_secs()));
                    }
                    return done;
                }
            };
            if began.elapsed() >= STORE_OUTAGE_MAX || self.control.stop.load(Ordering::Acquire) {
                return Err(error);
            }
            if !std::mem::replace(&mut is_reported, true) {
                self.log(format!("{error}; repeated for up to {} s", STORE_OUTAGE_MAX.as_secs()));
            }
            self.wait(pause);
            pause = (pause * 2).min(STORE_OUTAGE_PAUSE_MAX);
        }
    }

    /// Waits until the pause is over or the attempt is asked to stop.
    fn wait(&self, pause: Duration) {
        let end = Instant::now() + pause;
        while Instant::now() < end && !self.control.stop.load(Ordering::Acquire) {
            std::thread::sleep(STORE_OUTAGE_POLL_INTERVAL.min(end.saturating_duration_since(Instant::now())));
        }
    }

    fn log(&self, line: String) {
        self.channel.send(&WorkerEvent::Log { level: "warn".to_owned(), line });
    }
}

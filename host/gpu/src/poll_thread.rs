//! The poll thread of a device. While work is pending, it submits gathered commands and polls the driver, so that
//! memory is freed, busy time is counted and a lost device is noticed even if no caller waits.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// Interval between two polls.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The handle of the poll thread; dropping it stops the thread.
#[derive(Debug, Default)]
pub(super) struct PollThread(Arc<PollSignal>);

#[derive(Debug, Default)]
struct PollSignal {
    state: Mutex<PollState>,
    changed: Condvar,
    /// Held while the thread holds a strong reference to the device.
    polling: Mutex<()>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum PollState {
    #[default]
    Idle,
    Busy,
    Stopped,
}

impl PollThread {
    /// Starts the thread, which calls `poll` with the device's state, `context`, and polls again soon if `poll` returns
    /// that work remains. The thread does not keep `context` alive between two polls. If the thread cannot start,
    /// gathered commands are submitted only by callers that wait for them.
    pub(super) fn start<T: Send + Sync + 'static>(&self, context: &Arc<T>, poll: impl Fn(&T) -> bool + Send + 'static) {
        let (signal, context) = (Arc::clone(&self.0), Arc::downgrade(context));
        let tend = move || {
            while signal.wait_for_next_poll() {
                let _looking = signal.polling.lock();
                let Some(context) = context.upgrade().filter(|_| !signal.is_stopped()) else { return };
                // Set before polling: work that arrives later sets it to `Busy` again.
                signal.transition(PollState::Busy, PollState::Idle);
                if poll(&context) {
                    signal.transition(PollState::Idle, PollState::Busy);
                }
            }
        };
        if let Err(error) = std::thread::Builder::new().name("gpu-tender".to_owned()).spawn(tend) {
            tracing::warn!(%error, "cannot start the poll thread; the device is polled only while a caller waits");
        }
    }

    /// Stops the thread if the caller holds the last reference to `context`. The poll thread must not be the one that
    /// closes the device, because the process may be exiting and the driver already shutting down.
    pub(super) fn stop_if_last_owner<T>(&self, context: &Arc<T>) {
        let _looking = self.0.polling.lock();
        if Arc::strong_count(context) == 1 {
            self.stop();
        }
    }

    fn stop(&self) {
        *self.0.state.lock() = PollState::Stopped;
        self.0.changed.notify_one();
    }

    /// Reports pending work: an idle thread starts polling.
    pub(super) fn wake(&self) {
        self.0.transition(PollState::Idle, PollState::Busy);
    }
}

impl Drop for PollThread {
    fn drop(&mut self) {
        self.stop();
    }
}

impl PollSignal {
    fn transition(&self, from: PollState, to: PollState) {
        let mut state = self.state.lock();
        if *state == from {
            *state = to;
            self.changed.notify_one();
        }
    }

    fn is_stopped(&self) -> bool {
        *self.state.lock() == PollState::Stopped
    }

    /// Waits until the next poll is due. Returns `false` if the thread was stopped.
    fn wait_for_next_poll(&self) -> bool {
        let mut state = self.state.lock();
        self.changed.wait_while(&mut state, |state| *state == PollState::Idle);
        self.changed.wait_while_for(&mut state, |state| *state == PollState::Busy, POLL_INTERVAL);
        *state != PollState::Stopped
    }
}

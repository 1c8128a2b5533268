//! A thread that looks after a device while work is under way and nobody waits for it: it submits what has gathered, asks the
//! driver what is done, so that memory is freed and times are counted, and sees a device that is lost.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use super::context::{GpuContext, lock};

/// How often it looks.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Wakes the thread, and ends it when it is dropped.
#[derive(Debug, Default)]
pub(super) struct PollThread(Arc<PollSignal>);

#[derive(Debug, Default)]
struct PollSignal {
    state: Mutex<PollState>,
    changed: Condvar,
    /// Held while the thread holds the device.
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
    /// Starts the thread for this device. Without one, what has gathered is submitted by whoever waits for it.
    pub(super) fn start(&self, context: &Arc<GpuContext>) {
        let (signal, context) = (Arc::clone(&self.0), Arc::downgrade(context));
        let tend = move || {
            while signal.wait_for_next_poll() {
                let _looking = lock(&signal.polling);
                let Some(context) = context.upgrade().filter(|_| !signal.is_stopped()) else { return };
                // Before the look: what comes after it wakes us again.
                signal.transition(PollState::Busy, PollState::Idle);
                if context.poll_once() {
                    signal.transition(PollState::Idle, PollState::Busy);
                }
            }
        };
        if let Err(error) = std::thread::Builder::new().name("gpu-tender".to_owned()).spawn(tend) {
            tracing::warn!(%error, "no thread looks after the device");
        }
    }

    /// Ends the thread where `context` is the last that holds the device, so that it is not the thread that closes it: that may be
    /// when the process ends and the driver's own end has begun.
    pub(super) fn stop_if_last_owner(&self, context: &Arc<GpuContext>) {
        let _looking = lock(&self.0.polling);
        if Arc::strong_count(context) == 1 {
            self.stop();
        }
    }

    fn stop(&self) {
        *lock(&self.0.state) = PollState::Stopped;
        self.0.changed.notify_one();
    }

    /// There is work.
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
        let mut state = lock(&self.state);
        if *state == from {
            *state = to;
            self.changed.notify_one();
        }
    }

    fn is_stopped(&self) -> bool {
        *lock(&self.state) == PollState::Stopped
    }

    /// Waits until it is time for the next look; false once there is none.
    fn wait_for_next_poll(&self) -> bool {
        let idle = self.changed.wait_while(lock(&self.state), |state| *state == PollState::Idle);
        let state = idle.unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(state, POLL_INTERVAL, |state| *state == PollState::Busy);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        *state != PollState::Stopped
    }
}

//! A thread that looks after a device while work is under way and nobody waits for it: it submits what has gathered, asks the
//! driver what is done, so that memory is freed and times are counted, and sees a device that is lost.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use super::context::{Context, lock};

/// How often it looks.
const LOOK: Duration = Duration::from_millis(20);

/// Wakes the thread, and ends it when it is dropped.
#[derive(Debug, Default)]
pub(super) struct Tender(Arc<Signal>);

#[derive(Debug, Default)]
struct Signal {
    state: Mutex<State>,
    changed: Condvar,
    /// Held while the thread holds the device.
    looking: Mutex<()>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Idle,
    Busy,
    Ended,
}

impl Tender {
    /// Starts the thread for this device. Without one, what has gathered is submitted by whoever waits for it.
    pub(super) fn start(&self, context: &Arc<Context>) {
        let (signal, context) = (Arc::clone(&self.0), Arc::downgrade(context));
        let tend = move || {
            while signal.wait() {
                let _looking = lock(&signal.looking);
                let Some(context) = context.upgrade().filter(|_| !signal.is_ended()) else { return };
                // Before the look: what comes after it wakes us again.
                signal.change(State::Busy, State::Idle);
                if context.tend() {
                    signal.change(State::Idle, State::Busy);
                }
            }
        };
        if let Err(error) = std::thread::Builder::new().name("gpu-tender".to_owned()).spawn(tend) {
            tracing::warn!(%error, "no thread looks after the device");
        }
    }

    /// Ends the thread where `context` is the last that holds the device, so that it is not the thread that closes it: that may be
    /// when the process ends and the driver's own end has begun.
    pub(super) fn end_with(&self, context: &Arc<Context>) {
        let _looking = lock(&self.0.looking);
        if Arc::strong_count(context) == 1 {
            self.end();
        }
    }

    fn end(&self) {
        *lock(&self.0.state) = State::Ended;
        self.0.changed.notify_one();
    }

    /// There is work.
    pub(super) fn wake(&self) {
        self.0.change(State::Idle, State::Busy);
    }
}

impl Drop for Tender {
    fn drop(&mut self) {
        self.end();
    }
}

impl Signal {
    fn change(&self, from: State, to: State) {
        let mut state = lock(&self.state);
        if *state == from {
            *state = to;
            self.changed.notify_one();
        }
    }

    fn is_ended(&self) -> bool {
        *lock(&self.state) == State::Ended
    }

    /// Waits until it is time for the next look; false once there is none.
    fn wait(&self) -> bool {
        let idle = self.changed.wait_while(lock(&self.state), |state| *state == State::Idle);
        let state = idle.unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(state, LOOK, |state| *state == State::Busy);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        *state != State::Ended
    }
}

//! A gate that holds the predictions of a test.

use parking_lot::{Condvar, Mutex};

/// Blocks predictions until it is opened.
#[derive(Debug, Default)]
pub(super) struct PredictionGate {
    open: Mutex<bool>,
    opened: Condvar,
}

impl PredictionGate {
    pub(super) fn open(&self) {
        *self.open.lock() = true;
        self.opened.notify_all();
    }

    pub(super) fn wait(&self) {
        let mut open = self.open.lock();
        while !*open {
            self.opened.wait(&mut open);
        }
    }
}

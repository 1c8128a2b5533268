//! Permissions of the server for what an attempt makes visible to others: versions of models and outputs.
//!
//! The server grants a permission in a transaction of its records that checks the attempt's lease, and renews it. A worker that
//! another owner has replaced gets none, however long it was stopped before it asked. Without other servers nobody else can
//! own the job, and no permission is needed.

use parking_lot::{Condvar, Mutex};

use crate::limits::LEASE_POLL_INTERVAL;

/// The permissions that the worker has asked for and was granted.
#[derive(Debug, Default)]
pub(crate) struct WritePermissions {
    state: Mutex<PermissionState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct PermissionState {
    /// The number of the newest request.
    newest: u64,
    /// The number of the newest request that was granted.
    granted: u64,
    /// Whether the attempt has lost its lease.
    is_refused: bool,
    /// Whether files are being sent that are removed if they may not become visible.
    is_publishing: bool,
}

impl WritePermissions {
    /// Records that a request was granted.
    pub(super) fn grant(&self, request: u64) {
        let mut state = self.state.lock();
        state.granted = state.granted.max(request);
        self.changed.notify_all();
    }

    /// Refuses all requests from now on. Returns whether a publication is going on, whose thread removes its files.
    pub(super) fn refuse(&self) -> bool {
        let mut state = self.state.lock();
        state.is_refused = true;
        self.changed.notify_all();
        state.is_publishing
    }

    /// Returns whether the attempt has lost its lease.
    pub(super) fn is_refused(&self) -> bool {
        self.state.lock().is_refused
    }

    /// Records whether a publication is going on.
    pub(super) fn set_publishing(&self, is_publishing: bool) {
        self.state.lock().is_publishing = is_publishing;
    }

    pub(super) fn next_request(&self) -> u64 {
        let mut state = self.state.lock();
        state.newest += 1;
        state.newest
    }

    /// Waits for the answer to a request. The process ends elsewhere if none comes for too long.
    pub(super) fn wait_for_grant(&self, request: u64) -> bool {
        let mut state = self.state.lock();
        while state.granted < request && !state.is_refused {
            self.changed.wait_for(&mut state, LEASE_POLL_INTERVAL);
        }
        !state.is_refused
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_request_waits_until_it_is_granted_or_refused() {
        let permissions = Arc::new(WritePermissions::default());
        let wait = |request| {
            let permissions = Arc::clone(&permissions);
            std::thread::spawn(move || permissions.wait_for_grant(request))
        };
        let (first, second) = (permissions.next_request(), permissions.next_request());
        let (granted, refused) = (wait(first), wait(second));
        permissions.grant(first);
        assert!(granted.join().unwrap() && !refused.is_finished());
        permissions.set_publishing(true);
        assert!(permissions.refuse() && permissions.is_refused());
        assert!(!refused.join().unwrap());
        permissions.set_publishing(false);
        assert!(!permissions.refuse());
        permissions.grant(second);
        assert!(!permissions.wait_for_grant(second), "a lease that was lost stays lost");
    }
}

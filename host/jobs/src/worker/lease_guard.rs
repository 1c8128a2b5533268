//! Whether the attempt still owns its job, as far as its worker can know.
//!
//! The server renews the attempt's lease in the records and reports each renewal, with the number of the newest heartbeat
//! that it had received before it asked for the renewal. The lease was therefore valid when the worker had sent that
//! heartbeat, whatever delayed the messages since. An attempt without a renewal for [`LEASE_UNSURE_AFTER`] is unsure: it
//! computes on, but saves, removes and publishes nothing, because another server may own the job. After
//! [`LEASE_UNSURE_MAX`] its process ends.

use std::collections::VecDeque;
use std::io::Write;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::{Condvar, Mutex};

use crate::limits::{LEASE_POLL_INTERVAL, LEASE_UNSURE_AFTER, LEASE_UNSURE_MAX};
use crate::protocol::EXIT_TRY_AGAIN;

/// Heartbeats that are remembered until their renewal; more than are sent until the process ends.
const HEARTBEATS_MAX: usize = 1024;

/// The state of an attempt's lease.
#[derive(Debug, Default)]
pub(crate) struct LeaseGuard {
    /// `None` if the records have one server only, so that nobody else can own the job.
    state: Mutex<Option<RenewalState>>,
    renewed: Condvar,
}

/// The renewals that the worker knows.
#[derive(Debug)]
struct RenewalState {
    /// The number and time of heartbeats without a renewal yet.
    sent: VecDeque<(u64, Instant)>,
    newest: u64,
    /// When the lease was certainly valid; `None` before the first renewal.
    valid_at: Option<Instant>,
    began: Instant,
}

impl RenewalState {
    fn new(now: Instant) -> RenewalState {
        RenewalState { sent: VecDeque::new(), newest: 0, valid_at: None, began: now }
    }

    /// Returns the number of the heartbeat that is sent now.
    fn begin_heartbeat(&mut self, now: Instant) -> u64 {
        self.newest += 1;
        if self.sent.len() == HEARTBEATS_MAX {
            self.sent.pop_front();
        }
        self.sent.push_back((self.newest, now));
        self.newest
    }

    fn record_renewal(&mut self, heartbeat: u64) {
        while let Some((number, at)) = self.sent.front().copied()
            && number <= heartbeat
        {
            self.valid_at = Some(at);
            self.sent.pop_front();
        }
    }

    fn is_sure(&self, now: Instant) -> bool {
        self.valid_at.is_some_and(|at| now.saturating_duration_since(at) < LEASE_UNSURE_AFTER)
    }

    fn is_over(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.valid_at.unwrap_or(self.began)) >= LEASE_UNSURE_MAX
    }
}

/// Ends the process of an attempt that no longer owns its job, and says why in the attempt's log, which is standard error
/// if somebody still reads it.
pub(super) fn end_fenced(reason: &dyn std::fmt::Display) -> ! {
    // `eprintln!` panics if nobody reads it, and only this thread would end.
    let _ = writeln!(std::io::stderr(), "saggar worker: {reason}; the attempt ends");
    std::process::exit(EXIT_TRY_AGAIN);
}

impl LeaseGuard {
    /// Waits for renewals from now on, and ends the process if none comes for too long.
    ///
    /// # Errors
    /// An I/O error if the system cannot start a thread.
    pub(super) fn watch(self: &Arc<Self>) -> std::io::Result<()> {
        *self.state.lock() = Some(RenewalState::new(Instant::now()));
        let guard = Arc::clone(self);
        let watch = move || loop {
            std::thread::sleep(LEASE_POLL_INTERVAL);
            guard.end_if_over();
        };
        std::thread::Builder::new().name("lease".to_owned()).spawn(watch).map(drop)
    }

    /// Returns the number of the heartbeat that is sent now.
    pub(super) fn begin_heartbeat(&self) -> u64 {
        self.state.lock().as_mut().map_or(0, |state| state.begin_heartbeat(Instant::now()))
    }

    /// Records that the lease was renewed after the server had received this heartbeat.
    pub(super) fn record_renewal(&self, heartbeat: u64) {
        if let Some(state) = self.state.lock().as_mut() {
            state.record_renewal(heartbeat);
        }
        self.renewed.notify_all();
    }

    /// Returns whether no other server can own the job now.
    pub(super) fn is_sure(&self) -> bool {
        self.state.lock().as_ref().is_none_or(|state| state.is_sure(Instant::now()))
    }

    /// Waits until no other server can own the job. Ends the process if that takes too long.
    pub(super) fn wait_until_sure(&self) {
        let mut state = self.state.lock();
        while state.as_ref().is_some_and(|state| !state.is_sure(Instant::now())) {
            self.renewed.wait_for(&mut state, LEASE_POLL_INTERVAL);
        }
    }

    fn end_if_over(&self) {
        if self.state.lock().as_ref().is_some_and(|state| state.is_over(Instant::now())) {
            let minutes = LEASE_UNSURE_MAX.as_secs() / 60;
            end_fenced(&format_args!("the lease of the job could not be renewed for {minutes} minutes"));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_renewal_counts_from_its_heartbeat() {
        let begin = Instant::now();
        let at = |seconds: u64| begin + Duration::from_secs(seconds);
        let mut state = RenewalState::new(begin);
        assert!(!state.is_sure(at(0)), "nothing is known before the first renewal");
        let first = state.begin_heartbeat(at(1));
        let second = state.begin_heartbeat(at(3));
        // The answer came late: the lease was renewed after the first heartbeat, and perhaps before the second.
        state.record_renewal(first);
        assert!(state.is_sure(at(12)) && !state.is_sure(at(13)));
        state.record_renewal(second);
        assert!(state.is_sure(at(14)) && !state.is_sure(at(15)));
        // An older answer that arrives later changes nothing.
        state.record_renewal(first);
        assert!(state.is_sure(at(14)));
        assert!(!state.is_over(at(602)) && state.is_over(at(603)));
    }

    #[test]
    fn an_attempt_of_the_only_server_is_always_sure() {
        let guard = LeaseGuard::default();
        assert_eq!((guard.begin_heartbeat(), guard.is_sure()), (0, true));
        guard.wait_until_sure();
    }

    #[test]
    fn a_publication_waits_for_the_renewal() {
        let guard = Arc::new(LeaseGuard::default());
        guard.watch().unwrap();
        let waiter = {
            let guard = Arc::clone(&guard);
            std::thread::spawn(move || guard.wait_until_sure())
        };
        let heartbeat = guard.begin_heartbeat();
        assert!(!guard.is_sure() && !waiter.is_finished());
        guard.record_renewal(heartbeat);
        waiter.join().unwrap();
        assert!(guard.is_sure());
    }
}

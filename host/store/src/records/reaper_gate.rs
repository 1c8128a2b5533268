//! When a server can take jobs away from others whose leases are over.

use std::time::Duration;

use super::lease::LEASE_MS;

/// Time between two renewals of a lease. A server that was without the database for longer than this cannot know
/// whether the others were too.
pub const LEASE_RENEWAL_INTERVAL: Duration = Duration::from_secs(5);

/// The time of a lease.
const LEASE: Duration = Duration::from_millis(LEASE_MS);

/// Delays the taking of jobs until every owner has had the time to renew its leases after an interruption: of this
/// server, of its connection, or of the database.
///
/// Times are elapsed times of a clock that never jumps, such as those since the start of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReaperGate {
    /// The last answer of the database.
    answered: Duration,
    opens: Duration,
}

impl ReaperGate {
    /// Returns the gate of a server that starts: before that, it knows nothing about the database.
    pub fn new(now: Duration) -> ReaperGate {
        ReaperGate { answered: now, opens: now + LEASE }
    }

    /// Notes that the database answered a request, which was sent at `sent`, at `now`.
    pub fn record_answer(&mut self, sent: Duration, now: Duration) {
        self.close_after_gap(sent);
        self.close_after_gap(now);
        self.answered = now;
    }

    /// Returns whether jobs can be taken away now.
    pub fn is_open(&mut self, now: Duration) -> bool {
        self.close_after_gap(now);
        now >= self.opens
    }

    fn close_after_gap(&mut self, now: Duration) {
        if now.saturating_sub(self.answered) > LEASE_RENEWAL_INTERVAL {
            self.opens = self.opens.max(now + LEASE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_waits_one_lease_after_its_start_and_after_each_gap() {
        let seconds = Duration::from_secs;
        let mut gate = ReaperGate::new(seconds(100));
        let opens = |gate: &mut ReaperGate, from: u64| {
            (from..from + 60).find(|now| {
                gate.record_answer(seconds(*now), seconds(*now));
                gate.is_open(seconds(*now))
            })
        };
        assert_eq!(opens(&mut gate, 100), Some(115));
        // Five seconds are no gap, six are one.
        assert!(gate.is_open(seconds(120)));
        gate.record_answer(seconds(120), seconds(120));
        assert_eq!(opens(&mut gate, 126), Some(141));
        // An answer that took long is one too.
        gate.record_answer(seconds(141), seconds(150));
        assert_eq!(opens(&mut gate, 150), Some(165));
    }
}

//! The processor time of this process, to judge whether the client limits a measurement.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// The share of its threads from which the client counts as saturated.
const SATURATED_SHARE: f64 = 0.9;

/// Processor time and wall time: totals, or a difference.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClientCpu {
    used: Duration,
    at: Instant,
    elapsed: Duration,
}

impl ClientCpu {
    /// Returns the totals of this process so far.
    pub(super) fn now() -> ClientCpu {
        let used = clock_gettime(ClockId::ProcessCPUTime);
        let seconds = Duration::from_secs(u64::try_from(used.tv_sec).unwrap_or(0));
        let nanoseconds = Duration::from_nanos(u64::try_from(used.tv_nsec).unwrap_or(0));
        ClientCpu { used: seconds + nanoseconds, at: Instant::now(), elapsed: Duration::ZERO }
    }

    /// Returns what was used since then.
    pub(super) fn since(self, before: &ClientCpu) -> ClientCpu {
        ClientCpu {
            used: self.used.saturating_sub(before.used),
            at: self.at,
            elapsed: self.at.saturating_duration_since(before.at),
        }
    }

    /// Returns the cores that were busy on average.
    pub(super) fn cores(&self) -> f64 {
        self.used.as_secs_f64() / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// Returns whether these threads were busy almost all the time, so that more requests could not have been sent.
    pub(super) fn is_saturated(&self, threads: usize) -> bool {
        self.cores() >= SATURATED_SHARE * threads as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_thread_uses_a_core() {
        let used = |used_ms, elapsed_ms| ClientCpu {
            used: Duration::from_millis(used_ms),
            at: Instant::now(),
            elapsed: Duration::from_millis(elapsed_ms),
        };
        assert_eq!(used(500, 1000).cores(), 0.5);
        assert!(used(950, 1000).is_saturated(1) && !used(950, 1000).is_saturated(2));
        let before = ClientCpu::now();
        while ClientCpu::now().since(&before).used < Duration::from_millis(5) {}
        assert!(ClientCpu::now().since(&before).cores() > 0.0);
    }
}

//! The watchdog: it gives up a device whose submission does not end. Some drivers do this themselves and report a lost
//! device (amdgpu, i915, Windows' TDR). Others, such as NVIDIA's on a machine without a display, wait forever.
//!
//! The watchdog is a thread that calls no driver, because any call into a hung driver can block: Mesa's lavapipe blocks
//! in the next submission, and wgpu's locks then block all other threads. For the same reason this process can neither
//! close a hung device nor open it again: its queue is leaked, and [`check_not_hung`] refuses the adapter from then on.
//! A server replaces itself with a new process, and a worker's attempt ends as with any lost device.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::command_queue::InFlightSubmissions;
use saggar_device::error::DeviceError;

/// Base time limit of a submission.
const SUBMISSION_TIME: Duration = Duration::from_secs(60);
/// Additional time per kernel dispatch: 20 times the duration of one on the slowest adapters
/// (`ShaderTuning::operations_max`).
const KERNEL_TIME: Duration = Duration::from_secs(1);
/// Interval between two checks.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// Limit of the time counted between two checks. While a process is stopped or a machine sleeps, no check runs, and the
/// device may not compute either.
const CHECK_GAP_MAX: Duration = Duration::from_secs(1);

/// Names of adapters that hung in this process.
static HUNG_ADAPTERS: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Measures how long the oldest unfinished submission has been observed.
#[derive(Debug, Default)]
pub(super) struct SubmissionWatchdog {
    /// The number of that submission.
    number: u64,
    waited: Duration,
    last_check: Option<Instant>,
}

impl SubmissionWatchdog {
    /// Checks submission `number`, the oldest unfinished one, which contains `kernels` dispatches. Returns how long it
    /// has been the oldest if that exceeds its time limit.
    pub(super) fn observe(&mut self, number: u64, kernels: u64, now: Instant) -> Option<Duration> {
        if self.last_check.is_none() || self.number != number {
            *self = SubmissionWatchdog { number, waited: Duration::ZERO, last_check: Some(now) };
            return None;
        }
        let since = self.last_check.replace(now).map_or(Duration::ZERO, |looked| now.saturating_duration_since(looked));
        self.waited += since.min(CHECK_GAP_MAX);
        (self.waited > submission_time_limit(kernels)).then_some(self.waited)
    }
}

/// Starts the watchdog thread, which ends when `flights` is dropped. It calls `give_up` at most once, with the time it
/// waited, if a submission exceeds its time limit.
pub(super) fn start(flights: &Arc<InFlightSubmissions>, give_up: impl FnOnce(Duration) + Send + 'static) {
    let flights = Arc::downgrade(flights);
    let watch = move || {
        let mut watchdog = SubmissionWatchdog::default();
        let waited = loop {
            std::thread::sleep(CHECK_INTERVAL);
            let Some(flights) = flights.upgrade() else { return };
            let oldest = flights.oldest();
            let waited = oldest.and_then(|oldest| watchdog.observe(oldest.number, oldest.kernels, Instant::now()));
            if let Some(waited) = waited {
                break waited;
            }
        };
        give_up(waited);
    };
    if let Err(error) = std::thread::Builder::new().name("gpu-watchdog".to_owned()).spawn(watch) {
        tracing::warn!(%error, "cannot start the watchdog thread; a hung device is not detected");
    }
}

/// Returns the time limit of a submission with `kernels` dispatches.
fn submission_time_limit(kernels: u64) -> Duration {
    #[cfg(feature = "fault-injection")]
    if let Some(time) = super::fault_injection::hung_submission_time() {
        return time;
    }
    SUBMISSION_TIME + KERNEL_TIME.saturating_mul(u32::try_from(kernels).unwrap_or(u32::MAX))
}

/// Makes [`check_not_hung`] refuse the adapter in this process from now on.
pub(super) fn mark_as_hung(device: &str) {
    HUNG_ADAPTERS.lock().insert(device.to_owned());
}

/// Checks that no device of this adapter hung in this process.
///
/// # Errors
/// Returns `Lost` if one did.
pub(super) fn check_not_hung(device: &str) -> Result<(), DeviceError> {
    if HUNG_ADAPTERS.lock().contains(device) {
        let reason = "it hung in this process, and only another process can open it again".to_owned();
        return Err(DeviceError::Lost { device: device.to_owned(), reason });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks every `step` until a submission with `kernels` dispatches exceeds its time limit, for one hour at most.
    fn time_until_timeout(
        watchdog: &mut SubmissionWatchdog,
        kernels: u64,
        begin: Instant,
        step: Duration,
    ) -> Option<Duration> {
        let times = (0..).map(|count| step * count).take_while(|time| *time < Duration::from_secs(3600));
        times.map(|time| begin + time).find_map(|now| watchdog.observe(7, kernels, now))
    }

    #[test]
    fn submission_time_limit_is_60_seconds_plus_one_per_kernel() {
        let (now, step) = (Instant::now(), Duration::from_millis(500));
        for (kernels, seconds) in [(0, 60), (1, 61), (500, 560)] {
            let expected = Duration::from_secs(seconds) + step;
            assert_eq!(
                time_until_timeout(&mut SubmissionWatchdog::default(), kernels, now, step),
                Some(expected),
                "{kernels}"
            );
        }
        assert_eq!(time_until_timeout(&mut SubmissionWatchdog::default(), u64::MAX, now, step), None);
    }

    #[test]
    fn each_submission_has_its_own_time_limit() {
        let mut watchdog = SubmissionWatchdog::default();
        let now = Instant::now();
        for second in 0..600 {
            let now = now + Duration::from_secs(second);
            assert_eq!(watchdog.observe(second / 50, 0, now), None, "second {second}");
        }
    }

    #[test]
    fn a_gap_between_checks_counts_as_one_second_at_most() {
        let mut watchdog = SubmissionWatchdog::default();
        let now = Instant::now();
        assert_eq!(watchdog.observe(7, 0, now), None);
        assert_eq!(watchdog.observe(7, 0, now + Duration::from_secs(86_400)), None, "the process was stopped");
        let after = now + Duration::from_secs(86_400);
        let step = Duration::from_millis(500);
        assert_eq!(time_until_timeout(&mut watchdog, 0, after, step), Some(Duration::from_secs(60) + step));
    }
}

//! What a key used: of its rate, as a bucket of tokens that refills; of its quota, as a count for the day or month.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use saggar_store::Millis;
use saggar_store::keys::{Quota, Rate, Used};

/// What one key used.
#[derive(Debug, Default)]
pub(super) struct Spent {
    /// When the bucket will be full again, in nanoseconds of a clock that only goes forward: one number says how full it
    /// is at any time.
    full_at: AtomicU64,
    used: Mutex<Used>,
    /// Whether `used` changed since it was saved.
    unsaved: AtomicBool,
}

impl Spent {
    pub(super) fn new(used: Used) -> Spent {
        Spent { used: Mutex::new(used), ..Spent::default() }
    }

    /// Takes a token, or tells after how many seconds there is one. A bucket holds as many as come in its time.
    pub(super) fn take(&self, rate: Rate, now_ns: u64) -> Result<(), u64> {
        let window = u64::from(rate.seconds) * 1_000_000_000;
        let token = (window / u64::from(rate.requests)).max(1);
        let mut full_at = self.full_at.load(Ordering::Relaxed);
        loop {
            let next = full_at.max(now_ns) + token;
            if next - now_ns > window {
                return Err((next - now_ns - window).div_ceil(1_000_000_000).max(1));
            }
            match self.full_at.compare_exchange_weak(full_at, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Ok(()),
                Err(other) => full_at = other,
            }
        }
    }

    /// Counts a request, or tells after how many seconds counting begins anew.
    pub(super) fn count(&self, quota: Quota, now_ms: Millis) -> Result<(), u64> {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let (since_ms, end_ms) = quota.period.window(now_ms);
        // Only forward: a clock that is set back does not give a used quota anew.
        if since_ms > used.since_ms {
            *used = Used { since_ms, requests: 0 };
        }
        if used.requests >= quota.requests {
            return Err(end_ms.saturating_sub(now_ms).div_ceil(1000).max(1));
        }
        used.requests += 1;
        self.unsaved.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// What was used since the last day or month began.
    pub(super) fn used(&self) -> Used {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether something is to be saved. Then it counts as saved.
    pub(super) fn is_unsaved(&self) -> bool {
        self.unsaved.swap(false, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use saggar_store::keys::Period;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn ms(time: &str) -> u64 {
        u64::try_from(time.parse::<Timestamp>().unwrap().as_millisecond()).unwrap()
    }

    #[test]
    fn a_bucket_gives_what_it_holds_and_then_what_flows_in() {
        let (spent, rate) = (Spent::default(), Rate { requests: 4, seconds: 1 });
        for _ in 0..4 {
            assert_eq!(spent.take(rate, 5 * SECOND), Ok(()));
        }
        assert_eq!(spent.take(rate, 5 * SECOND), Err(1));
        assert_eq!(spent.take(rate, 5 * SECOND + SECOND / 4), Ok(()));
        assert_eq!(spent.take(rate, 5 * SECOND + SECOND / 4), Err(1));
        // An idle hour fills it once, not 3600 times.
        let taken = (0..10).filter(|_| spent.take(rate, 3600 * SECOND).is_ok()).count();
        assert_eq!(taken, 4);
        let hourly = Rate { requests: 2, seconds: 3600 };
        let spent = Spent::default();
        assert_eq!((spent.take(hourly, 0), spent.take(hourly, 0)), (Ok(()), Ok(())));
        assert_eq!(spent.take(hourly, 0), Err(1800));
    }

    #[test]
    fn threads_share_a_bucket() {
        let (spent, rate) = (Spent::default(), Rate { requests: 100, seconds: 60 });
        let taken = std::thread::scope(|scope| {
            let take = || (0..100).filter(|_| spent.take(rate, SECOND).is_ok()).count();
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(take)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum::<usize>()
        });
        assert_eq!(taken, 100);
    }

    #[test]
    fn a_quota_is_of_a_calendar_day_or_month() {
        let (spent, daily) = (Spent::default(), Quota { requests: 2, period: Period::Day });
        let evening = ms("2026-02-28T23:59:58Z");
        assert_eq!((spent.count(daily, evening), spent.count(daily, evening)), (Ok(()), Ok(())));
        assert_eq!(spent.count(daily, evening), Err(2));
        assert_eq!(spent.count(daily, evening + 2000), Ok(()));
        assert_eq!(spent.used(), Used { since_ms: ms("2026-03-01T00:00:00Z"), requests: 1 });
        assert!(spent.is_unsaved() && !spent.is_unsaved());
        // Set back, the clock gives nothing: the rest of the newer day is all there is.
        assert_eq!(spent.count(daily, evening), Ok(()));
        assert!(spent.count(daily, evening).is_err());
        let month = |now: &str| Period::Month.window(ms(now));
        assert_eq!(month("2026-12-31T23:59:59Z"), (ms("2026-12-01T00:00:00Z"), ms("2027-01-01T00:00:00Z")));
        assert_eq!(month("2028-02-01T00:00:00Z"), (ms("2028-02-01T00:00:00Z"), ms("2028-03-01T00:00:00Z")));
    }
}

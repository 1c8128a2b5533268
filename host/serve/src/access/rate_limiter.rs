//! The usage of a key: a token bucket for its rate limit, and a request count per day or month for its quota.
//!
//! Each of several servers has its own bucket, with its part of the rate. The count is that of all servers when they were last
//! asked, and the requests here since then, which are added to the others' later.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use saggar_clock::UnixMillis;
use saggar_store::keys::{KeyUsage, RateLimit, RequestQuota};

/// The usage of one key.
#[derive(Debug, Default)]
pub(super) struct KeyRateLimiter {
    /// The time at which the bucket will be full, in nanoseconds of a monotonic clock. This determines its fill level
    /// at any time.
    full_at: AtomicU64,
    used: Mutex<CountedUsage>,
    /// Whether `quota_used` has changed since it was saved.
    unsaved: AtomicBool,
}

/// The requests of the current day or month.
#[derive(Clone, Copy, Debug, Default)]
struct CountedUsage {
    /// Those of all servers, as far as they are known.
    known: KeyUsage,
    /// Those among them that the other servers do not know yet.
    unshared: u64,
}

impl KeyRateLimiter {
    pub(super) fn new(used: KeyUsage) -> KeyRateLimiter {
        let used = CountedUsage { known: used, unshared: 0 };
        KeyRateLimiter { used: Mutex::new(used), ..KeyRateLimiter::default() }
    }

    /// Takes a token. If the bucket is empty, returns the seconds until one is available. The capacity is the number of tokens
    /// per rate window. Each of several servers gives an equal part of them, and at least one each time that a token takes.
    pub(super) fn take_token(&self, rate: RateLimit, servers: u32, now_ns: u64) -> Result<(), u64> {
        let window = u64::from(rate.seconds) * 1_000_000_000;
        let token = (window / u64::from(rate.requests)).max(1).saturating_mul(u64::from(servers.max(1)));
        let window = window.max(token);
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

    /// Counts a request. Returns the seconds until the next quota period if the quota is exhausted.
    pub(super) fn count_against_quota(&self, quota: RequestQuota, now_ms: UnixMillis) -> Result<(), u64> {
        let mut used = self.used.lock();
        let (since_ms, end_ms) = quota.period.window(now_ms);
        // Only forward: setting the clock back does not reset a used quota.
        if since_ms > used.known.since_ms {
            *used = CountedUsage { known: KeyUsage { since_ms, requests: 0 }, unshared: 0 };
        }
        if used.known.requests >= quota.requests {
            return Err(end_ms.saturating_sub(now_ms).div_ceil(1000).max(1));
        }
        used.known.requests += 1;
        used.unshared += 1;
        self.unsaved.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Returns the usage in the current day or month.
    pub(super) fn quota_used(&self) -> KeyUsage {
        self.used.lock().known
    }

    /// Begins to share the usage of the day or month of `quota` that contains `now_ms`. Returns the requests that the other
    /// servers do not know.
    pub(super) fn take_unshared(&self, quota: RequestQuota, now_ms: UnixMillis) -> KeyUsage {
        let mut used = self.used.lock();
        let (since_ms, _) = quota.period.window(now_ms);
        if since_ms > used.known.since_ms {
            *used = CountedUsage { known: KeyUsage { since_ms, requests: 0 }, unshared: 0 };
        }
        KeyUsage { since_ms: used.known.since_ms, requests: std::mem::take(&mut used.unshared) }
    }

    /// Takes back what could not be shared.
    pub(super) fn return_unshared(&self, unshared_usage: KeyUsage) {
        let mut used = self.used.lock();
        if used.known.since_ms == unshared_usage.since_ms {
            used.unshared += unshared_usage.requests;
        }
    }

    /// Sets the requests of all servers, to which those that were not shared yet are added.
    pub(super) fn set_shared(&self, all: KeyUsage) {
        let mut used = self.used.lock();
        if used.known.since_ms == all.since_ms {
            let requests = all.requests.saturating_add(used.unshared);
            if requests != used.known.requests {
                used.known.requests = requests;
                self.unsaved.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Returns whether there is unsaved usage, and marks it as saved.
    pub(super) fn take_unsaved(&self) -> bool {
        self.unsaved.swap(false, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use saggar_store::keys::QuotaPeriod;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn timestamp_ms(time: &str) -> u64 {
        u64::try_from(time.parse::<Timestamp>().unwrap().as_millisecond()).unwrap()
    }

    #[test]
    fn a_token_bucket_allows_a_burst_and_then_its_rate() {
        let (spent, rate) = (KeyRateLimiter::default(), RateLimit { requests: 4, seconds: 1 });
        for _ in 0..4 {
            assert_eq!(spent.take_token(rate, 1, 5 * SECOND), Ok(()));
        }
        assert_eq!(spent.take_token(rate, 1, 5 * SECOND), Err(1));
        assert_eq!(spent.take_token(rate, 1, 5 * SECOND + SECOND / 4), Ok(()));
        assert_eq!(spent.take_token(rate, 1, 5 * SECOND + SECOND / 4), Err(1));
        // An idle hour fills the bucket once, not 3600 times.
        let accepted_count = (0..10).filter(|_| spent.take_token(rate, 1, 3600 * SECOND).is_ok()).count();
        assert_eq!(accepted_count, 4);
        let hourly = RateLimit { requests: 2, seconds: 3600 };
        let spent = KeyRateLimiter::default();
        assert_eq!((spent.take_token(hourly, 1, 0), spent.take_token(hourly, 1, 0)), (Ok(()), Ok(())));
        assert_eq!(spent.take_token(hourly, 1, 0), Err(1800));
    }

    #[test]
    fn threads_share_one_token_bucket() {
        let (spent, rate) = (KeyRateLimiter::default(), RateLimit { requests: 100, seconds: 60 });
        let accepted_count = std::thread::scope(|scope| {
            let take = || (0..100).filter(|_| spent.take_token(rate, 1, SECOND).is_ok()).count();
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(take)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum::<usize>()
        });
        assert_eq!(accepted_count, 100);
    }

    #[test]
    fn several_servers_give_an_equal_part_of_the_rate() {
        let (spent, rate) = (KeyRateLimiter::default(), RateLimit { requests: 8, seconds: 1 });
        let accepted = |servers, now_ns| (0..20).filter(|_| spent.take_token(rate, servers, now_ns).is_ok()).count();
        assert_eq!(accepted(4, 5 * SECOND), 2);
        assert_eq!(accepted(4, 6 * SECOND), 2);
        assert_eq!(accepted(1, 7 * SECOND), 8);
        // A rate of less than one request for each server and window still gives each server some.
        let (spent, rate) = (KeyRateLimiter::default(), RateLimit { requests: 1, seconds: 60 });
        assert_eq!(spent.take_token(rate, 3, 0), Ok(()));
        assert_eq!(spent.take_token(rate, 3, SECOND), Err(179));
        assert_eq!(spent.take_token(rate, 3, 180 * SECOND), Ok(()));
    }

    #[test]
    fn the_requests_of_other_servers_count_against_the_quota() {
        let (spent, daily) = (KeyRateLimiter::default(), RequestQuota { requests: 5, period: QuotaPeriod::Day });
        let now_ms = timestamp_ms("2026-02-27T12:00:00Z");
        let since_ms = timestamp_ms("2026-02-27T00:00:00Z");
        let usage = |requests| KeyUsage { since_ms, requests };
        assert_eq!(spent.count_against_quota(daily, now_ms), Ok(()));
        let unshared_usage = spent.take_unshared(daily, now_ms);
        assert_eq!(unshared_usage, usage(1));
        spent.return_unshared(unshared_usage);
        assert_eq!(spent.count_against_quota(daily, now_ms), Ok(()));
        assert_eq!(spent.take_unshared(daily, now_ms), usage(2));
        // A request arrives before the answer.
        assert_eq!(spent.count_against_quota(daily, now_ms), Ok(()));
        spent.set_shared(usage(4));
        assert_eq!(spent.quota_used(), usage(5));
        assert!(spent.count_against_quota(daily, now_ms).is_err());
        assert_eq!(spent.take_unshared(daily, now_ms), usage(1));
        // An answer about another day changes nothing.
        spent.set_shared(KeyUsage { since_ms: since_ms - 1, requests: 0 });
        assert_eq!(spent.quota_used(), usage(5));
    }

    #[test]
    fn a_quota_resets_with_the_calendar_day_or_month() {
        let (spent, daily) = (KeyRateLimiter::default(), RequestQuota { requests: 2, period: QuotaPeriod::Day });
        let evening = timestamp_ms("2026-02-28T23:59:58Z");
        assert_eq!(
            (spent.count_against_quota(daily, evening), spent.count_against_quota(daily, evening)),
            (Ok(()), Ok(()))
        );
        assert_eq!(spent.count_against_quota(daily, evening), Err(2));
        assert_eq!(spent.count_against_quota(daily, evening + 2000), Ok(()));
        assert_eq!(spent.quota_used(), KeyUsage { since_ms: timestamp_ms("2026-03-01T00:00:00Z"), requests: 1 });
        assert!(spent.take_unsaved() && !spent.take_unsaved());
        // Setting the clock back resets nothing: only the rest of the later day's quota is left.
        assert_eq!(spent.count_against_quota(daily, evening), Ok(()));
        assert!(spent.count_against_quota(daily, evening).is_err());
        let month = |now: &str| QuotaPeriod::Month.window(timestamp_ms(now));
        assert_eq!(
            month("2026-12-31T23:59:59Z"),
            (timestamp_ms("2026-12-01T00:00:00Z"), timestamp_ms("2027-01-01T00:00:00Z"))
        );
        assert_eq!(
            month("2028-02-01T00:00:00Z"),
            (timestamp_ms("2028-02-01T00:00:00Z"), timestamp_ms("2028-03-01T00:00:00Z"))
        );
    }
}

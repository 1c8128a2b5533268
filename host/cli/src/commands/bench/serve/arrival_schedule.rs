//! When the requests of a load are due: on a schedule, whether or not earlier ones were answered (an open loop), or as
//! soon as the connection's previous answer is complete (a closed loop).

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::super::counter_random::CounterRandom;
use super::load_recorder::LatencyHistogram;
use crate::args::ArrivalsArg;

/// The stream of random numbers for arrivals.
const ARRIVALS_STREAM: u32 = 1 << 31;

/// The times at which requests are due, as offsets from the start, in order.
#[derive(Clone, Debug)]
pub(super) struct ArrivalSchedule {
    rate: f64,
    /// The random numbers of a Poisson process; `None` for constant distances.
    random: Option<CounterRandom>,
    requests: u64,
    /// The last time in seconds, for a Poisson process.
    at: f64,
}

impl ArrivalSchedule {
    /// Returns the schedule of `rate` requests per second, above 0.
    pub(super) fn new(rate: f64, arrivals: ArrivalsArg, seed: u64) -> ArrivalSchedule {
        let random = match arrivals {
            ArrivalsArg::Poisson => Some(CounterRandom::new(seed, ARRIVALS_STREAM)),
            ArrivalsArg::Constant => None,
        };
        ArrivalSchedule { rate, random, requests: 0, at: 0.0 }
    }
}

impl Iterator for ArrivalSchedule {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let seconds = match &mut self.random {
            // The distances of a Poisson process are exponentially distributed.
            Some(random) => {
                self.at -= (1.0 - random.next_unit()).ln() / self.rate;
                self.at
            }
            None => self.requests as f64 / self.rate,
        };
        self.requests += 1;
        Duration::try_from_secs_f64(seconds).ok()
    }
}

/// The requests that are due and not sent yet. Connections take them in order.
#[derive(Debug)]
pub(super) struct DueRequests {
    queue: Mutex<VecDeque<Instant>>,
    /// One permit for each request in the queue.
    permits: Semaphore,
}

impl DueRequests {
    pub(super) fn new() -> DueRequests {
        DueRequests { queue: Mutex::default(), permits: Semaphore::new(0) }
    }

    /// Waits for the next request and returns when it is or was due, or `None` if no more will come.
    pub(super) async fn next(&self) -> Option<Instant> {
        // Once the semaphore is closed, the rest of the queue is taken without permits.
        if let Ok(permit) = self.permits.acquire().await {
            permit.forget();
        }
        self.queue.lock().pop_front()
    }

    /// Adds every request of `schedule` when it is due, and closes the queue at `end`. Blocks until then. Returns how
    /// late requests were added.
    pub(super) fn fill(&self, schedule: ArrivalSchedule, start: Instant, end: Instant) -> LatencyHistogram {
        let mut lateness = LatencyHistogram::new();
        for offset in schedule {
            let due = start + offset;
            if due >= end {
                break;
            }
            // A thread's sleep is more precise than a timer of the runtime, whose ticks are a millisecond.
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            lateness.record(due.elapsed());
            self.queue.lock().push_back(due);
            self.permits.add_permits(1);
        }
        self.permits.close();
        lateness
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_have_the_rate_and_follow_from_the_seed() {
        let constant: Vec<Duration> = ArrivalSchedule::new(100.0, ArrivalsArg::Constant, 1).take(3).collect();
        assert_eq!(constant, [0, 10, 20].map(Duration::from_millis));
        let poisson = |seed| -> Vec<f64> {
            let schedule = ArrivalSchedule::new(100.0, ArrivalsArg::Poisson, seed);
            schedule.take(20_000).map(|offset| offset.as_secs_f64()).collect()
        };
        let times = poisson(1);
        assert_eq!(times, poisson(1));
        assert_ne!(times, poisson(2));
        assert!(times.is_sorted());
        let distances: Vec<f64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let mean = distances.iter().sum::<f64>() / distances.len() as f64;
        let variance = distances.iter().map(|it| (it - mean).powi(2)).sum::<f64>() / distances.len() as f64;
        // Mean and standard deviation of exponential distances are equal. The bounds are four standard errors.
        assert!((mean / 0.01 - 1.0).abs() < 0.03, "{mean}");
        assert!((variance.sqrt() / mean - 1.0).abs() < 0.05, "{}", variance.sqrt());
    }

    #[test]
    fn connections_take_every_due_request_once_and_in_order() {
        let due = DueRequests::new();
        let start = Instant::now();
        let schedule = ArrivalSchedule::new(10_000.0, ArrivalsArg::Constant, 1);
        let lateness = due.fill(schedule, start, start + Duration::from_millis(2));
        assert_eq!(lateness.count(), 20);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let received = runtime.block_on(async {
            let mut received = Vec::new();
            while let Some(at) = due.next().await {
                received.push(at);
            }
            received
        });
        assert!(received.len() == 20 && received.is_sorted(), "{received:?}");
    }
}

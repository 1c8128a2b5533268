//! Amdahl's law: with a share `p` of the work spread over `n` workers, the speed-up is `1 / ((1 - p) + p / n)`. Source:
//! Amdahl, "Validity of the single processor approach to achieving large scale computing capabilities", AFIPS 1967.

use super::confidence::central_interval;
use super::counter_random::CounterRandom;

/// How often the repetitions are resampled.
const RESAMPLES: usize = 4000;
/// The fewest repetitions of each number of workers for an interval.
pub(super) const REPETITIONS_MIN: usize = 3;

/// The measured times of one number of workers.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct WorkerTimes {
    pub(super) workers: u32,
    /// Seconds of a step in each repetition, above 0.
    pub(super) seconds: Vec<f64>,
}

/// The share of the work that is done in parallel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ParallelShare {
    /// The share by least squares. It is below 0 if more workers are slower, and above 1 if the speed-up exceeds the
    /// number of workers.
    pub(super) share: f64,
    /// The ends of the interval, or `None` with fewer than [`REPETITIONS_MIN`] repetitions.
    pub(super) interval: Option<[f64; 2]>,
}

/// Returns the speed-up of `workers` workers for a share `p` of parallel work.
pub(super) fn amdahl_speedup(share: f64, workers: u32) -> f64 {
    1.0 / ((1.0 - share) + share / f64::from(workers))
}

/// Returns the mean time.
pub(super) fn mean_seconds(times: &WorkerTimes) -> f64 {
    super::confidence::mean(&times.seconds)
}

/// Fits the share. By the law, the time of `n` workers divided by that of one is `1 - p (1 - 1/n)`, which is linear in
/// `p`, so the fit is a least-squares line through the origin. The interval is a percentile bootstrap over repetitions;
/// `seed` determines the resamples. Returns `None` if one worker or several were not measured.
pub(super) fn fit_parallel_share(times: &[WorkerTimes], seed: u64) -> Option<ParallelShare> {
    let means: Vec<(u32, f64)> = times.iter().map(|it| (it.workers, mean_seconds(it))).collect();
    let share = least_squares_share(&means)?;
    if times.iter().any(|it| it.seconds.len() < REPETITIONS_MIN) {
        return Some(ParallelShare { share, interval: None });
    }
    let mut random = CounterRandom::new(seed, 0);
    let mut resampled = || -> Vec<(u32, f64)> {
        let mean = |it: &WorkerTimes| {
            let drawn = it.seconds.iter().map(|_| it.seconds[random.next_below(it.seconds.len())]);
            (it.workers, drawn.sum::<f64>() / it.seconds.len() as f64)
        };
        times.iter().map(mean).collect()
    };
    let shares = (0..RESAMPLES).filter_map(|_| least_squares_share(&resampled())).collect::<Vec<f64>>();
    Some(ParallelShare { share, interval: Some(central_interval(shares)) })
}

/// Returns the share from the mean times by number of workers.
fn least_squares_share(means: &[(u32, f64)]) -> Option<f64> {
    let (_, of_one) = means.iter().find(|(workers, _)| *workers == 1)?;
    let point = |&(workers, seconds): &(u32, f64)| (1.0 - 1.0 / f64::from(workers), 1.0 - seconds / of_one);
    let points: Vec<(f64, f64)> = means.iter().map(point).collect();
    let squares: f64 = points.iter().map(|(x, _)| x * x).sum();
    let share = points.iter().map(|(x, y)| x * y).sum::<f64>() / squares;
    share.is_finite().then_some(share)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns times of this share, each with deviations of up to `noise` that add up to 0.
    fn times(share: f64, noise: f64) -> Vec<WorkerTimes> {
        let of = |workers: u32| {
            let exact = 2.0 / amdahl_speedup(share, workers);
            let seconds = [-1.0, 0.5, 1.0, -0.5, 0.0].map(|deviation| exact * (1.0 + noise * deviation)).to_vec();
            WorkerTimes { workers, seconds }
        };
        [1, 2, 4, 8].map(of).to_vec()
    }

    #[test]
    fn the_law_has_its_published_values() {
        assert!((amdahl_speedup(0.99, 128) - 56.387_665).abs() < 1e-6, "{}", amdahl_speedup(0.99, 128));
        assert_eq!((amdahl_speedup(0.0, 64), amdahl_speedup(1.0, 64), amdahl_speedup(0.7, 1)), (1.0, 64.0, 1.0));
    }

    #[test]
    fn the_fit_recovers_the_share_of_synthetic_times() {
        for share in [0.0, 0.3, 0.75, 0.99, 1.0, -0.2] {
            let exact = fit_parallel_share(&times(share, 0.0), 1).unwrap();
            let [low, high] = exact.interval.unwrap();
            assert!((exact.share - share).abs() < 1e-9 && high - low < 1e-9, "{share}: {exact:?}");
            let noisy = fit_parallel_share(&times(share, 0.05), 1).unwrap();
            let [low, high] = noisy.interval.unwrap();
            assert!((noisy.share - share).abs() < 1e-9 && low < share && share < high, "{share}: {noisy:?}");
            assert!(high - low < 0.2, "{share}: {noisy:?}");
        }
    }

    #[test]
    fn a_fit_needs_one_worker_and_several_and_repetitions_for_an_interval() {
        let all = times(0.5, 0.0);
        assert_eq!(fit_parallel_share(&all[1..], 1), None);
        assert_eq!(fit_parallel_share(&all[..1], 1), None);
        let mut few = all;
        few[1].seconds.truncate(2);
        assert_eq!(fit_parallel_share(&few, 1).unwrap().interval, None);
    }
}

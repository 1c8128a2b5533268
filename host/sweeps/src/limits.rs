//! Named maxima of sweeps.

use std::time::Duration;

/// Maximum trials of a sweep.
pub const TRIALS_MAX: u32 = 2_000;
/// Maximum parameters that a sweep searches.
pub const PARAMETERS_MAX: usize = 32;
/// Maximum values of one parameter that are listed.
pub const VALUES_MAX: usize = 1_000;
/// Maximum bytes of the text of one parameter's range.
pub const RANGE_BYTES_MAX: usize = 16 << 10;
/// Maximum trials of a sweep that run at once.
pub const PARALLEL_MAX: u32 = 256;
/// Maximum factor by which each rung reduces the number of trials.
pub const ETA_MAX: u32 = 16;
/// Maximum rungs.
pub const RUNGS_MAX: u32 = 8;
/// Maximum generations of a population.
pub const GENERATIONS_MAX: u32 = 100;
/// Maximum members of a population times its generations, which bounds the number of trials.
pub const POPULATION_INTERVALS_MAX: u32 = 5_000;
/// Maximum share of a population that is replaced after a generation, so that no member is replaced from one that is.
pub const EXPLOIT_QUANTILE_MAX: f64 = 0.5;
/// Maximum number of factors by which parameters are perturbed.
pub const PERTURB_FACTORS_MAX: usize = 16;
/// Maximum factor by which a parameter is perturbed.
pub const PERTURB_FACTOR_MAX: f64 = 1_000.0;
/// Maximum draws of the parameters of a copy, if the ones before equal those of another copy of the same state.
pub const PERTURBATIONS_MAX: u32 = 16;
/// Results with a finite value before the estimator of `tpe` proposes parameters; trials before are drawn at random.
pub const TPE_RANDOM_TRIALS: usize = 10;
/// Candidates among which the estimator selects, for each parameter that is an interval.
pub const TPE_CANDIDATES: usize = 24;
/// Maximum number of results that count as good.
pub const TPE_GOOD_MAX: usize = 25;
/// Maximum proposals for a trial, and then random draws, if the ones before equal an earlier trial.
pub const TPE_PROPOSALS_MAX: u32 = 8;
/// Minimum time between two looks at a sweep, so that jobs that report many steps do not keep the records busy.
pub const LOOK_INTERVAL_MIN: Duration = Duration::from_millis(50);
/// Time between two looks at a sweep whose jobs report nothing.
pub const LOOK_INTERVAL_MAX: Duration = Duration::from_secs(2);

// The denominator of the first rung's share.
const _: () = assert!((ETA_MAX as u64).pow(RUNGS_MAX) <= u32::MAX as u64 + 1);

//! `[sweep.NAME]`: a search for parameters of a task.

use core::time::Duration;
use std::collections::BTreeMap;

use crate::manifest_table::ManifestTable;
use crate::manifest_value::ManifestValue;
use crate::parse_report::TableKind;

/// Maximum trials of a sweep.
const TRIALS_MAX: u32 = 2_000;
/// Maximum trials that run at once.
const PARALLEL_MAX: u32 = 256;
/// Bounds of the reduction factor.
const ETA: (u32, u32) = (2, 16);
/// Maximum rungs.
const RUNGS_MAX: u32 = 8;

/// Maximum generations of a population.
const GENERATIONS_MAX: u32 = 100;
/// Maximum share of a population that is replaced.
const EXPLOIT_QUANTILE_MAX: f64 = 0.5;
/// Maximum factor by which parameters are perturbed.
const PERTURB_FACTOR_MAX: f64 = 1_000.0;
/// Maximum factors by which parameters are perturbed.
const PERTURB_FACTORS_MAX: usize = 16;

/// How parameters can be chosen and trials stopped early, as named in a sweep's specification.
pub const SWEEP_METHODS: [&str; 7] = ["full", "median", "halving", "asha", "tpe", "tpe-asha", "pbt"];

/// A search for parameters.
#[derive(Clone, Debug, PartialEq)]
pub struct SweepSection {
    /// Name of the task whose parameters are searched.
    pub task: String,
    /// The range of each searched parameter, such as `log(1e-4,1e-1)` or `8,16`. Checked when the sweep starts.
    pub space: BTreeMap<String, String>,
    /// The series by which trials are compared.
    pub metric: String,
    /// The number of trials, if their parameters are drawn; every combination of the listed values if omitted.
    pub trials: Option<u32>,
    /// How parameters are chosen and trials are stopped early, one of [`SWEEP_METHODS`].
    pub method: Option<String>,
    /// Maximum number of trials that run at once.
    pub max_parallel: Option<u32>,
    /// One of this many trials continues at each rung.
    pub eta: Option<u32>,
    /// Number of rungs before the end.
    pub rungs: Option<u32>,
    /// Number of intervals after which a population is compared.
    pub generations: Option<u32>,
    /// Share of a population that is replaced after an interval.
    pub exploit_quantile: Option<f64>,
    /// Factors by which the parameters of a copy are multiplied.
    pub perturb_factors: Option<Vec<f64>>,
    /// Probability with which a parameter of a copy is drawn from its range.
    pub resample_probability: Option<f64>,
    /// Time limit of the sweep.
    pub budget: Option<Duration>,
    /// Limit of the device time of its trials.
    pub device_budget: Option<Duration>,
}

pub(super) fn read_sweep(table: &ManifestTable<'_>) -> Option<SweepSection> {
    let task = table.required("task", "task = \"train\"", |item| item.table_reference(TableKind::Task));
    let space = table.required("space", "space = { lr = \"log(1e-4,1e-1)\", channels = \"8,16\" }", read_space);
    let metric = table.required("metric", "metric = \"validation/accuracy\"", |item| item.string());
    let methods = SWEEP_METHODS.map(|method| (method, method));
    let section = SweepSection {
        trials: table.optional("trials", |item| item.bounded_count(1, TRIALS_MAX)),
        method: table.optional("method", |item| item.choice(&methods).map(str::to_owned)),
        max_parallel: table.optional("max_parallel", |item| item.bounded_count(1, PARALLEL_MAX)),
        eta: table.optional("eta", |item| item.bounded_count(ETA.0, ETA.1)),
        rungs: table.optional("rungs", |item| item.bounded_count(1, RUNGS_MAX)),
        generations: table.optional("generations", |item| item.bounded_count(2, GENERATIONS_MAX)),
        exploit_quantile: table.optional("exploit_quantile", |item| item.positive(EXPLOIT_QUANTILE_MAX)),
        perturb_factors: table.optional("perturb_factors", read_factors),
        resample_probability: table.optional("resample_probability", read_probability),
        budget: table.optional("budget", |item| item.duration()),
        device_budget: table.optional("device_budget", |item| item.duration()),
        task: task.unwrap_or_default(),
        space: space.unwrap_or_default(),
        metric: metric.unwrap_or_default(),
    };
    table.report_unknown_keys();
    // Missing keys are reported.
    (!section.task.is_empty() && !section.metric.is_empty()).then_some(section)
}

fn read_factors(item: &ManifestValue<'_>) -> Option<Vec<f64>> {
    let factors = item.list(|factor| factor.positive(PERTURB_FACTOR_MAX))?;
    match factors.len() {
        1..=PERTURB_FACTORS_MAX => Some(factors),
        _ => item.report_expected_with_example(format!("1 to {PERTURB_FACTORS_MAX} numbers"), "[0.8, 1.2]"),
    }
}

fn read_probability(item: &ManifestValue<'_>) -> Option<f64> {
    let number = item.number().filter(|number| (0.0..=1.0).contains(number));
    number.or_else(|| item.report_expected_with_example("a number from 0 to 1", 0.25))
}

fn read_space(item: &ManifestValue<'_>) -> Option<BTreeMap<String, String>> {
    let entries = item.table()?.entries();
    if entries.is_empty() {
        return item.report_expected("at least one parameter, such as { lr = \"log(1e-4,1e-1)\" }");
    }
    Some(entries.into_iter().filter_map(|(name, range)| Some((name, range.string()?))).collect())
}

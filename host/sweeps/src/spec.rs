//! The specification of a sweep, checked once at its creation and recorded with it.

mod population;

use std::collections::BTreeMap;

use saggar_jobs::{JobSpec, parse_keep_best};
use saggar_store::checkpoint::{BestMetric, MetricMode};
use saggar_store::records::{PausePoint, PauseStep};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::SweepSpecError;
use crate::limits::{ETA_MAX, PARALLEL_MAX, RUNGS_MAX, TRIALS_MAX};
use crate::space::SearchSpace;
pub(crate) use population::PopulationSettings;

/// How the parameters of trials are chosen, and how trials are stopped early.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SweepMethod {
    /// Every trial runs to its end.
    #[default]
    Full,
    /// A trial whose best value is worse than the median of the other trials' running means is stopped. Source: Golovin
    /// et al. 2017, "Google Vizier", section 3.2.1.
    Median,
    /// All trials run to a rung; the best part of them continues to the next one. Source: Jamieson and Talwalkar 2016,
    /// "Non-stochastic best arm identification and hyperparameter optimization".
    Halving,
    /// As `halving`, but a trial continues as soon as it is among the best of those at its rung, without waiting for all
    /// others. Source: Li et al. 2018, "A System for Massively Parallel Hyperparameter Tuning", algorithm 2.
    Asha,
    /// The parameters of a trial are drawn where the results so far are best, and every trial runs to its end. Source:
    /// Bergstra et al. 2011, "Algorithms for Hyper-Parameter Optimization".
    Tpe,
    /// Parameters as with `tpe`, and trials stopped as with `asha`. A trial that got to a later rung counts as better than
    /// one that was stopped before. Source: Falkner et al. 2018, "BOHB: Robust and Efficient Hyperparameter Optimization
    /// at Scale", with asynchronous halving in place of Hyperband and one estimate for all rungs.
    #[serde(rename = "tpe-asha")]
    TpeAsha,
    /// A population of trials trains in intervals. After each, the worst ones are replaced by copies of the best ones, which
    /// continue from their state with perturbed parameters. Source: Jaderberg et al. 2017, "Population Based Training of
    /// Neural Networks".
    Pbt,
}

impl SweepMethod {
    /// Every method.
    pub const ALL: [SweepMethod; 7] = [
        SweepMethod::Full,
        SweepMethod::Median,
        SweepMethod::Halving,
        SweepMethod::Asha,
        SweepMethod::Tpe,
        SweepMethod::TpeAsha,
        SweepMethod::Pbt,
    ];

    /// Returns the name that users see, such as `tpe-asha`.
    pub const fn name(self) -> &'static str {
        match self {
            SweepMethod::Full => "full",
            SweepMethod::Median => "median",
            SweepMethod::Halving => "halving",
            SweepMethod::Asha => "asha",
            SweepMethod::Tpe => "tpe",
            SweepMethod::TpeAsha => "tpe-asha",
            SweepMethod::Pbt => "pbt",
        }
    }

    /// Returns whether parameters depend on the results of earlier trials.
    pub(crate) const fn learns_parameters(self) -> bool {
        match self {
            SweepMethod::Full | SweepMethod::Median | SweepMethod::Halving | SweepMethod::Asha | SweepMethod::Pbt => {
                false
            }
            SweepMethod::Tpe | SweepMethod::TpeAsha => true,
        }
    }

    /// Returns whether trials pause at rungs whose distances grow by `eta`.
    const fn has_rungs(self) -> bool {
        match self {
            SweepMethod::Full | SweepMethod::Median | SweepMethod::Tpe | SweepMethod::Pbt => false,
            SweepMethod::Halving | SweepMethod::Asha | SweepMethod::TpeAsha => true,
        }
    }
}

/// A sweep: a training, the ranges of some of its parameters, and how trials of it are chosen and stopped.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SweepSpec {
    /// The job of every trial; the searched parameters are added to its parameters.
    pub job: JobSpec,
    /// The ranges of the searched parameters by name: `log(1e-4,1e-1)`, `uniform(0,0.9)`, `int(1,8)`,
    /// `choice(sgd,adam)`, or values separated by commas.
    pub space: BTreeMap<String, String>,
    /// The number of trials, whose parameters are drawn at random or, with `tpe` and `tpe-asha`, from the results so far;
    /// every combination of the listed values if omitted. With `pbt`, the number of members of the population.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 2000))]
    pub trials: Option<u32>,
    /// How parameters are chosen and trials are stopped early.
    #[serde(default)]
    pub method: SweepMethod,
    /// The series by which trials are compared: `validation/accuracy`, `min:NAME`, `max:NAME`. Without a direction, a
    /// series whose name ends in `accuracy` is best at its maximum, and any other at its minimum.
    pub metric: String,
    /// The maximum number of trials that run at once.
    #[serde(default = "default_max_parallel")]
    #[schemars(range(min = 1, max = 256))]
    pub max_parallel: u32,
    /// The seed of the random parameters.
    #[serde(default)]
    pub seed: u64,
    /// Of `halving`, `asha` and `tpe-asha`: one of this many trials continues at each rung, and the next rung is this many times as
    /// far.
    #[serde(default = "default_eta")]
    #[schemars(range(min = 2, max = 16))]
    pub eta: u32,
    /// Of `halving`, `asha` and `tpe-asha`: the number of rungs before the end. With 2 rungs and `eta` 3, trials are compared after a
    /// ninth and a third of their steps.
    #[serde(default = "default_rungs")]
    #[schemars(range(min = 1, max = 8))]
    pub rungs: u32,
    /// Of `median`: the number of trials that must be over before a trial is stopped.
    #[serde(default = "default_median_trials_min")]
    #[schemars(range(min = 1, max = 2000))]
    pub median_trials_min: u32,
    /// Of `pbt`: the number of equal intervals that the steps of a training are divided into; 10 by default. After each
    /// but the last, the members of the population are compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 2, max = 100))]
    pub generations: Option<u32>,
    /// Of `pbt`: the share of the population that is replaced after an interval, and the share of the best ones that it is
    /// replaced from; 0.2 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("exclusiveMinimum" = 0, "maximum" = 0.5))]
    pub exploit_quantile: Option<f64>,
    /// Of `pbt`: the factors by which the parameters of a copy are multiplied, one of them each; 0.8 and 1.2 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 16))]
    pub perturb_factors: Option<Vec<f64>>,
    /// Of `pbt`: the probability with which a parameter of a copy is drawn from its range instead; 0.25 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1))]
    pub resample_probability: Option<f64>,
    /// The sweep ends this many seconds after it was created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub budget_seconds: Option<f64>,
    /// The sweep ends once its trials have used this many device seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub budget_device_seconds: Option<f64>,
}

fn default_max_parallel() -> u32 {
    4
}

fn default_eta() -> u32 {
    3
}

fn default_rungs() -> u32 {
    2
}

fn default_median_trials_min() -> u32 {
    4
}

impl SweepSpec {
    /// Returns a search of these ranges with defaults for everything else.
    pub fn new(job: JobSpec, space: BTreeMap<String, String>, metric: impl Into<String>) -> SweepSpec {
        SweepSpec {
            job,
            space,
            trials: None,
            method: SweepMethod::Full,
            metric: metric.into(),
            max_parallel: default_max_parallel(),
            seed: 0,
            eta: default_eta(),
            rungs: default_rungs(),
            median_trials_min: default_median_trials_min(),
            generations: None,
            exploit_quantile: None,
            perturb_factors: None,
            resample_probability: None,
            budget_seconds: None,
            budget_device_seconds: None,
        }
    }

    /// Checks the specification.
    ///
    /// # Errors
    /// Returns the first field that is not valid. The job is checked separately, as every job is.
    pub fn validate(mut self) -> Result<ValidSweep, SweepSpecError> {
        let space = SearchSpace::parse(&self.space)?;
        let population = PopulationSettings::read(&mut self)?;
        let trials = match self.trials {
            None if self.method.learns_parameters() => {
                return Err(SweepSpecError::TrialsMissing { method: self.method.name() });
            }
            None => space.combination_count()?,
            Some(count) if (1..=TRIALS_MAX).contains(&count) => count,
            Some(count) => return Err(SweepSpecError::Trials { count: count.into() }),
        };
        for (field, value, min, max) in [
            ("max_parallel", self.max_parallel, 1, PARALLEL_MAX),
            ("eta", self.eta, 2, ETA_MAX),
            ("rungs", self.rungs, 1, RUNGS_MAX),
            ("median_trials_min", self.median_trials_min, 1, TRIALS_MAX),
        ] {
            if !(min..=max).contains(&value) {
                return Err(SweepSpecError::OutOfRange { field, value, min, max });
            }
        }
        for (field, budget) in
            [("budget_seconds", self.budget_seconds), ("budget_device_seconds", self.budget_device_seconds)]
        {
            if budget.is_some_and(|seconds| !seconds.is_finite() || seconds <= 0.0) {
                return Err(SweepSpecError::Budget { field });
            }
        }
        let metric = parse_keep_best(&self.metric);
        if metric.metric.is_empty() || metric.metric.len() > saggar_store::limits::SERIES_NAME_BYTES_MAX {
            return Err(SweepSpecError::Metric);
        }
        match (&self.job.predict, self.job.measure) {
            (Some(_), _) => return Err(SweepSpecError::NoTraining { what: "predicts" }),
            (None, true) => return Err(SweepSpecError::NoTraining { what: "only measures" }),
            (None, false) if self.job.replay.is_some() => {
                return Err(SweepSpecError::NoTraining { what: "replays another job" });
            }
            (None, false) => {}
        }
        Ok(ValidSweep { spec: self, space, trials, metric, population })
    }
}

/// A checked specification.
#[derive(Clone, Debug, PartialEq)]
pub struct ValidSweep {
    pub(crate) spec: SweepSpec,
    pub(crate) space: SearchSpace,
    pub(crate) trials: u32,
    pub(crate) metric: BestMetric,
    /// The settings of `pbt`, if that is the method.
    pub(crate) population: Option<PopulationSettings>,
}

impl ValidSweep {
    /// Returns the specification.
    pub fn spec(&self) -> &SweepSpec {
        &self.spec
    }

    /// Returns the specification for changes of its job, which is not a part of the check.
    pub fn job_mut(&mut self) -> &mut JobSpec {
        &mut self.spec.job
    }

    /// Returns the ranges.
    pub fn space(&self) -> &SearchSpace {
        &self.space
    }

    /// Returns the number of trials.
    pub fn trial_count(&self) -> u32 {
        self.trials
    }

    /// Returns the metric and the direction in which it improves.
    pub fn metric(&self) -> &BestMetric {
        &self.metric
    }

    /// Returns the parameters that a trial, numbered from 1, has without any results of other trials.
    pub fn parameters(&self, trial: u32) -> serde_json::Map<String, serde_json::Value> {
        match self.spec.trials {
            None => self.space.combination(trial.saturating_sub(1)),
            Some(_) => self.space.draw(self.spec.seed, trial),
        }
    }

    /// Returns the number of rungs before the end: 0 if trials do not pause. The rungs of a population are the ends of its
    /// generations.
    pub(crate) fn rung_count(&self) -> u32 {
        match &self.population {
            Some(population) => population.generations - 1,
            None if self.spec.method.has_rungs() => self.spec.rungs,
            None => 0,
        }
    }

    /// Returns where the trials of a rung pause, or `None` if they run to their end. Rung k is at the share
    /// `eta^(k - rungs)` of a trial's steps, or of a population at the share `(k + 1) / generations`.
    pub fn pause_point(&self, rung: u32) -> Option<PausePoint> {
        let below = self.rung_count().checked_sub(rung).filter(|below| *below > 0)?;
        let at = match &self.population {
            Some(population) => PauseStep::Share { part: rung + 1, of: population.generations },
            None => PauseStep::Share { part: 1, of: self.spec.eta.saturating_pow(below) },
        };
        Some(PausePoint { at, metric: Some(self.metric.metric.clone()) })
    }

    /// Returns a number that is larger for better values, and smallest for those that are not finite.
    pub fn score(&self, value: Option<f64>) -> f64 {
        match (value.filter(|value| value.is_finite()), self.metric.mode) {
            (None, _) => f64::NEG_INFINITY,
            (Some(value), MetricMode::Max) => value,
            (Some(value), MetricMode::Min) => -value,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> SweepSpec {
        let space = BTreeMap::from([("lr".to_owned(), "0.1,0.01".to_owned())]);
        SweepSpec::new(JobSpec::new("p", "0".repeat(64)), space, "validation/accuracy")
    }

    #[test]
    fn rungs_are_at_powers_of_the_reduction_factor() {
        let asha = SweepSpec { method: SweepMethod::Asha, eta: 4, rungs: 2, ..spec() }.validate().unwrap();
        let shares: Vec<_> = (0..4).map(|rung| asha.pause_point(rung).map(|point| point.at)).collect();
        let share = |of| Some(PauseStep::Share { part: 1, of });
        assert_eq!(shares, [share(16), share(4), None, None]);
        let largest = SweepSpec { method: SweepMethod::Asha, eta: ETA_MAX, rungs: RUNGS_MAX, ..spec() };
        let point = largest.validate().unwrap().pause_point(0).unwrap();
        assert_eq!(point.at, PauseStep::Share { part: 1, of: u32::MAX });
        assert_eq!(spec().validate().unwrap().pause_point(0), None);
    }

    #[test]
    fn a_value_that_is_not_finite_is_the_worst() {
        for (metric, better, worse) in [("validation/accuracy", 0.9, 0.8), ("loss", 0.1, 0.2), ("max:loss", 2.0, 1.0)] {
            let sweep = SweepSpec { metric: metric.to_owned(), ..spec() }.validate().unwrap();
            assert!(sweep.score(Some(better)) > sweep.score(Some(worse)), "{metric}");
            for wrong in [None, Some(f64::NAN), Some(f64::INFINITY), Some(f64::NEG_INFINITY)] {
                assert!(sweep.score(Some(worse)) > sweep.score(wrong), "{metric} {wrong:?}");
            }
        }
    }

    #[test]
    fn invalid_specifications_name_the_field() {
        let replay = serde_json::from_value(serde_json::json!({"job": "digits-1"})).unwrap();
        let refused = [
            (SweepSpec { space: BTreeMap::new(), ..spec() }, "space"),
            (SweepSpec { trials: Some(0), ..spec() }, "0 trials"),
            (SweepSpec { trials: Some(TRIALS_MAX + 1), ..spec() }, "2001 trials"),
            (SweepSpec { method: SweepMethod::Tpe, ..spec() }, "tpe needs a number of trials"),
            (SweepSpec { max_parallel: 0, ..spec() }, "max_parallel"),
            (SweepSpec { eta: 1, ..spec() }, "eta"),
            (SweepSpec { rungs: 9, ..spec() }, "rungs"),
            (SweepSpec { budget_seconds: Some(f64::NAN), ..spec() }, "budget_seconds"),
            (SweepSpec { budget_device_seconds: Some(0.0), ..spec() }, "budget_device_seconds"),
            (SweepSpec { metric: "min:".to_owned(), ..spec() }, "metric"),
            (SweepSpec { job: JobSpec { measure: true, ..spec().job }, ..spec() }, "only measures"),
            (SweepSpec { job: JobSpec { replay: Some(replay), ..spec().job }, ..spec() }, "replays another job"),
        ];
        for (spec, field) in refused {
            let error = spec.validate().unwrap_err().to_string();
            assert!(error.contains(field), "{field}: {error}");
        }
        assert_eq!(spec().validate().unwrap().trial_count(), 2);
    }
}

//! The settings of population-based training, which other methods do not have.

use super::{SweepMethod, SweepSpec};
use crate::error::SweepSpecError;
use crate::limits::{
    EXPLOIT_QUANTILE_MAX, GENERATIONS_MAX, PERTURB_FACTOR_MAX, PERTURB_FACTORS_MAX, POPULATION_INTERVALS_MAX,
};

/// How a population is compared and changed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PopulationSettings {
    /// The number of intervals that the steps of a training are divided into, at least 2.
    pub(crate) generations: u32,
    /// The share of the population that is replaced after each interval, and the share that it is replaced from.
    pub(crate) exploit_quantile: f64,
    /// The factors by which parameters are multiplied, finite and above 0.
    pub(crate) perturb_factors: Vec<f64>,
    /// The probability with which a parameter is drawn at random instead.
    pub(crate) resample_probability: f64,
}

impl PopulationSettings {
    /// Checks the settings of `pbt`, or that other methods have no such settings, and fills in the defaults, so that they are recorded.
    pub(super) fn read(spec: &mut SweepSpec) -> Result<Option<PopulationSettings>, SweepSpecError> {
        if spec.method != SweepMethod::Pbt {
            return refuse_settings(spec).map(|()| None);
        }
        let settings = PopulationSettings {
            generations: *spec.generations.get_or_insert(10),
            exploit_quantile: *spec.exploit_quantile.get_or_insert(0.2),
            perturb_factors: spec.perturb_factors.get_or_insert_with(|| vec![0.8, 1.2]).clone(),
            resample_probability: *spec.resample_probability.get_or_insert(0.25),
        };
        settings.check(spec.trials.unwrap_or(0)).map(|()| Some(settings))
    }

    fn check(&self, members: u32) -> Result<(), SweepSpecError> {
        if members < 2 {
            return Err(SweepSpecError::Population { members });
        }
        if !(2..=GENERATIONS_MAX).contains(&self.generations) {
            let (field, value) = ("generations", self.generations);
            return Err(SweepSpecError::OutOfRange { field, value, min: 2, max: GENERATIONS_MAX });
        }
        if members.saturating_mul(self.generations) > POPULATION_INTERVALS_MAX {
            return Err(SweepSpecError::PopulationIntervals { members, generations: self.generations });
        }
        let quantile = self.exploit_quantile;
        if !(quantile > 0.0 && quantile <= EXPLOIT_QUANTILE_MAX) {
            return Err(SweepSpecError::Share {
                field: "exploit_quantile",
                value: quantile,
                expected: "above 0 and at most 0.5",
            });
        }
        let probability = self.resample_probability;
        if !(0.0..=1.0).contains(&probability) {
            return Err(SweepSpecError::Share {
                field: "resample_probability",
                value: probability,
                expected: "from 0 to 1",
            });
        }
        let is_factor = |factor: &f64| *factor > 0.0 && *factor <= PERTURB_FACTOR_MAX;
        if !(1..=PERTURB_FACTORS_MAX).contains(&self.perturb_factors.len())
            || !self.perturb_factors.iter().all(is_factor)
        {
            return Err(SweepSpecError::PerturbFactors);
        }
        Ok(())
    }
}

/// Returns an error if a setting of `pbt` is given with another method.
fn refuse_settings(spec: &SweepSpec) -> Result<(), SweepSpecError> {
    let given = [
        ("generations", spec.generations.is_some()),
        ("exploit_quantile", spec.exploit_quantile.is_some()),
        ("perturb_factors", spec.perturb_factors.is_some()),
        ("resample_probability", spec.resample_probability.is_some()),
    ];
    match given.into_iter().find(|(_, is_given)| *is_given) {
        Some((field, _)) => Err(SweepSpecError::OnlyPopulation { field, method: spec.method.name() }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use saggar_jobs::JobSpec;
    use saggar_store::records::PauseStep;

    use super::*;

    fn spec() -> SweepSpec {
        let space = BTreeMap::from([("lr".to_owned(), "log(1e-4,1)".to_owned())]);
        let spec = SweepSpec::new(JobSpec::new("p", "0".repeat(64)), space, "validation/accuracy");
        SweepSpec { method: SweepMethod::Pbt, trials: Some(4), ..spec }
    }

    #[test]
    fn the_defaults_are_recorded_and_rungs_are_the_ends_of_equal_intervals() {
        let sweep = spec().validate().unwrap();
        let recorded = serde_json::to_value(sweep.spec()).unwrap();
        let settings = ["generations", "exploit_quantile", "perturb_factors", "resample_probability"];
        let settings = settings.map(|name| recorded[name].to_string());
        assert_eq!(settings, ["10", "0.2", "[0.8,1.2]", "0.25"]);
        let points: Vec<_> = (0..12).filter_map(|rung| Some(sweep.pause_point(rung)?.at)).collect();
        let share = |part| PauseStep::Share { part, of: 10 };
        assert_eq!(points, (1..10).map(share).collect::<Vec<_>>());
        let full = SweepSpec { method: SweepMethod::Full, ..spec() }.validate().unwrap();
        assert!(!serde_json::to_string(full.spec()).unwrap().contains("generations"));
    }

    #[test]
    fn invalid_populations_name_the_field() {
        let refused = [
            (SweepSpec { trials: None, ..spec() }, "at least 2"),
            (SweepSpec { trials: Some(1), ..spec() }, "at least 2"),
            (SweepSpec { generations: Some(1), ..spec() }, "generations: 1 is not from 2 to 100"),
            (SweepSpec { generations: Some(101), ..spec() }, "generations: 101"),
            (SweepSpec { trials: Some(501), ..spec() }, "501 members in 10 generations"),
            (SweepSpec { exploit_quantile: Some(0.0), ..spec() }, "exploit_quantile: 0 is not above 0"),
            (SweepSpec { exploit_quantile: Some(0.51), ..spec() }, "at most 0.5"),
            (SweepSpec { exploit_quantile: Some(f64::NAN), ..spec() }, "exploit_quantile"),
            (SweepSpec { perturb_factors: Some(Vec::new()), ..spec() }, "perturb_factors"),
            (SweepSpec { perturb_factors: Some(vec![1.2, -1.0]), ..spec() }, "perturb_factors"),
            (SweepSpec { perturb_factors: Some(vec![f64::INFINITY]), ..spec() }, "perturb_factors"),
            (SweepSpec { resample_probability: Some(1.5), ..spec() }, "resample_probability: 1.5 is not from 0 to 1"),
            (
                SweepSpec { method: SweepMethod::Asha, generations: Some(4), ..spec() },
                "generations: only the method pbt",
            ),
            (SweepSpec { method: SweepMethod::Tpe, perturb_factors: Some(vec![2.0]), ..spec() }, "not tpe"),
        ];
        for (spec, expected) in refused {
            let error = spec.validate().unwrap_err().to_string();
            assert!(error.contains(expected), "{expected}: {error}");
        }
    }
}

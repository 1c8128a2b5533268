//! The step at which a job pauses.

use serde::{Deserialize, Serialize};

use super::field_rules;
use crate::error::RecordError;
use crate::limits::SERIES_NAME_BYTES_MAX;

/// The reason code of a paused job, and of the attempt that ended with the pause.
pub const PAUSED: &str = "PAUSED";

/// The step boundary at which a job pauses: the first one at or after a step, once a metric was reported there if the
/// point names one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PausePoint {
    /// The step.
    pub at: PauseStep,
    /// A series that must have a value at that step or later before the job pauses, such as `validation/accuracy`,
    /// which a training reports after the last step of an epoch. A job that reports no such value does not pause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metric: Option<String>,
}

/// The step of a [`PausePoint`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PauseStep {
    /// A step.
    Step(u64),
    /// A share of the job's steps, rounded up: a third of 100 steps is step 34.
    Share {
        /// The numerator.
        part: u32,
        /// The denominator.
        of: u32,
    },
}

impl PauseStep {
    /// Returns the step in a job of `steps_target` steps, or `None` if it is a share and their number is not known yet.
    pub fn resolve(self, steps_target: u64) -> Option<u64> {
        match self {
            PauseStep::Step(step) => Some(step),
            PauseStep::Share { .. } if steps_target == 0 => None,
            PauseStep::Share { part, of } => {
                let step = (u128::from(steps_target) * u128::from(part)).div_ceil(u128::from(of.max(1)));
                Some(u64::try_from(step).unwrap_or(u64::MAX))
            }
        }
    }
}

impl PausePoint {
    /// Returns the point at the next step boundary.
    pub fn now() -> PausePoint {
        PausePoint { at: PauseStep::Step(0), metric: None }
    }

    /// Returns whether a job that has completed `step` of `steps_target` steps has reached the step.
    pub fn is_reached(&self, step: u64, steps_target: u64) -> bool {
        self.at.resolve(steps_target).is_some_and(|at| step >= at)
    }

    /// Checks the share and the length of the metric's name.
    pub(super) fn validate(&self) -> Result<(), RecordError> {
        match (self.at, &self.metric) {
            (PauseStep::Share { part, of }, _) if of == 0 || part > of => {
                Err(field_rules::invalid("pause share", &format!("{part}/{of}"), "must be from 0 to 1"))
            }
            (_, Some(metric)) if metric.is_empty() || metric.len() > SERIES_NAME_BYTES_MAX => {
                Err(field_rules::invalid("pause metric", metric, "must have 1 to 255 bytes"))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_rounded_up_and_unknown_without_a_target() {
        let third = PauseStep::Share { part: 1, of: 3 };
        assert_eq!([99, 100, 101, 0].map(|target| third.resolve(target)), [Some(33), Some(34), Some(34), None]);
        let whole = PauseStep::Share { part: u32::MAX, of: u32::MAX };
        assert_eq!(whole.resolve(u64::MAX), Some(u64::MAX));
        assert_eq!(PauseStep::Step(7).resolve(0), Some(7));
        assert!(PausePoint::now().is_reached(0, 0));
    }
}

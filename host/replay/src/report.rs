//! The result of a replay.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::host_call::CallDifference;
use crate::non_finite::NonFiniteOperand;
use crate::tensor_summary::TensorSummary;

/// The result of a replay: whether it is equal to what was recorded, and what was found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReplayReport {
    /// The step of the state that the replay started from.
    pub start_step: u64,
    /// Steps that were replayed, including those before the first one that was asked for.
    pub steps: u64,
    /// The device: name, adapter and driver.
    pub device: String,
    /// The devices of the recorded attempts.
    pub recorded_on: Vec<String>,
    /// Whether calls of these steps were recorded.
    pub is_recorded: bool,
    /// Calls that were compared with recorded ones.
    pub compared: u64,
    /// Calls that nothing was recorded about.
    pub unrecorded: u64,
    /// Calls that differ from the recorded ones.
    pub different: u64,
    /// The first call that differs.
    pub first_difference: Option<ReplayDifference>,
    /// The first operand that is infinite or not a number, which ended the replay.
    pub non_finite: Option<NonFiniteOperand>,
    /// The operands that were to be printed.
    pub printed: Vec<PrintedOperand>,
    /// Values that were not printed, because there were too many.
    pub printed_left_out: u64,
    /// The names of those of them that no graph has.
    pub unknown_operands: Vec<String>,
    /// Names of operands that graphs have, if one was not found.
    pub known_operands: Vec<String>,
    /// The error that ended the training, if it failed by itself.
    pub failure: Option<String>,
}

/// A call that differs, and its step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplayDifference {
    /// The step, from 1.
    pub step: u64,
    /// What differs.
    #[serde(flatten)]
    pub difference: CallDifference,
}

/// The value of an operand in one dispatch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PrintedOperand {
    /// The step, from 1.
    pub step: u64,
    /// The name of the operand.
    pub operand: String,
    /// Whether the dispatch changed variables, as those of a training step do and those of a validation do not.
    pub is_update: bool,
    /// Its value.
    #[serde(flatten)]
    pub value: TensorSummary,
}

impl ReplayReport {
    /// Returns whether the replay computed what was recorded, and every number was finite.
    pub fn is_equal(&self) -> bool {
        self.different == 0 && self.non_finite.is_none() && self.failure.is_none()
    }

    /// Returns the report as lines for a person.
    pub fn lines(&self) -> Vec<String> {
        let mut lines: Vec<String> = self.printed.iter().map(PrintedOperand::to_string).collect();
        if self.printed_left_out > 0 {
            lines.push(format!("{} more values were not printed", self.printed_left_out));
        }
        if !self.unknown_operands.is_empty() {
            let known = if self.known_operands.is_empty() { "none".to_owned() } else { self.known_operands.join(", ") };
            lines.push(format!("no graph has: {}; operands are: {known}", self.unknown_operands.join(", ")));
        }
        lines.push(format!("replayed {} steps after step {} on {}", self.steps, self.start_step, self.device));
        lines.push(self.comparison_line());
        if let Some(ReplayDifference { step, difference }) = &self.first_difference {
            let (what, recorded, replayed) = (&difference.what, &difference.recorded, &difference.replayed);
            lines.push(format!("first difference, in step {step}: {what}: recorded {recorded}, replayed {replayed}"));
            if !self.recorded_on.contains(&self.device) {
                lines.push(format!(
                    "the recording is of another device, {}: results can differ in the last bits",
                    self.recorded_on.join(", ")
                ));
            }
        }
        if let Some(non_finite) = &self.non_finite {
            lines.extend(non_finite.lines());
        }
        if let Some(failure) = &self.failure {
            lines.push(format!("the training failed: {failure}"));
        }
        lines
    }

    fn comparison_line(&self) -> String {
        let unrecorded = match self.unrecorded {
            0 => String::new(),
            count => format!("; {count} calls were not recorded"),
        };
        match (self.is_recorded, self.different) {
            (false, _) => "nothing was recorded of these steps; `saggar run --record` records a job".to_owned(),
            (true, 0) => format!("{} calls are equal to the recorded ones, bit for bit{unrecorded}", self.compared),
            (true, different) => {
                format!("{different} of {} calls differ from the recorded ones{unrecorded}", self.compared)
            }
        }
    }
}

impl fmt::Display for PrintedOperand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.is_update { "" } else { ", no update" };
        write!(f, "step {}{kind}: {} {}", self.step, self.operand, self.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_say_what_was_compared_and_what_differs() {
        let equal =
            ReplayReport { device: "cpu".to_owned(), is_recorded: true, compared: 3, steps: 2, ..Default::default() };
        assert!(equal.is_equal());
        assert_eq!(
            equal.lines(),
            ["replayed 2 steps after step 0 on cpu", "3 calls are equal to the recorded ones, bit for bit"]
        );
        let difference =
            CallDifference { what: "the loss".to_owned(), recorded: "1".to_owned(), replayed: "2".to_owned() };
        let differs = ReplayReport {
            different: 1,
            unrecorded: 4,
            recorded_on: vec!["vulkan:0".to_owned()],
            first_difference: Some(ReplayDifference { step: 9, difference }),
            ..equal
        };
        assert!(!differs.is_equal());
        assert_eq!(
            differs.lines()[1..],
            [
                "1 of 3 calls differ from the recorded ones; 4 calls were not recorded",
                "first difference, in step 9: the loss: recorded 1, replayed 2",
                "the recording is of another device, vulkan:0: results can differ in the last bits",
            ]
        );
    }
}

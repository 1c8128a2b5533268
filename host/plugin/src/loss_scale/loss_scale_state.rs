//! The variables of a loss scale, and what was logged about it.

use saggar_store::checkpoint::SavedVariable;

use crate::variables::device_variable::DeviceVariable;

/// Prefix of the names of the host's own variables.
pub(crate) const RESERVED_PREFIX: &str = "saggar/";
pub(super) const SCALE_NAME: &str = "saggar/loss-scale";
pub(super) const FINITE_STEPS_NAME: &str = "saggar/sound-steps";
pub(super) const SKIPPED_STEPS_NAME: &str = "saggar/steps-left-out";

/// The loss scale of a training, on its device. Clones refer to the same variables.
#[derive(Clone, Debug)]
pub(crate) struct LossScaleVariables {
    pub(crate) scale: DeviceVariable,
    pub(crate) finite_steps: DeviceVariable,
    pub(crate) skipped_steps: DeviceVariable,
}

/// The loss scale of a training once it exists, and what was logged about it.
#[derive(Debug, Default)]
pub(crate) struct LossScaleState {
    pub(super) scale: Option<LossScaleVariables>,
    /// Number of skipped steps that were logged.
    pub(super) skipped_steps_logged: i32,
    pub(super) lines_logged: u32,
}

/// Returns whether a saved variable belongs to the host instead of the plugin.
pub(crate) fn is_host_variable(saved: &SavedVariable) -> bool {
    [SCALE_NAME, FINITE_STEPS_NAME, SKIPPED_STEPS_NAME].contains(&saved.name.as_str())
}

impl LossScaleVariables {
    pub(super) fn variables(&self) -> [&DeviceVariable; 3] {
        [&self.scale, &self.finite_steps, &self.skipped_steps]
    }
}

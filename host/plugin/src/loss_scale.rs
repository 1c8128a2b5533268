//! The loss scale of a training in mixed precision, in variables that belong to the host. Plugins do not see them and
//! model versions do not contain them. Every checkpoint of such a training does, so that it resumes bit-identically.

pub(crate) mod loss_scale_state;

use saggar_store::checkpoint::{SavedVariable, VariableKind};
use saggar_tensor::mixed_precision::{LOSS_SCALE_INITIAL, LOSS_SCALE_MIN};
use saggar_tensor::{DType, Descriptor, Shape};

use crate::host_error::HostError;
use crate::initializers::VariableInitializer;
use crate::instance_state::{InstanceRole, InstanceState};
use crate::job_context::LogLevel;
use crate::variables::device_variable::DeviceVariable;
use loss_scale_state::{FINITE_STEPS_NAME, LossScaleVariables, SCALE_NAME, SKIPPED_STEPS_NAME};

/// Maximum number of log lines about skipped steps in one training.
const SKIPPED_STEPS_LOG_LINES_MAX: u32 = 20;

impl InstanceState {
    /// Returns the training's loss scale, which is created at the first call. Returns `None` if the training is not in
    /// mixed precision.
    ///
    /// # Errors
    /// The device's errors.
    pub(crate) fn loss_scale(&mut self) -> Result<Option<LossScaleVariables>, HostError> {
        let InstanceRole::Train(train) = &self.role else { return Ok(None) };
        if !train.context.is_mixed_precision() || train.loss_scale_state.scale.is_some() {
            return Ok(train.loss_scale_state.scale.clone());
        }
        let make = |name, dtype, first| {
            let descriptor = Descriptor::new(dtype, Shape::scalar());
            self.create_variable(0, name, &descriptor, first, VariableKind::Training)
        };
        let variables = LossScaleVariables {
            scale: make(SCALE_NAME, DType::F32, VariableInitializer::Constant(LOSS_SCALE_INITIAL as f32))?,
            finite_steps: make(FINITE_STEPS_NAME, DType::I32, VariableInitializer::Zeros)?,
            skipped_steps: make(SKIPPED_STEPS_NAME, DType::I32, VariableInitializer::Zeros)?,
        };
        if let InstanceRole::Train(train) = &mut self.role {
            train.loss_scale_state.scale = Some(variables.clone());
        }
        Ok(Some(variables))
    }

    /// Returns the host's variables for a checkpoint.
    ///
    /// # Errors
    /// The device's errors.
    pub(crate) fn save_loss_scale(&self) -> Result<Vec<SavedVariable>, HostError> {
        let InstanceRole::Train(train) = &self.role else { return Ok(Vec::new()) };
        let save = |variable: &DeviceVariable| {
            Ok(SavedVariable {
                name: variable.name().to_owned(),
                kind: variable.kind(),
                descriptor: variable.descriptor().clone(),
                bytes: self
                    .backend
                    .read_if_stored(variable.buffer(None)?, self.cancel_token())?
                    .unwrap_or_default()
                    .into(),
            })
        };
        train.loss_scale_state.scale.iter().flat_map(LossScaleVariables::variables).map(save).collect()
    }

    /// Restores the loss scale of a checkpoint. A checkpoint without one, of a training in `float32`, leaves the
    /// initial scale.
    ///
    /// # Errors
    /// Invalid argument if a variable has another data type, shape or kind; the device's errors.
    pub(crate) fn restore_loss_scale(&mut self, saved: &[SavedVariable]) -> Result<(), HostError> {
        let Some(scale) = self.loss_scale()? else { return Ok(()) };
        for variable in scale.variables() {
            if let Some(saved) = saved.iter().find(|saved| saved.name == variable.name()) {
                variable.restore(saved, &*self.backend)?;
            }
        }
        let left_out = self.read_number(&scale.skipped_steps)?;
        if let InstanceRole::Train(train) = &mut self.role {
            train.loss_scale_state.skipped_steps_logged = i32::from_le_bytes(left_out);
        }
        Ok(())
    }

    /// Logs the steps that were skipped since the last such line. Waits for the device.
    ///
    /// # Errors
    /// The device's errors.
    pub(crate) fn log_skipped_steps(&mut self) -> Result<(), HostError> {
        let InstanceRole::Train(train) = &self.role else { return Ok(()) };
        let Some(LossScaleVariables { scale, skipped_steps: left_out, .. }) = train.loss_scale_state.scale.clone()
        else {
            return Ok(());
        };
        let left_out = i32::from_le_bytes(self.read_number(&left_out)?);
        if left_out == train.loss_scale_state.skipped_steps_logged
            || train.loss_scale_state.lines_logged >= SKIPPED_STEPS_LOG_LINES_MAX
        {
            return Ok(());
        }
        let scale = f32::from_le_bytes(self.read_number(&scale)?);
        let InstanceRole::Train(train) = &mut self.role else { return Ok(()) };
        let new = left_out.wrapping_sub(train.loss_scale_state.skipped_steps_logged);
        train.loss_scale_state.skipped_steps_logged = left_out;
        train.loss_scale_state.lines_logged += 1;
        let (level, line) = skipped_steps_line(
            new,
            left_out,
            scale,
            train.loss_scale_state.lines_logged == SKIPPED_STEPS_LOG_LINES_MAX,
        );
        train.context.log(level, &line);
        Ok(())
    }

    /// Returns the four bytes of a scalar variable; zeros on a device that stores no data.
    fn read_number(&self, variable: &DeviceVariable) -> Result<[u8; 4], HostError> {
        let bytes = self.backend.read_if_stored(variable.buffer(None)?, self.cancel_token())?.unwrap_or_default();
        Ok(bytes.first_chunk().copied().unwrap_or_default())
    }
}

/// Returns the log line about `new` skipped steps.
fn skipped_steps_line(new: i32, all: i32, scale: f32, is_last: bool) -> (LogLevel, String) {
    let steps = if new == 1 { "1 step was".to_owned() } else { format!("{new} steps were") };
    let more = if is_last { "; further skipped steps are not logged" } else { "" };
    let what = format!("mixed precision: {steps} left out, {all} in all, because gradients were not finite");
    if f64::from(scale) > LOSS_SCALE_MIN {
        return (LogLevel::Info, format!("{what}; the loss scale is {scale}{more}"));
    }
    let help = "no smaller loss scale helps: `--precision float32` computes with larger numbers";
    (LogLevel::Warn, format!("{what}; {help}{more}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skipped_steps_are_logged_with_the_loss_scale() {
        assert_eq!(
            skipped_steps_line(1, 3, 32768.0, false),
            (
                LogLevel::Info,
                "mixed precision: 1 step was left out, 3 in all, because gradients were not finite; the loss scale is \
                 32768"
                    .to_owned()
            )
        );
        let (level, line) = skipped_steps_line(2, 30, 1.0, true);
        assert_eq!(level, LogLevel::Warn);
        assert!(line.contains("2 steps were left out") && line.contains("--precision float32"), "{line}");
        assert!(line.ends_with("further skipped steps are not logged"), "{line}");
    }
}

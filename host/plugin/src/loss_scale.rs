//! The scale of the loss of a training in mixed precision: variables that belong to the host. No plugin sees them, no model
//! ships them, and every checkpoint of such a training has them, so that it goes on with the same bits.

use saggar_store::checkpoint::{SavedVariable, VariableKind};
use saggar_tensor::mixed_precision::{LOSS_SCALE_INITIAL, LOSS_SCALE_MIN};
use saggar_tensor::{DType, Descriptor, Shape};

use crate::bindings::variables::Initializer;
use crate::fault::Fault;
use crate::state::{Role, State};
use crate::train::LogLevel;
use crate::variables::Variable;

/// What the names of the host's own variables begin with.
pub(crate) const RESERVED: &str = "saggar/";
const SCALE: &str = "saggar/loss-scale";
const SOUND_STEPS: &str = "saggar/sound-steps";
const LEFT_OUT: &str = "saggar/steps-left-out";

/// How often it is told that steps are left out.
const TOLD_MAX: u32 = 20;

/// A training's scale, on its device. Clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct LossScale {
    pub(crate) scale: Variable,
    pub(crate) sound_steps: Variable,
    pub(crate) left_out: Variable,
}

/// A training's scale once there is one, and what its log says of it.
#[derive(Debug, Default)]
pub(crate) struct Told {
    scale: Option<LossScale>,
    /// Steps that were left out, as far as it was told.
    left_out: i32,
    times: u32,
}

/// What the host keeps of a training besides the plugin's variables.
pub(crate) fn is_own(saved: &SavedVariable) -> bool {
    [SCALE, SOUND_STEPS, LEFT_OUT].contains(&saved.name.as_str())
}

impl LossScale {
    fn variables(&self) -> [&Variable; 3] {
        [&self.scale, &self.sound_steps, &self.left_out]
    }
}

impl State {
    /// The training's scale, made where there is none yet; none where it is not in mixed precision.
    ///
    /// # Errors
    /// Whatever the device says.
    pub(crate) fn loss_scale(&mut self) -> Result<Option<LossScale>, Fault> {
        let Role::Train(train) = &self.role else { return Ok(None) };
        if !train.context.is_mixed() || train.told.scale.is_some() {
            return Ok(train.told.scale.clone());
        }
        let make = |name, dtype, first| {
            let descriptor = Descriptor::new(dtype, Shape::scalar());
            self.variable(0, name, &descriptor, first, VariableKind::Training)
        };
        let made = LossScale {
            scale: make(SCALE, DType::F32, Initializer::Constant(LOSS_SCALE_INITIAL as f32))?,
            sound_steps: make(SOUND_STEPS, DType::I32, Initializer::Zeros)?,
            left_out: make(LEFT_OUT, DType::I32, Initializer::Zeros)?,
        };
        if let Role::Train(train) = &mut self.role {
            train.told.scale = Some(made.clone());
        }
        Ok(Some(made))
    }

    /// What a checkpoint has besides the plugin's variables.
    ///
    /// # Errors
    /// Whatever the device says.
    pub(crate) fn saved_scale(&self) -> Result<Vec<SavedVariable>, Fault> {
        let Role::Train(train) = &self.role else { return Ok(Vec::new()) };
        let save = |variable: &Variable| {
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
        train.told.scale.iter().flat_map(LossScale::variables).map(save).collect()
    }

    /// Goes on with the scale that a checkpoint has. One without it, of a training in `float32`, leaves the first.
    ///
    /// # Errors
    /// Invalid argument where one is of another kind; whatever the device says.
    pub(crate) fn restore_scale(&mut self, saved: &[SavedVariable]) -> Result<(), Fault> {
        let Some(scale) = self.loss_scale()? else { return Ok(()) };
        for variable in scale.variables() {
            if let Some(saved) = saved.iter().find(|saved| saved.name == variable.name()) {
                variable.restore(saved, &*self.backend)?;
            }
        }
        let left_out = self.number(&scale.left_out)?;
        if let Role::Train(train) = &mut self.role {
            train.told.left_out = i32::from_le_bytes(left_out);
        }
        Ok(())
    }

    /// Says in the log where steps were left out since it was said last. Waits for the device.
    ///
    /// # Errors
    /// Whatever the device says.
    pub(crate) fn tell_left_out(&mut self) -> Result<(), Fault> {
        let Role::Train(train) = &self.role else { return Ok(()) };
        let Some(LossScale { scale, left_out, .. }) = train.told.scale.clone() else { return Ok(()) };
        let left_out = i32::from_le_bytes(self.number(&left_out)?);
        if left_out == train.told.left_out || train.told.times >= TOLD_MAX {
            return Ok(());
        }
        let scale = f32::from_le_bytes(self.number(&scale)?);
        let Role::Train(train) = &mut self.role else { return Ok(()) };
        let new = left_out.wrapping_sub(train.told.left_out);
        train.told.left_out = left_out;
        train.told.times += 1;
        let (level, line) = line(new, left_out, scale, train.told.times == TOLD_MAX);
        train.context.log(level, &line);
        Ok(())
    }

    /// The four bytes of a variable that is one number; zeros of a device that keeps none.
    fn number(&self, variable: &Variable) -> Result<[u8; 4], Fault> {
        let bytes = self.backend.read_if_stored(variable.buffer(None)?, self.cancel_token())?.unwrap_or_default();
        Ok(bytes.first_chunk().copied().unwrap_or_default())
    }
}

/// What the log says of `new` steps that were left out.
fn line(new: i32, all: i32, scale: f32, is_last: bool) -> (LogLevel, String) {
    let steps = if new == 1 { "1 step was".to_owned() } else { format!("{new} steps were") };
    let more = if is_last { "; more of the same is not told" } else { "" };
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
    fn what_is_left_out_is_told_with_the_scale() {
        assert_eq!(
            line(1, 3, 32768.0, false),
            (
                LogLevel::Info,
                "mixed precision: 1 step was left out, 3 in all, because gradients were not finite; the loss scale is \
                 32768"
                    .to_owned()
            )
        );
        let (level, line) = line(2, 30, 1.0, true);
        assert_eq!(level, LogLevel::Warn);
        assert!(line.contains("2 steps were left out") && line.contains("--precision float32"), "{line}");
        assert!(line.ends_with("more of the same is not told"), "{line}");
    }
}

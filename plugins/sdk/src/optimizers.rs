//! Optimisers: how a gradient becomes a new value, as part of the training graph.
//!
//! Their moments and step counters are variables of the kind `training`, so a checkpoint carries them and a model
//! version does not.

mod adam;
mod learning_rate;
mod muon;
mod sgd;

pub use adam::Adam;
pub use learning_rate::LearningRateSchedule;
pub use muon::Muon;
pub use sgd::Sgd;

use crate::bindings::tensors::DataType;
use crate::error::Result;
use crate::graph::Graph;
use crate::operand::Operand;
use crate::tensor::descriptor;
use crate::variables::{Variable, Variables};

/// One parameter in a training step.
#[derive(Debug, Clone)]
pub struct Update {
    /// The parameter.
    pub variable: Variable,
    /// Its value before the step.
    pub value: Operand,
    /// The loss's gradient with respect to it.
    pub gradient: Operand,
}

/// A way to train.
pub trait Optimizer {
    /// Adds the assignments of one step to `graph`. Called once for each training graph.
    ///
    /// # Errors
    /// `Host` if a gradient is of a kind that the operators refuse.
    fn step(&self, graph: &Graph, variables: &Variables, updates: &[Update]) -> Result<()>;
}

/// Scales all gradients down together so that the square root of their sum of squares is at most `norm`.
/// Source: Pascanu et al., arXiv:1211.5063.
///
/// # Errors
/// `Host` if a gradient is not float.
pub fn clip_grad_norm(updates: &mut [Update], norm: f64) -> Result<()> {
    let Some(total) = sum_of_squares(updates)? else { return Ok(()) };
    // The larger of the two is never 0.
    let larger = total.sqrt()?.clamp(Some(norm), None)?;
    let scale = larger.reciprocal()?.mul_scalar(norm)?;
    for update in updates {
        update.gradient = update.gradient.mul(&scale)?;
    }
    Ok(())
}

/// The sum of squares of all gradients; none without gradients.
pub(crate) fn sum_of_squares(updates: &[Update]) -> Result<Option<Operand>> {
    let mut total: Option<Operand> = None;
    for update in updates {
        let square = update.gradient.reduce_sum_square(&[], false)?;
        total = Some(match total {
            Some(sum) => sum.add(&square)?,
            None => square,
        });
    }
    Ok(total)
}

/// The number of this step from 1, `float32`; counted by the graph itself.
fn count_step(graph: &Graph, variables: &Variables) -> Result<Operand> {
    let counter = variables.training("optimizer/step", descriptor(DataType::Int32, []))?;
    let step = graph.stored(&counter)?.add_scalar(1.0)?;
    // Optimisers that are made of others ask more than once.
    if graph.assigned_value(&counter).is_none() {
        graph.assign(&counter, &step)?;
    }
    step.cast(DataType::Float32)
}

/// An optimiser's own value for a parameter, zeros at first.
fn moment_variable(variables: &Variables, name: &str, variable: &Variable) -> Result<Variable> {
    variables.training(&format!("optimizer/{name}/{}", variable.name()), variable.descriptor().clone())
}

//! Optimisers: update rules that become part of the training graph.
//!
//! Their moments and step counters are variables of the kind `training`: part of a checkpoint but not of a model
//! version.

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
use crate::graph::operand::Operand;
use crate::tensor::descriptor;
use crate::variables::{Variable, Variables};

/// One parameter in a training step.
#[derive(Debug, Clone)]
pub struct Update {
    /// The parameter.
    pub variable: Variable,
    /// Its value before the step.
    pub value: Operand,
    /// The gradient of the loss with respect to it.
    pub gradient: Operand,
}

/// An update rule for parameters.
///
/// [`Fit`](crate::Fit) calls it. A custom training loop calls it while it builds the graph of a step:
/// ```no_run
/// # use saggar_plugin::*;
/// use saggar_plugin::optimizers::{Adam, Optimizer, Update};
///
/// # fn f(v: &Variables, linear: &layers::Linear, x: &Descriptor, label: &Descriptor) -> Result<()> {
/// let graph = Graph::for_training();
/// let inputs = graph.inputs([("x", x), ("label", label)], 32)?;
/// let loss = linear.forward(inputs.get("x")?)?.softmax_cross_entropy(inputs.get("label")?)?;
/// let parameters = v.parameters();
/// let values = parameters.iter().map(|variable| graph.variable(variable)).collect::<Result<Vec<_>>>()?;
/// let gradients = graph.gradients(&loss, &values.iter().collect::<Vec<_>>())?;
/// let updates = parameters.into_iter().zip(values).zip(gradients);
/// let updates: Vec<Update> =
///     updates.map(|((variable, value), gradient)| Update { variable, value, gradient }).collect();
/// Adam::new(0.001).step(&graph, v, &updates)?;
/// let step = graph.build([("loss", &loss)])?;
/// # Ok(())
/// # }
/// ```
pub trait Optimizer {
    /// Adds the assignments of one step to `graph`. Called once per training graph.
    ///
    /// # Errors
    /// Returns `Host` if the operators do not accept a gradient.
    #[track_caller]
    fn step(&self, graph: &Graph, variables: &Variables, updates: &[Update]) -> Result<()>;
}

/// Scales all gradients by one factor so that their total L2 norm is at most `norm`. Source: Pascanu et al.,
/// arXiv:1211.5063.
///
/// # Errors
/// Returns `Host` if a gradient is not float.
#[track_caller]
pub fn clip_grad_norm(updates: &mut [Update], norm: f64) -> Result<()> {
    let Some(total) = sum_of_squares(updates)? else { return Ok(()) };
    // The maximum of the norm and its limit, which is not 0.
    let larger = total.sqrt()?.clamp(Some(norm), None)?;
    let scale = larger.reciprocal()?.mul_scalar(norm)?;
    for update in updates {
        update.gradient = update.gradient.mul(&scale)?;
    }
    Ok(())
}

/// Returns the sum of squares of all gradients, or `None` if there are no gradients.
#[track_caller]
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

/// Returns the number of this step from 1, a `float32` scalar. The graph increments it.
#[track_caller]
fn count_step(graph: &Graph, variables: &Variables) -> Result<Operand> {
    let counter = variables.training("optimizer/step", descriptor(DataType::Int32, []))?;
    let step = graph.stored(&counter)?.add_scalar(1.0)?;
    // An optimiser that contains another one requests the counter twice.
    if graph.assigned_value(&counter).is_none() {
        graph.assign(&counter, &step)?;
    }
    step.cast(DataType::Float32)
}

/// Returns the state `name` of an optimiser for a parameter, initialised with 0.
#[track_caller]
fn moment_variable(variables: &Variables, name: &str, variable: &Variable) -> Result<Variable> {
    variables.training(&format!("optimizer/{name}/{}", variable.name()), variable.descriptor().clone())
}

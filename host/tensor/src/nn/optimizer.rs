//! Optimizers: compute the next values of a parameter and of the optimizer's state from the parameter, its gradient and
//! the state. The caller assigns them.

use super::{check_float, fill_like, scale_by, shift_by};
use crate::builder::GraphBuilder;
use crate::error::GraphError;
use crate::graph::NodeId;
use crate::op::Scalar;

/// Options of stochastic gradient descent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SgdOptions {
    /// Factor of the previous velocity; 0 is plain descent.
    pub momentum: f64,
    /// Whether to use Nesterov momentum, which looks ahead along the new velocity.
    pub nesterov: bool,
    /// Factor with which the parameter is added to the gradient.
    pub weight_decay: f64,
}

/// The next values computed by [`sgd`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SgdUpdate {
    /// The parameter.
    pub parameter: NodeId,
    /// Its velocity.
    pub velocity: NodeId,
}

/// Computes one step of descent: with `d = gradient + weight_decay * parameter` and `v = momentum * velocity + d`,
/// subtracts `learning_rate * v` from the parameter (Nesterov: `learning_rate * (d + momentum * v)`).
///
/// Shape: parameter, gradient and velocity (zeros at first) alike; `learning_rate` a scalar of any float type. Source:
/// Sutskever et al., "On the importance of initialization and momentum in deep learning", ICML 2013, in PyTorch's form.
///
/// # Errors
/// Returns `DType`, `DTypesDiffer`, `Broadcast`, `UnknownNode` or `TooManyNodes`.
pub fn sgd(
    g: &mut GraphBuilder,
    options: &SgdOptions,
    parameter: NodeId,
    gradient: NodeId,
    velocity: NodeId,
    learning_rate: NodeId,
) -> Result<SgdUpdate, GraphError> {
    let mut direction = gradient;
    if options.weight_decay != 0.0 {
        let decay = scale_by(g, parameter, options.weight_decay)?;
        direction = g.add(direction, decay)?;
    }
    let decayed = scale_by(g, velocity, options.momentum)?;
    let velocity = g.add(decayed, direction)?;
    let step = if options.nesterov {
        let ahead = scale_by(g, velocity, options.momentum)?;
        g.add(direction, ahead)?
    } else {
        velocity
    };
    let parameter = descent_step(g, parameter, step, learning_rate)?;
    Ok(SgdUpdate { parameter, velocity })
}

/// Weight decay of Adam.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum WeightDecay {
    /// No weight decay.
    None,
    /// Adds this factor times the parameter to the gradient (Adam with L2).
    Gradient(f64),
    /// Subtracts `learning_rate` times this factor times the parameter from the parameter (AdamW).
    Decoupled(f64),
}

/// Options of Adam and AdamW.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamOptions {
    /// Decay of the running mean of gradients.
    pub beta_1: f64,
    /// Decay of the running mean of squared gradients.
    pub beta_2: f64,
    /// Number added to the denominator.
    pub epsilon: f64,
    /// Weight decay.
    pub weight_decay: WeightDecay,
}

impl Default for AdamOptions {
    fn default() -> AdamOptions {
        AdamOptions { beta_1: 0.9, beta_2: 0.999, epsilon: 1e-8, weight_decay: WeightDecay::None }
    }
}

/// The next values computed by [`adam`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdamUpdate {
    /// The parameter.
    pub parameter: NodeId,
    /// Running mean of the gradients.
    pub first: NodeId,
    /// Running mean of the squared gradients.
    pub second: NodeId,
}

/// Computes one step of Adam. `first` and `second` are the running means of the gradient and of its square. With both
/// corrected for their start at zero, subtracts `learning_rate * first / (sqrt(second) + epsilon)` from the parameter.
///
/// Shape: parameter, gradient and state `[first, second]` (zeros at first) alike; `step` (1 at the first step) and
/// `learning_rate` are scalars of any float type. Source: Kingma and Ba, arXiv:1412.6980; Loshchilov and Hutter,
/// arXiv:1711.05101.
///
/// # Errors
/// Returns `DType`, `DTypesDiffer`, `Broadcast`, `UnknownNode` or `TooManyNodes`.
pub fn adam(
    g: &mut GraphBuilder,
    options: &AdamOptions,
    parameter: NodeId,
    gradient: NodeId,
    [first, second]: [NodeId; 2],
    step: NodeId,
    learning_rate: NodeId,
) -> Result<AdamUpdate, GraphError> {
    let (mut parameter, mut gradient) = (parameter, gradient);
    match options.weight_decay {
        WeightDecay::None => {}
        WeightDecay::Gradient(share) => {
            let decay = scale_by(g, parameter, share)?;
            gradient = g.add(gradient, decay)?;
        }
        WeightDecay::Decoupled(share) => {
            let decay = scale_by(g, parameter, share)?;
            parameter = descent_step(g, parameter, decay, learning_rate)?;
        }
    }
    let first = exponential_average(g, first, gradient, options.beta_1)?;
    let square = g.mul(gradient, gradient)?;
    let second = exponential_average(g, second, square, options.beta_2)?;
    let corrected_first = bias_corrected(g, first, options.beta_1, step)?;
    let corrected_second = bias_corrected(g, second, options.beta_2, step)?;
    let deviation = g.sqrt(corrected_second)?;
    let deviation = shift_by(g, deviation, options.epsilon)?;
    let direction = g.div(corrected_first, deviation)?;
    let parameter = descent_step(g, parameter, direction, learning_rate)?;
    Ok(AdamUpdate { parameter, first, second })
}

/// Scales all gradients by one factor so that their global norm (the square root of the sum of all their squares) is at
/// most `norm_max`. Source: Pascanu et al., arXiv:1211.5063.
///
/// Shape and dtype: each unchanged; the norm is computed in `float32`.
///
/// # Errors
/// Returns `DType`, `UnknownNode` or `TooManyNodes`.
pub fn clip_by_global_norm(
    g: &mut GraphBuilder,
    gradients: &[NodeId],
    norm_max: f64,
) -> Result<Vec<NodeId>, GraphError> {
    let mut total = g.scalar(crate::DType::F32, Scalar::Float(0.0))?;
    for &gradient in gradients {
        check_float(g, "clip-by-global-norm", "gradient", gradient)?;
        let wide = g.cast(gradient, crate::DType::F32)?;
        let axes: Vec<usize> = (0..g.descriptor(wide).shape.rank()).collect();
        let sum = super::reduce::reduce_sum_square(g, wide, &axes, false)?;
        total = g.add(total, sum)?;
    }
    let norm = g.sqrt(total)?;
    let limit = fill_like(g, norm, norm_max)?;
    // max(norm, limit) is never 0 for a positive limit.
    let larger = g.max(norm, limit)?;
    let factor = g.div(limit, larger)?;
    gradients
        .iter()
        .map(|&gradient| {
            let factor = g.cast(factor, g.descriptor(gradient).dtype)?;
            g.mul(gradient, factor)
        })
        .collect()
}

/// Returns `parameter - learning_rate * direction`.
fn descent_step(
    g: &mut GraphBuilder,
    parameter: NodeId,
    direction: NodeId,
    learning_rate: NodeId,
) -> Result<NodeId, GraphError> {
    let dtype = g.descriptor_of(parameter)?.dtype;
    let rate = g.cast(learning_rate, dtype)?;
    let step = g.mul(rate, direction)?;
    g.sub(parameter, step)
}

/// Returns `beta * mean + (1 - beta) * value`.
fn exponential_average(g: &mut GraphBuilder, mean: NodeId, value: NodeId, beta: f64) -> Result<NodeId, GraphError> {
    let decayed = scale_by(g, mean, beta)?;
    let added = scale_by(g, value, 1.0 - beta)?;
    g.add(decayed, added)
}

/// Returns `mean / (1 - beta^step)`, which corrects for the mean's start at zero.
fn bias_corrected(g: &mut GraphBuilder, mean: NodeId, beta: f64, step: NodeId) -> Result<NodeId, GraphError> {
    check_float(g, "adam", "step", step)?;
    let base = fill_like(g, step, beta)?;
    let power = g.pow(base, step)?;
    let one = fill_like(g, step, 1.0)?;
    let weight = g.sub(one, power)?;
    let dtype = g.descriptor_of(mean)?.dtype;
    let weight = g.cast(weight, dtype)?;
    g.div(mean, weight)
}

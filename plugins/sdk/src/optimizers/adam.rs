//! Adam.

use super::{LearningRateSchedule, Optimizer, Update, count_step, moment_variable};
use crate::bindings::tensors::DataType;
use crate::error::Result;
use crate::graph::Graph;
use crate::operand::Operand;
use crate::variables::Variables;

/// Adam with bias correction, and weight decay apart from the gradient (AdamW).
/// Source: Kingma and Ba, arXiv:1412.6980; Loshchilov and Hutter, arXiv:1711.05101.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Adam {
    /// How fast to learn.
    pub learning_rate: LearningRateSchedule,
    /// How slowly the mean of the gradients changes.
    pub beta1: f64,
    /// How slowly the mean of their squares changes.
    pub beta2: f64,
    /// Keeps the division finite.
    pub epsilon: f64,
    /// The share of the value that a step takes away, times the rate.
    pub weight_decay: f64,
}

impl Adam {
    /// Adam with the paper's constants.
    pub fn new(rate: impl Into<LearningRateSchedule>) -> Self {
        Self { learning_rate: rate.into(), beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay: 0.0 }
    }

    /// AdamW: Adam with weight decay.
    pub fn with_weight_decay(rate: impl Into<LearningRateSchedule>, weight_decay: f64) -> Self {
        Self { weight_decay, ..Self::new(rate) }
    }
}

impl Optimizer for Adam {
    fn step(&self, graph: &Graph, variables: &Variables, updates: &[Update]) -> Result<()> {
        let step = count_step(graph, variables)?;
        let rate = self.learning_rate.at(&step)?;
        // 1 / (1 - beta^t): what makes up for moments that begin at zero.
        let correction = |beta: f64| -> Result<Operand> {
            let power = graph.scalar(DataType::Float32, beta)?.pow(&step)?;
            power.neg()?.add_scalar(1.0)?.reciprocal()
        };
        let (correction1, correction2) = (correction(self.beta1)?, correction(self.beta2)?);
        for Update { variable, value, gradient } in updates {
            let (first, second) =
                (moment_variable(variables, "first", variable)?, moment_variable(variables, "second", variable)?);
            let mean = exponential_average(&graph.stored(&first)?, self.beta1, gradient)?;
            let square = exponential_average(&graph.stored(&second)?, self.beta2, &gradient.mul(gradient)?)?;
            graph.assign(&first, &mean)?;
            graph.assign(&second, &square)?;
            let scale = square.mul(&correction2)?.sqrt()?.add_scalar(self.epsilon)?;
            let mut direction = mean.mul(&correction1)?.div(&scale)?;
            if self.weight_decay != 0.0 {
                direction = direction.add(&value.mul_scalar(self.weight_decay)?)?;
            }
            graph.assign(variable, &value.sub(&direction.mul(&rate)?)?)?;
        }
        Ok(())
    }
}

/// `beta * old + (1 - beta) * new`.
fn exponential_average(old: &Operand, beta: f64, new: &Operand) -> Result<Operand> {
    old.mul_scalar(beta)?.add(&new.mul_scalar(1.0 - beta)?)
}

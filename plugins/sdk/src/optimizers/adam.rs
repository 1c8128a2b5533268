//! The Adam and AdamW optimisers.

use super::{LearningRateSchedule, Optimizer, Update, count_step, moment_variable};
use crate::bindings::tensors::DataType;
use crate::error::Result;
use crate::graph::Graph;
use crate::graph::operand::Operand;
use crate::variables::Variables;

/// Adam with bias correction, and with decoupled weight decay (AdamW). Source: Kingma and Ba, arXiv:1412.6980;
/// Loshchilov and Hutter, arXiv:1711.05101.
///
/// ```
/// use saggar_plugin::optimizers::{Adam, LearningRateSchedule};
///
/// let adam = Adam::new(0.001);
/// assert_eq!((adam.beta1, adam.beta2), (0.9, 0.999));
///
/// let rate = LearningRateSchedule::Cosine { peak: 0.002, warmup: 100, steps: 10_000 };
/// let adamw = Adam::new(rate).betas(0.9, 0.99).weight_decay(0.1);
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Adam {
    /// Learning rate.
    pub learning_rate: LearningRateSchedule,
    /// Decay rate of the mean of the gradients.
    pub beta1: f64,
    /// Decay rate of the mean of the squared gradients.
    pub beta2: f64,
    /// Added to the denominator, to avoid division by zero.
    pub epsilon: f64,
    /// Weight decay: each step subtracts this fraction of the value, times the learning rate.
    pub weight_decay: f64,
}

impl Adam {
    /// Returns Adam with the constants of the paper: `beta1` 0.9, `beta2` 0.999, `epsilon` 1e-8, no weight decay.
    pub fn new(rate: impl Into<LearningRateSchedule>) -> Self {
        Self { learning_rate: rate.into(), beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay: 0.0 }
    }

    /// Sets the decay rates of the means of the gradients and of their squares.
    #[must_use]
    pub fn betas(mut self, beta1: f64, beta2: f64) -> Self {
        (self.beta1, self.beta2) = (beta1, beta2);
        self
    }

    /// Sets what is added to the denominator.
    #[must_use]
    pub fn epsilon(mut self, epsilon: f64) -> Self {
        self.epsilon = epsilon;
        self
    }

    /// Sets the decoupled weight decay: Adam with it is AdamW.
    #[must_use]
    pub fn weight_decay(mut self, weight_decay: f64) -> Self {
        self.weight_decay = weight_decay;
        self
    }
}

impl Optimizer for Adam {
    fn step(&self, graph: &Graph, variables: &Variables, updates: &[Update]) -> Result<()> {
        let step = count_step(graph, variables)?;
        let rate = self.learning_rate.at(&step)?;
        // 1 / (1 - beta^t), the correction for moments that are initialised with 0.
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

/// Returns `beta * old + (1 - beta) * new`.
fn exponential_average(old: &Operand, beta: f64, new: &Operand) -> Result<Operand> {
    old.mul_scalar(beta)?.add(&new.mul_scalar(1.0 - beta)?)
}

//! Stochastic gradient descent.

use super::{LearningRateSchedule, Optimizer, Update, count_step, moment_variable};
use crate::error::Result;
use crate::graph::Graph;
use crate::variables::Variables;

/// Stochastic gradient descent with momentum as in PyTorch: `v = momentum * v + g`, `p = p - rate * v`. With Nesterov
/// momentum, the step uses `g + momentum * v` in place of `v`. Source: torch.optim.SGD.
///
/// ```
/// use saggar_plugin::optimizers::Sgd;
///
/// let sgd = Sgd::new(0.05).momentum(0.9);
/// assert!(!sgd.nesterov);
/// let decayed = Sgd::new(0.05).momentum(0.9).nesterov().weight_decay(1e-4);
/// assert!(decayed.nesterov);
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sgd {
    /// Learning rate.
    pub learning_rate: LearningRateSchedule,
    /// Momentum: the factor of the previous velocity; 0 disables momentum.
    pub momentum: f64,
    /// Whether to use Nesterov momentum.
    pub nesterov: bool,
    /// Weight decay: this fraction of the value is added to the gradient.
    pub weight_decay: f64,
}

impl Sgd {
    /// Returns gradient descent without momentum.
    pub fn new(rate: impl Into<LearningRateSchedule>) -> Self {
        Self { learning_rate: rate.into(), momentum: 0.0, nesterov: false, weight_decay: 0.0 }
    }

    /// Sets the momentum.
    #[must_use]
    pub fn momentum(mut self, momentum: f64) -> Self {
        self.momentum = momentum;
        self
    }

    /// Enables Nesterov momentum.
    #[must_use]
    pub fn nesterov(mut self) -> Self {
        self.nesterov = true;
        self
    }

    /// Sets the weight decay.
    #[must_use]
    pub fn weight_decay(mut self, weight_decay: f64) -> Self {
        self.weight_decay = weight_decay;
        self
    }
}

impl Optimizer for Sgd {
    fn step(&self, graph: &Graph, variables: &Variables, updates: &[Update]) -> Result<()> {
        let rate = self.learning_rate.at(&count_step(graph, variables)?)?;
        for Update { variable, value, gradient } in updates {
            let mut direction = gradient.clone();
            if self.weight_decay != 0.0 {
                direction = direction.add(&value.mul_scalar(self.weight_decay)?)?;
            }
            if self.momentum != 0.0 {
                let velocity = moment_variable(variables, "momentum", variable)?;
                let next = graph.stored(&velocity)?.mul_scalar(self.momentum)?.add(&direction)?;
                graph.assign(&velocity, &next)?;
                direction = if self.nesterov { direction.add(&next.mul_scalar(self.momentum)?)? } else { next };
            }
            graph.assign(variable, &value.sub(&direction.mul(&rate)?)?)?;
        }
        Ok(())
    }
}

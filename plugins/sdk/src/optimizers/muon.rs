//! The Muon optimiser.

use super::{Adam, LearningRateSchedule, Optimizer, Update, count_step, moment_variable};
use crate::error::Result;
use crate::graph::Graph;
use crate::graph::operand::Operand;
use crate::variables::Variables;

/// Coefficients of the quintic Newton-Schulz iteration. It moves every singular value towards 1, quickly rather than
/// exactly.
const NEWTON_SCHULZ_COEFFICIENTS: [f64; 3] = [3.4445, -4.7750, 2.0315];
const NEWTON_SCHULZ_ITERATIONS: usize = 5;

/// Muon: momentum that is orthogonalised, for matrices and convolution filters. Other parameters are trained with Adam.
///
/// The momentum of a matrix is replaced by the nearest matrix whose singular values are about 1, so that all directions
/// are learnt at the same pace. Embeddings and the last layer train better with Adam: list them with
/// [`Muon::adam_for`]. Source: Jordan, "Muon: An optimizer for hidden layers in neural networks", 2024.
///
/// ```
/// use saggar_plugin::optimizers::{Adam, Muon};
///
/// let muon = Muon::new(0.02, Adam::new(0.001)).adam_for(&["embedding/", "output/"]);
/// assert_eq!(muon.momentum, 0.95);
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Muon {
    /// Learning rate of the matrices.
    pub learning_rate: LearningRateSchedule,
    /// Momentum: the factor of the previous velocity.
    pub momentum: f64,
    /// Weight decay of the matrices: each step subtracts this fraction of the value, times the learning rate.
    pub weight_decay: f64,
    /// Optimiser of all other parameters.
    pub adam: Adam,
    /// Name prefixes of matrices that Adam trains.
    pub except: Vec<String>,
}

impl Muon {
    /// Returns Muon with this learning rate (usually 0.02) and Nesterov momentum of 0.95 for matrices, and `rest` for
    /// all other parameters.
    pub fn new(rate: impl Into<LearningRateSchedule>, rest: Adam) -> Self {
        Self { learning_rate: rate.into(), momentum: 0.95, weight_decay: 0.0, adam: rest, except: Vec::new() }
    }

    /// Uses Adam for the matrices whose names have one of these prefixes.
    #[must_use]
    pub fn adam_for(mut self, beginnings: &[&str]) -> Self {
        self.except.extend(beginnings.iter().map(|name| (*name).to_owned()));
        self
    }

    fn uses_muon(&self, update: &Update) -> bool {
        let excepted = self.except.iter().any(|beginning| update.variable.name().starts_with(beginning.as_str()));
        matches!(update.variable.descriptor().shape.len(), 2 | 4) && !excepted
    }
}

impl Optimizer for Muon {
    fn step(&self, graph: &Graph, variables: &Variables, updates: &[Update]) -> Result<()> {
        let rate = self.learning_rate.at(&count_step(graph, variables)?)?;
        let (matrices, rest): (Vec<Update>, Vec<Update>) = updates.iter().cloned().partition(|it| self.uses_muon(it));
        self.adam.step(graph, variables, &rest)?;
        for Update { variable, value, gradient } in &matrices {
            let velocity = moment_variable(variables, "momentum", variable)?;
            let next = graph.stored(&velocity)?.mul_scalar(self.momentum)?.add(gradient)?;
            graph.assign(&velocity, &next)?;
            let ahead = gradient.add(&next.mul_scalar(self.momentum)?)?;
            let mut direction = orthogonalize(&ahead)?;
            if self.weight_decay != 0.0 {
                direction = direction.add(&value.mul_scalar(self.weight_decay)?)?;
            }
            graph.assign(variable, &value.sub(&direction.mul(&rate)?)?)?;
        }
        Ok(())
    }
}

/// Returns the matrix with its singular values moved to about 1. If it has more outputs than inputs, the result is
/// multiplied by `sqrt(outputs / inputs)`.
///
/// A filter `[out, in, height, width]` is treated as a matrix `[out, in * height * width]`; a matrix is `[in, out]`.
fn orthogonalize(gradient: &Operand) -> Result<Operand> {
    let shape = gradient.shape();
    let matrix = gradient.flatten(1)?;
    let [rows, columns] = [0, 1].map(|axis| matrix.shape().get(axis).copied().unwrap_or(1));
    let tall = rows > columns;
    let wide = if tall { matrix.transpose(&[1, 0])? } else { matrix };
    // With a norm of at most 1, no singular value is above 1; the iteration diverges for larger ones.
    let norm = wide.reduce_l2(&[], false)?.add_scalar(1e-7)?;
    let mut x = wide.div(&norm)?;
    let [a, b, c] = NEWTON_SCHULZ_COEFFICIENTS;
    for _ in 0..NEWTON_SCHULZ_ITERATIONS {
        let square = x.matmul(&x.transpose(&[1, 0])?)?;
        let weights = square.mul_scalar(b)?.add(&square.matmul(&square)?.mul_scalar(c)?)?;
        x = x.mul_scalar(a)?.add(&weights.matmul(&x)?)?;
    }
    let x = if tall { x.transpose(&[1, 0])? } else { x };
    let (inputs, outputs) = if shape.len() == 2 { (rows, columns) } else { (columns, rows) };
    let growth = (f64::from(outputs) / f64::from(inputs.max(1))).max(1.0).sqrt();
    x.mul_scalar(growth)?.reshape(&shape)
}

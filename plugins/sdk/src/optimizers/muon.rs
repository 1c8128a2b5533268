//! Muon.

use super::{Adam, LearningRateSchedule, Optimizer, Update, count_step, moment_variable};
use crate::error::Result;
use crate::graph::Graph;
use crate::operand::Operand;
use crate::variables::Variables;

/// The quintic that is iterated: it moves every singular value towards 1, fast rather than exactly.
const NEWTON_SCHULZ_COEFFICIENTS: [f64; 3] = [3.4445, -4.7750, 2.0315];
const NEWTON_SCHULZ_ITERATIONS: usize = 5;

/// Momentum made orthogonal, for matrices and the filters of convolutions; Adam for everything else.
///
/// A matrix's momentum is replaced by the nearest matrix with singular values of about 1, so that every direction is
/// learnt at the same pace. Tables that are looked up and the last layer do better with Adam: name them with
/// [`Muon::adam_for`]. Source: Jordan, "Muon: An optimizer for hidden layers in neural networks", 2024.
#[derive(Debug, Clone, PartialEq)]
pub struct Muon {
    /// How fast matrices learn.
    pub learning_rate: LearningRateSchedule,
    /// How much of the last step's direction stays.
    pub momentum: f64,
    /// The share of a matrix that a step takes away, times the rate.
    pub weight_decay: f64,
    /// For everything else.
    pub adam: Adam,
    /// Beginnings of the names of matrices that Adam trains.
    pub except: Vec<String>,
}

impl Muon {
    /// Muon for matrices, at `learning_rate` (0.02 is usual), with Nesterov's momentum of 0.95; `adam` for everything else.
    pub fn new(rate: impl Into<LearningRateSchedule>, rest: Adam) -> Self {
        Self { learning_rate: rate.into(), momentum: 0.95, weight_decay: 0.0, adam: rest, except: Vec::new() }
    }

    /// With Adam for the matrices whose names begin so.
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

/// The matrix with its singular values moved to about 1, made larger where it has more outputs than inputs.
///
/// A filter `[out, in, height, width]` is taken as the matrix `[out, in * height * width]`; a matrix is `[in, out]`.
fn orthogonalize(gradient: &Operand) -> Result<Operand> {
    let shape = gradient.shape();
    let matrix = gradient.flatten(1)?;
    let [rows, columns] = [0, 1].map(|axis| matrix.shape().get(axis).copied().unwrap_or(1));
    let tall = rows > columns;
    let wide = if tall { matrix.transpose(&[1, 0])? } else { matrix };
    // With a norm of at most 1 no singular value is above 1, from where the iteration would run away.
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

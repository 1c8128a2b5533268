//! The objective of a training: its loss and metrics.

use std::panic::Location;

use crate::bindings::tensors::DataType;
use crate::call_site::AtCallSite;
use crate::error::{Result, SourceLine};
use crate::graph::operand::Operand;
use crate::graph::{Executable, Graph};

/// The loss of a training step, which is minimised, and the metrics that it reports.
///
/// ```no_run
/// # use saggar_plugin::*;
/// # fn f(logits: &Operand, label: &Operand) -> Result<Objective> {
/// let loss = logits.softmax_cross_entropy(label)?;
/// Ok(Objective::new(loss).metric("accuracy", accuracy(logits, label)?))
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Objective {
    /// The loss first, then the metrics.
    outputs: Vec<(String, Operand)>,
    /// The line that created the objective.
    line: SourceLine,
}

impl Objective {
    /// Returns an objective that minimises `loss`, an operand with one element: a mean over the batch.
    #[track_caller]
    pub fn new(loss: Operand) -> Self {
        Self { outputs: vec![("loss".to_owned(), loss)], line: Location::caller() }
    }

    /// Also reports `value`, an operand with one element: a mean over the batch.
    #[must_use]
    pub fn metric(mut self, name: &str, value: Operand) -> Self {
        self.outputs.push((name.to_owned(), value));
        self
    }

    pub(super) fn loss(&self) -> &Operand {
        &self.outputs[0].1
    }

    /// Returns the names of the loss and the metrics.
    /// Returns the line that created the objective, for errors about its loss and metrics.
    pub(super) fn line(&self) -> SourceLine {
        self.line
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.outputs.iter().map(|(name, _)| name.clone()).collect()
    }

    /// Builds the graph with the loss and the metrics as outputs, `float32` scalars.
    pub(super) fn build(&self, graph: &Graph) -> Result<Executable> {
        let scalars = self
            .outputs
            .iter()
            .map(|(name, operand)| Ok((name.as_str(), operand.cast(DataType::Float32)?.reshape(&[])?)));
        let scalars: Vec<_> = scalars.collect::<Result<_>>().at(self.line)?;
        graph.build(scalars.iter().map(|(name, operand)| (*name, operand))).at(self.line)
    }
}

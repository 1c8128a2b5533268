//! What a training minimises.

use crate::bindings::tensors::DataType;
use crate::error::Result;
use crate::graph::{Executable, Graph};
use crate::operand::Operand;

/// What a training step minimises and what it reports besides.
#[derive(Debug, Clone)]
pub struct Objective {
    /// The loss first, then the metrics.
    outputs: Vec<(String, Operand)>,
}

impl Objective {
    /// Minimises `loss`, an operand of one element that is a mean over the batch.
    pub fn new(loss: Operand) -> Self {
        Self { outputs: vec![("loss".to_owned(), loss)] }
    }

    /// Reports `value` too, an operand of one element that is a mean over the batch.
    #[must_use]
    pub fn metric(mut self, name: &str, value: Operand) -> Self {
        self.outputs.push((name.to_owned(), value));
        self
    }

    pub(super) fn loss(&self) -> &Operand {
        &self.outputs[0].1
    }

    /// Names of the loss and the metrics.
    pub(super) fn names(&self) -> Vec<String> {
        self.outputs.iter().map(|(name, _)| name.clone()).collect()
    }

    /// The outputs as `float32` scalars.
    pub(super) fn build(&self, graph: &Graph) -> Result<Executable> {
        let scalars = self
            .outputs
            .iter()
            .map(|(name, operand)| Ok((name.as_str(), operand.cast(DataType::Float32)?.reshape(&[])?)));
        let scalars: Vec<_> = scalars.collect::<Result<_>>()?;
        graph.build(scalars.iter().map(|(name, operand)| (*name, operand)))
    }
}

//! Training tasks: each is a graph of one step with forward pass, backward pass and update. `torch_peer.py` trains the
//! same networks.

use saggar_tensor::grad::gradients;
use saggar_tensor::op::Scalar;
use saggar_tensor::{DType, Descriptor, GraphError, NodeId, Shape, VerifiedGraph, nn, verify};

use crate::layers::LayerBuilder;
use crate::tensors::SafetensorsFile;

/// A network and how it is trained.
pub(crate) struct TrainingTask {
    /// Its name here and in `models.py`.
    pub(crate) name: &'static str,
    build: fn(&mut LayerBuilder<'_>) -> Result<NodeId, GraphError>,
    rule: OptimizerRule,
    /// Whether PyTorch is also measured with channels last, which is faster with convolutions.
    pub(crate) channels_last: bool,
}

enum OptimizerRule {
    /// Gradient descent with a momentum of 0.9.
    Momentum {
        rate: f64,
    },
    Adam {
        rate: f64,
    },
}

pub(crate) const LENET: TrainingTask = TrainingTask {
    name: "lenet",
    build: crate::lenet::logits,
    rule: OptimizerRule::Momentum { rate: 0.01 },
    channels_last: true,
};

pub(crate) const SEQ2SEQ: TrainingTask = TrainingTask {
    name: "seq2seq",
    build: crate::seq2seq::logits,
    rule: OptimizerRule::Adam { rate: 1e-3 },
    channels_last: false,
};

pub(crate) const RESNET50: TrainingTask = TrainingTask {
    name: "resnet50",
    build: crate::resnet50::logits,
    rule: OptimizerRule::Momentum { rate: 0.01 },
    channels_last: true,
};

pub(crate) const DECODER: TrainingTask = TrainingTask {
    name: "decoder",
    build: crate::decoder::logits,
    rule: OptimizerRule::Adam { rate: 1e-3 },
    channels_last: false,
};

pub(crate) const TRANSFORMER: TrainingTask = TrainingTask {
    name: "transformer",
    build: crate::transformer::logits,
    rule: OptimizerRule::Adam { rate: 1e-3 },
    channels_last: false,
};

impl TrainingTask {
    /// Returns the task of this name.
    pub(crate) fn by_name(name: &str) -> Option<&'static TrainingTask> {
        [&LENET, &SEQ2SEQ, &RESNET50, &DECODER, &TRANSFORMER].into_iter().find(|task| task.name == name)
    }

    /// Returns a step that outputs the loss; the batch size is that of the inputs in `start`.
    ///
    /// # Errors
    /// Returns the graph's error.
    pub(crate) fn training_graph(&self, start: &SafetensorsFile) -> Result<VerifiedGraph, GraphError> {
        let mut l = LayerBuilder::new(start);
        l.training = true;
        let logits = (self.build)(&mut l)?;
        let labels = l.input("labels")?;
        let loss = nn::cross_entropy(&mut l.g, logits, labels)?;
        let parameters: Vec<NodeId> = l.parameters.iter().map(|(_, node)| *node).collect();
        let derivatives = gradients(&mut l.g, loss, &parameters)?;
        match self.rule {
            OptimizerRule::Momentum { rate } => add_momentum_updates(&mut l, &derivatives, rate)?,
            OptimizerRule::Adam { rate } => add_adam_updates(&mut l, &derivatives, rate)?,
        }
        l.g.output("loss", loss)?;
        verify(l.g.finish())
    }
}

/// Returns the same network for inference.
///
/// # Errors
/// Returns the graph's error.
pub(crate) fn inference_graph(task: &TrainingTask, start: &SafetensorsFile) -> Result<VerifiedGraph, GraphError> {
    let mut l = LayerBuilder::new(start);
    let result = (task.build)(&mut l)?;
    l.g.output("result", result)?;
    verify(l.g.finish())
}

fn add_momentum_updates(l: &mut LayerBuilder<'_>, derivatives: &[NodeId], rate: f64) -> Result<(), GraphError> {
    let rate = l.g.scalar(DType::F32, Scalar::Float(rate))?;
    let options = nn::SgdOptions { momentum: 0.9, ..nn::SgdOptions::default() };
    for ((name, parameter), &gradient) in l.parameters.clone().into_iter().zip(derivatives) {
        let velocity = l.state(&name, parameter, "velocity")?;
        let next = nn::sgd(&mut l.g, &options, parameter, gradient, velocity, rate)?;
        l.g.assign_to(parameter, next.parameter)?;
        l.g.assign_to(velocity, next.velocity)?;
    }
    Ok(())
}

fn add_adam_updates(l: &mut LayerBuilder<'_>, derivatives: &[NodeId], rate: f64) -> Result<(), GraphError> {
    let rate = l.g.scalar(DType::F32, Scalar::Float(rate))?;
    let steps = l.g.variable("steps", Descriptor::new(DType::F32, Shape::scalar()))?;
    let one = l.g.scalar(DType::F32, Scalar::Float(1.0))?;
    let step = l.g.add(steps, one)?;
    l.g.assign_to(steps, step)?;
    for ((name, parameter), &gradient) in l.parameters.clone().into_iter().zip(derivatives) {
        let state = [l.state(&name, parameter, "first")?, l.state(&name, parameter, "second")?];
        let next = nn::adam(&mut l.g, &nn::AdamOptions::default(), parameter, gradient, state, step, rate)?;
        l.g.assign_to(parameter, next.parameter)?;
        l.g.assign_to(state[0], next.first)?;
        l.g.assign_to(state[1], next.second)?;
    }
    Ok(())
}

//! The graph of one training step: forward, backward and update. If the job has shards, the graph is built for the
//! items of one shard.
//!
//! A step can skip its update, because gradients are not finite or more batches must be accumulated first. The graph
//! then still computes the update but keeps the old values, so every step runs the same program.

use super::{Feed, Fit, exponential_average};
use crate::bindings::tensors::DataType;
use crate::bindings::variables::{Initializer, VariableKind};
use crate::call_site::AtCallSite;
use crate::error::{Error, Result};
use crate::graph::operand::Operand;
use crate::graph::{Executable, Graph, GraphPurpose};
use crate::optimizers::{Update, clip_grad_norm, sum_of_squares};
use crate::tensor::descriptor;
use crate::variables::{Variable, Variables};

/// Minimum, initial and maximum loss scale in mixed precision.
const LOSS_SCALES: [f64; 3] = [1.0 / 65536.0, 65536.0, 16_777_216.0];
/// Consecutive steps with finite gradients after which the loss scale is doubled.
const LOSS_SCALE_GROWTH_INTERVAL: f64 = 2000.0;

/// Options of a training step.
#[derive(Debug, Clone, Copy)]
pub(super) struct StepOptions {
    pub(super) clip: Option<f64>,
    /// Batches per update, at least 1.
    pub(super) accumulate: u32,
    pub(super) half: bool,
    pub(super) average: Option<f64>,
}

impl Default for StepOptions {
    fn default() -> Self {
        Self { clip: None, accumulate: 1, half: false, average: None }
    }
}

impl Fit<'_> {
    /// Builds the graph. Returns it with the names of its outputs.
    pub(super) fn training_graph(&self, feed: &Feed<'_>) -> Result<(Executable, Vec<String>)> {
        let StepOptions { clip, accumulate, half, average } = self.options;
        let graph = Graph::for_purpose(GraphPurpose { training: true, half, ..GraphPurpose::default() });
        let shards = self.job.shards().max(1);
        if !feed.batch.is_multiple_of(shards) {
            return Err(Error::Shards { batch: feed.batch, shards });
        }
        let mut objective = (self.objective)(&graph, &feed.inputs(&graph, feed.batch / shards)?)?;
        let line = objective.line();
        let loss = objective.loss().cast(DataType::Float32).at(line)?;
        let scale = if half { Some(LossScaler::new(&graph, self.variables)?) } else { None };
        let mut updates = collect_updates(&graph, self.variables, &loss, scale.as_ref()).at(line)?;
        let mut guard = None;
        if let Some(scale) = scale {
            let sound = gradients_are_finite(&graph, &updates)?;
            graph.set_statistics_guard(&sound);
            scale.update(&graph, &sound)?;
            objective = objective.metric("scale", scale.value);
            guard = Some(sound);
        }
        if accumulate > 1 {
            guard = Some(accumulate_gradients(&graph, self.variables, &mut updates, guard.as_ref(), accumulate)?);
        }
        if let Some(norm) = clip {
            clip_grad_norm(&mut updates, norm)?;
        }
        graph.set_assignment_guard(guard.as_ref());
        self.optimizer.step(&graph, self.variables, &updates)?;
        if let Some(decay) = average {
            exponential_average::update_averages(&graph, self.variables, decay)?;
        }
        graph.set_assignment_guard(None);
        Ok((objective.build(&graph)?, objective.names()))
    }
}

/// Returns the parameters with their values and gradients.
fn collect_updates(
    graph: &Graph,
    variables: &Variables,
    loss: &Operand,
    scale: Option<&LossScaler>,
) -> Result<Vec<Update>> {
    let parameters = variables.parameters();
    let values = parameters.iter().map(|variable| graph.stored(variable)).collect::<Result<Vec<_>>>()?;
    let wrt: Vec<&Operand> = values.iter().collect();
    let gradients = match scale {
        None => graph.gradients(loss, &wrt)?,
        Some(scale) => {
            let gradients = graph.gradients(&loss.mul(&scale.value)?, &wrt)?;
            let inverse = scale.value.reciprocal()?;
            gradients.iter().map(|gradient| gradient.mul(&inverse)).collect::<Result<_>>()?
        }
    };
    let all = parameters.into_iter().zip(values).zip(gradients);
    Ok(all.map(|((variable, value), gradient)| Update { variable, value, gradient }).collect())
}

/// Returns a `uint8` scalar: 1 if all gradients are finite, else 0.
fn gradients_are_finite(graph: &Graph, updates: &[Update]) -> Result<Operand> {
    let total = match sum_of_squares(updates)? {
        Some(total) => total,
        None => graph.scalar(DataType::Float32, 0.0)?,
    };
    // This comparison is false for infinity and for NaN.
    total.lesser_or_equal(&total.scalar_like(f64::from(f32::MAX))?)
}

/// The loss scale of mixed precision.
struct LossScaler {
    variable: Variable,
    good: Variable,
    value: Operand,
}

impl LossScaler {
    fn new(graph: &Graph, variables: &Variables) -> Result<Self> {
        let first = Initializer::Constant(LOSS_SCALES[1] as f32);
        let scalar = descriptor(DataType::Float32, []);
        let variable = variables.get("mixed-precision/scale", scalar.clone(), &first, VariableKind::Training)?;
        let good = variables.training("mixed-precision/good", scalar)?;
        let value = graph.stored(&variable)?;
        Ok(Self { variable, good, value })
    }

    /// Halves the scale after a step whose gradients are not finite, and doubles it after enough consecutive steps
    /// whose gradients are.
    fn update(&self, graph: &Graph, sound: &Operand) -> Result<()> {
        let good = graph.stored(&self.good)?.add_scalar(1.0)?;
        let many = good.greater_or_equal(&good.scalar_like(LOSS_SCALE_GROWTH_INTERVAL)?)?;
        let zero = good.scalar_like(0.0)?;
        let grown = many.where_cond(&self.value.mul_scalar(2.0)?, &self.value)?;
        let next = sound.where_cond(&grown, &self.value.mul_scalar(0.5)?)?;
        graph.assign(&self.variable, &next.clamp(Some(LOSS_SCALES[0]), Some(LOSS_SCALES[2]))?)?;
        graph.assign(&self.good, &sound.where_cond(&many.where_cond(&zero, &good)?, &zero)?)
    }
}

/// Adds the gradients to those of the previous batches, and replaces them by the mean. Returns a `uint8` scalar: 1 if
/// enough batches were accumulated for an update, else 0.
fn accumulate_gradients(
    graph: &Graph,
    variables: &Variables,
    updates: &mut [Update],
    sound: Option<&Operand>,
    batches: u32,
) -> Result<Operand> {
    let counter = variables.training("accumulated/batches", descriptor(DataType::Float32, []))?;
    let counted = |before: &Operand, after: Operand| match sound {
        Some(sound) => sound.where_cond(&after, before),
        None => Ok(after),
    };
    let before = graph.stored(&counter)?;
    let count = counted(&before, before.add_scalar(1.0)?)?;
    let enough = count.greater_or_equal(&count.scalar_like(f64::from(batches))?)?;
    let zero = count.scalar_like(0.0)?;
    graph.assign(&counter, &enough.where_cond(&zero, &count)?)?;
    for update in updates {
        let name = format!("accumulated/{}", update.variable.name());
        let sum = variables.training(&name, update.variable.descriptor().clone())?;
        let before = graph.stored(&sum)?;
        let after = counted(&before, before.add(&update.gradient)?)?;
        graph.assign(&sum, &enough.where_cond(&zero, &after)?)?;
        update.gradient = after.mul_scalar(1.0 / f64::from(batches))?;
    }
    Ok(enough)
}

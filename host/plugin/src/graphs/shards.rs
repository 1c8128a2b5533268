//! Graphs of jobs with shards: gradients become means over the shards. A graph with such means is split into two
//! programs, one that runs for each shard and one for the update.

use std::sync::Arc;

use saggar_device::meter::MeterCharge;
use saggar_device::{CancelToken, DeviceBuffer, DeviceError};
use saggar_store::checkpoint::VariableKind;
use saggar_tensor::micro_batches::{self, StepOutput};
use saggar_tensor::{Descriptor, Graph, GraphPort, NodeId, verify};
use wasmtime::component::Resource;

use super::program::LoadedProgram;
use super::{BuilderHandle, CompiledGraph};
use crate::host_error::HostError;
use crate::instance_state::{InstanceRole, InstanceState};
use crate::shards::{BatchShards, ShardMean, ShardSection};
use crate::variables::DeviceVariable;

/// The second program of a step in shards.
#[derive(Debug)]
pub(crate) struct UpdateProgram {
    compiled: Arc<LoadedProgram>,
    /// Number of a shard's outputs whose means the update takes.
    means: usize,
    /// Whether a shard's last input is its index.
    pub(crate) takes_shard_index: bool,
    /// Outputs of the whole step.
    pub(super) ports: Vec<GraphPort>,
    /// Source of each output of the step.
    outputs: Vec<StepOutput>,
}

impl UpdateProgram {
    /// Returns the mean that the step takes over its shards.
    pub(crate) fn mean(&self, shard: &[GraphPort]) -> ShardMean {
        let section = |(at, port): (usize, &GraphPort)| {
            let Descriptor { dtype, shape } = &port.descriptor;
            let section = if at < self.means { ShardSection::Same(*dtype) } else { ShardSection::Number(*dtype) };
            (section, shape.elements())
        };
        ShardMean::new(shard.iter().enumerate().map(section).collect())
    }

    /// Returns the inputs of the update.
    pub(crate) fn inputs(&self) -> &[GraphPort] {
        &self.compiled.program().inputs
    }

    /// Runs the update once.
    ///
    /// # Errors
    /// The device's errors; `Cancelled`.
    pub(crate) fn dispatch(
        &self,
        means: &[DeviceBuffer],
        variables: &[DeviceBuffer],
        cancel: &CancelToken,
    ) -> Result<Vec<DeviceBuffer>, DeviceError> {
        self.compiled.dispatch(means, variables, cancel)
    }

    /// Returns the outputs of the step as numbers, from the means of the shards' own outputs and from the update's
    /// outputs.
    pub(crate) fn output_numbers(&self, shards: &[Vec<f64>], update: &[Vec<f64>]) -> Vec<Vec<f64>> {
        let numbers = |output: &StepOutput| match *output {
            // A shard's first outputs are those whose means the update takes; `shards` starts after them.
            StepOutput::MicroBatches(at) => shards[at - self.means].clone(),
            StepOutput::Update(at) => update[at].clone(),
        };
        self.outputs.iter().map(numbers).collect()
    }
}

impl InstanceState {
    /// Returns how the job's batches are divided. Without a job, they are whole.
    pub(crate) fn shards(&self) -> BatchShards {
        match &self.role {
            InstanceRole::Train(train) => train.context.shards(),
            InstanceRole::Predict { .. } => BatchShards::default(),
        }
    }

    /// Returns the gradients of `loss` with respect to `wrt`. In a job with shards, returns nodes that represent their
    /// means.
    pub(super) fn average_gradients(
        &mut self,
        graph: &Resource<BuilderHandle>,
        loss: NodeId,
        wrt: &[NodeId],
        mut gradients: Vec<NodeId>,
    ) -> Result<Vec<NodeId>, HostError> {
        if self.shards().count > 1 {
            self.edit_graph(graph, |builder| {
                let (graph, means) = (&mut builder.graph, &mut builder.means);
                Ok(micro_batches::average_gradients(graph, means, loss, wrt, &mut gradients)?)
            })?;
        }
        Ok(gradients)
    }

    /// Compiles a graph that has means over shards.
    pub(super) fn compile_sharded(
        &self,
        graph: Graph,
        means: &[NodeId],
        variables: Vec<DeviceVariable>,
        charges: Vec<MeterCharge>,
    ) -> Result<CompiledGraph, HostError> {
        let whole = verify(graph)?;
        let port = |(name, node): &(String, NodeId)| GraphPort {
            name: name.clone(),
            descriptor: whole.descriptor(*node).clone(),
        };
        let ports = whole.outputs.iter().map(port).collect();
        let statistic = |variable: u32| variables[variable as usize].kind() == VariableKind::Statistic;
        let step = micro_batches::split_step(&whole, means, &statistic)?;
        let update = UpdateProgram {
            compiled: self.load_program(step.update, Vec::new())?,
            means: step.means,
            takes_shard_index: step.takes_number,
            ports,
            outputs: step.outputs,
        };
        let compiled = self.load_program(step.micro_batch, charges)?;
        Ok(CompiledGraph { compiled, variables: variables.into(), update: Some(Arc::new(update)) })
    }
}

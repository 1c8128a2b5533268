//! Graphs of jobs with shards: gradients become means over the shards. A graph with such means is split into two
//! programs, one that runs for each shard and one for the update.

use std::sync::Arc;

use saggar_device::meter::MeterCharge;
use saggar_store::checkpoint::VariableKind;
use saggar_tensor::{Graph, GraphPort, NodeId, micro_batches, verify};

use super::compiled_graph::{CompiledGraph, UpdateProgram};
use crate::host_error::HostError;
use crate::instance_state::{InstanceRole, InstanceState};
use crate::shards::BatchShards;
use crate::variables::device_variable::DeviceVariable;

impl InstanceState {
    /// Returns how the job's batches are divided. Without a job, they are whole.
    pub(crate) fn shards(&self) -> BatchShards {
        match &self.role {
            InstanceRole::Train(train) => train.context.shards(),
            InstanceRole::Predict { .. } => BatchShards::default(),
        }
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

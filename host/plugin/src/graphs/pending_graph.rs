//! Graphs being built, and the plugin's handles of them and of their values.

use std::collections::BTreeMap;

use saggar_device::Meter;
use saggar_device::meter::MeterCharge;
use saggar_tensor::limits::NAME_BYTES_MAX;
use saggar_tensor::mixed_precision::{self, ScaledGradients};
use saggar_tensor::{Descriptor, GraphBuilder, GraphError, InterruptCheck, NodeId};

use super::mixed_precision::MixedPrecisionState;
use crate::host_error::HostError;
use crate::limits::NODE_BYTES;
use crate::loss_scale::loss_scale_state::LossScaleVariables;
use crate::variables::device_variable::DeviceVariable;

/// The id of a graph being built. Ids are never reused, so an operand cannot refer to a later graph by accident.
#[derive(Debug)]
#[expect(unreachable_pub, reason = "the generated bindings re-export it")]
pub struct BuilderHandle(pub(super) u64);

/// A value in a graph being built.
#[derive(Clone, Debug)]
#[expect(unreachable_pub, reason = "the generated bindings re-export it")]
pub struct GraphOperand {
    pub(super) builder: u64,
    pub(super) node: NodeId,
    pub(super) descriptor: Descriptor,
}

/// A graph being built.
#[derive(Debug, Default)]
pub(crate) struct PluginGraphBuilder {
    pub(super) graph: GraphBuilder,
    /// Nodes that represent means over a job's shards.
    pub(super) means: Vec<NodeId>,
    /// State of gradients in mixed precision, if any were taken.
    pub(super) mixed_precision: Option<MixedPrecisionState>,
    /// In the order of the graph's variables.
    pub(super) variables: Vec<DeviceVariable>,
    /// Node of each variable by the variable's identity, because two namespaces can use the same name.
    nodes: BTreeMap<usize, NodeId>,
    pub(super) constant_bytes: u64,
    charged_bytes: u64,
    pub(super) charges: Vec<MeterCharge>,
}

impl PluginGraphBuilder {
    /// Returns the node of a variable, whose name is made unique in this graph.
    pub(super) fn variable(&mut self, variable: &DeviceVariable) -> Result<NodeId, GraphError> {
        if let Some(&node) = self.nodes.get(&variable.identity()) {
            return Ok(node);
        }
        let is_duplicate = self.variables.iter().any(|other| other.name() == variable.name());
        let port = if is_duplicate {
            // The number comes first, so that truncation keeps it.
            let name = format!("{}:{}", self.variables.len(), variable.name());
            name[..name.floor_char_boundary(NAME_BYTES_MAX)].to_owned()
        } else {
            variable.name().to_owned()
        };
        let node = self.graph.variable(&port, variable.descriptor().clone())?;
        self.variables.push(variable.clone());
        self.nodes.insert(variable.identity(), node);
        Ok(node)
    }

    /// Charges the growth of the graph, in steps of `STEP_BYTES`.
    pub(super) fn charge_growth(&mut self, meter: &Meter) -> Result<(), HostError> {
        const STEP_BYTES: u64 = 256 << 10;
        let held_bytes = self.graph.graph().nodes.len() as u64 * NODE_BYTES + self.constant_bytes;
        if let Some(more) = held_bytes.checked_sub(self.charged_bytes).filter(|&more| more > 0) {
            let more = more.max(STEP_BYTES);
            let charge = meter.charge(more).map_err(|error| {
                HostError::out_of_memory(format!("graphs and constants take too much host memory: {error}"))
            })?;
            self.charges.push(charge);
            self.charged_bytes += more;
        }
        Ok(())
    }

    /// Returns the gradients of the loss. They are multiplied by the loss scale during the backward pass and divided by
    /// it at its end.
    pub(super) fn scaled_gradients(
        &mut self,
        by: &LossScaleVariables,
        loss: NodeId,
        wrt: &[NodeId],
        interrupt: &InterruptCheck<'_>,
    ) -> Result<Vec<NodeId>, HostError> {
        let scale = mixed_precision::LossScaleNodes {
            scale: self.variable(&by.scale)?,
            sound_steps: self.variable(&by.finite_steps)?,
            skipped_steps: self.variable(&by.skipped_steps)?,
        };
        let state = self
            .mixed_precision
            .get_or_insert_with(|| MixedPrecisionState { scaled_gradients: ScaledGradients::default(), scale });
        Ok(mixed_precision::scaled_loss_gradients(
            &mut self.graph,
            &mut state.scaled_gradients,
            state.scale.scale,
            loss,
            wrt,
            interrupt,
        )?)
    }
}

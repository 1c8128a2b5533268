//! Graph building for plugins: handles of graphs, operands and programs, and the code that their methods share.
//!
//! The operators are in `operators`, one line each if possible; `program` runs the built graphs. The semantics and
//! operand checks of operators are in `saggar_tensor` alone.

mod mixed_precision;
mod operator_macros;
mod operators;
mod options;
mod panic_guard;

pub(crate) mod program;
mod recurrent;
pub(crate) mod shards;

use std::collections::BTreeMap;

use saggar_device::Meter;
use saggar_device::meter::MeterCharge;
use saggar_tensor::limits::NAME_BYTES_MAX;
use saggar_tensor::{Descriptor, GraphBuilder, GraphError, NodeId};
use wasmtime::component::Resource;

use crate::bindings::graphs::{Host, HostOperand};
use crate::bindings::tensors::Descriptor as WitDescriptor;
use crate::convert;
use crate::host_error::HostError;
use crate::instance_state::InstanceState;
use crate::limits::NODE_BYTES;
use crate::variables::DeviceVariable;

pub(crate) use program::{CompiledGraph, ExecutableCache};

/// The id of a graph being built. Ids are never reused, so an operand cannot refer to a later graph by accident.
#[derive(Debug)]
#[expect(unreachable_pub, reason = "the generated bindings re-export it")]
pub struct BuilderHandle(u64);

/// A value in a graph being built.
#[derive(Clone, Debug)]
#[expect(unreachable_pub, reason = "the generated bindings re-export it")]
pub struct GraphOperand {
    builder: u64,
    node: NodeId,
    descriptor: Descriptor,
}

/// A graph being built.
#[derive(Debug, Default)]
pub(crate) struct PluginGraphBuilder {
    graph: GraphBuilder,
    /// Nodes that represent means over a job's shards.
    means: Vec<NodeId>,
    /// State of gradients in mixed precision, if any were taken.
    mixed_precision: Option<mixed_precision::MixedPrecisionState>,
    /// In the order of the graph's variables.
    variables: Vec<DeviceVariable>,
    /// Node of each variable by the variable's identity, because two namespaces can use the same name.
    nodes: BTreeMap<usize, NodeId>,
    constant_bytes: u64,
    charged_bytes: u64,
    charges: Vec<MeterCharge>,
}

impl PluginGraphBuilder {
    /// Returns the node of a variable, whose name is made unique in this graph.
    fn variable(&mut self, variable: &DeviceVariable) -> Result<NodeId, GraphError> {
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
    fn charge_growth(&mut self, meter: &Meter) -> Result<(), HostError> {
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
}

impl InstanceState {
    /// Edits a graph being built, and charges its growth.
    fn edit_graph<R>(
        &mut self,
        handle: &Resource<BuilderHandle>,
        work: impl FnOnce(&mut PluginGraphBuilder) -> Result<R, HostError>,
    ) -> Result<R, HostError> {
        self.check_deadline()?;
        let number = self.table.get(handle)?.0;
        let builder = self.builders.get_mut(&number).ok_or_else(missing_builder_error)?;
        let done = work(builder)?;
        builder.charge_growth(&self.host_meter)?;
        Ok(done)
    }

    /// Edits a graph as [`InstanceState::edit_graph`] does. An error names these operands.
    fn edit_graph_of<R>(
        &mut self,
        handle: &Resource<BuilderHandle>,
        operands: &[NodeId],
        work: impl FnOnce(&mut PluginGraphBuilder) -> Result<R, HostError>,
    ) -> Result<R, HostError> {
        self.edit_graph(handle, |builder| {
            work(builder).map_err(|error| {
                let names = operands.iter().map(|operand| builder.graph.describe_node(*operand));
                error.with_operands(&names.collect::<Vec<_>>())
            })
        })
    }

    /// Returns an operand's node, or an error if it belongs to another graph.
    fn node(&self, handle: &Resource<BuilderHandle>, operand: &Resource<GraphOperand>) -> Result<NodeId, HostError> {
        let (builder, operand) = (self.table.get(handle)?, self.table.get(operand)?);
        if builder.0 == operand.builder {
            return Ok(operand.node);
        }
        Err(HostError::invalid(format!("operand {} belongs to another graph builder", operand.descriptor)))
    }

    fn nodes(
        &self,
        handle: &Resource<BuilderHandle>,
        operands: &[Resource<GraphOperand>],
    ) -> Result<Vec<NodeId>, HostError> {
        operands.iter().map(|operand| self.node(handle, operand)).collect()
    }

    fn optional_node(
        &self,
        handle: &Resource<BuilderHandle>,
        operand: Option<&Resource<GraphOperand>>,
    ) -> Result<Option<NodeId>, HostError> {
        operand.map(|operand| self.node(handle, operand)).transpose()
    }

    /// Returns a handle of a node to the plugin.
    fn push_operand(
        &mut self,
        handle: &Resource<BuilderHandle>,
        node: NodeId,
    ) -> Result<Resource<GraphOperand>, HostError> {
        let builder = self.table.get(handle)?.0;
        let descriptor =
            self.builders.get(&builder).ok_or_else(missing_builder_error)?.graph.descriptor_of(node)?.clone();
        self.push(GraphOperand { builder, node, descriptor })
    }

    /// Adds an operator with a fixed number of operands.
    fn add_operator<const N: usize>(
        &mut self,
        handle: &Resource<BuilderHandle>,
        operands: [&Resource<GraphOperand>; N],
        build: impl FnOnce(&mut GraphBuilder, [NodeId; N]) -> Result<NodeId, HostError>,
    ) -> Result<Resource<GraphOperand>, HostError> {
        self.add_operator_with(handle, operands, &[], build)
    }

    /// Adds an operator with a fixed number of operands and others that can be absent.
    fn add_operator_with<const N: usize>(
        &mut self,
        handle: &Resource<BuilderHandle>,
        operands: [&Resource<GraphOperand>; N],
        optional: &[Option<NodeId>],
        build: impl FnOnce(&mut GraphBuilder, [NodeId; N]) -> Result<NodeId, HostError>,
    ) -> Result<Resource<GraphOperand>, HostError> {
        let nodes = self.node_array(handle, operands)?;
        let all: Vec<NodeId> = nodes.into_iter().chain(optional.iter().copied().flatten()).collect();
        let node = self.edit_graph_of(handle, &all, |builder| build(&mut builder.graph, nodes))?;
        self.push_operand(handle, node)
    }

    fn node_array<const N: usize>(
        &self,
        handle: &Resource<BuilderHandle>,
        operands: [&Resource<GraphOperand>; N],
    ) -> Result<[NodeId; N], HostError> {
        let mut nodes = [NodeId(0); N];
        for (node, operand) in nodes.iter_mut().zip(operands) {
            *node = self.node(handle, operand)?;
        }
        Ok(nodes)
    }
}

/// Cannot happen: a handle is in the table as long as its graph is in the map.
fn missing_builder_error() -> HostError {
    HostError::Trap(wasmtime::Error::msg("a graph builder without its graph"))
}

impl Host for InstanceState {}

impl HostOperand for InstanceState {
    fn descriptor(&mut self, operand: Resource<GraphOperand>) -> wasmtime::Result<WitDescriptor> {
        Ok(convert::wit_descriptor(&self.table.get(&operand)?.descriptor))
    }

    fn label(&mut self, operand: Resource<GraphOperand>, label: String) -> wasmtime::Result<()> {
        let GraphOperand { builder, node, .. } = *self.table.get(&operand)?;
        // A label that is too long is truncated. A label for a graph that was built already has no effect.
        if let Some(builder) = self.builders.get_mut(&builder).filter(|_| !label.is_empty()) {
            let label = &label[..label.floor_char_boundary(NAME_BYTES_MAX)];
            builder.graph.label(node, label).map_err(wasmtime::Error::new)?;
        }
        Ok(())
    }

    fn drop(&mut self, operand: Resource<GraphOperand>) -> wasmtime::Result<()> {
        self.table.delete(operand)?;
        Ok(())
    }
}

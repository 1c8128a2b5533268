//! Graph building for plugins: handles of graphs, operands and programs, and the code that their methods share.
//!
//! The operators are in `operators`, one line each if possible; `program` runs the built graphs. The semantics and
//! operand checks of operators are in `saggar_tensor` alone.

pub(crate) mod compiled_graph;
mod gradients;
pub(crate) mod graph_scope;
mod mixed_precision;
mod operator_macros;
mod operators;
mod options;
mod panic_guard;
pub(crate) mod pending_graph;
mod program;
mod recurrent;
mod shards;

use saggar_tensor::limits::NAME_BYTES_MAX;
use saggar_tensor::{GraphBuilder, NodeId};
use wasmtime::component::Resource;

use crate::bindings::graphs::{Host, HostOperand};
use crate::bindings::tensors::Descriptor as WitDescriptor;
use crate::convert;
use crate::host_error::HostError;
use crate::instance_state::InstanceState;
use pending_graph::{BuilderHandle, GraphOperand, PluginGraphBuilder};

impl InstanceState {
    /// Edits a graph being built, and charges its growth.
    fn edit_graph<R>(
        &mut self,
        handle: &Resource<BuilderHandle>,
        work: impl FnOnce(&mut PluginGraphBuilder) -> Result<R, HostError>,
    ) -> Result<R, HostError> {
        self.check_deadline()?;
        let number = self.table.get(handle)?.0;
        let builder = self.graphs.get_mut(number)?;
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
        let descriptor = self.graphs.get(builder)?.graph.descriptor_of(node)?.clone();
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

impl Host for InstanceState {}

impl HostOperand for InstanceState {
    fn descriptor(&mut self, operand: Resource<GraphOperand>) -> wasmtime::Result<WitDescriptor> {
        Ok(convert::wit_descriptor(&self.table.get(&operand)?.descriptor))
    }

    fn label(&mut self, operand: Resource<GraphOperand>, label: String) -> wasmtime::Result<()> {
        let GraphOperand { builder, node, .. } = *self.table.get(&operand)?;
        // A label that is too long is truncated. A label for a graph that was built already has no effect.
        if let Some(builder) = self.graphs.find_mut(builder).filter(|_| !label.is_empty()) {
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

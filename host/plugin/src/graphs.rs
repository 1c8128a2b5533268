//! Graph building for plugins: handles of graphs, operands and programs, and what their methods share.
//!
//! Operators stand in `operators`, one line each where they can; running programs is in `program`. What an operator
//! means, and which operands it takes, is said in `saggar_tensor` alone.

mod guarded;
mod mixed;
mod operators;
mod options;

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
use crate::fault::Fault;
use crate::limits::NODE_BYTES;
use crate::state::State;
use crate::variables::Variable;

pub(crate) use program::{CompiledGraph, Executables};

/// The number of a graph being built. Numbers are never used again, so an operand cannot outlive its graph by accident.
#[derive(Debug)]
#[expect(unreachable_pub, reason = "the generated bindings re-export it")]
pub struct BuilderHandle(u64);

/// A value in a graph being built.
#[derive(Clone, Debug)]
#[expect(unreachable_pub, reason = "the generated bindings re-export it")]
pub struct Operand {
    builder: u64,
    node: NodeId,
    descriptor: Descriptor,
}

/// A graph being built.
#[derive(Debug, Default)]
pub(crate) struct Builder {
    graph: GraphBuilder,
    /// Nodes that stand for means over a job's shards.
    means: Vec<NodeId>,
    /// Gradients that were taken in mixed precision.
    scaled: Option<mixed::Scaled>,
    /// In the order of the graph's variables.
    variables: Vec<Variable>,
    /// Their nodes, by identity: two namespaces may use one name.
    nodes: BTreeMap<usize, NodeId>,
    constant_bytes: u64,
    charged_bytes: u64,
    charges: Vec<MeterCharge>,
}

impl Builder {
    /// The node of a variable, under a name that is unique in this graph.
    fn variable(&mut self, variable: &Variable) -> Result<NodeId, GraphError> {
        if let Some(&node) = self.nodes.get(&variable.identity()) {
            return Ok(node);
        }
        let taken = self.variables.iter().any(|other| other.name() == variable.name());
        let port = if taken {
            // The number comes first: a cut keeps it.
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

    /// Charges what the graph has grown by, in steps.
    fn charge(&mut self, meter: &Meter) -> Result<(), Fault> {
        const STEP_BYTES: u64 = 256 << 10;
        let held_bytes = self.graph.graph().nodes.len() as u64 * NODE_BYTES + self.constant_bytes;
        if let Some(more) = held_bytes.checked_sub(self.charged_bytes).filter(|&more| more > 0) {
            let more = more.max(STEP_BYTES);
            let charge = meter.charge(more).map_err(|error| {
                Fault::out_of_memory(format!("graphs and constants take too much host memory: {error}"))
            })?;
            self.charges.push(charge);
            self.charged_bytes += more;
        }
        Ok(())
    }
}

impl State {
    /// Works on a graph being built, and charges its growth.
    fn edit<R>(
        &mut self,
        handle: &Resource<BuilderHandle>,
        work: impl FnOnce(&mut Builder) -> Result<R, Fault>,
    ) -> Result<R, Fault> {
        self.check_deadline()?;
        let number = self.table.get(handle)?.0;
        let builder = self.builders.get_mut(&number).ok_or_else(lost)?;
        let done = work(builder)?;
        builder.charge(&self.host_meter)?;
        Ok(done)
    }

    /// An operand's node, if it belongs to this graph.
    fn node(&self, handle: &Resource<BuilderHandle>, operand: &Resource<Operand>) -> Result<NodeId, Fault> {
        let (builder, operand) = (self.table.get(handle)?, self.table.get(operand)?);
        if builder.0 == operand.builder {
            return Ok(operand.node);
        }
        Err(Fault::invalid(format!("operand {} belongs to another graph builder", operand.descriptor)))
    }

    fn nodes(&self, handle: &Resource<BuilderHandle>, operands: &[Resource<Operand>]) -> Result<Vec<NodeId>, Fault> {
        operands.iter().map(|operand| self.node(handle, operand)).collect()
    }

    fn optional(
        &self,
        handle: &Resource<BuilderHandle>,
        operand: Option<&Resource<Operand>>,
    ) -> Result<Option<NodeId>, Fault> {
        operand.map(|operand| self.node(handle, operand)).transpose()
    }

    /// Hands a node to the plugin.
    fn operand(&mut self, handle: &Resource<BuilderHandle>, node: NodeId) -> Result<Resource<Operand>, Fault> {
        let builder = self.table.get(handle)?.0;
        let descriptor = self.builders.get(&builder).ok_or_else(lost)?.graph.descriptor_of(node)?.clone();
        self.push(Operand { builder, node, descriptor })
    }

    /// Adds an operator with a fixed number of operands.
    fn add_operator<const N: usize>(
        &mut self,
        handle: &Resource<BuilderHandle>,
        operands: [&Resource<Operand>; N],
        build: impl FnOnce(&mut GraphBuilder, [NodeId; N]) -> Result<NodeId, Fault>,
    ) -> Result<Resource<Operand>, Fault> {
        let mut nodes = [NodeId(0); N];
        for (node, operand) in nodes.iter_mut().zip(operands) {
            *node = self.node(handle, operand)?;
        }
        let node = self.edit(handle, |builder| build(&mut builder.graph, nodes))?;
        self.operand(handle, node)
    }
}

/// A handle is in the table as long as its graph is in the map.
fn lost() -> Fault {
    Fault::Trap(wasmtime::Error::msg("a graph builder without its graph"))
}

impl Host for State {}

impl HostOperand for State {
    fn descriptor(&mut self, operand: Resource<Operand>) -> wasmtime::Result<WitDescriptor> {
        Ok(convert::wit_descriptor(&self.table.get(&operand)?.descriptor))
    }

    fn label(&mut self, operand: Resource<Operand>, label: String) -> wasmtime::Result<()> {
        let Operand { builder, node, .. } = *self.table.get(&operand)?;
        // A label past its limit is cut, and one for a graph that is built already helps nobody.
        if let Some(builder) = self.builders.get_mut(&builder).filter(|_| !label.is_empty()) {
            let label = &label[..label.floor_char_boundary(NAME_BYTES_MAX)];
            builder.graph.label(node, label).map_err(wasmtime::Error::new)?;
        }
        Ok(())
    }

    fn drop(&mut self, operand: Resource<Operand>) -> wasmtime::Result<()> {
        self.table.delete(operand)?;
        Ok(())
    }
}

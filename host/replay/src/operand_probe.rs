//! Computes the values of operands inside a graph, which a program for the graph itself does not keep.
//!
//! A probe is a separate program for a part of the graph: its outputs are the operands, and it changes no variables.
//! The program of the training is not changed, so that a replay computes the same bits with and without probes.

use std::sync::Arc;

use saggar_device::{Backend, CancelToken, DeviceBuffer, Executable, Meter};
use saggar_tensor::op::SourceOp;
use saggar_tensor::{Graph, InterruptCheck, NodeId, Op, verify};

/// A program that computes some operands of a graph.
#[derive(Debug)]
pub(crate) struct OperandProbe {
    device: Arc<dyn Backend>,
    executable: Arc<dyn Executable>,
}

/// The inputs of a dispatch, and its variables with the values before the dispatch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DispatchValues<'a> {
    pub(crate) inputs: &'a [DeviceBuffer],
    pub(crate) variables: &'a [DeviceBuffer],
}

impl OperandProbe {
    /// Compiles a probe of these operands.
    ///
    /// # Errors
    /// Returns why the device has no program for it.
    pub(crate) fn new(device: &Arc<dyn Backend>, graph: &Graph, operands: &[NodeId]) -> Result<OperandProbe, String> {
        let outputs = operands.iter().map(|operand| (format!("operand{}", operand.0), *operand)).collect();
        let part = Graph { outputs, assignments: Vec::new(), ..graph.clone() };
        let part = verify(part).map_err(|error| error.to_string())?;
        let program = device.compile(&part, &InterruptCheck::never()).map_err(|error| error.to_string())?;
        // The limit on the job's device memory is for the training. What is looked at comes on top of it.
        let executable = device.load(Arc::new(program), &Meter::unlimited()).map_err(|error| error.to_string())?;
        Ok(OperandProbe { device: Arc::clone(device), executable })
    }

    /// Returns the operands' elements, as dense little-endian bytes.
    ///
    /// # Errors
    /// Returns why the device did not compute them.
    pub(crate) fn values(&self, values: DispatchValues<'_>, cancel: &CancelToken) -> Result<Vec<Vec<u8>>, String> {
        let computed = self.executable.dispatch_cancellable(values.inputs, values.variables, cancel);
        let read = |buffer: &DeviceBuffer| self.device.read_cancellable(buffer, cancel);
        let bytes = computed.and_then(|outputs| outputs.iter().map(read).collect());
        bytes.map_err(|error| error.to_string())
    }
}

/// Returns copies of variables on the device, which a dispatch does not change.
///
/// # Errors
/// Returns why the device has no room for them.
pub(crate) fn copy_variables(
    device: &dyn Backend,
    variables: &[DeviceBuffer],
    cancel: &CancelToken,
) -> Result<Vec<DeviceBuffer>, String> {
    let copy = |variable: &DeviceBuffer| {
        let bytes = device.read_cancellable(variable, cancel)?;
        let copy = device.allocate(variable.descriptor(), &Meter::unlimited())?;
        device.write_cancellable(&copy, &bytes, cancel)?;
        Ok(copy)
    };
    let copies: Result<_, saggar_device::DeviceError> = variables.iter().map(copy).collect();
    copies.map_err(|error| error.to_string())
}

/// Returns the name of an operand: its label, the name of its input or variable, or its number in the graph, `%12`.
pub(crate) fn operand_name(graph: &Graph, id: NodeId) -> String {
    let node = graph.node(id);
    match (&node.label, &node.op) {
        (_, Op::Source(SourceOp::Input(number))) => graph.inputs[*number as usize].name.clone(),
        (_, Op::Source(SourceOp::Variable(number))) => graph.variables[*number as usize].name.clone(),
        (Some(label), _) => label.to_string(),
        (None, _) => {
            let output = graph.outputs.iter().find(|(_, node)| *node == id);
            output.map_or_else(|| format!("%{}", id.0), |(name, _)| name.clone())
        }
    }
}

/// Returns the operands of this name: by [`operand_name`], as an output, or by number.
pub(crate) fn find_operands(graph: &Graph, name: &str) -> Vec<NodeId> {
    let number = name.strip_prefix('%').and_then(|number| number.parse().ok());
    let is_output = |id: NodeId| graph.outputs.iter().any(|(output, node)| output == name && *node == id);
    (0..graph.nodes.len() as u32)
        .map(NodeId)
        .filter(|id| number == Some(id.0) || operand_name(graph, *id) == name || is_output(*id))
        .collect()
}

/// Returns the names of operands that a user can know: labels, inputs, variables and outputs.
pub(crate) fn known_names(graph: &Graph) -> Vec<String> {
    let labels = graph.nodes.iter().filter_map(|node| node.label.as_deref().map(str::to_owned));
    let ports = graph.inputs.iter().chain(&graph.variables).map(|port| port.name.clone());
    labels.chain(ports).chain(graph.outputs.iter().map(|(name, _)| name.clone())).collect()
}

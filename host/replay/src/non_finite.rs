//! Finds where numbers that are infinite or not a number first appear in a graph.

use std::sync::Arc;

use saggar_device::{Backend, CancelToken};
use saggar_tensor::op::SourceOp;
use saggar_tensor::{DType, Graph, NodeId, Op};
use serde::{Deserialize, Serialize};

use crate::operand_probe::{DispatchValues, OperandProbe, operand_name};
use crate::tensor_summary::{TensorSummary, first_non_finite, summarize};

/// Maximum operands of one probe.
const PROBE_OPERANDS_MAX: usize = 256;
/// Bytes of operands after which another probe begins.
const PROBE_BYTES: usize = 256 << 20;
/// Number of outputs and variables that a line names.
const FOUND_IN_SHOWN: usize = 4;
/// Maximum names of operands whose values a layer is guessed from.
const NEAREST_MAX: usize = 64;

/// Where numbers that are infinite or not a number first appeared.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NonFiniteOperand {
    /// The step, from 1.
    pub step: u64,
    /// The outputs and variables of the step that show it.
    pub found_in: Vec<String>,
    /// The first operand with an element that is not a number, computed from operands without one.
    pub first_nan: Option<OperandFinding>,
    /// The first operand with an infinite element, computed from finite operands. Not an error by itself: masks contain
    /// infinite numbers.
    pub first_infinite: Option<OperandFinding>,
    /// Why the operands inside the step could not be looked at.
    pub problem: Option<String>,
}

/// An operand, what it was computed from, and its value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OperandFinding {
    /// The operand's name.
    pub operand: String,
    /// The operator that computes it.
    pub operator: String,
    /// The layer: the label of the operand, or the scope of the nearest variable that it is computed from.
    pub layer: Option<String>,
    /// The index of the first element that is not finite, by axis.
    pub index: Vec<usize>,
    /// That element, as text.
    pub element: String,
    /// The operand's value.
    pub value: TensorSummary,
    /// The names and values of what it is computed from.
    pub inputs: Vec<(String, TensorSummary)>,
}

impl NonFiniteOperand {
    /// Returns the finding as lines for a person.
    pub(crate) fn lines(&self) -> Vec<String> {
        let first_names = self.found_in.iter().take(FOUND_IN_SHOWN).cloned().collect::<Vec<_>>().join(", ");
        let more = match self.found_in.len().saturating_sub(FOUND_IN_SHOWN) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let mut lines = vec![format!("step {} gives numbers that are not finite, in {first_names}{more}", self.step)];
        match (&self.first_nan, &self.first_infinite) {
            (None, None) => {
                let why = self.problem.as_deref().unwrap_or("no operand shows them when it is computed by itself");
                lines.push(format!("the operand is not known: {why}"));
            }
            (nan, infinite) => {
                lines.extend(nan.iter().flat_map(|finding| finding.lines("not a number")));
                lines.extend(infinite.iter().flat_map(|finding| finding.lines("infinite")));
            }
        }
        lines
    }
}

impl OperandFinding {
    fn lines(&self, kind: &str) -> Vec<String> {
        let layer = self.layer.as_ref().map_or_else(String::new, |layer| format!(", layer {layer}"));
        let index = self.index.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
        let (operand, operator, element) = (&self.operand, &self.operator, &self.element);
        let first = format!("first {kind}: `{operand}`, of operator {operator}{layer}: {element} at [{index}]");
        let inputs = self.inputs.iter().map(|(name, value)| format!("  computed from `{name}` {value}"));
        [first].into_iter().chain([format!("  value {}", self.value)]).chain(inputs).collect()
    }
}

/// Returns where numbers that are not finite first appear in a dispatch of `graph`.
pub(crate) fn find_non_finite(
    device: &Arc<dyn Backend>,
    graph: &Graph,
    values: DispatchValues<'_>,
    cancel: &CancelToken,
) -> NonFiniteOperand {
    let mut search = NonFiniteSearch { graph, summaries: vec![None; graph.nodes.len()], found: Default::default() };
    for operands in probe_parts(graph) {
        let probe = OperandProbe::new(device, graph, &operands);
        match probe.and_then(|probe| probe.values(values, cancel)) {
            Ok(values) => operands.iter().zip(values).for_each(|(operand, bytes)| search.look_at(*operand, &bytes)),
            Err(problem) => search.found.problem = Some(problem),
        }
        if search.found.first_nan.is_some() || search.found.problem.is_some() {
            break;
        }
    }
    search.found
}

/// Returns the float operands that the graph's results depend on, in order, in parts of limited size.
fn probe_parts(graph: &Graph) -> Vec<Vec<NodeId>> {
    let mut is_used = vec![false; graph.nodes.len()];
    for node in graph.outputs.iter().map(|(_, node)| node).chain(graph.assignments.iter().map(|(_, node)| node)) {
        is_used[node.index()] = true;
    }
    for index in (0..graph.nodes.len()).rev() {
        if is_used[index] {
            graph.nodes[index].inputs.iter().for_each(|input| is_used[input.index()] = true);
        }
    }
    let (mut parts, mut part, mut bytes) = (Vec::new(), Vec::new(), 0);
    for (index, node) in graph.nodes.iter().enumerate() {
        if !is_used[index] || !matches!(node.descriptor.dtype, DType::F32 | DType::F16) {
            continue;
        }
        if part.len() >= PROBE_OPERANDS_MAX || bytes >= PROBE_BYTES {
            parts.push(std::mem::take(&mut part));
            bytes = 0;
        }
        part.push(NodeId(index as u32));
        bytes += node.descriptor.bytes();
    }
    parts.push(part);
    parts.retain(|part: &Vec<NodeId>| !part.is_empty());
    parts
}

struct NonFiniteSearch<'a> {
    graph: &'a Graph,
    /// The values that were looked at.
    summaries: Vec<Option<TensorSummary>>,
    found: NonFiniteOperand,
}

impl NonFiniteSearch<'_> {
    fn look_at(&mut self, id: NodeId, bytes: &[u8]) {
        let node = self.graph.node(id);
        let summary = summarize(&node.descriptor, bytes);
        let of_inputs = |count: fn(&TensorSummary) -> u64| {
            node.inputs.iter().any(|input| self.summaries[input.index()].as_ref().is_some_and(|it| count(it) > 0))
        };
        let gives_nan = summary.nan > 0 && !of_inputs(|it| it.nan);
        let gives_infinite = summary.infinite > 0 && !of_inputs(|it| it.infinite + it.nan);
        let is_constant = matches!(node.op, Op::Source(SourceOp::Constant(_)));
        let finding = || self.finding(id, bytes, &summary);
        if gives_nan && self.found.first_nan.is_none() {
            self.found.first_nan = finding();
        } else if gives_infinite && !is_constant && self.found.first_infinite.is_none() {
            self.found.first_infinite = finding();
        }
        self.summaries[id.index()] = Some(summary);
    }

    fn finding(&self, id: NodeId, bytes: &[u8], value: &TensorSummary) -> Option<OperandFinding> {
        let node = self.graph.node(id);
        let (index, element) = first_non_finite(&node.descriptor, bytes)?;
        let input = |input: &NodeId| Some((operand_name(self.graph, *input), self.summaries[input.index()].clone()?));
        Some(OperandFinding {
            operand: operand_name(self.graph, id),
            operator: node.op.name().to_string(),
            layer: self.layer(id),
            index,
            element: element.to_string(),
            value: value.clone(),
            inputs: node.inputs.iter().filter_map(input).collect(),
        })
    }

    /// Returns the layer of an operand: its label, or that of the nearest operand that it is computed from, or the scope
    /// of the nearest variable.
    fn layer(&self, id: NodeId) -> Option<String> {
        let (mut nearest, mut at) = (vec![id], 0);
        while let Some(id) = nearest.get(at).copied().filter(|_| at < NEAREST_MAX) {
            let node = self.graph.node(id);
            if let Op::Source(SourceOp::Variable(number)) = &node.op {
                let variable = &self.graph.variables[*number as usize].name;
                return Some(variable.rsplit_once('/').map_or(variable.as_str(), |(scope, _)| scope).to_owned());
            }
            if let Some(label) = &node.label {
                return Some(label.to_string());
            }
            for input in &node.inputs {
                if !nearest.contains(input) {
                    nearest.push(*input);
                }
            }
            at += 1;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use saggar_device::{DeviceBuffer, Meter};
    use saggar_tensor::{Descriptor, GraphBuilder, Shape};

    use super::*;

    fn search(graph: &Graph, x: &[f32], w: &[f32]) -> NonFiniteOperand {
        let device = saggar_cpu::open(Some(1)).unwrap();
        let upload = |values: &[f32]| -> DeviceBuffer {
            let descriptor = Descriptor::new(DType::F32, Shape::new([values.len()]).unwrap());
            let buffer = device.allocate(&descriptor, &Meter::unlimited()).unwrap();
            let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
            device.write(&buffer, &bytes).unwrap();
            buffer
        };
        let (inputs, variables) = ([upload(x)], [upload(w)]);
        let values = DispatchValues { inputs: &inputs, variables: &variables };
        find_non_finite(&device, graph, values, &CancelToken::never())
    }

    /// `loss = sum(log(x) / w)`; the variable is in the layer `scale`.
    fn graph() -> Graph {
        let descriptor = Descriptor::new(DType::F32, Shape::new([3]).unwrap());
        let mut builder = GraphBuilder::new();
        let x = builder.input("x", descriptor.clone()).unwrap();
        let w = builder.variable("scale/w", descriptor).unwrap();
        let log = builder.log(x).unwrap();
        let ratio = builder.div(log, w).unwrap();
        builder.label(ratio, "scale").unwrap();
        let loss = builder.reduce_sum(ratio, &[0], false).unwrap();
        builder.output("loss", loss).unwrap();
        builder.finish()
    }

    #[test]
    fn the_first_operand_that_is_not_a_number_is_named_with_its_operands() {
        let found = search(&graph(), &[1.0, 1.0, 2.0], &[1.0, 0.0, 1.0]);
        let nan = found.first_nan.unwrap();
        assert_eq!((nan.operand.as_str(), nan.operator.as_str()), ("scale", "div"));
        assert_eq!(
            (nan.layer.as_deref(), nan.index.as_slice(), nan.element.as_str()),
            (Some("scale"), &[1][..], "NaN")
        );
        assert_eq!(nan.inputs[1].0, "scale/w");
        assert_eq!((nan.inputs[1].1.min, nan.inputs[1].1.nan), (Some(0.0), 0));
        assert_eq!(found.first_infinite, None);
    }

    #[test]
    fn an_infinite_operand_and_an_invalid_variable_are_named() {
        let found = search(&graph(), &[0.0, 1.0, 2.0], &[1.0; 3]);
        assert_eq!(found.first_nan, None);
        let infinite = found.first_infinite.unwrap();
        assert_eq!((infinite.operator.as_str(), infinite.element.as_str()), ("log", "-inf"));
        let found = search(&graph(), &[1.0; 3], &[1.0, 1.0, f32::NAN]);
        let variable = found.first_nan.unwrap();
        assert_eq!((variable.operand.as_str(), variable.layer.as_deref()), ("scale/w", Some("scale")));
        assert_eq!(search(&graph(), &[1.0; 3], &[1.0; 3]), NonFiniteOperand::default());
    }
}

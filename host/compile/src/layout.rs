//! Channel layout. For a device whose windowed operators are fastest with channels last, rewrites windowed operators,
//! and the element-wise work between them, to `[n, h, w, c]`.
//!
//! The new graph computes each node of the old graph in one layout. A transpose provides the other layout only if
//! something needs it. So whole regions change, and only their borders move elements. Filters stay `[o, c/groups, kh,
//! kw]`.

use std::collections::BTreeSet;

use saggar_tensor::op::{ConvolutionOp, MovementOp, Op, ReduceOp};
use saggar_tensor::{DType, Descriptor, Graph, GraphNode, InterruptCheck, InterruptedError, NodeId, Shape};

/// For each axis in channels-last order (`n, h, w, c`), its position in channels-first order.
const TO_CHANNELS_LAST: [usize; 4] = [0, 2, 3, 1];
/// For each axis in channels-first order, its position in channels-last order.
const TO_CHANNELS_FIRST: [usize; 4] = [0, 3, 1, 2];

/// Fewest result channels of a convolution for channels last. With fewer, most of a vector of channels would be wasted.
const CHANNELS_MIN: usize = 5;

/// A graph, and its windowed operators whose operands and results have channels last.
#[derive(Clone, Debug)]
pub(crate) struct GraphWithLayout {
    /// The graph.
    pub(crate) graph: Graph,
    /// Windowed operators with channels last, sorted.
    pub(crate) channels_last: BTreeSet<NodeId>,
}

/// Returns the graph unchanged, with channels first everywhere.
pub(crate) fn with_channels_first(graph: Graph) -> GraphWithLayout {
    GraphWithLayout { graph, channels_last: BTreeSet::new() }
}

/// Rewrites `graph` to channels last where that is faster. `graph` must have no dead nodes, and the result has none.
///
/// # Errors
/// Returns `InterruptedError` if interrupted.
pub(crate) fn with_channels_last(
    graph: Graph,
    interrupt: &InterruptCheck<'_>,
) -> Result<GraphWithLayout, InterruptedError> {
    let new = Graph { nodes: Vec::new(), ..graph.clone() };
    let forms = vec![[None; 2]; graph.nodes.len()];
    let mut pass = LayoutPass { old: &graph, new, forms, channels_last: BTreeSet::new() };
    for at in 0..graph.nodes.len() {
        interrupt.check()?;
        pass.rewrite_node(NodeId(at as u32));
    }
    for (at, (_, node)) in graph.outputs.iter().enumerate() {
        pass.new.outputs[at].1 = pass.channels_first_form(*node);
    }
    for (at, (_, node)) in graph.assignments.iter().enumerate() {
        pass.new.assignments[at].1 = pass.channels_first_form(*node);
    }
    Ok(GraphWithLayout { graph: pass.new, channels_last: pass.channels_last })
}

struct LayoutPass<'g> {
    old: &'g Graph,
    new: Graph,
    /// For each old node, its new nodes: with channels first, and with channels last.
    forms: Vec<[Option<NodeId>; 2]>,
    channels_last: BTreeSet<NodeId>,
}

impl LayoutPass<'_> {
    /// Returns the old node with channels first, the layout of everything outside rewritten regions.
    fn channels_first_form(&mut self, node: NodeId) -> NodeId {
        self.node_in_layout(node, 0, &TO_CHANNELS_FIRST)
    }

    /// Returns the old node with channels last.
    fn channels_last_form(&mut self, node: NodeId) -> NodeId {
        self.node_in_layout(node, 1, &TO_CHANNELS_LAST)
    }

    fn node_in_layout(&mut self, node: NodeId, form: usize, axes: &[usize; 4]) -> NodeId {
        let forms = self.forms[node.index()];
        if let Some(known) = forms[form] {
            return known;
        }
        let other = forms[1 - form].expect("nodes come in topological order");
        let label = self.old.node(node).label.clone();
        let descriptor = self.new.descriptor(other).clone();
        let descriptor = Descriptor { shape: permute_shape(&descriptor.shape, axes), ..descriptor };
        let op = if keeps_order(&self.new.descriptor(other).shape, axes) {
            MovementOp::Reshape(descriptor.shape.clone())
        } else {
            MovementOp::Transpose(axes.to_vec())
        };
        let made = self.push(GraphNode { op: Op::Movement(op), inputs: vec![other], descriptor, label });
        self.forms[node.index()][form] = Some(made);
        made
    }

    fn push(&mut self, node: GraphNode) -> NodeId {
        self.new.nodes.push(node);
        NodeId(self.new.nodes.len() as u32 - 1)
    }

    /// Returns whether the old node is computed with channels last.
    fn is_last(&self, node: NodeId) -> bool {
        let [first, last] = self.forms[node.index()];
        last.is_some() && (first.is_none() || last < first)
    }

    fn rewrite_node(&mut self, at: NodeId) {
        let node = self.old.node(at);
        let op = self.channels_last_op(node);
        let form = usize::from(op.is_some());
        let made = match op {
            None => {
                let inputs = node.inputs.iter().map(|&input| self.channels_first_form(input)).collect();
                self.push(GraphNode { inputs, ..node.clone() })
            }
            Some(op) => {
                let windowed = op.as_convolution().is_some();
                let filter_operand = op.as_convolution().and_then(ConvolutionOp::filter_operand);
                let is_filter = op.as_convolution().is_some_and(ConvolutionOp::is_filter_grad);
                let inputs = node.inputs.iter().enumerate().map(|(place, &input)| {
                    if filter_operand == Some(place) {
                        self.channels_first_form(input)
                    } else {
                        self.channels_last_form(input)
                    }
                });
                let inputs = inputs.collect();
                let descriptor = match is_filter {
                    true => node.descriptor.clone(),
                    false => Descriptor {
                        shape: permute_shape(&node.descriptor.shape, &TO_CHANNELS_LAST),
                        ..node.descriptor.clone()
                    },
                };
                let made = self.push(GraphNode { op, inputs, descriptor, label: node.label.clone() });
                if windowed {
                    self.channels_last.insert(made);
                }
                if is_filter {
                    self.forms[at.index()][0] = Some(made);
                    return;
                }
                made
            }
        };
        self.forms[at.index()][form] = Some(made);
    }

    /// Returns the operator that computes the node with channels last, or `None` if it stays channels first.
    fn channels_last_op(&self, node: &GraphNode) -> Option<Op> {
        let follows = || node.descriptor.shape.rank() == 4 && node.inputs.iter().any(|&input| self.is_last(input));
        let op = match &node.op {
            Op::Convolution(convolution) => {
                let worth = match convolution.conv() {
                    Some(conv) => self.is_faster_channels_last(node, convolution, conv.groups),
                    None => follows() && node.descriptor.dtype == DType::F32,
                };
                return worth.then(|| node.op.clone());
            }
            Op::Unary(_) | Op::Binary(_) | Op::Select => node.op.clone(),
            Op::Reduce(ReduceOp::Fold { kind, axes }) => {
                let mut axes: Vec<usize> = axes.iter().map(|&axis| channels_last_axis(axis)).collect();
                axes.sort_unstable();
                Op::Reduce(ReduceOp::Fold { kind: *kind, axes })
            }
            Op::Movement(movement) => Op::Movement(channels_last_movement(movement)?),
            Op::Reduce(_) | Op::Source(_) | Op::Contract(_) | Op::Index(_) => return None,
        };
        follows().then_some(op)
    }

    /// Returns whether a convolution, or an adjoint of one, is faster with channels last.
    fn is_faster_channels_last(&self, node: &GraphNode, convolution: &ConvolutionOp, groups: usize) -> bool {
        let filter = match convolution.filter_operand() {
            Some(operand) => &self.old.descriptor(node.inputs[operand]).shape,
            None => &node.descriptor.shape,
        };
        groups == 1 && filter[0] >= CHANNELS_MIN && node.descriptor.dtype == DType::F32
    }
}

/// Returns the position of an axis when channels are last.
fn channels_last_axis(axis: usize) -> usize {
    TO_CHANNELS_LAST.iter().position(|&other| other == axis).unwrap_or(axis)
}

fn permute_shape(shape: &Shape, axes: &[usize; 4]) -> Shape {
    Shape::new(axes.map(|axis| shape[axis])).expect("as many elements as before")
}

/// Returns whether the transpose leaves the elements in order, that is, the axes longer than 1 keep their order.
fn keeps_order(shape: &Shape, axes: &[usize; 4]) -> bool {
    let long: Vec<usize> = axes.iter().copied().filter(|&axis| shape[axis] > 1).collect();
    long.is_sorted()
}

/// Returns the movement adapted to channels last, or `None` if it does not work on single axes.
fn channels_last_movement(movement: &MovementOp) -> Option<MovementOp> {
    let sizes =
        |sizes: &[usize]| TO_CHANNELS_LAST.iter().map(|&axis| sizes.get(axis).copied()).collect::<Option<Vec<usize>>>();
    Some(match movement {
        MovementOp::Broadcast(shape) if shape.rank() == 4 => {
            MovementOp::Broadcast(permute_shape(shape, &TO_CHANNELS_LAST))
        }
        MovementOp::Slice { starts, sizes: lengths, strides } => {
            MovementOp::Slice { starts: sizes(starts)?, sizes: sizes(lengths)?, strides: sizes(strides)? }
        }
        MovementOp::Pad { low, high, value } => MovementOp::Pad { low: sizes(low)?, high: sizes(high)?, value: *value },
        MovementOp::Reverse(axes) => {
            let mut axes: Vec<usize> = axes.iter().map(|&axis| channels_last_axis(axis)).collect();
            axes.sort_unstable();
            MovementOp::Reverse(axes)
        }
        MovementOp::Concat { axis } => MovementOp::Concat { axis: channels_last_axis(*axis) },
        MovementOp::Broadcast(_) | MovementOp::Reshape(_) | MovementOp::Transpose(_) => return None,
    })
}

#[cfg(test)]
mod tests;

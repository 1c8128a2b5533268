//! Where channels lie: a device that computes windows fastest with channels side by side gets graphs whose windowed
//! operators, and what is element by element between them, work on `[n, h, w, c]`.
//!
//! A node of the old graph has one computed form in the new one; the other is a movement of it, made where somebody needs
//! it. So whole regions change, and only their borders move elements. Filters stay `[o, c/groups, kh, kw]`.

use std::collections::BTreeSet;

use saggar_tensor::op::{Convolution, Movement, Op, Reduce};
use saggar_tensor::{DType, Descriptor, Graph, Interrupt, Interrupted, Node, NodeId, Shape};

/// Axis of the first order that stands at each place of the last: `n, h, w, c`.
const LAST: [usize; 4] = [0, 2, 3, 1];
/// And back.
const FIRST: [usize; 4] = [0, 3, 1, 2];

/// Convolutions with fewer channels in their result than this waste most of a vector of channels.
const CHANNELS_MIN: usize = 5;

/// A graph and the windowed operators in it whose operands and results have their channels last.
#[derive(Clone, Debug)]
pub(crate) struct Laid {
    /// The graph.
    pub(crate) graph: Graph,
    /// Sorted.
    pub(crate) channels_last: BTreeSet<NodeId>,
}

/// The graph as it is.
pub(crate) fn channels_first(graph: Graph) -> Laid {
    Laid { graph, channels_last: BTreeSet::new() }
}

/// `graph`, with channels last where that is faster. It must have no dead nodes, and has none after.
///
/// # Errors
/// `Interrupted`.
pub(crate) fn channels_last(graph: Graph, interrupt: &Interrupt<'_>) -> Result<Laid, Interrupted> {
    let new = Graph { nodes: Vec::new(), ..graph.clone() };
    let forms = vec![[None; 2]; graph.nodes.len()];
    let mut pass = Pass { old: &graph, new, forms, channels_last: BTreeSet::new() };
    for at in 0..graph.nodes.len() {
        interrupt.check()?;
        pass.node(NodeId(at as u32));
    }
    for (at, (_, node)) in graph.outputs.iter().enumerate() {
        pass.new.outputs[at].1 = pass.first(*node);
    }
    for (at, (_, node)) in graph.assignments.iter().enumerate() {
        pass.new.assignments[at].1 = pass.first(*node);
    }
    Ok(Laid { graph: pass.new, channels_last: pass.channels_last })
}

struct Pass<'g> {
    old: &'g Graph,
    new: Graph,
    /// The new nodes of each old one: with channels first, and last.
    forms: Vec<[Option<NodeId>; 2]>,
    channels_last: BTreeSet<NodeId>,
}

impl Pass<'_> {
    /// The old node with channels first, which is how everything else is.
    fn first(&mut self, node: NodeId) -> NodeId {
        self.form(node, 0, &FIRST)
    }

    /// The old node with channels last.
    fn last(&mut self, node: NodeId) -> NodeId {
        self.form(node, 1, &LAST)
    }

    fn form(&mut self, node: NodeId, form: usize, axes: &[usize; 4]) -> NodeId {
        let forms = self.forms[node.index()];
        if let Some(known) = forms[form] {
            return known;
        }
        let other = forms[1 - form].expect("nodes come in topological order");
        let label = self.old.node(node).label.clone();
        let descriptor = self.new.descriptor(other).clone();
        let descriptor = Descriptor { shape: turned(&descriptor.shape, axes), ..descriptor };
        let op = if keeps_order(&self.new.descriptor(other).shape, axes) {
            Movement::Reshape(descriptor.shape.clone())
        } else {
            Movement::Transpose(axes.to_vec())
        };
        let made = self.push(Node { op: Op::Movement(op), inputs: vec![other], descriptor, label });
        self.forms[node.index()][form] = Some(made);
        made
    }

    fn push(&mut self, node: Node) -> NodeId {
        self.new.nodes.push(node);
        NodeId(self.new.nodes.len() as u32 - 1)
    }

    /// Whether the old node is computed with channels last.
    fn is_last(&self, node: NodeId) -> bool {
        let [first, last] = self.forms[node.index()];
        last.is_some() && (first.is_none() || last < first)
    }

    fn node(&mut self, at: NodeId) {
        let node = self.old.node(at);
        let op = self.op_last(node);
        let form = usize::from(op.is_some());
        let made = match op {
            None => {
                let inputs = node.inputs.iter().map(|&input| self.first(input)).collect();
                self.push(Node { inputs, ..node.clone() })
            }
            Some(op) => {
                let windowed = is_windowed(&op);
                let is_filter = is_filter_gradient(&op);
                let inputs = node.inputs.iter().enumerate().map(|(place, &input)| {
                    if is_filter_operand(&op, place) { self.first(input) } else { self.last(input) }
                });
                let inputs = inputs.collect();
                let descriptor = match is_filter {
                    true => node.descriptor.clone(),
                    false => Descriptor { shape: turned(&node.descriptor.shape, &LAST), ..node.descriptor.clone() },
                };
                let made = self.push(Node { op, inputs, descriptor, label: node.label.clone() });
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

    /// The operator that computes the node with channels last, where it is to be computed so.
    fn op_last(&self, node: &Node) -> Option<Op> {
        let follows = || node.descriptor.shape.rank() == 4 && node.inputs.iter().any(|&input| self.is_last(input));
        let op = match &node.op {
            Op::Convolution(convolution) => {
                let worth = match convolution {
                    Convolution::Conv2d(_)
                    | Convolution::Conv2dInputGrad { .. }
                    | Convolution::Conv2dFilterGrad { .. } => self.is_worth(node, convolution),
                    Convolution::Pool2d { .. } | Convolution::MaxPool2dGrad(_) | Convolution::SumPool2dGrad { .. } => {
                        follows() && node.descriptor.dtype == DType::F32
                    }
                };
                return worth.then(|| node.op.clone());
            }
            Op::Unary(_) | Op::Binary(_) | Op::Select => node.op.clone(),
            Op::Reduce(Reduce::Fold { kind, axes }) => {
                let mut axes: Vec<usize> = axes.iter().map(|&axis| place(axis)).collect();
                axes.sort_unstable();
                Op::Reduce(Reduce::Fold { kind: *kind, axes })
            }
            Op::Movement(movement) => Op::Movement(movement_last(movement)?),
            Op::Reduce(Reduce::ArgMax { .. } | Reduce::ArgMin { .. })
            | Op::Source(_)
            | Op::Contract(_)
            | Op::Index(_) => return None,
        };
        follows().then_some(op)
    }

    /// Whether a convolution, or an adjoint of one, is faster with channels last.
    fn is_worth(&self, node: &Node, convolution: &Convolution) -> bool {
        let filter = match convolution {
            Convolution::Conv2dFilterGrad { .. } => &node.descriptor.shape,
            Convolution::Conv2d(_)
            | Convolution::Conv2dInputGrad { .. }
            | Convolution::Pool2d { .. }
            | Convolution::MaxPool2dGrad(_)
            | Convolution::SumPool2dGrad { .. } => &self.old.descriptor(node.inputs[1]).shape,
        };
        let groups = match convolution {
            Convolution::Conv2d(conv)
            | Convolution::Conv2dInputGrad { conv, .. }
            | Convolution::Conv2dFilterGrad { conv, .. } => conv.groups,
            Convolution::Pool2d { .. } | Convolution::MaxPool2dGrad(_) | Convolution::SumPool2dGrad { .. } => 1,
        };
        groups == 1 && filter[0] >= CHANNELS_MIN && node.descriptor.dtype == DType::F32
    }
}

/// The place of an axis when channels are last.
fn place(axis: usize) -> usize {
    LAST.iter().position(|&other| other == axis).unwrap_or(axis)
}

fn turned(shape: &Shape, axes: &[usize; 4]) -> Shape {
    Shape::new(axes.map(|axis| shape[axis])).expect("as many elements as before")
}

/// Whether elements stay in their order: axes that are longer than 1 do.
fn keeps_order(shape: &Shape, axes: &[usize; 4]) -> bool {
    let long: Vec<usize> = axes.iter().copied().filter(|&axis| shape[axis] > 1).collect();
    long.is_sorted()
}

fn is_windowed(op: &Op) -> bool {
    match op {
        Op::Convolution(_) => true,
        Op::Source(_)
        | Op::Unary(_)
        | Op::Binary(_)
        | Op::Select
        | Op::Reduce(_)
        | Op::Movement(_)
        | Op::Contract(_)
        | Op::Index(_) => false,
    }
}

fn is_filter_gradient(op: &Op) -> bool {
    match op {
        Op::Convolution(Convolution::Conv2dFilterGrad { .. }) => true,
        Op::Convolution(_)
        | Op::Source(_)
        | Op::Unary(_)
        | Op::Binary(_)
        | Op::Select
        | Op::Reduce(_)
        | Op::Movement(_)
        | Op::Contract(_)
        | Op::Index(_) => false,
    }
}

/// Whether the operand at `place` is a filter.
fn is_filter_operand(op: &Op, place: usize) -> bool {
    match op {
        Op::Convolution(Convolution::Conv2d(_) | Convolution::Conv2dInputGrad { .. }) => place == 1,
        Op::Convolution(_)
        | Op::Source(_)
        | Op::Unary(_)
        | Op::Binary(_)
        | Op::Select
        | Op::Reduce(_)
        | Op::Movement(_)
        | Op::Contract(_)
        | Op::Index(_) => false,
    }
}

/// The movement over the other order of axes, where it is one over single axes.
fn movement_last(movement: &Movement) -> Option<Movement> {
    let sizes = |sizes: &[usize]| LAST.iter().map(|&axis| sizes.get(axis).copied()).collect::<Option<Vec<usize>>>();
    Some(match movement {
        Movement::Broadcast(shape) if shape.rank() == 4 => Movement::Broadcast(turned(shape, &LAST)),
        Movement::Slice { starts, sizes: lengths, strides } => {
            Movement::Slice { starts: sizes(starts)?, sizes: sizes(lengths)?, strides: sizes(strides)? }
        }
        Movement::Pad { low, high, value } => Movement::Pad { low: sizes(low)?, high: sizes(high)?, value: *value },
        Movement::Reverse(axes) => {
            let mut axes: Vec<usize> = axes.iter().map(|&axis| place(axis)).collect();
            axes.sort_unstable();
            Movement::Reverse(axes)
        }
        Movement::Concat { axis } => Movement::Concat { axis: place(*axis) },
        Movement::Broadcast(_) | Movement::Reshape(_) | Movement::Transpose(_) => return None,
    })
}

#[cfg(test)]
mod tests;

//! Which nodes are materialised, before kernels are merged.

use std::collections::BTreeSet;

use saggar_tensor::op::{Contract, Movement, Op, Source};
use saggar_tensor::{Graph, Interrupt, Interrupted, NodeId};

use super::chains::Chains;
use super::kind::{Kind, base, kind};
use super::limited::limited;
use super::matmul::matrix;
use crate::limits::{BROADCAST_COST_MAX, RECOMPUTE_COST_MAX};
use crate::target::Target;

/// For each node, whether it lies in memory. Reshapes never do: what they reshape does.
///
/// `claimed` are outputs and assigned values, `forced` what kernels could not be built without.
///
/// # Errors
/// `Interrupted`.
pub(super) fn stored(
    graph: &Graph,
    claimed: &BTreeSet<NodeId>,
    forced: &BTreeSet<NodeId>,
    chains: &Chains,
    target: &Target,
    interrupt: &Interrupt<'_>,
) -> Result<Vec<bool>, Interrupted> {
    let mut stored: Vec<bool> = graph.nodes.iter().map(|node| must_be(&node.op)).collect();
    chains.products.iter().for_each(|product| stored[product.index()] = false);
    claimed.iter().chain(forced).for_each(|node| stored[node.index()] = true);
    for node in &graph.nodes {
        interrupt.check()?;
        for operand in dense_operands(graph, &node.op, &node.inputs) {
            stored[operand.index()] |= !chains.between.contains(&operand);
        }
    }
    interrupt.check()?;
    let uses = uses(graph, claimed);
    broadcast(graph, &mut stored);
    interrupt.check()?;
    shared(graph, &uses, chains, &mut stored);
    limited(graph, chains, target, stored, interrupt)
}

fn must_be(op: &Op) -> bool {
    match kind(op) {
        Kind::Given | Kind::Anchor | Kind::Alone => true,
        Kind::Elementwise(_) | Kind::Movement => false,
    }
}

/// Nodes that a kernel reads other than through an expression.
pub(super) fn dense_operands(graph: &Graph, op: &Op, inputs: &[NodeId]) -> Vec<NodeId> {
    match op {
        Op::Contract(Contract::MatMul { .. }) => inputs.iter().map(|&input| matrix(graph, input).node).collect(),
        Op::Convolution(_) | Op::Index(_) => inputs.iter().map(|&input| base(graph, input)).collect(),
        Op::Source(Source::Random { .. }) => inputs.iter().map(|&input| base(graph, input)).collect(),
        Op::Reduce(_) if kind(op) == Kind::Alone => inputs.iter().map(|&input| base(graph, input)).collect(),
        Op::Source(_) | Op::Unary(_) | Op::Binary(_) | Op::Select | Op::Reduce(_) | Op::Movement(_) => Vec::new(),
    }
}

/// How often each node is an operand or claimed.
fn uses(graph: &Graph, claimed: &BTreeSet<NodeId>) -> Vec<usize> {
    let mut uses = vec![0; graph.nodes.len()];
    graph.nodes.iter().flat_map(|node| &node.inputs).for_each(|input| uses[input.index()] += 1);
    claimed.iter().for_each(|node| uses[node.index()] += 1);
    uses
}

/// Work per element down to memory, and whether a kernel's result is among what is read.
#[derive(Clone, Copy, Default)]
struct Work {
    cost: u32,
    follows_kernel: bool,
}

fn works(graph: &Graph, stored: &[bool]) -> Vec<Work> {
    let mut works: Vec<Work> = Vec::with_capacity(graph.nodes.len());
    for (at, node) in graph.nodes.iter().enumerate() {
        let inputs = node.inputs.iter().map(|input| works[input.index()]);
        let below = inputs.fold(Work::default(), |sum, work| Work {
            cost: sum.cost.saturating_add(work.cost),
            follows_kernel: sum.follows_kernel || work.follows_kernel,
        });
        works.push(match kind(&node.op) {
            Kind::Given => Work::default(),
            Kind::Anchor | Kind::Alone => Work { cost: 0, follows_kernel: true },
            Kind::Elementwise(_) | Kind::Movement if stored[at] => Work::default(),
            Kind::Elementwise(cost) => Work { cost: below.cost.saturating_add(cost), ..below },
            Kind::Movement => below,
        });
    }
    works
}

/// What a broadcast would compute again for each repetition is computed once, before it.
fn broadcast(graph: &Graph, stored: &mut [bool]) {
    let works = works(graph, stored);
    let moved = through_movements(graph);
    for node in &graph.nodes {
        let Op::Movement(Movement::Broadcast(shape)) = &node.op else { continue };
        let operand = moved[node.inputs[0].index()];
        let work = works[operand.index()];
        let repeats = shape.elements() > graph.descriptor(operand).shape.elements();
        let worth = work.cost > BROADCAST_COST_MAX || (work.follows_kernel && work.cost > 0);
        if repeats && worth && !stored[operand.index()] {
            stored[operand.index()] = true;
        }
    }
}

/// For each node, the computation whose elements it moves, or itself; concatenations count as computations.
fn through_movements(graph: &Graph) -> Vec<NodeId> {
    let mut moved: Vec<NodeId> = Vec::with_capacity(graph.nodes.len());
    for (at, node) in graph.nodes.iter().enumerate() {
        moved.push(match &node.op {
            Op::Movement(
                Movement::Reshape(_)
                | Movement::Broadcast(_)
                | Movement::Transpose(_)
                | Movement::Slice { .. }
                | Movement::Reverse(_),
            ) => moved[node.inputs[0].index()],
            Op::Movement(Movement::Concat { .. } | Movement::Pad { .. })
            | Op::Source(_)
            | Op::Unary(_)
            | Op::Binary(_)
            | Op::Select
            | Op::Reduce(_)
            | Op::Contract(_)
            | Op::Convolution(_)
            | Op::Index(_) => NodeId(at as u32),
        });
    }
    moved
}

/// Who computes a node that is not in memory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Owner {
    Nobody,
    One(usize),
    Several,
}

/// What several kernels need is computed by each where that is cheap, and materialised where it is not.
fn shared(graph: &Graph, uses: &[usize], chains: &Chains, stored: &mut [bool]) {
    let works = works(graph, stored);
    let carried = carried(graph, uses, stored);
    let mut owners = vec![Owner::Nobody; graph.nodes.len()];
    for at in (0..graph.nodes.len()).rev() {
        let node = &graph.nodes[at];
        let is_piece = chains.between.contains(&NodeId(at as u32));
        if !stored[at] && !is_piece && owners[at] == Owner::Several {
            stored[at] = match kind(&node.op) {
                Kind::Elementwise(cost) => works[at].cost > RECOMPUTE_COST_MAX || (carried[at] && cost > 0),
                Kind::Given | Kind::Movement | Kind::Anchor | Kind::Alone => false,
            };
        }
        // An anchor's epilogue and prologue are different places, so a node below it belongs to it alone.
        let owner = if stored[at] { Owner::One(at) } else { owners[at] };
        for input in &node.inputs {
            let seen = &mut owners[input.index()];
            *seen = match (*seen, owner) {
                (Owner::Nobody, owner) => owner,
                (seen, owner) if seen == owner => seen,
                (seen, Owner::Nobody) => seen,
                (Owner::One(_) | Owner::Several, Owner::One(_) | Owner::Several) => Owner::Several,
            };
        }
    }
}

/// Nodes that can be stored instead of a kernel's result, as its only consumers of that shape.
fn carried(graph: &Graph, uses: &[usize], stored: &[bool]) -> Vec<bool> {
    let mut carried = vec![false; graph.nodes.len()];
    for (at, node) in graph.nodes.iter().enumerate() {
        let elements = node.descriptor.shape.elements();
        let from_input = |input: &NodeId| {
            carried[input.index()] && uses[input.index()] == 1 && graph.descriptor(*input).shape.elements() == elements
        };
        carried[at] = match kind(&node.op) {
            Kind::Anchor => true,
            Kind::Given | Kind::Alone => false,
            Kind::Elementwise(_) => !stored[at] && node.inputs.iter().any(from_input),
            Kind::Movement => match &node.op {
                Op::Movement(Movement::Reshape(_)) => node.inputs.iter().any(from_input),
                Op::Movement(_)
                | Op::Source(_)
                | Op::Unary(_)
                | Op::Binary(_)
                | Op::Select
                | Op::Reduce(_)
                | Op::Contract(_)
                | Op::Convolution(_)
                | Op::Index(_) => false,
            },
        };
    }
    carried
}

//! The order of kernels, and where each result that is not scratch is written.
//!
//! Reads of a variable see its old value. A kernel writes a variable in place where every other reader can run before
//! it; otherwise the new value waits in scratch memory for a copy that runs after all readers.

use std::collections::{BTreeMap, BTreeSet};

use saggar_tensor::op::{Op, Unary};
use saggar_tensor::{Graph, Interrupt, Interrupted, Node, NodeId};

use crate::destinations::Destinations;
use crate::expr::{Expr, Instruction, Register, View};
use crate::fuse::{Draft, variable};
use crate::program::{Body, Place, Store, ValueId};

/// Kernels in execution order.
pub(crate) struct Schedule {
    /// Each reads what earlier ones wrote.
    pub(crate) drafts: Vec<Draft>,
    /// Where claimed nodes are written; all other results are scratch.
    pub(crate) homes: BTreeMap<NodeId, Place>,
    /// Variables that cannot be written in place although the fusion counted on it.
    pub(crate) refused: BTreeSet<u32>,
}

/// Ready kernels that are compared before one is chosen.
const READY_COMPARED_MAX: usize = 64;

/// Orders `drafts`, adding copies to the graph and to the kernels where a variable cannot be written in place.
///
/// # Errors
/// `Interrupted`.
pub(crate) fn schedule(
    graph: &mut Graph,
    destinations: &Destinations,
    drafts: Vec<Draft>,
    pinned: &BTreeSet<u32>,
    interrupt: &Interrupt<'_>,
) -> Result<Schedule, Interrupted> {
    let mut homes: BTreeMap<NodeId, Place> = BTreeMap::new();
    for (at, &node) in destinations.outputs.iter().enumerate() {
        homes.insert(node, Place::Output(at as u32));
    }
    let mut flow = Flow::new(drafts);
    let mut refused = BTreeSet::new();
    for &(assigned, node) in &destinations.assignments {
        interrupt.check()?;
        // A value without elements has no kernel and needs no place.
        let Some(&maker) = flow.maker.get(&node) else { continue };
        let readers = flow.readers_of_variable(graph, assigned);
        let ordered = !pinned.contains(&assigned)
            && updates_in_place(graph, &flow.drafts[maker], assigned)
            && flow.order(&readers, maker);
        if ordered {
            homes.insert(node, Place::Variable(assigned));
            continue;
        }
        refused.insert(assigned);
        let draft = copy(graph, node);
        let copied = *draft.roots.first().expect("a copy stores one node");
        let at = flow.push(draft);
        assert!(flow.order(&readers, at), "nothing depends on a copy to a variable");
        homes.insert(copied, Place::Variable(assigned));
    }
    let drafts = flow.sorted(graph, &homes, interrupt)?;
    Ok(Schedule { drafts, homes, refused })
}

/// Whether a kernel that writes the variable reads it, if at all, element by element.
fn updates_in_place(graph: &Graph, draft: &Draft, assigned: u32) -> bool {
    if draft.loads.iter().all(|load| variable(graph, *load) != Some(assigned)) {
        return true;
    }
    reads_in_order(&draft.body, |node| variable(graph, node) == Some(assigned))
}

/// Whether a map reads the nodes that `is_meant` names, if at all, element by element.
pub(crate) fn reads_in_order(body: &Body, is_meant: impl Fn(NodeId) -> bool) -> bool {
    let Body::Map { dims, expr, .. } = body else { return false };
    let is_meant = |value: &ValueId| is_meant(NodeId(value.0));
    expr.instructions.iter().all(|(instruction, _)| match instruction {
        Instruction::Load { value, view, .. } => !is_meant(value) || is_identity(view, dims),
        Instruction::Random { key, .. } => !is_meant(key),
        Instruction::Immediate(_)
        | Instruction::Index(_)
        | Instruction::Accumulated
        | Instruction::Product(_)
        | Instruction::Unary(..)
        | Instruction::Binary(..)
        | Instruction::Select(..) => true,
    })
}

/// Whether the view's element is always the one at the iteration's own position.
fn is_identity(view: &View, dims: &[usize]) -> bool {
    let mut stride = 1;
    let mut in_order = view.offset == 0 && view.bounds.is_empty();
    for (&size, &step) in dims.iter().zip(&view.strides).rev() {
        in_order = in_order && (step == stride || size == 1);
        stride *= size as i64;
    }
    in_order
}

fn copy(graph: &mut Graph, node: NodeId) -> Draft {
    let copied = NodeId(graph.nodes.len() as u32);
    let descriptor = graph.descriptor(node).clone();
    let elements = descriptor.shape.elements();
    let dtype = descriptor.dtype;
    graph.nodes.push(Node { op: Op::Unary(Unary::StopGradient), inputs: vec![node], descriptor, label: None });
    let view = View { offset: 0, strides: vec![1], bounds: Vec::new() };
    let load = Instruction::Load { value: ValueId(node.0), view, fill: None };
    let body = Body::Map {
        dims: vec![elements],
        expr: Expr { instructions: vec![(load, dtype)] },
        stores: vec![Store { value: ValueId(copied.0), register: Register(0) }],
    };
    Draft { body, anchor: None, roots: BTreeSet::from([copied]), loads: BTreeSet::from([node]) }
}

/// Kernels and what must run before what.
struct Flow {
    drafts: Vec<Draft>,
    maker: BTreeMap<NodeId, usize>,
    readers: BTreeMap<NodeId, Vec<usize>>,
    after: Vec<BTreeSet<usize>>,
}

impl Flow {
    fn new(drafts: Vec<Draft>) -> Flow {
        let mut flow = Flow { drafts: Vec::new(), maker: BTreeMap::new(), readers: BTreeMap::new(), after: Vec::new() };
        for (at, draft) in drafts.iter().enumerate() {
            flow.maker.extend(draft.roots.iter().map(|&root| (root, at)));
        }
        for draft in drafts {
            flow.push(draft);
        }
        flow
    }

    fn push(&mut self, draft: Draft) -> usize {
        let at = self.drafts.len();
        self.after.resize_with(self.after.len().max(at + 1), BTreeSet::new);
        self.maker.extend(draft.roots.iter().map(|&root| (root, at)));
        for &load in &draft.loads {
            self.readers.entry(load).or_default().push(at);
            if let Some(&maker) = self.maker.get(&load) {
                self.after.resize_with(self.after.len().max(maker + 1), BTreeSet::new);
                self.after[maker].insert(at);
            }
        }
        self.drafts.push(draft);
        at
    }

    fn readers_of_variable(&self, graph: &Graph, assigned: u32) -> BTreeSet<usize> {
        let of_variable = self.readers.iter().filter(|(node, _)| variable(graph, **node) == Some(assigned));
        of_variable.flat_map(|(_, readers)| readers).copied().collect()
    }

    /// Makes `last` run after all of `first`; false, and nothing changed, where some of them need `last`.
    fn order(&mut self, first: &BTreeSet<usize>, last: usize) -> bool {
        let mut open = vec![last];
        let mut seen = BTreeSet::new();
        while let Some(at) = open.pop() {
            for &next in &self.after[at] {
                if first.contains(&next) {
                    return false;
                }
                if seen.insert(next) {
                    open.push(next);
                }
            }
        }
        for &at in first.iter().filter(|&&at| at != last) {
            self.after[at].insert(last);
        }
        true
    }

    /// A topological order in which memory that can be freed is freed early.
    fn sorted(
        self,
        graph: &Graph,
        homes: &BTreeMap<NodeId, Place>,
        interrupt: &Interrupt<'_>,
    ) -> Result<Vec<Draft>, Interrupted> {
        let mut waits = vec![0; self.drafts.len()];
        self.after.iter().flatten().for_each(|&at| waits[at] += 1);
        let mut unread: BTreeMap<NodeId, usize> =
            self.readers.iter().map(|(&node, readers)| (node, readers.len())).collect();
        let mut ready: BTreeSet<usize> = (0..waits.len()).filter(|&at| waits[at] == 0).collect();
        let mut order = Vec::with_capacity(self.drafts.len());
        let scratch = |node: &NodeId| {
            let is_scratch = !homes.contains_key(node) && self.maker.contains_key(node);
            if is_scratch { graph.descriptor(*node).bytes() as i64 } else { 0 }
        };
        while let Some(&first) = ready.first() {
            interrupt.check()?;
            let growth = |at: usize| {
                let draft = &self.drafts[at];
                let freed = draft.loads.iter().filter(|load| unread[load] == 1).map(scratch).sum::<i64>();
                draft.roots.iter().map(scratch).sum::<i64>() - freed
            };
            let best = ready.iter().take(READY_COMPARED_MAX).copied().min_by_key(|&at| (growth(at), at));
            // The graph's own order is kept but for kernels that do not need more memory.
            let chosen = best.filter(|&at| growth(at) <= 0).unwrap_or(first);
            ready.remove(&chosen);
            order.push(chosen);
            for load in &self.drafts[chosen].loads {
                unread.entry(*load).and_modify(|count| *count -= 1);
            }
            for &next in &self.after[chosen] {
                waits[next] -= 1;
                if waits[next] == 0 {
                    ready.insert(next);
                }
            }
        }
        assert_eq!(order.len(), self.drafts.len(), "kernels depend on each other in a circle");
        let mut drafts: Vec<Option<Draft>> = self.drafts.into_iter().map(Some).collect();
        Ok(order.into_iter().filter_map(|at| drafts[at].take()).collect())
    }
}

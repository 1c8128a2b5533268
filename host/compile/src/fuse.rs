//! Which nodes become which kernels.
//!
//! First every node that must lie in memory, or that several kernels need and that is dear to compute, gets a kernel
//! of its own, with all other work fused into its readers; movements become views. Then kernels are merged while
//! limits and order allow it. Values are still nodes here: places are `plan`'s, order is `schedule`'s.

mod body;
mod builder;
mod chain;
mod chains;
mod coalesce;
mod emit;
mod group;
mod kind;
mod matmul;
mod merge;
mod space;
mod stored;

use std::collections::{BTreeMap, BTreeSet};

use saggar_tensor::{Interrupt, Interrupted, NodeId};

use emit::Failure;
use group::{Context, Group};
use kind::Kind;
pub(crate) use kind::{base, is_given, variable};

use crate::layout::Laid;
use crate::program::Body;
use crate::target::Target;

/// A kernel whose values are nodes.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    /// What is computed; a `ValueId` is the number of a node.
    pub(crate) body: Body,
    /// The node with a kernel of its own, if it is more than a map.
    pub(crate) anchor: Option<NodeId>,
    /// Nodes stored.
    pub(crate) roots: BTreeSet<NodeId>,
    /// Nodes read that lie in memory.
    pub(crate) loads: BTreeSet<NodeId>,
}

/// What kernels must leave in memory.
pub(crate) struct Claims {
    /// Outputs and assigned values, each a node of its own and neither a source nor a reshape.
    pub(crate) nodes: BTreeSet<NodeId>,
    /// The variable that a claimed node is assigned to.
    pub(crate) assigned: BTreeMap<NodeId, u32>,
}

/// Kernels for everything that is claimed, in a topological order. `pinned` variables are not written in place.
///
/// # Errors
/// `Interrupted`.
pub(crate) fn fuse(
    laid: &Laid,
    claims: &Claims,
    pinned: &BTreeSet<u32>,
    target: &Target,
    interrupt: &Interrupt<'_>,
) -> Result<Vec<Draft>, Interrupted> {
    let graph = &laid.graph;
    let mut forced = BTreeSet::new();
    let merged = loop {
        let chains = chains::chains(graph, &claims.nodes, &forced, target, interrupt)?;
        let context = Context {
            graph,
            stored: stored::stored(graph, &claims.nodes, &forced, &chains, target, interrupt)?,
            chains: &chains,
            assigned: &claims.assigned,
            claimed: &claims.nodes,
            pinned,
            channels_last: &laid.channels_last,
            target,
            interrupt,
        };
        let mut missing = BTreeSet::new();
        let kernels = kernels(&context);
        let mut groups: Vec<Group> = Vec::with_capacity(kernels.len());
        for &node in &kernels {
            interrupt.check()?;
            groups.extend(single(&context, node, &mut missing));
        }
        let before = forced.len();
        forced.extend(missing);
        if groups.len() == kernels.len() {
            break merge::merge(&context, chain::without_idle_rows(&context, groups)?)?;
        }
        assert!(forced.len() > before, "materialising operands always makes a kernel possible");
    };
    let drafts = merged.into_iter().map(|group| {
        let Group { anchor, roots, loads, body, .. } = group;
        Draft { body, anchor, roots, loads }
    });
    Ok(drafts.collect())
}

/// Nodes with a kernel; those without elements need none.
fn kernels(context: &Context<'_>) -> Vec<NodeId> {
    let nodes = (0..context.graph.nodes.len()).filter(|&at| context.stored[at]).map(|at| NodeId(at as u32));
    nodes
        .filter(|&node| !is_given(context.graph, node) && context.graph.descriptor(node).shape.elements() > 0)
        .filter(|node| !context.chains.absorbed.contains(node))
        .collect()
}

/// The kernel that stores `node` alone, or in `missing` what must lie in memory for that.
fn single(context: &Context<'_>, node: NodeId, missing: &mut BTreeSet<NodeId>) -> Option<Group> {
    let anchor = match kind::kind(&context.graph.node(node).op) {
        Kind::Anchor | Kind::Alone => Some(node),
        Kind::Given | Kind::Elementwise(_) | Kind::Movement => None,
    };
    let nodes: BTreeSet<NodeId> = [node].into_iter().chain(context.chains.rows(node)).collect();
    match group::group(context, anchor, nodes.clone(), nodes) {
        Ok(group) => Some(group),
        Err(Failure::Store(other)) if other != node && !context.stored[other.index()] => {
            missing.insert(other);
            None
        }
        Err(Failure::Store(_) | Failure::Split { .. } | Failure::Refused) => {
            let inputs = context.graph.node(node).inputs.iter().map(|&input| base(context.graph, input));
            missing.extend(inputs.filter(|input| !context.stored[input.index()]));
            // What is forced into memory is no chain's, even where it was stored already for another reason.
            missing.extend(context.chains.ends.get(&node).map(|end| end.matrix));
            None
        }
    }
}

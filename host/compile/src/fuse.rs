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
mod limited;
mod matmul;
mod merge;
mod space;
mod stored;

use std::collections::{BTreeMap, BTreeSet};

use saggar_tensor::{Interrupt, NodeId};

use emit::Failure;
use group::{Context, Group};
use kind::Kind;
pub(crate) use kind::{base, is_given, variable};

use crate::error::CompileError;
use crate::label::op_name;
use crate::layout::Laid;
use crate::limits::{FUSE_ROUNDS_MAX, PROGRAM_INSTRUCTIONS_MAX};
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
/// `Interrupted`; `ProgramTooLarge`.
pub(crate) fn fuse(
    laid: &Laid,
    claims: &Claims,
    pinned: &BTreeSet<u32>,
    target: &Target,
    interrupt: &Interrupt<'_>,
) -> Result<Vec<Draft>, CompileError> {
    let graph = &laid.graph;
    let mut forced = BTreeSet::new();
    let mut round = 0;
    loop {
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
        let (groups, failed) = singles(&context, &mut missing)?;
        let Some(&first) = failed.first() else {
            let groups = chain::without_idle_rows(&context, without_idle(&context, groups))?;
            let merged = merge::merge(&context, groups)?;
            let draft = |Group { anchor, roots, loads, body, .. }| Draft { body, anchor, roots, loads };
            return Ok(merged.into_iter().map(draft).collect());
        };
        // What is materialised for one kernel changes what is materialised for others, so that rounds could follow without end.
        if round >= FUSE_ROUNDS_MAX {
            missing.extend(below(&context, &failed));
            missing.extend(kernels(&context));
        }
        let before = forced.len();
        forced.extend(missing);
        if forced.len() == before {
            let (op, label) = op_name(graph, first);
            let what = "a kernel can be built once its operands are in memory";
            return Err(CompileError::Internal { pass: "fusion", place: format!("{op} '{label}'"), what });
        }
        round += 1;
    }
}

/// A kernel for each node that has one, and the nodes whose kernel cannot be built before what is `missing` is in memory.
fn singles(context: &Context<'_>, missing: &mut BTreeSet<NodeId>) -> Result<(Vec<Group>, Vec<NodeId>), CompileError> {
    let (mut groups, mut failed) = (Vec::new(), Vec::new());
    let mut instructions = 0;
    for node in kernels(context) {
        context.interrupt.check()?;
        match single(context, node, missing) {
            Some(group) => {
                instructions += group.body.instructions();
                groups.push(group);
            }
            None => failed.push(node),
        }
        if instructions > PROGRAM_INSTRUCTIONS_MAX {
            return Err(CompileError::ProgramTooLarge { what: "instructions", limit: PROGRAM_INSTRUCTIONS_MAX });
        }
    }
    Ok((groups, failed))
}

/// Nodes with a kernel; those without elements need none.
fn kernels(context: &Context<'_>) -> Vec<NodeId> {
    let nodes = (0..context.graph.nodes.len()).filter(|&at| context.stored[at]).map(|at| NodeId(at as u32));
    nodes
        .filter(|&node| !is_given(context.graph, node) && context.graph.descriptor(node).shape.elements() > 0)
        .filter(|node| !context.chains.absorbed.contains(node))
        .collect()
}

/// The groups that something is computed from, directly or not: of what is moved, only parts may be read.
fn without_idle(context: &Context<'_>, groups: Vec<Group>) -> Vec<Group> {
    let mut maker = vec![None; context.graph.nodes.len()];
    for (at, group) in groups.iter().enumerate() {
        group.roots.iter().for_each(|root| maker[root.index()] = Some(at));
    }
    let mut is_used = vec![false; groups.len()];
    let mut open: Vec<NodeId> = context.claimed.iter().copied().collect();
    while let Some(node) = open.pop() {
        if let Some(at) = maker[node.index()]
            && !std::mem::replace(&mut is_used[at], true)
        {
            open.extend(&groups[at].loads);
        }
    }
    groups.into_iter().zip(is_used).filter_map(|(group, is_used)| is_used.then_some(group)).collect()
}

/// Everything that is not in memory and that `nodes` are computed from, down to what is in memory.
fn below(context: &Context<'_>, nodes: &[NodeId]) -> BTreeSet<NodeId> {
    let mut found = BTreeSet::new();
    let mut open = nodes.to_vec();
    while let Some(node) = open.pop() {
        let inputs = context.graph.node(node).inputs.iter().map(|&input| base(context.graph, input));
        open.extend(inputs.filter(|input| !context.stored[input.index()] && found.insert(*input)));
    }
    found
}

/// The kernel that stores `node` alone, or in `missing` what must lie in memory for that.
fn single(context: &Context<'_>, node: NodeId, missing: &mut BTreeSet<NodeId>) -> Option<Group> {
    let anchor = match kind::kind(&context.graph.node(node).op) {
        Kind::Anchor | Kind::Alone => Some(node),
        Kind::Given | Kind::Elementwise(_) | Kind::Movement => None,
    };
    let nodes: BTreeSet<NodeId> = [node].into_iter().chain(context.chains.rows(node)).collect();
    match group::group(context, anchor, nodes.clone(), nodes) {
        Ok(group) if group::touched(context, &group) <= context.target.values_max(&group.body) => Some(group),
        Err(Failure::Store(other)) if other != node && !context.stored[other.index()] => {
            missing.insert(other);
            None
        }
        Ok(_) | Err(Failure::Store(_) | Failure::Split { .. } | Failure::Refused) => {
            let inputs = context.graph.node(node).inputs.iter().map(|&input| base(context.graph, input));
            missing.extend(inputs.filter(|input| !context.stored[input.index()]));
            // What is forced into memory is no chain's, even where it was stored already for another reason.
            missing.extend(context.chains.ends.get(&node).map(|end| end.matrix));
            None
        }
    }
}

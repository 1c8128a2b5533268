//! Kernels while they are being merged: what each computes, reads and stores.

use std::collections::{BTreeMap, BTreeSet};

use saggar_tensor::{Graph, Interrupt, NodeId};

use super::body::{Plan, body};
use super::chains::Chains;
use super::emit::Failure;
use super::kind::{Kind, base, kind};
use crate::limits::EXPR_INSTRUCTIONS_MAX;
use crate::program::{Body, ValueId};
use crate::target::Target;

/// What stays the same while kernels are merged.
pub(super) struct Context<'a> {
    pub(super) graph: &'a Graph,
    pub(super) stored: Vec<bool>,
    /// The variable that a claimed node is assigned to.
    pub(super) assigned: &'a BTreeMap<NodeId, u32>,
    /// Outputs and assigned values.
    pub(super) claimed: &'a BTreeSet<NodeId>,
    /// Variables that cannot be written in place.
    pub(super) pinned: &'a BTreeSet<u32>,
    /// Windowed operators whose operands have their channels last.
    pub(super) channels_last: &'a BTreeSet<NodeId>,
    /// Products that are computed where they are used.
    pub(super) chains: &'a Chains,
    pub(super) target: &'a Target,
    pub(super) interrupt: &'a Interrupt<'a>,
}

/// One kernel.
pub(super) struct Group {
    pub(super) anchor: Option<NodeId>,
    /// What it computes at its own position without reading it.
    pub(super) local: BTreeSet<NodeId>,
    /// What it stores of that.
    pub(super) roots: BTreeSet<NodeId>,
    /// What it reads.
    pub(super) loads: BTreeSet<NodeId>,
    pub(super) body: Body,
}

impl Group {
    /// Whether element-wise work may join.
    pub(super) fn is_open(&self, graph: &Graph) -> bool {
        self.anchor.is_none_or(|anchor| kind(&graph.node(anchor).op) == Kind::Anchor)
    }

    /// Elements of each result.
    pub(super) fn elements(&self, graph: &Graph) -> usize {
        let first = self.anchor.or(self.roots.first().copied());
        first.map_or(0, |node| graph.descriptor(node).shape.elements())
    }
}

/// Builds the kernel that stores `roots`.
///
/// # Errors
/// `Refused` where limits are exceeded or a result would be read before it is written.
pub(super) fn group(
    context: &Context<'_>,
    anchor: Option<NodeId>,
    local: BTreeSet<NodeId>,
    roots: BTreeSet<NodeId>,
) -> Result<Group, Failure> {
    let plan = Plan {
        graph: context.graph,
        stored: &context.stored,
        anchor,
        local: &local,
        roots: &roots,
        chains: context.chains,
        channels_last: context.channels_last,
    };
    let body = body(plan)?;
    let loads: BTreeSet<NodeId> = body.reads().iter().map(|value| base(context.graph, NodeId(value.0))).collect();
    let is_chain = matches!(body, Body::Chain { .. });
    let fits = |value: &ValueId| {
        context.target.tensor_bytes(context.graph.descriptor(NodeId(value.0)))
            <= context.target.binding_bytes_max as u64
    };
    let has_room = !is_chain
        || body.values() <= context.target.chain_values_max && body.reads().iter().chain(&body.writes()).all(fits);
    if !loads.is_disjoint(&local) || body.longest_expr() > EXPR_INSTRUCTIONS_MAX || !has_room {
        return Err(Failure::Refused);
    }
    Ok(Group { anchor, local, roots, loads, body })
}

/// Distinct values that the kernel touches; a variable it updates in place is one.
pub(super) fn touched(context: &Context<'_>, group: &Group) -> usize {
    group.body.values() - updated_in_place(context, group.anchor, &group.roots, &group.loads)
}

/// How many of `roots` a kernel may write over variables that it reads.
pub(super) fn updated_in_place(
    context: &Context<'_>,
    anchor: Option<NodeId>,
    roots: &BTreeSet<NodeId>,
    loads: &BTreeSet<NodeId>,
) -> usize {
    let is_updated = |variable: &u32| {
        !context.pinned.contains(variable) && anchor.is_none() && loads_variable(context.graph, loads, *variable)
    };
    roots.iter().filter(|root| context.assigned.get(root).is_some_and(is_updated)).count()
}

/// Whether one of `loads` is the variable.
pub(super) fn loads_variable(graph: &Graph, loads: &BTreeSet<NodeId>, variable: u32) -> bool {
    loads.iter().any(|load| super::kind::variable(graph, *load) == Some(variable))
}

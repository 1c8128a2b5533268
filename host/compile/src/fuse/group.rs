//! Groups: kernels during merging, with the nodes that each computes, reads and stores.

use std::collections::{BTreeMap, BTreeSet};

use saggar_tensor::{Graph, InterruptCheck, InterruptedError, NodeId};

use super::body::{BodyContext, kernel_body};
use super::emit::FusionFailure;
use super::fused_matmul_search::FusedMatMulSet;
use super::fusion_kind::{FusionKind, fusion_kind, reshape_base};
use crate::limits::EXPR_INSTRUCTIONS_MAX;
use crate::program::{KernelBody, ValueId};
use crate::target::CompileTarget;

/// The constant inputs of merging.
pub(super) struct FusionContext<'a> {
    pub(super) graph: &'a Graph,
    pub(super) stored: Vec<bool>,
    /// The variable that each assigned node is assigned to.
    pub(super) assigned: &'a BTreeMap<NodeId, u32>,
    /// Outputs and assigned values.
    pub(super) required: &'a BTreeSet<NodeId>,
    /// Variables that cannot be written in place.
    pub(super) pinned: &'a BTreeSet<u32>,
    /// Windowed operators whose operands have channels last.
    pub(super) channels_last: &'a BTreeSet<NodeId>,
    /// Products that are computed where they are used, not stored.
    pub(super) chains: &'a FusedMatMulSet,
    pub(super) target: &'a CompileTarget,
    pub(super) interrupt: &'a InterruptCheck<'a>,
}

/// One kernel.
pub(super) struct FusionGroup {
    pub(super) anchor: Option<NodeId>,
    /// Nodes computed at the kernel's current position, not read.
    pub(super) local: BTreeSet<NodeId>,
    /// Nodes of `local` that are stored.
    pub(super) roots: BTreeSet<NodeId>,
    /// Nodes read.
    pub(super) loads: BTreeSet<NodeId>,
    pub(super) body: KernelBody,
}

impl FusionGroup {
    /// Returns whether element-wise work can join the kernel.
    pub(super) fn accepts_elementwise(&self, graph: &Graph) -> bool {
        self.anchor.is_none_or(|anchor| fusion_kind(&graph.node(anchor).op) == FusionKind::Anchor)
    }

    /// Returns the number of elements of each result.
    pub(super) fn elements(&self, graph: &Graph) -> usize {
        let first = self.anchor.or(self.roots.first().copied());
        first.map_or(0, |node| graph.descriptor(node).shape.elements())
    }
}

/// Builds the kernel that stores `roots`.
///
/// # Errors
/// Returns `Refused` if limits are exceeded or a result would be read before it is written.
pub(super) fn build_group(
    context: &FusionContext<'_>,
    anchor: Option<NodeId>,
    local: BTreeSet<NodeId>,
    roots: BTreeSet<NodeId>,
) -> Result<FusionGroup, FusionFailure> {
    let plan = BodyContext {
        graph: context.graph,
        stored: &context.stored,
        anchor,
        local: &local,
        roots: &roots,
        chains: context.chains,
        channels_last: context.channels_last,
    };
    let body = kernel_body(plan)?;
    let loads: BTreeSet<NodeId> =
        body.read_values().iter().map(|value| reshape_base(context.graph, NodeId(value.0))).collect();
    let is_chain = matches!(body, KernelBody::Chain { .. });
    let fits = |value: &ValueId| {
        context.target.tensor_bytes(context.graph.descriptor(NodeId(value.0)))
            <= context.target.binding_bytes_max as u64
    };
    let has_room = !is_chain
        || body.value_count() <= context.target.chain_values_max
            && body.read_values().iter().chain(&body.written_values()).all(fits);
    if !loads.is_disjoint(&local) || body.longest_expr() > EXPR_INSTRUCTIONS_MAX || !has_room {
        return Err(FusionFailure::Refused);
    }
    Ok(FusionGroup { anchor, local, roots, loads, body })
}

/// Removes softmax statistics from memory that no kernel reads, and returns the groups.
///
/// # Errors
/// Returns `InterruptedError` if interrupted.
pub(super) fn remove_unread_softmax_rows(
    context: &FusionContext<'_>,
    mut groups: Vec<FusionGroup>,
) -> Result<Vec<FusionGroup>, InterruptedError> {
    if context.chains.absorbed_folds.is_empty() {
        return Ok(groups);
    }
    let mut readers = vec![0; context.graph.nodes.len()];
    groups.iter().flat_map(|group| &group.loads).for_each(|load| readers[load.index()] += 1);
    for slot in &mut groups {
        context.interrupt.check()?;
        let Some(anchor) = slot.anchor else { continue };
        let is_idle = |node: &NodeId| !context.required.contains(node) && readers[node.index()] == 0;
        let idle: BTreeSet<NodeId> = context.chains.softmax_rows(anchor).filter(is_idle).collect();
        let roots = slot.roots.difference(&idle).copied().collect();
        if !idle.is_empty()
            && let Ok(smaller) = build_group(context, Some(anchor), slot.local.clone(), roots)
        {
            *slot = smaller;
        }
    }
    Ok(groups)
}

/// Returns the number of distinct values that the kernel touches; a variable updated in place counts once.
pub(super) fn value_count(context: &FusionContext<'_>, group: &FusionGroup) -> usize {
    group.body.value_count() - in_place_update_count(context, group.anchor, &group.roots, &group.loads)
}

/// Returns how many of `roots` a kernel can write in place, to variables that it reads.
pub(super) fn in_place_update_count(
    context: &FusionContext<'_>,
    anchor: Option<NodeId>,
    roots: &BTreeSet<NodeId>,
    loads: &BTreeSet<NodeId>,
) -> usize {
    let is_updated = |variable: &u32| {
        !context.pinned.contains(variable) && anchor.is_none() && loads_variable(context.graph, loads, *variable)
    };
    roots.iter().filter(|root| context.assigned.get(root).is_some_and(is_updated)).count()
}

/// Returns whether one of `loads` is the variable.
pub(super) fn loads_variable(graph: &Graph, loads: &BTreeSet<NodeId>, variable: u32) -> bool {
    loads.iter().any(|load| super::fusion_kind::read_variable(graph, *load) == Some(variable))
}

//! Merges kernels: element-wise work moves into the kernel that produces its operand, and readers of one value join.

use std::collections::BTreeSet;

use saggar_tensor::{InterruptedError, NodeId};

use super::group::{FusionContext, FusionGroup, build_group, in_place_update_count, loads_variable, value_count};
use crate::limits::{MERGE_ALL_VISITS_MAX, MERGE_INSTRUCTIONS_MAX, MERGE_PARTNERS_MAX, MERGE_VISITS_MAX};
use crate::topological_order::TopologicalOrder;

struct GroupMerger<'a> {
    context: &'a FusionContext<'a>,
    groups: Vec<Option<FusionGroup>>,
    order: TopologicalOrder,
    /// For each node, the group that computes it.
    maker: Vec<Option<usize>>,
    /// For each node, the groups that read it.
    readers: Vec<BTreeSet<usize>>,
    /// For each node, the reading groups that are maps.
    maps: Vec<BTreeSet<usize>>,
    /// Instructions of all candidate kernels built so far.
    instructions: usize,
}

/// Merges groups where possible, in the order of `groups`, which is topological.
///
/// # Errors
/// Returns `InterruptedError` if interrupted.
pub(super) fn merge_groups(
    context: &FusionContext<'_>,
    groups: Vec<FusionGroup>,
) -> Result<Vec<FusionGroup>, InterruptedError> {
    let nodes = context.graph.nodes.len();
    let mut merger = GroupMerger {
        context,
        groups: groups.iter().map(|_| None).collect(),
        order: TopologicalOrder::new(0..groups.len()),
        maker: vec![None; nodes],
        readers: vec![BTreeSet::new(); nodes],
        maps: vec![BTreeSet::new(); nodes],
        instructions: 0,
    };
    for (at, group) in groups.into_iter().enumerate() {
        context.interrupt.check()?;
        merger.insert_group(at, group);
    }
    for at in 0..merger.groups.len() {
        while merger.merge_consumer(at)? {}
    }
    for at in 0..merger.groups.len() {
        while merger.merge_sibling(at)? {}
    }
    Ok(merger.groups.into_iter().flatten().collect())
}

impl GroupMerger<'_> {
    fn insert_group(&mut self, at: usize, group: FusionGroup) {
        group.local.iter().for_each(|node| self.maker[node.index()] = Some(at));
        for load in &group.loads {
            self.readers[load.index()].insert(at);
            if group.anchor.is_none() {
                self.maps[load.index()].insert(at);
            }
        }
        self.groups[at] = Some(group);
    }

    fn remove_group(&mut self, at: usize) {
        for load in self.groups[at].take().into_iter().flat_map(|group| group.loads) {
            self.readers[load.index()].remove(&at);
            self.maps[load.index()].remove(&at);
        }
    }

    /// Merges one reader of the results of group `at` into it.
    fn merge_consumer(&mut self, at: usize) -> Result<bool, InterruptedError> {
        let Some(group) = &self.groups[at] else { return Ok(false) };
        let first = |root: &NodeId| self.readers[root.index()].iter().take(MERGE_PARTNERS_MAX);
        let readers: BTreeSet<usize> = group.roots.iter().flat_map(first).copied().collect();
        self.merge_first_of(at, readers)
    }

    /// Merges one map into map `at` that reads a value that `at` reads.
    fn merge_sibling(&mut self, at: usize) -> Result<bool, InterruptedError> {
        let Some(group) = &self.groups[at] else { return Ok(false) };
        if group.anchor.is_some() {
            return Ok(false);
        }
        let large = group.loads.iter().filter(|load| self.context.graph.descriptor(**load).shape.elements() > 1);
        let first = |load: &NodeId| self.maps[load.index()].range(at + 1..).take(MERGE_PARTNERS_MAX);
        let partners: BTreeSet<usize> = large.flat_map(first).copied().collect();
        self.merge_first_of(at, partners)
    }

    /// Merges the first mergeable group of `others` into `at`. Returns false if none of the considered groups can be
    /// merged.
    fn merge_first_of(&mut self, at: usize, others: BTreeSet<usize>) -> Result<bool, InterruptedError> {
        for other in others.into_iter().take(MERGE_PARTNERS_MAX) {
            self.context.interrupt.check()?;
            if self.order.visits() > MERGE_ALL_VISITS_MAX || self.instructions > MERGE_INSTRUCTIONS_MAX {
                return Ok(false);
            }
            if self.try_merge(at, other) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Merges `other` into `at` if possible.
    fn try_merge(&mut self, at: usize, other: usize) -> bool {
        if !self.is_mergeable(at, other) {
            return false;
        }
        let (first, last) = if self.order.is_before(at, other) { (at, other) } else { (other, at) };
        let Some(between) = self.groups_between(first, last) else { return false };
        let parts = [at, other].map(|at| self.groups[at].as_ref().map_or(0, |group| group.body.instruction_count()));
        self.instructions += parts.iter().sum::<usize>();
        let Some(merged) = self.build_merged(at, other) else { return false };
        self.remove_group(at);
        self.remove_group(other);
        self.insert_group(at, merged);
        self.order.move_before(between, first);
        self.order.merge(at, other);
        true
    }

    /// Returns whether two groups can become one, as far as this is known without building the kernel.
    fn is_mergeable(&self, at: usize, other: usize) -> bool {
        let graph = self.context.graph;
        let (Some(first), Some(second)) = (&self.groups[at], &self.groups[other]) else { return false };
        let suits = first.accepts_elementwise(graph)
            && second.accepts_elementwise(graph)
            && !(first.anchor.is_some() && second.anchor.is_some())
            && first.elements(graph) == second.elements(graph);
        if !suits {
            return false;
        }
        let is_local = |node: &&NodeId| first.local.contains(node) || second.local.contains(node);
        let loads: BTreeSet<NodeId> =
            first.loads.union(&second.loads).filter(|node| !is_local(node)).copied().collect();
        let roots = self.merged_roots(at, other, first, second);
        let anchor = first.anchor.or(second.anchor);
        let chain = anchor.is_some_and(|anchor| self.context.chains.consumers.contains_key(&anchor));
        let target = self.context.target;
        let values_max = if chain { target.chain_values_max } else { target.kernel_values_max };
        loads.len() + roots.len() - in_place_update_count(self.context, anchor, &roots, &loads) <= values_max
    }

    /// Returns the nodes that the merged group of both leaves in memory.
    fn merged_roots(&self, at: usize, other: usize, first: &FusionGroup, second: &FusionGroup) -> BTreeSet<NodeId> {
        let elsewhere = |node: &NodeId| self.readers[node.index()].iter().any(|&one| one != at && one != other);
        let is_kept = |root: &&NodeId| self.context.required.contains(root) || elsewhere(root);
        first.roots.union(&second.roots).filter(is_kept).copied().collect()
    }

    fn build_merged(&self, at: usize, other: usize) -> Option<FusionGroup> {
        let (first, second) = (self.groups[at].as_ref()?, self.groups[other].as_ref()?);
        let local: BTreeSet<NodeId> = first.local.union(&second.local).copied().collect();
        let roots = self.merged_roots(at, other, first, second);
        let anchor = first.anchor.or(second.anchor);
        let merged = build_group(self.context, anchor, local, roots).ok()?;
        // Only maps can read a variable that they write.
        let updates = merged.anchor.is_some()
            && merged.roots.iter().any(|root| {
                let variable = self.context.assigned.get(root);
                variable.is_some_and(|&variable| loads_variable(self.context.graph, &merged.loads, variable))
            });
        (!updates && value_count(self.context, &merged) <= merged.body.values_max(self.context.target))
            .then_some(merged)
    }

    /// Returns the groups after `first` that `last` depends on, other than `first`. Returns `None` if one of them
    /// depends on `first`, or if the search takes too long.
    fn groups_between(&mut self, first: usize, last: usize) -> Option<Vec<usize>> {
        let (groups, maker) = (&self.groups, &self.maker);
        let makers = |at: usize| {
            let loads = groups[at].iter().flat_map(|group| &group.loads);
            loads.filter_map(|load| maker[load.index()])
        };
        let order = &self.order;
        let open = makers(last).filter(|&maker| order.is_before(first, maker)).collect();
        self.order.reachable(open, MERGE_VISITS_MAX, |order, at, found| {
            found.extend(makers(at).filter(|&maker| maker == first || order.is_before(first, maker)));
            !found.contains(&first)
        })
    }
}

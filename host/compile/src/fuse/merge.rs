//! Merging kernels: element-wise work moves into the kernel that makes what it reads, and readers of one value join.

use std::collections::{BTreeMap, BTreeSet};

use saggar_tensor::{Interrupted, NodeId};

use super::group::{Context, Group, group, loads_variable, touched};
use crate::limits::{MERGE_PARTNERS_MAX, MERGE_VISITS_MAX};

struct Merger<'a> {
    context: &'a Context<'a>,
    groups: Vec<Option<Group>>,
    /// Which group computes a node.
    maker: BTreeMap<NodeId, usize>,
    /// Which groups read a node.
    readers: BTreeMap<NodeId, BTreeSet<usize>>,
}

/// Merges what can be merged, in the order of `groups`, which is topological.
///
/// # Errors
/// `Interrupted`.
pub(super) fn merge(context: &Context<'_>, groups: Vec<Group>) -> Result<Vec<Group>, Interrupted> {
    let mut merger = Merger { context, groups: Vec::new(), maker: BTreeMap::new(), readers: BTreeMap::new() };
    for (at, group) in groups.into_iter().enumerate() {
        merger.maker.extend(group.local.iter().map(|&node| (node, at)));
        for &load in &group.loads {
            merger.readers.entry(load).or_default().insert(at);
        }
        merger.groups.push(Some(group));
    }
    for at in 0..merger.groups.len() {
        while merger.consumer(at)? {}
    }
    for at in 0..merger.groups.len() {
        while merger.sibling(at)? {}
    }
    Ok(merger.groups.into_iter().flatten().collect())
}

impl Merger<'_> {
    /// Merges one reader of what group `at` stores into it.
    fn consumer(&mut self, at: usize) -> Result<bool, Interrupted> {
        let Some(group) = &self.groups[at] else { return Ok(false) };
        let readers: BTreeSet<usize> =
            group.roots.iter().filter_map(|root| self.readers.get(root)).flatten().copied().collect();
        self.first_pair(at, readers.into_iter().take(MERGE_PARTNERS_MAX))
    }

    /// Merges one map that reads what map `at` reads into it.
    fn sibling(&mut self, at: usize) -> Result<bool, Interrupted> {
        let Some(group) = &self.groups[at] else { return Ok(false) };
        if group.anchor.is_some() {
            return Ok(false);
        }
        let large = group.loads.iter().filter(|load| self.context.graph.descriptor(**load).shape.elements() > 1);
        let partners: BTreeSet<usize> = large.filter_map(|load| self.readers.get(load)).flatten().copied().collect();
        let maps = |other: &usize| self.groups[*other].as_ref().is_some_and(|group| group.anchor.is_none());
        let partners: Vec<usize> = partners.into_iter().filter(|&other| other > at).filter(maps).collect();
        self.first_pair(at, partners.into_iter().take(MERGE_PARTNERS_MAX))
    }

    /// Merges the first of `others` that can be merged into `at`; false if none can.
    fn first_pair(&mut self, at: usize, others: impl Iterator<Item = usize>) -> Result<bool, Interrupted> {
        for other in others {
            self.context.interrupt.check()?;
            if self.pair(at, other) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Merges `other` into `at` where that is possible.
    fn pair(&mut self, at: usize, other: usize) -> bool {
        let Some(merged) = self.merged(at, other) else { return false };
        for index in [at, other] {
            for load in self.groups[index].take().into_iter().flat_map(|group| group.loads) {
                self.readers.entry(load).or_default().remove(&index);
            }
        }
        self.maker.extend(merged.local.iter().map(|&node| (node, at)));
        for &load in &merged.loads {
            self.readers.entry(load).or_default().insert(at);
        }
        self.groups[at] = Some(merged);
        true
    }

    fn merged(&self, at: usize, other: usize) -> Option<Group> {
        let graph = self.context.graph;
        let (first, second) = (self.groups[at].as_ref()?, self.groups[other].as_ref()?);
        let suits = first.is_open(graph)
            && second.is_open(graph)
            && !(first.anchor.is_some() && second.anchor.is_some())
            && first.elements(graph) == second.elements(graph);
        if !suits || self.detour(at, other) || self.detour(other, at) {
            return None;
        }
        let local: BTreeSet<NodeId> = first.local.union(&second.local).copied().collect();
        let elsewhere =
            |node: &NodeId| self.readers.get(node).is_some_and(|all| all.iter().any(|&one| one != at && one != other));
        let roots = first.roots.union(&second.roots);
        let roots = roots.filter(|root| self.context.claimed.contains(root) || elsewhere(root)).copied().collect();
        let anchor = first.anchor.or(second.anchor);
        let merged = group(self.context, anchor, local, roots).ok()?;
        // Only maps may read a variable that they write.
        let updates = merged.anchor.is_some()
            && merged.roots.iter().any(|root| {
                let variable = self.context.assigned.get(root);
                variable.is_some_and(|&variable| loads_variable(graph, &merged, variable))
            });
        (!updates && touched(self.context, &merged) <= self.context.target.values_max(&merged.body)).then_some(merged)
    }

    /// Whether `to` depends on `from` through another kernel; also where finding out takes too long.
    fn detour(&self, from: usize, to: usize) -> bool {
        let makers = |at: usize| {
            let loads = self.groups[at].iter().flat_map(|group| &group.loads);
            loads.filter_map(|load| self.maker.get(load)).copied()
        };
        let mut open: Vec<usize> = makers(to).filter(|&maker| maker != from).collect();
        let mut seen: BTreeSet<usize> = open.iter().copied().collect();
        while let Some(at) = open.pop() {
            if at == from || seen.len() > MERGE_VISITS_MAX {
                return true;
            }
            open.extend(makers(at).filter(|maker| seen.insert(*maker)));
        }
        false
    }
}

//! The dependency graph of kernels.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use saggar_tensor::{Graph, InterruptCheck, InterruptedError, NodeId};

use crate::error::CompileError;
use crate::fuse::{KernelDraft, read_variable};
use crate::limits::{ORDER_VISITS_MAX, READY_COMPARED_MAX};
use crate::program::ValueLocation;
use crate::topological_order::TopologicalOrder;

pub(super) struct KernelDependencies {
    pub(super) drafts: Vec<KernelDraft>,
    pub(super) maker: BTreeMap<NodeId, usize>,
    readers: BTreeMap<NodeId, Vec<usize>>,
    after: Vec<BTreeSet<usize>>,
    order: TopologicalOrder,
    /// For each variable, the nodes that are its old value.
    variables: BTreeMap<u32, Vec<NodeId>>,
}

impl KernelDependencies {
    /// # Errors
    /// Returns `Internal` if the kernels' dependencies form a cycle.
    pub(super) fn new(graph: &Graph, drafts: Vec<KernelDraft>) -> Result<KernelDependencies, CompileError> {
        let mut variables: BTreeMap<u32, Vec<NodeId>> = BTreeMap::new();
        for node in (0..graph.nodes.len()).map(|at| NodeId(at as u32)) {
            if let Some(variable) = read_variable(graph, node) {
                variables.entry(variable).or_default().push(node);
            }
        }
        let mut flow = KernelDependencies {
            after: vec![BTreeSet::new(); drafts.len()],
            drafts: Vec::new(),
            maker: BTreeMap::new(),
            readers: BTreeMap::new(),
            order: TopologicalOrder::new([]),
            variables,
        };
        for (at, draft) in drafts.iter().enumerate() {
            flow.maker.extend(draft.roots.iter().map(|&root| (root, at)));
        }
        for draft in drafts {
            flow.add_read_edges(&draft.loads, flow.drafts.len());
            flow.drafts.push(draft);
        }
        let order = flow.topological_order();
        if order.len() < flow.drafts.len() {
            let place = format!("{} of {} kernels", flow.drafts.len() - order.len(), flow.drafts.len());
            return Err(CompileError::Internal { pass: "schedule", place, what: "kernels do not wait for each other" });
        }
        flow.order = TopologicalOrder::new(order);
        Ok(flow)
    }

    /// Adds a kernel that no other kernel reads yet.
    pub(super) fn push_kernel(&mut self, draft: KernelDraft) -> usize {
        let at = self.drafts.len();
        self.after.push(BTreeSet::new());
        self.order.push();
        self.maker.extend(draft.roots.iter().map(|&root| (root, at)));
        self.add_read_edges(&draft.loads, at);
        self.drafts.push(draft);
        at
    }

    fn add_read_edges(&mut self, loads: &BTreeSet<NodeId>, at: usize) {
        for &load in loads {
            self.readers.entry(load).or_default().push(at);
            if let Some(&maker) = self.maker.get(&load) {
                self.after[maker].insert(at);
            }
        }
    }

    /// Returns, for each kernel, the number of kernels that it waits for.
    fn dependency_counts(&self) -> Vec<usize> {
        let mut waits = vec![0; self.after.len()];
        self.after.iter().flatten().for_each(|&at| waits[at] += 1);
        waits
    }

    /// Returns the kernels in topological order, without those on a cycle.
    fn topological_order(&self) -> Vec<usize> {
        let mut waits = self.dependency_counts();
        let mut ready: BinaryHeap<Reverse<usize>> =
            (0..waits.len()).filter(|&at| waits[at] == 0).map(Reverse).collect();
        let mut order = Vec::with_capacity(waits.len());
        while let Some(Reverse(at)) = ready.pop() {
            order.push(at);
            for &next in &self.after[at] {
                waits[next] -= 1;
                if waits[next] == 0 {
                    ready.push(Reverse(next));
                }
            }
        }
        order
    }

    pub(super) fn readers_of_variable(&self, assigned: u32) -> BTreeSet<usize> {
        let nodes = self.variables.get(&assigned).into_iter().flatten();
        nodes.filter_map(|node| self.readers.get(node)).flatten().copied().collect()
    }

    /// Makes `last` run after all of `first`. Returns false and changes nothing if one of them depends on `last`, or if
    /// the search takes too long.
    pub(super) fn order_before(&mut self, first: &BTreeSet<usize>, last: usize) -> bool {
        let mut latest = None;
        for &at in first.iter().filter(|&&at| at != last) {
            latest = latest.filter(|&latest| self.order.is_before(at, latest)).or(Some(at));
        }
        let Some(latest) = latest else { return true };
        if self.order.is_before(last, latest) {
            let after = &self.after;
            let follows = |order: &TopologicalOrder, at: usize, found: &mut Vec<usize>| {
                found.extend(after[at].iter().filter(|&&next| next == latest || order.is_before(next, latest)));
                !found.iter().any(|next| first.contains(next))
            };
            let Some(moved) = self.order.reachable(vec![last], ORDER_VISITS_MAX, follows) else { return false };
            self.order.move_after(moved, latest);
        }
        for &at in first.iter().filter(|&&at| at != last) {
            self.after[at].insert(last);
        }
        true
    }

    /// Returns a topological order that frees memory early.
    ///
    /// # Errors
    /// Returns `InterruptedError` if interrupted.
    pub(super) fn memory_aware_order(
        self,
        graph: &Graph,
        homes: &BTreeMap<NodeId, ValueLocation>,
        interrupt: &InterruptCheck<'_>,
    ) -> Result<Vec<KernelDraft>, InterruptedError> {
        let mut waits = self.dependency_counts();
        let mut memory = ScratchPressure::new(&self, graph, homes);
        let mut ready: BTreeSet<usize> = (0..waits.len()).filter(|&at| waits[at] == 0).collect();
        let mut order = Vec::with_capacity(self.drafts.len());
        while let Some(&first) = ready.first() {
            interrupt.check()?;
            let best = ready.iter().take(READY_COMPARED_MAX).copied().min_by_key(|&at| (memory.growth[at], at));
            // The order follows the graph, except that a kernel can run earlier if it does not increase memory use.
            let chosen = best.filter(|&at| memory.growth[at] <= 0).unwrap_or(first);
            ready.remove(&chosen);
            order.push(chosen);
            memory.record_run(&self, chosen);
            for &next in &self.after[chosen] {
                waits[next] -= 1;
                if waits[next] == 0 {
                    ready.insert(next);
                }
            }
        }
        let mut drafts: Vec<Option<KernelDraft>> = self.drafts.into_iter().map(Some).collect();
        Ok(order.into_iter().filter_map(|at| drafts[at].take()).collect())
    }
}

/// The effect of each ready kernel on scratch memory.
struct ScratchPressure {
    /// For each node, its bytes of scratch memory.
    scratch: Vec<i64>,
    /// For each node, the number of kernels that have yet to read it.
    unread: Vec<usize>,
    /// For each kernel, the bytes that it allocates minus the bytes that it frees.
    growth: Vec<i64>,
    has_run: Vec<bool>,
}

impl ScratchPressure {
    fn new(flow: &KernelDependencies, graph: &Graph, homes: &BTreeMap<NodeId, ValueLocation>) -> ScratchPressure {
        let mut scratch = vec![0; graph.nodes.len()];
        for node in flow.maker.keys().filter(|node| !homes.contains_key(node)) {
            scratch[node.index()] = graph.descriptor(*node).bytes() as i64;
        }
        let mut unread = vec![0; graph.nodes.len()];
        flow.readers.iter().for_each(|(node, readers)| unread[node.index()] = readers.len());
        let growth = flow.drafts.iter().map(|draft| {
            let freed = draft.loads.iter().filter(|load| unread[load.index()] == 1);
            let scratch_bytes: i64 = draft.roots.iter().map(|root| scratch[root.index()]).sum();
            scratch_bytes - freed.map(|load| scratch[load.index()]).sum::<i64>()
        });
        ScratchPressure { growth: growth.collect(), has_run: vec![false; flow.drafts.len()], scratch, unread }
    }

    fn record_run(&mut self, flow: &KernelDependencies, chosen: usize) {
        self.has_run[chosen] = true;
        for load in &flow.drafts[chosen].loads {
            self.unread[load.index()] -= 1;
            if self.unread[load.index()] == 1 && self.scratch[load.index()] > 0 {
                let last = flow.readers[load].iter().find(|&&reader| !self.has_run[reader]);
                last.into_iter().for_each(|&reader| self.growth[reader] -= self.scratch[load.index()]);
            }
        }
    }
}

//! A dynamic topological order of kernels. It can be changed locally, so a search for a dependency between two kernels
//! only visits the kernels between them in the order.
//!
//! Source: Pearce and Kelly, "A dynamic topological sort algorithm for directed acyclic graphs", JEA 2006, with labels
//! that have gaps instead of positions.

use std::collections::BTreeMap;

/// Distance between two newly assigned labels. There are at most about 2^17 kernels.
const GAP: u128 = 1 << 100;

/// A topological order of kernels, which are numbered from 0.
pub(crate) struct TopologicalOrder {
    labels: Vec<u128>,
    kernels: BTreeMap<u128, usize>,
    /// For each kernel, the number of the search that visited it last.
    seen: Vec<u32>,
    search: u32,
    /// Kernels visited by all searches.
    visits: usize,
}

impl TopologicalOrder {
    /// Creates the order in which `kernels` are given, each of `0 .. kernels.len()` once.
    pub(crate) fn new(kernels: impl IntoIterator<Item = usize>) -> TopologicalOrder {
        let kernels: BTreeMap<u128, usize> =
            kernels.into_iter().zip(1u128..).map(|(kernel, position)| (position * GAP, kernel)).collect();
        let mut labels = vec![0; kernels.len()];
        kernels.iter().for_each(|(&label, &kernel)| labels[kernel] = label);
        TopologicalOrder { seen: vec![0; labels.len()], labels, kernels, search: 0, visits: 0 }
    }

    /// Adds a kernel after all others.
    pub(crate) fn push(&mut self) {
        let last = self.kernels.last_key_value().map_or(0, |(&label, _)| label);
        self.kernels.insert(last + GAP, self.labels.len());
        self.labels.push(last + GAP);
        self.seen.push(0);
    }

    /// Returns whether `first` comes before `last`.
    pub(crate) fn is_before(&self, first: usize, last: usize) -> bool {
        self.labels[first] < self.labels[last]
    }

    /// Returns the number of kernels visited by all searches so far.
    pub(crate) fn visits(&self) -> usize {
        self.visits
    }

    /// Returns the kernels reachable from `open` through `next`, and visits at most `max`. `next` returns false to stop
    /// the search.
    ///
    /// Returns `None` if `next` stopped the search, or if more than `max` kernels are reachable.
    pub(crate) fn reachable(
        &mut self,
        mut open: Vec<usize>,
        max: usize,
        mut next: impl FnMut(&TopologicalOrder, usize, &mut Vec<usize>) -> bool,
    ) -> Option<Vec<usize>> {
        self.search += 1;
        let mut reached = Vec::new();
        let mut found = Vec::new();
        open.retain(|&kernel| std::mem::replace(&mut self.seen[kernel], self.search) != self.search);
        while let Some(kernel) = open.pop() {
            reached.push(kernel);
            self.visits += 1;
            if reached.len() > max || !next(self, kernel, &mut found) {
                return None;
            }
            for kernel in found.drain(..) {
                if std::mem::replace(&mut self.seen[kernel], self.search) != self.search {
                    open.push(kernel);
                }
            }
        }
        Some(reached)
    }

    /// Moves `moved` directly before `kernel`, which is not in `moved`; their relative order does not change.
    pub(crate) fn move_before(&mut self, moved: Vec<usize>, kernel: usize) {
        self.relabel(moved, |order| {
            let high = order.labels[kernel];
            let low = order.kernels.range(..high).next_back().map_or(0, |(&label, _)| label);
            (low, high)
        });
    }

    /// Moves `moved` directly after `kernel`, which is not in `moved`; their relative order does not change.
    pub(crate) fn move_after(&mut self, moved: Vec<usize>, kernel: usize) {
        self.relabel(moved, |order| {
            let low = order.labels[kernel];
            let high = order.kernels.range(low + 1..).next().map_or(low + GAP, |(&label, _)| label);
            (low, high)
        });
    }

    /// Moves `survivor` to the earlier position of the two kernels, and removes `gone`.
    pub(crate) fn merge(&mut self, survivor: usize, gone: usize) {
        let label = self.labels[survivor].min(self.labels[gone]);
        for kernel in [survivor, gone] {
            self.kernels.remove(&self.labels[kernel]);
        }
        self.labels[survivor] = label;
        self.kernels.insert(label, survivor);
    }

    /// Removes `moved` from the order, then gives them labels inside the gap that `gap` finds.
    fn relabel(&mut self, mut moved: Vec<usize>, gap: impl Fn(&TopologicalOrder) -> (u128, u128)) {
        moved.sort_unstable_by_key(|&kernel| self.labels[kernel]);
        for kernel in &moved {
            self.kernels.remove(&self.labels[*kernel]);
        }
        let count = moved.len() as u128 + 1;
        let (mut low, mut high) = gap(self);
        if high - low < count {
            let kernels: Vec<usize> = self.kernels.values().copied().collect();
            self.kernels = kernels.into_iter().zip(1u128..).map(|(kernel, at)| (at * GAP, kernel)).collect();
            self.kernels.iter().for_each(|(&label, &kernel)| self.labels[kernel] = label);
            (low, high) = gap(self);
        }
        let step = (high - low) / count;
        for (kernel, at) in moved.into_iter().zip(1u128..) {
            self.labels[kernel] = low + at * step;
            self.kernels.insert(self.labels[kernel], kernel);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_order(order: &TopologicalOrder) -> Vec<usize> {
        order.kernels.values().copied().collect()
    }

    #[test]
    fn kernels_move_without_changing_their_own_order() {
        let mut order = TopologicalOrder::new([2, 0, 1, 3]);
        order.push();
        assert_eq!(in_order(&order), [2, 0, 1, 3, 4]);
        order.move_before(vec![3, 1], 2);
        assert_eq!(in_order(&order), [1, 3, 2, 0, 4]);
        order.move_after(vec![2, 1], 4);
        assert_eq!(in_order(&order), [3, 0, 4, 1, 2]);
        order.merge(4, 0);
        assert_eq!(in_order(&order), [3, 4, 1, 2]);
        assert!(order.is_before(4, 1) && !order.is_before(2, 1));
    }

    #[test]
    fn full_label_gaps_are_relabelled() {
        let mut order = TopologicalOrder::new(0..3);
        for turn in 0..1000 {
            order.move_before(vec![turn % 2], 1 - turn % 2);
            order.move_before(vec![2], turn % 2);
        }
        assert_eq!(in_order(&order), [2, 1, 0]);
    }

    #[test]
    fn a_search_stops_at_its_visit_limit_or_when_refused() {
        let mut order = TopologicalOrder::new(0..10);
        let next = |_: &TopologicalOrder, kernel: usize, found: &mut Vec<usize>| {
            found.extend((kernel < 9).then_some(kernel + 1));
            true
        };
        assert_eq!(order.reachable(vec![6, 6], 10, next), Some(vec![6, 7, 8, 9]));
        assert_eq!(order.reachable(vec![6], 3, next), None);
        assert_eq!(order.reachable(vec![6], 10, |_, kernel, _| kernel != 6), None);
    }
}

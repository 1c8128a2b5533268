//! The placed lifetimes of one slab, indexed by time.

use std::collections::{BTreeMap, HashMap};

/// A lifetime with its offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PlacedLifetime {
    pub(super) offset: usize,
    pub(super) bytes: usize,
    /// First kernel that needs it; `to` is the last.
    pub(super) from: usize,
    pub(super) to: usize,
}

/// A segment tree over kernels, and the first kernels of all placed lifetimes.
pub(super) struct SlabTimeline {
    /// Number of leaves of the tree: a power of two.
    leaves: usize,
    /// For each tree node, the lifetimes that cover its whole span but not its parent's whole span. The root is 1.
    spans: HashMap<usize, Vec<PlacedLifetime>>,
    starts: BTreeMap<usize, Vec<PlacedLifetime>>,
}

impl SlabTimeline {
    pub(super) fn new(kernels: usize) -> SlabTimeline {
        SlabTimeline { leaves: kernels.next_power_of_two(), spans: HashMap::new(), starts: BTreeMap::new() }
    }

    pub(super) fn insert_lifetime(&mut self, placed: PlacedLifetime) {
        self.starts.entry(placed.from).or_default().push(placed);
        let (mut low, mut high) = (self.leaves + placed.from, self.leaves + placed.to + 1);
        while low < high {
            if low % 2 == 1 {
                self.spans.entry(low).or_default().push(placed);
                low += 1;
            }
            if high % 2 == 1 {
                high -= 1;
                self.spans.entry(high).or_default().push(placed);
            }
            (low, high) = (low / 2, high / 2);
        }
    }

    /// Returns the lifetimes that overlap kernels `from` to `to`, each once, in no particular order.
    pub(super) fn overlapping(&self, from: usize, to: usize) -> Vec<PlacedLifetime> {
        let mut found = Vec::new();
        let mut node = self.leaves + from;
        while node > 0 {
            found.extend(self.spans.get(&node).into_iter().flatten());
            node /= 2;
        }
        found.extend(self.starts.range(from + 1..to + 1).flat_map(|(_, placed)| placed));
        found
    }
}

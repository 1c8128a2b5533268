//! Selects the batch sizes that a model computes with: the smallest from the start, larger ones once requests fill
//! them.
//!
//! A program for 32 items takes about 32 times the memory of one for a single item, and most models never get that many
//! items at once. So only the smallest size is built before a model serves. When a request would fill a larger size,
//! that size is built concurrently; until then requests are split into the sizes that exist.

use parking_lot::{Mutex, MutexGuard};

/// The batch sizes of a signature and the state of their programs.
#[derive(Debug)]
pub(super) struct BatchSizes {
    /// Ascending; empty for a model without batches.
    all: Vec<usize>,
    state: Mutex<BatchSizesState>,
}

#[derive(Debug)]
struct BatchSizesState {
    /// Ascending.
    ready: Vec<usize>,
    /// Sizes that could not be built. They are not tried again while the model is loaded.
    failed: Vec<usize>,
    is_building: bool,
}

impl BatchSizes {
    /// Creates the state for `all`, which are ascending. The smallest counts as ready.
    pub(super) fn new(all: &[usize]) -> BatchSizes {
        let ready = all.iter().take(1).copied().collect();
        BatchSizes {
            all: all.to_vec(),
            state: Mutex::new(BatchSizesState { ready, failed: Vec::new(), is_building: false }),
        }
    }

    fn state(&self) -> MutexGuard<'_, BatchSizesState> {
        // No statement that holds the lock can panic and leave the state inconsistent.
        self.state.lock()
    }

    /// Returns the sizes that have programs, ascending.
    pub(super) fn ready_sizes(&self) -> Vec<usize> {
        self.state().ready.clone()
    }

    /// Returns the size that `items` fill, if it should be built now: it is not ready, has not failed, and no other is
    /// being built. The caller builds it and reports the result with [`BatchSizes::finish_building`].
    pub(super) fn begin_building(&self, items: usize) -> Option<usize> {
        let size = size_to_fill(&self.all, items)?;
        let mut state = self.state();
        if state.is_building || state.ready.contains(&size) || state.failed.contains(&size) {
            return None;
        }
        state.is_building = true;
        Some(size)
    }

    /// Returns whether a size is being built.
    pub(super) fn is_building(&self) -> bool {
        self.state().is_building
    }

    /// Records the result of the building that [`BatchSizes::begin_building`] started.
    pub(super) fn finish_building(&self, size: usize, is_built: bool) {
        let mut state = self.state();
        state.is_building = false;
        let sizes = if is_built { &mut state.ready } else { &mut state.failed };
        sizes.push(size);
        sizes.sort_unstable();
    }

    /// Returns the largest size that has a program; 1 for a model without batches.
    pub(super) fn largest_ready(&self) -> usize {
        self.state().ready.last().copied().unwrap_or(1)
    }
}

/// Returns the size that `items` fill: the smallest one that holds them, if they are more than half of it; else the
/// largest one that they fill completely.
fn size_to_fill(sizes: &[usize], items: usize) -> Option<usize> {
    let holding = sizes.iter().copied().find(|&size| size >= items).filter(|size| 2 * items > *size);
    holding.or_else(|| sizes.iter().copied().rev().find(|&size| size <= items))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_filled_by_more_than_half_of_its_items() {
        let sizes = [1, 8, 32];
        let cases = [(1, 1), (2, 1), (4, 1), (5, 8), (8, 8), (9, 8), (16, 8), (17, 32), (32, 32), (500, 32)];
        for (items, size) in cases {
            assert_eq!(size_to_fill(&sizes, items), Some(size), "{items}");
        }
        assert_eq!(size_to_fill(&[8], 2), None);
        assert_eq!(size_to_fill(&[], 2), None);
    }

    #[test]
    fn each_larger_size_is_built_once_and_one_at_a_time() {
        let sizes = BatchSizes::new(&[1, 8, 32]);
        assert_eq!((sizes.ready_sizes(), sizes.largest_ready()), (vec![1], 1));
        assert_eq!(sizes.begin_building(1), None, "it is ready");
        assert_eq!(sizes.begin_building(32), Some(32));
        assert_eq!(sizes.begin_building(8), None, "another is being built");
        sizes.finish_building(32, true);
        assert_eq!(sizes.begin_building(6), Some(8));
        sizes.finish_building(8, false);
        assert_eq!(sizes.begin_building(6), None, "it failed");
        assert_eq!((sizes.ready_sizes(), sizes.largest_ready()), (vec![1, 32], 32));
        assert_eq!(BatchSizes::new(&[]).begin_building(3), None);
    }
}

//! Interval sweep: places scratch values in time order. Each takes the tightest free range at the start of its lifetime
//! and frees it at the end. This is fast for any number of values, and wastes some memory between values of different
//! sizes.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use saggar_tensor::{InterruptCheck, InterruptedError, NodeId};

use super::super::BufferLifetime;
use crate::program::{Slab, ValueLocation};
use crate::target::{CompileTarget, StorageClass};

/// Free ranges of the slabs of one class.
#[derive(Default)]
struct FreeRanges {
    /// Size, slab and offset of each free range.
    by_size: BTreeSet<(usize, usize, usize)>,
    /// Size of each free range, by slab and offset.
    by_place: BTreeMap<(usize, usize), usize>,
    /// The slab that can grow.
    last: Option<usize>,
}

/// An allocated range.
#[derive(Clone, Copy)]
struct SlabRange {
    slab: usize,
    offset: usize,
    bytes: usize,
}

/// An allocated range: its last kernel, the position of its class, and its slab, offset and bytes.
type OccupiedRange = (usize, usize, usize, usize, usize);

/// Places `lifetimes` in slabs, which are added to `slabs`.
///
/// # Errors
/// Returns `InterruptedError` if interrupted.
pub(super) fn place_in_time_order(
    lifetimes: &[&BufferLifetime],
    target: &CompileTarget,
    slabs: &mut Vec<Slab>,
    places: &mut BTreeMap<NodeId, ValueLocation>,
    interrupt: &InterruptCheck<'_>,
) -> Result<(), InterruptedError> {
    let mut order = lifetimes.to_vec();
    order.sort_by_key(|lifetime| (lifetime.from, Reverse(lifetime.bytes), lifetime.nodes[0]));
    let mut free: Vec<(StorageClass, FreeRanges)> = Vec::new();
    let mut occupied_ranges: BinaryHeap<Reverse<OccupiedRange>> = BinaryHeap::new();
    for lifetime in order {
        interrupt.check()?;
        while let Some(&Reverse((to, class, slab, offset, bytes))) = occupied_ranges.peek()
            && to < lifetime.from
        {
            occupied_ranges.pop();
            free[class].1.free_range(SlabRange { slab, offset, bytes });
        }
        let class = free.iter().position(|(class, _)| *class == lifetime.class).unwrap_or_else(|| {
            free.push((lifetime.class, FreeRanges::default()));
            free.len() - 1
        });
        let SlabRange { slab, offset, bytes } = free[class].1.allocate_range(lifetime, target, slabs);
        // A value larger than one binding gets a separate slab, which is never reused.
        if bytes <= target.binding_bytes_max {
            occupied_ranges.push(Reverse((lifetime.to, class, slab, offset, bytes)));
        }
        let place = ValueLocation::Slab { slab: slab as u32, offset_bytes: offset };
        places.extend(lifetime.nodes.iter().map(|&node| (node, place)));
    }
    Ok(())
}

impl FreeRanges {
    /// Allocates the tightest free range for the lifetime, or grows a slab if none fits.
    fn allocate_range(
        &mut self,
        lifetime: &BufferLifetime,
        target: &CompileTarget,
        slabs: &mut Vec<Slab>,
    ) -> SlabRange {
        let bytes = lifetime.bytes;
        if let Some(&(size, slab, offset)) = self.by_size.range((bytes, 0, 0)..).next() {
            self.remove(slab, offset, size);
            if size > bytes {
                self.insert(slab, offset + bytes, size - bytes);
            }
            return SlabRange { slab, offset, bytes };
        }
        if let Some(slab) = self.last {
            let end = slabs[slab].bytes;
            let free = self.by_place.range(..(slab, usize::MAX)).next_back();
            let free = free.map(|(&(at, offset), &size)| (at, offset, size));
            let free = free.filter(|&(at, offset, size)| at == slab && offset + size == end);
            let offset = free.map_or(end, |(_, offset, _)| offset);
            if offset + bytes <= target.binding_bytes_max {
                free.into_iter().for_each(|(slab, offset, size)| self.remove(slab, offset, size));
                slabs[slab].bytes = offset + bytes;
                return SlabRange { slab, offset, bytes };
            }
        }
        slabs.push(Slab { class: lifetime.class, bytes });
        let slab = slabs.len() - 1;
        if bytes <= target.binding_bytes_max {
            self.last = Some(slab);
        }
        SlabRange { slab, offset: 0, bytes }
    }

    /// Frees a range and joins it with adjacent free ranges.
    fn free_range(&mut self, range: SlabRange) {
        let SlabRange { slab, mut offset, mut bytes } = range;
        if let Some((&(at, before), &size)) = self.by_place.range(..(slab, offset)).next_back()
            && at == slab
            && before + size == offset
        {
            self.remove(slab, before, size);
            (offset, bytes) = (before, bytes + size);
        }
        if let Some(&size) = self.by_place.get(&(slab, offset + bytes)) {
            self.remove(slab, offset + bytes, size);
            bytes += size;
        }
        self.insert(slab, offset, bytes);
    }

    fn insert(&mut self, slab: usize, offset: usize, size: usize) {
        self.by_size.insert((size, slab, offset));
        self.by_place.insert((slab, offset), size);
    }

    fn remove(&mut self, slab: usize, offset: usize, size: usize) {
        self.by_size.remove(&(size, slab, offset));
        self.by_place.remove(&(slab, offset));
    }
}

//! Alias check of a kernel: which memory it accesses, and how the blocks of a dispatch are split into disjoint slices
//! for it.
//!
//! Values that share bytes form one region. A written region must not overlap any other. A kernel that violates this is
//! refused when it is loaded.

use std::collections::BTreeMap;

use saggar_compile::program::{Program, ValueId, ValueLocation};

/// A byte range of one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MemoryRegion {
    /// Index of the block. The order is inputs, variables, constants, outputs, slabs.
    block: usize,
    first_byte: usize,
    bytes: usize,
    written: bool,
}

/// The sorted regions of a kernel, and the region of each of its values.
#[derive(Debug, Default)]
pub(super) struct KernelRegions {
    list: Vec<MemoryRegion>,
    index_of: BTreeMap<ValueId, usize>,
}

/// A written value partly overlaps another one.
#[derive(Debug)]
pub(super) struct OverlapError;

/// Returns the block index and byte offset of a location. The order is inputs, variables, constants, outputs, slabs.
pub(super) fn block_index(program: &Program, place: ValueLocation) -> (usize, usize) {
    let variables = program.inputs.len();
    let constants = variables + program.variables.len();
    let outputs = constants + program.constants.len();
    let slabs = outputs + program.outputs.len();
    match place {
        ValueLocation::Input(index) => (index as usize, 0),
        ValueLocation::Variable(index) => (variables + index as usize, 0),
        ValueLocation::Constant(index) => (constants + index as usize, 0),
        ValueLocation::Output(index) => (outputs + index as usize, 0),
        ValueLocation::Slab { slab, offset_bytes } => (slabs + slab as usize, offset_bytes),
    }
}

impl KernelRegions {
    /// Returns the regions of a kernel that reads `reads` and writes `writes`.
    ///
    /// # Errors
    /// Returns `OverlapError` if a written region partly overlaps another one.
    pub(super) fn new(program: &Program, reads: &[ValueId], writes: &[ValueId]) -> Result<KernelRegions, OverlapError> {
        let at = |value: ValueId, written: bool| {
            let place = &program.values[value.index()];
            let (block, first_byte) = block_index(program, place.place);
            (MemoryRegion { block, first_byte, bytes: place.descriptor.bytes(), written }, value)
        };
        let mut all: Vec<(MemoryRegion, ValueId)> = writes.iter().map(|&value| at(value, true)).collect();
        all.extend(reads.iter().map(|&value| at(value, false)));
        all.sort_by_key(|(region, _)| (region.block, region.first_byte, region.bytes, !region.written));
        let mut regions = KernelRegions::default();
        for (region, value) in all {
            match regions.list.last() {
                Some(last) if last.is_same_memory(&region) => {}
                Some(last) if last.overlaps(&region) && (last.written || region.written) => return Err(OverlapError),
                Some(_) | None => regions.list.push(region),
            }
            regions.index_of.insert(value, regions.list.len() - 1);
        }
        Ok(regions)
    }

    /// Returns the region index of `value`, which must be one of the kernel's values.
    pub(super) fn index_of(&self, value: ValueId) -> usize {
        self.index_of[&value]
    }

    /// Returns whether the kernel writes a region.
    pub(super) fn is_written(&self, region: usize) -> bool {
        self.list[region].written
    }

    /// Splits `blocks` into slices for all regions, in order.
    pub(super) fn split_blocks<'a>(&self, blocks: &'a mut [DispatchBlock<'_>]) -> Vec<RegionSlice<'a>> {
        let mut pieces = Vec::with_capacity(self.list.len());
        let mut blocks = blocks.iter_mut();
        let mut next = 0;
        let mut regions = self.list.iter().peekable();
        while let Some(first) = regions.peek() {
            let at = first.block;
            let block = blocks.nth(at - next).expect("regions lie in the program's blocks");
            next = at + 1;
            match block {
                DispatchBlock::Read(bytes) => {
                    while let Some(region) = regions.next_if(|region| region.block == at) {
                        pieces.push(RegionSlice::Read(&bytes[region.first_byte..][..region.bytes]));
                    }
                }
                DispatchBlock::Write(bytes) => split_block(bytes, at, &mut regions, &mut pieces),
            }
        }
        pieces
    }
}

fn split_block<'a>(
    mut rest: &'a mut [u8],
    at: usize,
    regions: &mut std::iter::Peekable<std::slice::Iter<'_, MemoryRegion>>,
    pieces: &mut Vec<RegionSlice<'a>>,
) {
    let mut byte = 0;
    while let Some(region) = regions.next_if(|region| region.block == at) {
        // Regions that are only read can overlap. They then share the memory up to the end of the last one.
        let mut end = region.first_byte + region.bytes;
        let mut readers = vec![region];
        while let Some(next) = regions.next_if(|next| next.block == at && next.first_byte < end && !next.written) {
            end = end.max(next.first_byte + next.bytes);
            readers.push(next);
        }
        let (_, tail) = rest.split_at_mut(region.first_byte - byte);
        let (mine, tail) = tail.split_at_mut(end - region.first_byte);
        rest = tail;
        byte = end;
        if region.written {
            pieces.push(RegionSlice::Write(mine));
        } else {
            let mine = &*mine;
            let slice = |r: &&MemoryRegion| RegionSlice::Read(&mine[r.first_byte - region.first_byte..][..r.bytes]);
            pieces.extend(readers.iter().map(slice));
        }
    }
}

impl MemoryRegion {
    fn is_same_memory(&self, other: &MemoryRegion) -> bool {
        (self.block, self.first_byte, self.bytes) == (other.block, other.first_byte, other.bytes)
    }

    fn overlaps(&self, later: &MemoryRegion) -> bool {
        self.block == later.block && later.first_byte < self.first_byte + self.bytes && later.bytes > 0
    }
}

/// The memory of one input, variable, constant, output or slab during one dispatch.
#[derive(Debug)]
pub(super) enum DispatchBlock<'a> {
    /// Shared with other dispatches.
    Read(&'a [u8]),
    /// Owned by this dispatch.
    Write(&'a mut [u8]),
}

/// The memory of one region for one kernel.
#[derive(Debug)]
pub(super) enum RegionSlice<'a> {
    /// Only read.
    Read(&'a [u8]),
    /// Written, and possibly read before.
    Write(&'a mut [u8]),
}

impl<'a> RegionSlice<'a> {
    /// Returns the bytes of a region that is only read.
    pub(super) fn read(&self) -> &'a [u8] {
        match self {
            RegionSlice::Read(bytes) => bytes,
            RegionSlice::Write(_) => unreachable!("the caller reads only regions that are not written"),
        }
    }

    /// Replaces the bytes of a region that is written.
    pub(super) fn write(&mut self, from: &[u8]) {
        match self {
            RegionSlice::Write(bytes) => bytes.copy_from_slice(from),
            RegionSlice::Read(_) => unreachable!("only written regions are written"),
        }
    }

    /// Takes the bytes of a region that is written, and leaves an empty slice.
    pub(super) fn take(&mut self) -> &'a mut [u8] {
        match std::mem::replace(self, RegionSlice::Read(&[])) {
            RegionSlice::Write(bytes) => bytes,
            RegionSlice::Read(_) => unreachable!("a region is taken once"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn regions(list: &[(usize, usize, usize, bool)]) -> KernelRegions {
        let region = |&(block, first_byte, bytes, written)| MemoryRegion { block, first_byte, bytes, written };
        KernelRegions { list: list.iter().map(region).collect(), index_of: BTreeMap::new() }
    }

    #[test]
    fn blocks_are_split_into_disjoint_slices() {
        let mut slab: Vec<u8> = (0..100).collect();
        let input = [7u8; 8];
        let list = [(0, 0, 8, false), (2, 0, 16, true), (2, 32, 8, false), (2, 36, 12, false), (2, 64, 4, true)];
        let mut unused = [0u8; 3];
        let mut blocks =
            [DispatchBlock::Read(&input), DispatchBlock::Write(&mut unused), DispatchBlock::Write(&mut slab)];
        let mut pieces = regions(&list).split_blocks(&mut blocks);
        assert_eq!(pieces[0].read(), [7; 8]);
        assert_eq!(pieces[2].read(), (32..40).collect::<Vec<u8>>());
        assert_eq!(pieces[3].read(), (36..48).collect::<Vec<u8>>());
        assert_eq!(pieces[4].take(), [64, 65, 66, 67]);
        pieces[1].take().fill(1);
        drop(pieces);
        assert_eq!(slab[14..18], [1, 1, 16, 17]);
    }
}

//! Zero-initialised memory for numbers, aligned to cache lines. Large buffers use the system's huge pages. Unaligned
//! vectors would cross cache lines and need two reads, and each 4 KiB page costs a page fault at first use and a page
//! table walk when it was not used recently.

use std::fmt;
use std::ops::{Deref, DerefMut};

use memmap2::MmapMut;

/// Bytes of a cache line, which is also the widest vector.
const LINE_BYTES: usize = 64;
/// Bytes of a huge page on x86-64 and ARM. Buffers of at least this size are mapped directly from the system.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// A buffer of 64-bit words.
#[derive(Default)]
pub(super) struct AlignedBuffer {
    memory: AlignedMemory,
    /// Words before the first cache line.
    first: usize,
    len: usize,
}

enum AlignedMemory {
    Own(Vec<u64>),
    Mapped(MmapMut),
}

impl Default for AlignedMemory {
    fn default() -> AlignedMemory {
        AlignedMemory::Own(Vec::new())
    }
}

impl fmt::Debug for AlignedBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AlignedBuffer").field("len", &self.len).finish_non_exhaustive()
    }
}

impl AlignedBuffer {
    /// Returns `bytes` zero bytes. Pages of a large buffer are allocated only when they are touched.
    pub(super) fn zeroed(bytes: usize) -> AlignedBuffer {
        let len = bytes.div_ceil(8);
        if bytes >= HUGE_PAGE_BYTES
            && let Ok(map) = MmapMut::map_anon(len * 8)
        {
            // If the system has no huge pages, this fails and small pages do.
            #[cfg(target_os = "linux")]
            let _ = map.advise(memmap2::Advice::HugePage);
            return AlignedBuffer { memory: AlignedMemory::Mapped(map), first: 0, len };
        }
        let own = vec![0_u64; len + LINE_BYTES / 8 - 1];
        let first = own.as_ptr().align_offset(LINE_BYTES).min(LINE_BYTES / 8 - 1);
        AlignedBuffer { memory: AlignedMemory::Own(own), first, len }
    }

    /// Returns a copy of `bytes`.
    pub(super) fn from_bytes(bytes: &[u8]) -> AlignedBuffer {
        let mut words = AlignedBuffer::zeroed(bytes.len());
        bytemuck::cast_slice_mut::<u64, u8>(&mut words)[..bytes.len()].copy_from_slice(bytes);
        words
    }

    /// Grows the buffer to at least `len` words. Its content is arbitrary afterwards.
    pub(super) fn grow(&mut self, len: usize) {
        if self.len < len {
            // Free the old memory first, so that both are never held at once.
            *self = AlignedBuffer::default();
            *self = AlignedBuffer::zeroed(len * 8);
        }
    }
}

impl Deref for AlignedBuffer {
    type Target = [u64];

    fn deref(&self) -> &[u64] {
        match &self.memory {
            AlignedMemory::Own(own) => &own[self.first..][..self.len],
            AlignedMemory::Mapped(map) => bytemuck::cast_slice(map),
        }
    }
}

impl DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u64] {
        match &mut self.memory {
            AlignedMemory::Own(own) => &mut own[self.first..][..self.len],
            AlignedMemory::Mapped(map) => bytemuck::cast_slice_mut(map),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aligned_buffers_are_zeroed_and_start_on_a_cache_line() {
        for bytes in
            [0, 1, 8, 9, 4096, HUGE_PAGE_BYTES - 1, HUGE_PAGE_BYTES, HUGE_PAGE_BYTES + 12, 2 * HUGE_PAGE_BYTES - 12]
        {
            let mut words = AlignedBuffer::zeroed(bytes);
            assert_eq!(words.len(), bytes.div_ceil(8), "{bytes} bytes");
            assert_eq!(words.as_ptr().addr() % LINE_BYTES, 0, "{bytes} bytes");
            assert!(words.iter().all(|&word| word == 0), "{bytes} bytes");
            words.fill(u64::MAX);
            assert!(words.iter().all(|&word| word == u64::MAX), "{bytes} bytes");
        }
    }

    #[test]
    fn growing_a_large_enough_buffer_keeps_its_contents() {
        let mut words = AlignedBuffer::from_bytes(&[1, 2, 3, 4, 5, 6, 7, 8, 9]);
        words.grow(2);
        assert_eq!(bytemuck::cast_slice::<u64, u8>(&words)[..10], [1, 2, 3, 4, 5, 6, 7, 8, 9, 0]);
        words.grow(HUGE_PAGE_BYTES / 8);
        assert_eq!(words.len(), HUGE_PAGE_BYTES / 8);
    }
}

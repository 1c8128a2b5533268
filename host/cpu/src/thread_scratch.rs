//! Per-thread scratch memory: registers and buffers of one task. A pool thread keeps its scratch memory between tasks.
//! A calling thread holds it while its program runs and then releases it for other callers: a server computes on as
//! many threads as it has requests, but on few of them at a time.

use std::cell::Cell;

use bytemuck::Pod;
use parking_lot::Mutex;

use super::aligned_buffer::AlignedBuffer;
use super::elementwise_loops::elements_mut;

/// Buffers of a product on one thread: for panels, and for rows of the first operand that are not contiguous.
pub(super) type GemmScratch = [AlignedBuffer; 2];

/// The scratch memory of one task.
#[derive(Debug, Default)]
pub(super) struct ThreadScratch {
    pub(super) slots: Vec<AlignedBuffer>,
    /// An extra block, for callers that need one.
    pub(super) spare: AlignedBuffer,
    /// Extra buffers, for callers that need them: image patches, accumulators.
    pub(super) buffers: [AlignedBuffer; 2],
    /// The buffer of [`with_buffer`].
    lent_buffer: AlignedBuffer,
    /// Buffers for products on this thread.
    pub(super) product: GemmScratch,
}

thread_local! {
    static SCRATCH: Cell<Option<Box<ThreadScratch>>> = const { Cell::new(None) };
}

/// Scratch memory that callers released, newest last. The newest is the likeliest to be still in a cache.
#[allow(clippy::vec_box, reason = "threads hold boxes, which are moved here unchanged")]
static IDLE_SCRATCH: Mutex<Vec<Box<ThreadScratch>>> = Mutex::new(Vec::new());

/// Calls `f` with this thread's scratch memory.
pub(super) fn with_scratch<R>(f: impl FnOnce(&mut ThreadScratch) -> R) -> R {
    SCRATCH.with(|cell| {
        let mut scratch = cell.take().unwrap_or_else(take_idle_scratch);
        let result = f(&mut scratch);
        cell.set(Some(scratch));
        result
    })
}

/// Calls `f` with a buffer of this thread. `f` can use the rest of the scratch memory as well.
pub(super) fn with_buffer<R>(f: impl FnOnce(&mut AlignedBuffer) -> R) -> R {
    let mut words = with_scratch(|scratch| std::mem::take(&mut scratch.lent_buffer));
    let result = f(&mut words);
    with_scratch(|scratch| scratch.lent_buffer = words);
    result
}

/// Returns the first `count` elements of a buffer, which grows as needed. Their values are arbitrary.
pub(super) fn buffer<T: Pod>(words: &mut AlignedBuffer, count: usize) -> &mut [T] {
    words.grow((count * size_of::<T>()).div_ceil(8));
    &mut elements_mut::<T>(bytemuck::cast_slice_mut(words))[..count]
}

/// Releases this thread's scratch memory for other callers. Frees it if `keep` are idle already.
pub(super) fn release_scratch(keep: usize) {
    if let Some(scratch) = SCRATCH.take() {
        let mut idle = IDLE_SCRATCH.lock();
        if idle.len() < keep {
            idle.push(scratch);
        }
    }
}

fn take_idle_scratch() -> Box<ThreadScratch> {
    IDLE_SCRATCH.lock().pop().unwrap_or_default()
}

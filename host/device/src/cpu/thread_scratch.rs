//! Registers and buffers of one task. A helper keeps its own from task to task. A caller has them while its program runs and
//! leaves them to the next: a server computes on as many threads as it has requests, and few of them at a time.

use std::cell::Cell;
use std::sync::{Mutex, PoisonError};

use bytemuck::Pod;

use super::aligned_buffer::AlignedBuffer;
use super::elementwise_loops::elements_mut;
use super::gemm::GemmScratch;

/// Registers of one task.
#[derive(Debug, Default)]
pub(super) struct ThreadScratch {
    pub(super) slots: Vec<AlignedBuffer>,
    /// For callers that need a block of their own.
    pub(super) spare: AlignedBuffer,
    /// For callers that need a buffer of their own: patches of images, accumulators.
    pub(super) buffers: [AlignedBuffer; 2],
    /// For [`with_buffer`].
    lent_buffer: AlignedBuffer,
    /// For products on this thread.
    pub(super) product: GemmScratch,
}

thread_local! {
    static SCRATCH: Cell<Option<Box<ThreadScratch>>> = const { Cell::new(None) };
}

/// What callers left, the newest last: it is the likeliest to be in a cache still.
#[allow(clippy::vec_box, reason = "a thread holds its own in a box, which comes here as it is")]
static IDLE_SCRATCH: Mutex<Vec<Box<ThreadScratch>>> = Mutex::new(Vec::new());

/// Lends `f` this thread's scratch memory.
pub(super) fn with_scratch<R>(f: impl FnOnce(&mut ThreadScratch) -> R) -> R {
    SCRATCH.with(|cell| {
        let mut scratch = cell.take().unwrap_or_else(take_idle_scratch);
        let result = f(&mut scratch);
        cell.set(Some(scratch));
        result
    })
}

/// Lends `f` a buffer of this thread, which may use the rest of the scratch memory as well.
pub(super) fn with_buffer<R>(f: impl FnOnce(&mut AlignedBuffer) -> R) -> R {
    let mut words = with_scratch(|scratch| std::mem::take(&mut scratch.lent_buffer));
    let result = f(&mut words);
    with_scratch(|scratch| scratch.lent_buffer = words);
    result
}

/// The first `count` elements of a buffer that grows as needed; their values are arbitrary.
pub(super) fn buffer<T: Pod>(words: &mut AlignedBuffer, count: usize) -> &mut [T] {
    words.grow((count * size_of::<T>()).div_ceil(8));
    &mut elements_mut::<T>(bytemuck::cast_slice_mut(words))[..count]
}

/// Leaves this thread's scratch memory to others, of whom `keep` at most will want it at once; what is beyond goes.
pub(super) fn release_scratch(keep: usize) {
    if let Some(scratch) = SCRATCH.take() {
        let mut idle = IDLE_SCRATCH.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < keep {
            idle.push(scratch);
        }
    }
}

fn take_idle_scratch() -> Box<ThreadScratch> {
    IDLE_SCRATCH.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
}

//! Registers and buffers of one task. A helper keeps its own from task to task. A caller has them while its program runs and
//! leaves them to the next: a server computes on as many threads as it has requests, and few of them at a time.

use std::cell::Cell;
use std::sync::{Mutex, PoisonError};

use bytemuck::Pod;

use super::gemm::Buffers;
use super::lanes::elements_mut;
use super::words::Words;

/// Registers of one task.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    pub(super) slots: Vec<Words>,
    /// For callers that need a block of their own.
    pub(super) spare: Words,
    /// For callers that need a buffer of their own: patches of images, accumulators.
    pub(super) buffers: [Words; 2],
    /// For [`with_buffer`].
    own: Words,
    /// For products on this thread.
    pub(super) product: Buffers,
}

thread_local! {
    static SCRATCH: Cell<Option<Box<Scratch>>> = const { Cell::new(None) };
}

/// What callers left, the newest last: it is the likeliest to be in a cache still.
#[allow(clippy::vec_box, reason = "a thread holds its own in a box, which comes here as it is")]
static IDLE: Mutex<Vec<Box<Scratch>>> = Mutex::new(Vec::new());

/// Lends `f` this thread's scratch memory.
pub(super) fn with_scratch<R>(f: impl FnOnce(&mut Scratch) -> R) -> R {
    SCRATCH.with(|cell| {
        let mut scratch = cell.take().unwrap_or_else(take);
        let result = f(&mut scratch);
        cell.set(Some(scratch));
        result
    })
}

/// Lends `f` a buffer of this thread, which may use the rest of the scratch memory as well.
pub(super) fn with_buffer<R>(f: impl FnOnce(&mut Words) -> R) -> R {
    let mut words = with_scratch(|scratch| std::mem::take(&mut scratch.own));
    let result = f(&mut words);
    with_scratch(|scratch| scratch.own = words);
    result
}

/// The first `count` elements of a buffer that grows as needed; their values are arbitrary.
pub(super) fn buffer<T: Pod>(words: &mut Words, count: usize) -> &mut [T] {
    words.reserve((count * size_of::<T>()).div_ceil(8));
    &mut elements_mut::<T>(bytemuck::cast_slice_mut(words))[..count]
}

/// Leaves this thread's scratch memory to others, of whom `keep` at most will want it at once; what is beyond goes.
pub(super) fn leave(keep: usize) {
    if let Some(scratch) = SCRATCH.take() {
        let mut idle = IDLE.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < keep {
            idle.push(scratch);
        }
    }
}

fn take() -> Box<Scratch> {
    IDLE.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
}

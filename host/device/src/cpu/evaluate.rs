//! Runs a routine block by block: every step is one tight loop over a block that stays in the first-level cache.

use bytemuck::Pod;
use saggar_compile::expr::View;
use saggar_tensor::DType;
use saggar_tensor::op::{Distribution, Scalar};

use super::element::{Element, RoundHalf, with_element};
use super::lanes::{self, Source, elements, elements_mut};
use super::operate;
use super::random::{self, Bits};
use super::registers::Scratch;
use super::routine::{DIMS_MAX, Place, Routine, Step, Task};
use super::simd::{self, Work};
use super::vector;
use super::words::Words;
use crate::half;

/// Elements a step works on at a time: 4 KiB of `f32`, so that a dozen registers stay in the first-level cache.
pub(super) const BLOCK: usize = 1024;

/// Operands of fewer bytes stay in the caches near the processor.
const FAR_BYTES: usize = 1 << 18;

/// The memory of one operand.
#[derive(Clone, Copy, Debug)]
pub(super) enum Input<'a> {
    /// All of a value.
    Memory(&'a [u8]),
    /// The part of store `.0` that this task writes.
    Own(usize),
    /// The part of what is folded or contracted that this task finishes.
    Accumulated,
}

/// What a task's steps read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame<'a> {
    /// For each operand of the routine.
    pub(super) inputs: &'a [Input<'a>],
    /// What this task writes.
    pub(super) own: &'a [&'a mut [u8]],
    /// Folded or contracted elements, from `first` on.
    pub(super) accumulated: &'a [u8],
    /// Iteration index of the first element of `own` and `accumulated`.
    pub(super) first: usize,
}

impl<'a> Frame<'a> {
    /// An operand's memory and the iteration index at which it starts.
    fn bytes(&self, operand: usize) -> (&'a [u8], usize) {
        match self.inputs[operand] {
            Input::Memory(bytes) => (bytes, 0),
            Input::Own(store) => (&*self.own[store], self.first),
            Input::Accumulated => (self.accumulated, self.first),
        }
    }
}

impl Routine {
    /// Computes what is the same for all elements. Before any block of a task.
    pub(super) fn begin(&self, scratch: &mut Scratch, frame: Frame<'_>) {
        if scratch.slots.len() < self.slots {
            scratch.slots.resize_with(self.slots, || Words::zeroed(8 * BLOCK));
        }
        for step in &self.uniform {
            self.step(step, scratch, frame, 0, 1);
        }
    }

    /// Computes iteration indices `start..start + len`, at most [`BLOCK`] of them and of one row where the routine keeps to
    /// rows, and asks for the memory of those from `next` on.
    pub(super) fn block(&self, scratch: &mut Scratch, frame: Frame<'_>, start: usize, len: usize, next: Option<usize>) {
        debug_assert!(self.row.is_none_or(|row| start % row + len <= row), "a block keeps to its row");
        for step in &self.along {
            self.step(step, scratch, frame, start, 1);
        }
        for (number, step) in self.body.iter().enumerate() {
            if let Some(next) = next {
                self.fetch_ahead(number, frame, next, len);
            }
            self.step(step, scratch, frame, start, len);
        }
    }

    /// Asks for a step's share of the memory that the next block reads: the processor's own prefetching begins anew with
    /// every block, and what a block waits for its first lines takes as long as a step.
    fn fetch_ahead(&self, number: usize, frame: Frame<'_>, start: usize, len: usize) {
        for &[operand, offset, size] in &self.streams {
            let (memory, first) = frame.bytes(operand);
            if memory.len() >= FAR_BYTES {
                let next = memory.get((offset + start - first) * size..).unwrap_or(&[]);
                let next = &next[..next.len().min(len * size)];
                let share = (len * size).div_ceil(self.body.len());
                if let Some(share) = next.chunks(share).nth(number) {
                    vector::prefetch(share);
                }
            }
        }
    }

    /// The register of asked result `index` after [`Routine::block`].
    pub(super) fn result<'s, T: Pod>(
        &self,
        index: usize,
        scratch: &'s Scratch,
        frame: Frame<'s>,
        start: usize,
        len: usize,
    ) -> Source<'s, T> {
        source(&scratch.slots, frame, self.results[index], start, len)
    }

    fn step(&self, step: &Step, scratch: &mut Scratch, frame: Frame<'_>, start: usize, len: usize) {
        let mut out = std::mem::take(&mut scratch.slots[step.slot]);
        let bytes = bytemuck::cast_slice_mut::<u64, u8>(&mut out);
        let slots = &scratch.slots;
        match &step.task {
            Task::Load { operand, view, fill } => {
                let (memory, _) = frame.bytes(*operand);
                load(step.dtype, memory, &self.dims, view, *fill, start, bytes, len);
            }
            Task::Copy { operand, offset } => {
                let (memory, first) = frame.bytes(*operand);
                copy_dense(step.dtype, memory, offset + start - first, bytes, len);
            }
            Task::Accumulated { operand } => {
                let (memory, first) = frame.bytes(*operand);
                // What is accumulated is held in the register's type, also where that is wider than memory's.
                with_element!(step.dtype, T => {
                    let values = &elements::<T>(memory)[start - first..][..len];
                    lanes::copy(Source::Slice(values), &mut elements_mut::<T>(bytes)[..len]);
                });
                round(step.dtype, bytes, len);
            }
            Task::Immediate(scalar) => {
                with_element!(step.dtype, T => elements_mut::<T>(bytes)[..len].fill(T::from_scalar(*scalar)));
                round(step.dtype, bytes, len);
            }
            Task::Index(view) => {
                with_element!(step.dtype, T => index(&self.dims, view, start, &mut elements_mut::<T>(bytes)[..len]));
                round(step.dtype, bytes, len);
            }
            Task::Random { operand, stream, distribution, view } => {
                let (memory, _) = frame.bytes(*operand);
                let key = elements::<u32>(memory);
                let bits = Bits::new([key[0], key[1], key[2], key[3]], *stream);
                draw(bits, *distribution, &self.dims, view, start, &mut elements_mut::<u32>(bytes)[..len]);
            }
            Task::Unary { op, x, from } => {
                with_element!(*from, T => operate::unary(*op, source::<T>(slots, frame, *x, start, len), bytes, len));
                round(step.dtype, bytes, len);
            }
            Task::Binary { op, a, b, from } => {
                with_element!(*from, T => {
                    let a = source::<T>(slots, frame, *a, start, len);
                    let b = source::<T>(slots, frame, *b, start, len);
                    operate::binary(*op, a, b, bytes, len);
                });
                round(step.dtype, bytes, len);
            }
            Task::Select(condition, a, b) => {
                let condition = source::<u8>(slots, frame, *condition, start, len);
                with_element!(step.dtype, T => {
                    let a = source::<T>(slots, frame, *a, start, len);
                    let b = source::<T>(slots, frame, *b, start, len);
                    lanes::choose(condition, a, b, &mut elements_mut::<T>(bytes)[..len]);
                });
            }
        }
        scratch.slots[step.slot] = out;
    }
}

fn source<'s, T: Pod>(slots: &'s [Words], frame: Frame<'s>, place: Place, start: usize, len: usize) -> Source<'s, T> {
    match place {
        Place::Slot(slot) => Source::Slice(&elements(bytemuck::cast_slice(&slots[slot]))[..len]),
        Place::Uniform(slot) => Source::Scalar(elements(bytemuck::cast_slice(&slots[slot]))[0]),
        Place::Dense { operand, offset } => {
            let (memory, first) = frame.bytes(operand);
            Source::Slice(&elements(memory)[offset + start - first..][..len])
        }
    }
}

/// Rounds a register of half-precision numbers, which are held as `f32`.
fn round(dtype: DType, bytes: &mut [u8], len: usize) {
    if dtype.is_float() && dtype.bytes() == 2 {
        for value in &mut elements_mut::<f32>(bytes)[..len] {
            *value = <RoundHalf as super::element::Function<f32, f32>>::apply(*value);
        }
    }
}

fn copy_dense(dtype: DType, memory: &[u8], at: usize, bytes: &mut [u8], len: usize) {
    let size = dtype.bytes();
    let memory = &memory[at * size..][..len * size];
    if dtype.is_float() && size == 2 {
        for (out, &half) in elements_mut::<f32>(bytes).iter_mut().zip(elements::<u16>(memory)) {
            *out = half::to_f32(half);
        }
    } else {
        bytes[..memory.len()].copy_from_slice(memory);
    }
}

/// A maximal run of iteration points along the innermost dimension.
struct Run<'a> {
    coordinates: &'a [usize],
    /// Position of its first element in the block.
    at: usize,
    len: usize,
}

/// Cuts `start..start + len` of a row-major space into runs.
#[inline(always)]
fn walk(dims: &[usize], start: usize, len: usize, mut visit: impl FnMut(Run<'_>)) {
    let mut coordinates = [0; DIMS_MAX];
    let coordinates = &mut coordinates[..dims.len()];
    let mut rest = start;
    for (coordinate, &size) in coordinates.iter_mut().zip(dims).rev() {
        *coordinate = rest % size;
        rest /= size;
    }
    let last = dims.len() - 1;
    let mut at = 0;
    while at < len {
        let run = (dims[last] - coordinates[last]).min(len - at);
        visit(Run { coordinates, at, len: run });
        at += run;
        coordinates[last] = 0;
        for dim in (0..last).rev() {
            coordinates[dim] += 1;
            if coordinates[dim] < dims[dim] {
                break;
            }
            coordinates[dim] = 0;
        }
    }
}

fn element_index(view: &View, coordinates: &[usize]) -> i64 {
    view.offset + view.strides.iter().zip(coordinates).map(|(&stride, &c)| stride * c as i64).sum::<i64>()
}

#[expect(
    clippy::too_many_arguments,
    reason = "the innermost call of the evaluator: a struct would only name them twice"
)]
fn load(
    dtype: DType,
    memory: &[u8],
    dims: &[usize],
    view: &View,
    fill: Option<Scalar>,
    start: usize,
    bytes: &mut [u8],
    len: usize,
) {
    if dtype.is_float() && dtype.bytes() == 2 {
        let mut halves = [0u16; BLOCK];
        let fill = fill.map_or(0, |fill| half::from_f32(f32::from_scalar(fill)));
        gather(elements::<u16>(memory), dims, view, fill, start, &mut halves[..len]);
        for (out, &half) in elements_mut::<f32>(bytes).iter_mut().zip(&halves[..len]) {
            *out = half::to_f32(half);
        }
        return;
    }
    with_element!(dtype, T => {
        let fill = fill.map_or(T::from_index(0), T::from_scalar);
        gather(elements::<T>(memory), dims, view, fill, start, &mut elements_mut::<T>(bytes)[..len]);
    });
}

fn gather<T: Copy>(memory: &[T], dims: &[usize], view: &View, fill: T, start: usize, out: &mut [T]) {
    let last = dims.len() - 1;
    if view.bounds.is_empty() && view.strides.iter().all(|&stride| stride >= 0) {
        return simd::dispatch(Gather { memory, dims, view, start, out });
    }
    walk(dims, start, out.len(), |run| {
        let out = &mut out[run.at..][..run.len];
        let first = run.coordinates[last] as i64;
        // The part of the run within bounds, as positions in it.
        let (mut low, mut high) = (0i64, run.len as i64);
        for bound in &view.bounds {
            if bound.dim == last {
                low = low.max(bound.low - first);
                high = high.min(bound.high - first);
            } else {
                let coordinate = run.coordinates[bound.dim] as i64;
                if coordinate < bound.low || coordinate >= bound.high {
                    high = low;
                }
            }
        }
        if low >= high {
            out.fill(fill);
            return;
        }
        let index = element_index(view, run.coordinates) + low * view.strides[last];
        let (low, high) = (low as usize, high as usize);
        out[..low].fill(fill);
        out[high..].fill(fill);
        strided(memory, index, view.strides[last], &mut out[low..high]);
    });
}

/// A view without bounds that only goes forward. Its two innermost dimensions are one loop: runs of transposed and of
/// broadcast operands are too short to be worth a call each.
struct Gather<'a, T> {
    memory: &'a [T],
    dims: &'a [usize],
    view: &'a View,
    start: usize,
    out: &'a mut [T],
}

impl<T: Copy> Work for Gather<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Gather { memory, dims, view, start, out } = self;
        let last = dims.len() - 1;
        let (inner, step) = (dims[last], view.strides[last] as usize);
        let (rows, row_steps) = (&dims[..last], &view.strides[..last]);
        let mut coordinates = [0; DIMS_MAX];
        let mut row = start / inner;
        for (coordinate, &size) in coordinates.iter_mut().zip(rows).rev() {
            *coordinate = row % size;
            row /= size;
        }
        // Elements of the first row that lie before the block.
        let (mut skip, mut rest) = (start % inner, out);
        let mut from = element_index(view, &coordinates[..last]);
        loop {
            let row = usize::try_from(from).expect("a view stays within its value");
            let len = (inner - skip).min(rest.len());
            let (now, later) = rest.split_at_mut(len);
            forward(&memory[row + skip * step..], step, now);
            rest = later;
            skip = 0;
            if rest.is_empty() {
                return;
            }
            for dim in (0..last).rev() {
                coordinates[dim] += 1;
                from += row_steps[dim];
                if coordinates[dim] < rows[dim] {
                    break;
                }
                coordinates[dim] = 0;
                from -= row_steps[dim] * rows[dim] as i64;
            }
        }
    }
}

/// `out[i] = from[i * step]`.
#[inline(always)]
fn forward<T: Copy>(from: &[T], step: usize, out: &mut [T]) {
    match step {
        _ if out.is_empty() => {}
        0 => out.fill(from[0]),
        1 => {
            for (out, &value) in out.iter_mut().zip(from) {
                *out = value;
            }
        }
        2.. => {
            for (out, &value) in out.iter_mut().zip(from.iter().step_by(step)) {
                *out = value;
            }
        }
    }
}

/// `out[i] = memory[index + i * stride]`.
fn strided<T: Copy>(memory: &[T], index: i64, stride: i64, out: &mut [T]) {
    let index = usize::try_from(index).expect("a view stays within its value");
    match stride {
        0 => out.fill(memory[index]),
        1 => out.copy_from_slice(&memory[index..][..out.len()]),
        2.. => {
            for (out, &value) in out.iter_mut().zip(memory[index..].iter().step_by(stride as usize)) {
                *out = value;
            }
        }
        ..0 => {
            let step = stride.unsigned_abs() as usize;
            for (out, &value) in out.iter_mut().zip(memory[..=index].iter().rev().step_by(step)) {
                *out = value;
            }
        }
    }
}

fn index<T: Element>(dims: &[usize], view: &View, start: usize, out: &mut [T]) {
    let step = view.strides[dims.len() - 1];
    walk(dims, start, out.len(), |run| {
        let first = element_index(view, run.coordinates);
        simd::dispatch(Count { first, step, out: &mut out[run.at..][..run.len] });
    });
}

/// Coordinates along a run.
struct Count<'a, T> {
    first: i64,
    step: i64,
    out: &'a mut [T],
}

impl<T: Element> Work for Count<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let mut at = self.first;
        for out in self.out {
            *out = T::from_index(at);
            at += self.step;
        }
    }
}

fn draw(mut bits: Bits, distribution: Distribution, dims: &[usize], view: &View, start: usize, out: &mut [u32]) {
    let stride = view.strides[dims.len() - 1];
    walk(dims, start, out.len(), |run| {
        let first = element_index(view, run.coordinates);
        for (i, out) in out[run.at..][..run.len].iter_mut().enumerate() {
            let word = bits.at(first + stride * i as i64);
            *out = match distribution {
                Distribution::Bits => word,
                Distribution::Uniform => random::uniform(word).to_bits(),
            };
        }
    });
}

/// Writes a register to elements `at..` of a store.
pub(super) fn store<T: Pod>(dtype: DType, register: Source<'_, T>, memory: &mut [u8], at: usize, len: usize) {
    if dtype.is_float() && dtype.bytes() == 2 {
        let out = &mut elements_mut::<u16>(memory)[at..][..len];
        match register {
            Source::Slice(values) => {
                for (out, value) in out.iter_mut().zip(elements::<f32>(bytemuck::cast_slice(values))) {
                    *out = half::from_f32(*value);
                }
            }
            Source::Scalar(value) => out.fill(half::from_f32(bytemuck::cast(value))),
        }
    } else {
        lanes::copy(register, &mut elements_mut::<T>(memory)[at..][..len]);
    }
}

//! Evaluator of block bytecode: every step is one tight loop over a block that stays in the first-level cache.

use bytemuck::Pod;
use saggar_compile::program::expr::AffineView;
use saggar_tensor::DType;
use saggar_tensor::op::{RandomDistribution, Scalar};

use super::aligned_buffer::AlignedBuffer;
use super::bytecode::{BlockBytecode, BytecodeOp, BytecodeStep, DIMS_MAX, RegisterPlace};
use super::element::{Element, RoundHalf, with_element};
use super::elementwise_loops::{self, BlockSource, elements, elements_mut};
use super::elementwise_ops;
use super::random::{self, PhiloxStream};
use super::simd::{self, SimdWork};
use super::thread_scratch::ThreadScratch;
use super::vector;
use saggar_device::half;

/// Elements of a block: 4 KiB of `f32`, so that a dozen registers stay in the first-level cache.
pub(super) const BLOCK_ELEMENTS: usize = 1024;

/// Bytes from which an operand is prefetched. Smaller operands stay in the caches near the processor.
const PREFETCHED_BYTES_MIN: usize = 1 << 18;

/// The memory of one operand.
#[derive(Clone, Copy, Debug)]
pub(super) enum OperandMemory<'a> {
    /// All of a value.
    Memory(&'a [u8]),
    /// The part of store `.0` that this task writes.
    Own(usize),
    /// The part of the reduced or contracted elements that this task finishes.
    Accumulated,
}

/// The memory that a task's steps read.
#[derive(Clone, Copy, Debug)]
pub(super) struct EvaluationFrame<'a> {
    /// Memory of each operand of the bytecode.
    pub(super) inputs: &'a [OperandMemory<'a>],
    /// The stores of this task.
    pub(super) own: &'a [&'a mut [u8]],
    /// Reduced or contracted elements, from `first` on.
    pub(super) accumulated: &'a [u8],
    /// Iteration index of the first element of `own` and `accumulated`.
    pub(super) first: usize,
}

impl<'a> EvaluationFrame<'a> {
    /// Returns an operand's memory and the iteration index at which it starts.
    fn operand_bytes(&self, operand: usize) -> (&'a [u8], usize) {
        match self.inputs[operand] {
            OperandMemory::Memory(bytes) => (bytes, 0),
            OperandMemory::Own(store) => (&*self.own[store], self.first),
            OperandMemory::Accumulated => (self.accumulated, self.first),
        }
    }
}

impl BlockBytecode {
    /// Computes the values that are equal for all elements. Must run before the first block of a task.
    pub(super) fn run_uniform_steps(&self, scratch: &mut ThreadScratch, frame: EvaluationFrame<'_>) {
        if scratch.slots.len() < self.slots {
            scratch.slots.resize_with(self.slots, || AlignedBuffer::zeroed(8 * BLOCK_ELEMENTS));
        }
        for step in &self.uniform {
            self.run_step(step, scratch, frame, 0, 1);
        }
    }

    /// Computes iteration indices `start..start + len`: at most [`BLOCK_ELEMENTS`], and within one row if the bytecode
    /// has rows. Prefetches the memory of indices from `next` on.
    pub(super) fn run_block(
        &self,
        scratch: &mut ThreadScratch,
        frame: EvaluationFrame<'_>,
        start: usize,
        len: usize,
        next: Option<usize>,
    ) {
        debug_assert!(self.row.is_none_or(|row| start % row + len <= row), "a block keeps to its row");
        for step in &self.per_row {
            self.run_step(step, scratch, frame, start, 1);
        }
        for (number, step) in self.body.iter().enumerate() {
            if let Some(next) = next {
                self.prefetch_next_block(number, frame, next, len);
            }
            self.run_step(step, scratch, frame, start, len);
        }
    }

    /// Prefetches one step's share of the memory that the next block reads. Hardware prefetching starts over with every
    /// block, and waiting for a block's first cache lines takes as long as a step.
    fn prefetch_next_block(&self, number: usize, frame: EvaluationFrame<'_>, start: usize, len: usize) {
        for &[operand, offset, size] in &self.streams {
            let (memory, first) = frame.operand_bytes(operand);
            if memory.len() >= PREFETCHED_BYTES_MIN {
                let next = memory.get((offset + start - first) * size..).unwrap_or(&[]);
                let next = &next[..next.len().min(len * size)];
                let share = (len * size).div_ceil(self.body.len());
                if let Some(share) = next.chunks(share).nth(number) {
                    vector::prefetch(share);
                }
            }
        }
    }

    /// Returns the register of result `index` after [`BlockBytecode::run_block`].
    pub(super) fn result<'s, T: Pod>(
        &self,
        index: usize,
        scratch: &'s ThreadScratch,
        frame: EvaluationFrame<'s>,
        start: usize,
        len: usize,
    ) -> BlockSource<'s, T> {
        block_source(&scratch.slots, frame, self.results[index], start, len)
    }

    fn run_step(
        &self,
        step: &BytecodeStep,
        scratch: &mut ThreadScratch,
        frame: EvaluationFrame<'_>,
        start: usize,
        len: usize,
    ) {
        let mut out = std::mem::take(&mut scratch.slots[step.slot]);
        let bytes = bytemuck::cast_slice_mut::<u64, u8>(&mut out);
        let slots = &scratch.slots;
        match &step.op {
            BytecodeOp::Load { operand, view, fill } => {
                let (memory, _) = frame.operand_bytes(*operand);
                load_view(step.dtype, memory, &self.dims, view, *fill, start, bytes, len);
            }
            BytecodeOp::Copy { operand, offset } => {
                let (memory, first) = frame.operand_bytes(*operand);
                copy_dense(step.dtype, memory, offset + start - first, bytes, len);
            }
            BytecodeOp::Accumulated { operand } => {
                let (memory, first) = frame.operand_bytes(*operand);
                // Accumulated elements are held in the register's type, which can be wider than the type in memory.
                with_element!(step.dtype, T => {
                    let values = &elements::<T>(memory)[start - first..][..len];
                    elementwise_loops::copy(BlockSource::Slice(values), &mut elements_mut::<T>(bytes)[..len]);
                });
                round_to_dtype(step.dtype, bytes, len);
            }
            BytecodeOp::Immediate(scalar) => {
                with_element!(step.dtype, T => elements_mut::<T>(bytes)[..len].fill(T::from_scalar(*scalar)));
                round_to_dtype(step.dtype, bytes, len);
            }
            BytecodeOp::Index(view) => {
                with_element!(step.dtype, T => write_indices(&self.dims, view, start, &mut elements_mut::<T>(bytes)[..len]));
                round_to_dtype(step.dtype, bytes, len);
            }
            BytecodeOp::Random { operand, stream, distribution, view } => {
                let (memory, _) = frame.operand_bytes(*operand);
                let key = elements::<u32>(memory);
                let bits = PhiloxStream::new([key[0], key[1], key[2], key[3]], *stream);
                write_random(bits, *distribution, &self.dims, view, start, &mut elements_mut::<u32>(bytes)[..len]);
            }
            BytecodeOp::Unary { op, x, from } => {
                with_element!(*from, T => elementwise_ops::unary(*op, block_source::<T>(slots, frame, *x, start, len), bytes, len));
                round_to_dtype(step.dtype, bytes, len);
            }
            BytecodeOp::Binary { op, a, b, from } => {
                with_element!(*from, T => {
                    let a = block_source::<T>(slots, frame, *a, start, len);
                    let b = block_source::<T>(slots, frame, *b, start, len);
                    elementwise_ops::binary(*op, a, b, bytes, len);
                });
                round_to_dtype(step.dtype, bytes, len);
            }
            BytecodeOp::Select(condition, a, b) => {
                let condition = block_source::<u8>(slots, frame, *condition, start, len);
                with_element!(step.dtype, T => {
                    let a = block_source::<T>(slots, frame, *a, start, len);
                    let b = block_source::<T>(slots, frame, *b, start, len);
                    elementwise_loops::select(condition, a, b, &mut elements_mut::<T>(bytes)[..len]);
                });
            }
        }
        scratch.slots[step.slot] = out;
    }
}

fn block_source<'s, T: Pod>(
    slots: &'s [AlignedBuffer],
    frame: EvaluationFrame<'s>,
    place: RegisterPlace,
    start: usize,
    len: usize,
) -> BlockSource<'s, T> {
    match place {
        RegisterPlace::Slot(slot) => BlockSource::Slice(&elements(bytemuck::cast_slice(&slots[slot]))[..len]),
        RegisterPlace::Uniform(slot) => BlockSource::Scalar(elements(bytemuck::cast_slice(&slots[slot]))[0]),
        RegisterPlace::Dense { operand, offset } => {
            let (memory, first) = frame.operand_bytes(operand);
            BlockSource::Slice(&elements(memory)[offset + start - first..][..len])
        }
    }
}

/// Rounds a register of half-precision numbers, which are held as `f32`.
fn round_to_dtype(dtype: DType, bytes: &mut [u8], len: usize) {
    if dtype.is_float() && dtype.bytes() == 2 {
        for value in &mut elements_mut::<f32>(bytes)[..len] {
            *value = <RoundHalf as super::element::UnaryFunction<f32, f32>>::apply(*value);
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
struct InnermostRun<'a> {
    coordinates: &'a [usize],
    /// Position of its first element in the block.
    at: usize,
    len: usize,
}

/// Splits `start..start + len` of a row-major space into runs.
#[inline(always)]
fn for_each_run(dims: &[usize], start: usize, len: usize, mut visit: impl FnMut(InnermostRun<'_>)) {
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
        visit(InnermostRun { coordinates, at, len: run });
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

fn element_index(view: &AffineView, coordinates: &[usize]) -> i64 {
    view.offset + view.strides.iter().zip(coordinates).map(|(&stride, &c)| stride * c as i64).sum::<i64>()
}

#[expect(
    clippy::too_many_arguments,
    reason = "the innermost call of the evaluator: a struct would only name them twice"
)]
fn load_view(
    dtype: DType,
    memory: &[u8],
    dims: &[usize],
    view: &AffineView,
    fill: Option<Scalar>,
    start: usize,
    bytes: &mut [u8],
    len: usize,
) {
    if dtype.is_float() && dtype.bytes() == 2 {
        let mut halves = [0u16; BLOCK_ELEMENTS];
        let fill = fill.map_or(0, |fill| half::from_f32(f32::from_scalar(fill)));
        gather_view(elements::<u16>(memory), dims, view, fill, start, &mut halves[..len]);
        for (out, &half) in elements_mut::<f32>(bytes).iter_mut().zip(&halves[..len]) {
            *out = half::to_f32(half);
        }
        return;
    }
    with_element!(dtype, T => {
        let fill = fill.map_or(T::from_index(0), T::from_scalar);
        gather_view(elements::<T>(memory), dims, view, fill, start, &mut elements_mut::<T>(bytes)[..len]);
    });
}

fn gather_view<T: Copy>(memory: &[T], dims: &[usize], view: &AffineView, fill: T, start: usize, out: &mut [T]) {
    let last = dims.len() - 1;
    if view.bounds.is_empty() && view.strides.iter().all(|&stride| stride >= 0) {
        return simd::dispatch(StridedGather { memory, dims, view, start, out });
    }
    for_each_run(dims, start, out.len(), |run| {
        let out = &mut out[run.at..][..run.len];
        let first = run.coordinates[last] as i64;
        // The part of the run within bounds, as positions in the run.
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
        copy_strided(memory, index, view.strides[last], &mut out[low..high]);
    });
}

/// Reads a view without bounds and with non-negative strides. Its two innermost dimensions are one loop, because runs
/// of transposed and broadcast operands are too short for a call each.
struct StridedGather<'a, T> {
    memory: &'a [T],
    dims: &'a [usize],
    view: &'a AffineView,
    start: usize,
    out: &'a mut [T],
}

impl<T: Copy> SimdWork for StridedGather<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let StridedGather { memory, dims, view, start, out } = self;
        let last = dims.len() - 1;
        let (inner, step) = (dims[last], view.strides[last] as usize);
        let (rows, row_steps) = (&dims[..last], &view.strides[..last]);
        let mut coordinates = [0; DIMS_MAX];
        let mut row = start / inner;
        for (coordinate, &size) in coordinates.iter_mut().zip(rows).rev() {
            *coordinate = row % size;
            row /= size;
        }
        // Elements of the first row before the block.
        let (mut skip, mut rest) = (start % inner, out);
        let mut from = element_index(view, &coordinates[..last]);
        loop {
            let row = usize::try_from(from).expect("a view stays within its value");
            let len = (inner - skip).min(rest.len());
            let (now, later) = rest.split_at_mut(len);
            copy_forward(&memory[row + skip * step..], step, now);
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

/// Copies `out[i] = from[i * step]`.
#[inline(always)]
fn copy_forward<T: Copy>(from: &[T], step: usize, out: &mut [T]) {
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

/// Copies `out[i] = memory[index + i * stride]`.
fn copy_strided<T: Copy>(memory: &[T], index: i64, stride: i64, out: &mut [T]) {
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

fn write_indices<T: Element>(dims: &[usize], view: &AffineView, start: usize, out: &mut [T]) {
    let step = view.strides[dims.len() - 1];
    for_each_run(dims, start, out.len(), |run| {
        let first = element_index(view, run.coordinates);
        simd::dispatch(IndexRamp { first, step, out: &mut out[run.at..][..run.len] });
    });
}

/// Writes coordinates along a run.
struct IndexRamp<'a, T> {
    first: i64,
    step: i64,
    out: &'a mut [T],
}

impl<T: Element> SimdWork for IndexRamp<'_, T> {
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

fn write_random(
    mut bits: PhiloxStream,
    distribution: RandomDistribution,
    dims: &[usize],
    view: &AffineView,
    start: usize,
    out: &mut [u32],
) {
    let stride = view.strides[dims.len() - 1];
    for_each_run(dims, start, out.len(), |run| {
        let first = element_index(view, run.coordinates);
        for (i, out) in out[run.at..][..run.len].iter_mut().enumerate() {
            let word = bits.word_at(first + stride * i as i64);
            *out = match distribution {
                RandomDistribution::Bits => word,
                RandomDistribution::Uniform => random::uniform(word).to_bits(),
            };
        }
    });
}

/// Writes a register to elements `at..` of a store.
pub(super) fn store_block<T: Pod>(
    dtype: DType,
    register: BlockSource<'_, T>,
    memory: &mut [u8],
    at: usize,
    len: usize,
) {
    if dtype.is_float() && dtype.bytes() == 2 {
        let out = &mut elements_mut::<u16>(memory)[at..][..len];
        match register {
            BlockSource::Slice(values) => {
                for (out, value) in out.iter_mut().zip(elements::<f32>(bytemuck::cast_slice(values))) {
                    *out = half::from_f32(*value);
                }
            }
            BlockSource::Scalar(value) => out.fill(half::from_f32(bytemuck::cast(value))),
        }
    } else {
        elementwise_loops::copy(register, &mut elements_mut::<T>(memory)[at..][..len]);
    }
}

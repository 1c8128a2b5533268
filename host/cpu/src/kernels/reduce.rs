//! Reductions: a prologue in blocks, one fixed summation tree, an epilogue.
//!
//! A reduction along memory ("rows") combines blocks of one result. A reduction across memory ("columns") adds whole
//! rows to accumulators. In both cases the reduced dimension is split into segments by its size alone, and the
//! segments' partial results are combined in order.

mod one_hot_sum;

use one_hot_sum::{OneHotPattern, OneHotSum};
use saggar_compile::Optimization;
use saggar_compile::program::expr::{AffineView, Instruction, Register, ScalarExpr};
use saggar_compile::program::{Epilogue, ValueId};
use saggar_tensor::DType;
use saggar_tensor::op::ReduceKind;

use crate::alias_check::RegionSlice;
use crate::bytecode::{BlockBytecode, BytecodeRequest, OperandBinding};
use crate::element::{Element, register_bytes, with_element};
use crate::elementwise_loops::{self, accumulate, copy, elements_mut, fold, fold_rows};
use crate::elementwise_stage::ElementwiseStage;
use crate::evaluator::{BLOCK_ELEMENTS, EvaluationFrame, OperandMemory};
use crate::kernel_context::{KernelContext, KernelRefusal};
use crate::prepared_kernel::{KernelCall, PreparedKernel};
use crate::thread_scratch::{ThreadScratch, buffer, with_scratch};
use crate::threads::CpuThreads;

/// Reduced elements per segment of a row.
const SEGMENT_ELEMENTS: usize = 16 * BLOCK_ELEMENTS;
/// Minimum number of rows per segment of columns. Fewer would leave more partial results than elements.
const SEGMENT_ROWS_MIN: usize = 64;
/// Approximate number of elements that one task reads.
const TASK_ELEMENTS: usize = 16 * BLOCK_ELEMENTS;

/// A reduction with prologue and epilogue.
#[derive(Debug)]
pub(crate) struct CpuFold {
    kind: ReduceKind,
    dtype: DType,
    results: usize,
    folded: usize,
    /// Whether results, not reduced elements, are adjacent in the prologue's iteration.
    columns: bool,
    /// Reduced elements per segment.
    segment: usize,
    prologue: BlockBytecode,
    /// The one-hot sum, or `None` if all elements count.
    one_hot: Option<Box<OneHotSum>>,
    /// Regions of the prologue's operands.
    operands: Vec<usize>,
    finish: ElementwiseStage,
}

impl CpuFold {
    /// Prepares a `KernelBody::Fold` over `[outer, inner]`.
    pub(crate) fn new(
        context: &KernelContext<'_>,
        kind: ReduceKind,
        [outer, inner]: [&[usize]; 2],
        prologue: &ScalarExpr,
        epilogue: &Epilogue,
    ) -> Result<CpuFold, KernelRefusal> {
        let results: usize = outer.iter().product();
        let folded: usize = inner.iter().product();
        let last = prologue.instructions.len() - 1;
        let dtype = prologue.instructions[last].1;
        let columns = prefers_columns(prologue, outer, inner);
        let turned = columns.then(|| rotate_dims(prologue, outer.len()));
        let dims: Vec<usize> = if columns { [inner, outer].concat() } else { [outer, inner].concat() };
        let segment = if columns { (TASK_ELEMENTS / results.max(1)).max(SEGMENT_ROWS_MIN) } else { SEGMENT_ELEMENTS };
        let mut operands = Vec::new();
        let mut refused = None;
        let mut bind = |value: ValueId| {
            let region = context.operand(value).unwrap_or_else(|refusal| {
                refused = Some(refusal);
                0
            });
            operands.push(region);
            (operands.len() - 1, OperandBinding::Shared)
        };
        let asked = [Register(last as u32)];
        let request = |by_rows| BytecodeRequest {
            expr: turned.as_ref().unwrap_or(prologue),
            dims: &dims,
            results: &asked,
            accumulated: None,
            by_rows,
        };
        // If a block does not span several rows, it is a part of a row of `width` elements.
        let width = if columns { results } else { folded };
        let is_used = context.enables(Optimization::OneHotSum);
        let choice = is_used.then(|| OneHotPattern::recognize(kind, outer, inner, prologue)).flatten();
        let chosen =
            choice.and_then(|choice| OneHotSum::new(choice, prologue, [outer, inner], &mut bind)).map(Box::new);
        let mut prologue =
            BlockBytecode::new(&request(width > BLOCK_ELEMENTS / 2), &mut bind).ok_or(KernelRefusal::Layout)?;
        if prologue.row.is_some_and(|row| row != width) {
            prologue = BlockBytecode::new(&request(false), &mut bind).ok_or(KernelRefusal::Layout)?;
        }
        match refused {
            Some(refusal) => Err(refusal),
            None => Ok(CpuFold {
                kind,
                dtype,
                results,
                folded,
                columns,
                segment,
                prologue,
                one_hot: chosen,
                operands,
                finish: ElementwiseStage::epilogue(context, outer, epilogue)?,
            }),
        }
    }

    fn segments(&self) -> usize {
        if self.one_hot.is_some() {
            return 1;
        }
        self.folded.div_ceil(self.segment).max(1)
    }

    fn fold_all<T: Element>(&self, threads: &CpuThreads, inputs: &[OperandMemory<'_>], workspace: &mut [u64]) {
        let words = (self.results * size_of::<T>()).div_ceil(8);
        let (results, partials) = workspace.split_at_mut(words);
        let results = &mut elements_mut::<T>(bytemuck::cast_slice_mut(results))[..self.results];
        if self.folded == 0 {
            results.fill(T::identity(self.kind));
            return;
        }
        if let Some(chosen) = &self.one_hot {
            return chosen.run(threads, inputs, results);
        }
        let segments = self.segments();
        if segments == 1 {
            return self.fold_segments(threads, inputs, results);
        }
        let partials = elements_mut::<T>(bytemuck::cast_slice_mut(partials));
        let partials = &mut partials[..self.results * segments];
        self.fold_segments(threads, inputs, partials);
        if self.columns {
            results.fill(T::identity(self.kind));
            accumulate(self.kind, results, partials);
        } else {
            fold_rows(self.kind, partials, segments, results);
        }
    }

    /// Reduces every segment: `[result, segment]` for rows, `[segment, result]` for columns.
    fn fold_segments<T: Element>(&self, threads: &CpuThreads, inputs: &[OperandMemory<'_>], out: &mut [T]) {
        let operations = (self.results * self.folded).saturating_mul(self.prologue.operations());
        let frame = EvaluationFrame { inputs, own: &[], accumulated: &[], first: 0 };
        if self.columns {
            let mut tasks = Vec::new();
            let width = self.results.min(BLOCK_ELEMENTS);
            for (segment, out) in out.chunks_mut(self.results).enumerate() {
                let tiles = out.chunks_mut(width).enumerate();
                tasks.extend(tiles.map(|(tile, out)| (segment * self.segment, tile * width, out)));
            }
            threads.for_each(operations, tasks, |(row, column, out)| {
                let rows = self.segment.min(self.folded - row);
                with_scratch(|scratch| self.fold_columns(scratch, frame, [row, rows, column], out));
            });
        } else {
            let together = (TASK_ELEMENTS / self.folded.min(self.segment)).max(1);
            let tasks: Vec<_> = out.chunks_mut(together).enumerate().collect();
            threads.for_each(operations, tasks, |(task, out)| {
                with_scratch(|scratch| self.fold_rows(scratch, frame, task * together, out));
            });
        }
    }

    /// Reduces segments `first..` of rows, one per element of `out`.
    fn fold_rows<T: Element>(
        &self,
        scratch: &mut ThreadScratch,
        frame: EvaluationFrame<'_>,
        first: usize,
        out: &mut [T],
    ) {
        self.prologue.run_uniform_steps(scratch, frame);
        if self.folded <= BLOCK_ELEMENTS {
            // A block contains several whole rows.
            let rows = BLOCK_ELEMENTS / self.folded;
            for (block, out) in out.chunks_mut(rows).enumerate() {
                let start = (first + block * rows) * self.folded;
                let len = out.len() * self.folded;
                self.with_block::<T>(scratch, frame, [start, len, start + len], |values| {
                    fold_rows(self.kind, values, self.folded, out);
                });
            }
            return;
        }
        let segments = self.segments();
        for (index, out) in out.iter_mut().enumerate() {
            let (row, segment) = ((first + index) / segments, (first + index) % segments);
            let (low, high) = (segment * self.segment, self.folded.min((segment + 1) * self.segment));
            let mut blocks = [T::identity(self.kind); SEGMENT_ELEMENTS / BLOCK_ELEMENTS];
            let mut count = 0;
            for at in (low..high).step_by(BLOCK_ELEMENTS) {
                let (start, len) = (row * self.folded + at, BLOCK_ELEMENTS.min(high - at));
                self.with_block::<T>(scratch, frame, [start, len, start + len], |values| {
                    blocks[count] = fold(self.kind, values);
                });
                count += 1;
            }
            *out = fold(self.kind, &blocks[..count]);
        }
    }

    /// Reduces `rows` rows from `row` on, of the columns from `column` on, into `out`.
    fn fold_columns<T: Element>(
        &self,
        scratch: &mut ThreadScratch,
        frame: EvaluationFrame<'_>,
        [row, rows, column]: [usize; 3],
        out: &mut [T],
    ) {
        self.prologue.run_uniform_steps(scratch, frame);
        out.fill(T::identity(self.kind));
        // Rows are adjacent only if all columns fit. A block then contains several rows.
        let together = if out.len() == self.results { BLOCK_ELEMENTS / self.results } else { 1 };
        for at in (row..row + rows).step_by(together) {
            let count = together.min(row + rows - at);
            let len = if together == 1 { out.len() } else { count * self.results };
            let start = at * self.results + column;
            let next = start + count * self.results;
            self.with_block::<T>(scratch, frame, [start, len, next], |values| {
                accumulate(self.kind, out, values);
            });
        }
    }

    /// Calls `f` with the elements of the prologue from `start` on, and prefetches those from `next` on.
    fn with_block<T: Element>(
        &self,
        scratch: &mut ThreadScratch,
        frame: EvaluationFrame<'_>,
        [start, len, next]: [usize; 3],
        f: impl FnOnce(&[T]),
    ) {
        self.prologue.run_block(scratch, frame, start, len, Some(next));
        let mut spare = std::mem::take(&mut scratch.spare);
        match self.prologue.result::<T>(0, scratch, frame, start, len) {
            elementwise_loops::BlockSource::Slice(values) => f(values),
            elementwise_loops::BlockSource::Scalar(value) => {
                let block = buffer::<T>(&mut spare, len);
                copy(elementwise_loops::BlockSource::Scalar(value), block);
                f(block);
            }
        }
        scratch.spare = spare;
    }
}

impl PreparedKernel for CpuFold {
    fn routine(&self) -> &'static str {
        if self.one_hot.is_some() {
            "one-hot sum: one element of each row, read by index"
        } else {
            "reduction in blocks, partial results in a fixed tree"
        }
    }

    fn workspace_bytes(&self) -> usize {
        // The results, and partial results if there are several segments.
        let partials = if self.segments() > 1 { self.segments() } else { 0 };
        // Rounded up, so that the data after the results is aligned.
        (self.results * register_bytes(self.dtype)).next_multiple_of(8) * (1 + partials)
    }

    fn run(&self, call: KernelCall<'_>) {
        let KernelCall { threads, mut slices, workspace, .. } = call;
        if self.results == 0 {
            return;
        }
        let inputs: Vec<OperandMemory<'_>> = self
            .operands
            .iter()
            .map(|&region| {
                OperandMemory::Memory(match &slices[region] {
                    RegionSlice::Read(bytes) => bytes,
                    RegionSlice::Write(_) => unreachable!("`CpuFold::new` refuses to read written regions"),
                })
            })
            .collect();
        with_element!(self.dtype, T => self.fold_all::<T>(threads, &inputs, workspace));
        drop(inputs);
        let bytes = bytemuck::cast_slice(workspace);
        // If results can be finished in place, they are copied there first. They are few.
        let accumulated = &bytes[..self.results * register_bytes(self.dtype)];
        self.finish.copy_accumulated(&mut slices, accumulated);
        self.finish.run_all(threads, slices, accumulated, register_bytes(self.dtype));
    }
}

/// Returns whether fewer of the prologue's loads are strided along the last kept dimension than along the last reduced
/// one, or equally many are and more are adjacent. Loads that do not move along a dimension count as neither.
fn prefers_columns(prologue: &ScalarExpr, outer: &[usize], inner: &[usize]) -> bool {
    let last = |dims: &[usize], first: usize| dims.iter().rposition(|&size| size > 1).map(|dim| first + dim);
    let (Some(outer_stride), Some(folded)) = (last(outer, 0), last(inner, outer.len())) else {
        return false;
    };
    let (mut jumps, mut adjacent) = (0, 0);
    for (instruction, _) in &prologue.instructions {
        match instruction {
            Instruction::Load { view, .. } => {
                let [outer_stride, folded] = [outer_stride, folded].map(|dim| view.strides[dim].abs());
                jumps += i32::from(folded > 1) - i32::from(outer_stride > 1);
                adjacent += i32::from(outer_stride == 1) - i32::from(folded == 1);
            }
            Instruction::Immediate(_)
            | Instruction::Index(_)
            | Instruction::Random { .. }
            | Instruction::Accumulated
            | Instruction::Product(_)
            | Instruction::Unary(..)
            | Instruction::Binary(..)
            | Instruction::Select(..) => {}
        }
    }
    (jumps, adjacent) > (0, 0)
}

/// Returns the prologue over `inner ++ outer`.
fn rotate_dims(prologue: &ScalarExpr, outer: usize) -> ScalarExpr {
    let turn = |view: &AffineView| {
        let rank = view.strides.len();
        let mut turned = view.clone();
        turned.strides.rotate_left(outer);
        for bound in &mut turned.bounds {
            bound.dim = (bound.dim + rank - outer) % rank;
        }
        turned
    };
    let mut turned = prologue.clone();
    for (instruction, _) in &mut turned.instructions {
        match instruction {
            Instruction::Load { view, .. } | Instruction::Index(view) | Instruction::Random { view, .. } => {
                *view = turn(view);
            }
            Instruction::Immediate(_)
            | Instruction::Accumulated
            | Instruction::Product(_)
            | Instruction::Unary(..)
            | Instruction::Binary(..)
            | Instruction::Select(..) => {}
        }
    }
    turned
}

//! The element-wise stage of a kernel: all of an element-wise kernel, and the epilogue of any other.

use saggar_compile::program::expr::{Instruction, ScalarExpr};
use saggar_compile::program::{Epilogue, ResultStore, ValueId};
use saggar_tensor::DType;

use super::alias_check::RegionSlice;
use super::bytecode::{BlockBytecode, BytecodeRequest, OperandBinding};
use super::element::with_element;
use super::elementwise_loops::elements_mut;
use super::evaluator::{BLOCK_ELEMENTS, EvaluationFrame, OperandMemory, store_block};
use super::kernel_context::{KernelContext, KernelRefusal};
use super::thread_scratch::{ThreadScratch, with_scratch};
use super::threads::CpuThreads;

/// Elements per task of a large map: large enough that starting a thread costs little, small enough to share work.
const TASK_ELEMENTS: usize = 16 * BLOCK_ELEMENTS;

/// The memory in which a kernel's results accumulate before they are finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AccumulationTarget {
    /// No memory: the kernel is a plain map.
    None,
    /// A store of type `float32`. Results are finished in place.
    Store(usize),
    /// A separate workspace, in the register type.
    Workspace,
}

/// The source of a bytecode operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StageOperand {
    Region(usize),
    Own(usize),
    Accumulated,
}

/// The element-wise stage of a kernel: bytecode and the stores of its results.
#[derive(Debug)]
pub(super) struct ElementwiseStage {
    /// The bytecode, or `None` if the accumulated elements are the result.
    routine: Option<BlockBytecode>,
    operands: Vec<StageOperand>,
    /// Region and data type of each store.
    stores: Vec<(usize, DType)>,
    /// Memory for the results of the kernel's body.
    pub(super) accumulation: AccumulationTarget,
    /// Elements of the iteration space.
    pub(super) elements: usize,
}

/// The part of a kernel's stores that one task writes.
#[derive(Debug)]
pub(super) struct StoreChunk<'a> {
    /// Iteration index of the first element.
    pub(super) first: usize,
    /// Number of elements.
    pub(super) count: usize,
    /// For each store, its bytes.
    pub(super) stores: Vec<&'a mut [u8]>,
}

impl ElementwiseStage {
    /// Returns the number of elements that are accumulated outside the stores.
    pub(super) fn workspace_elements(&self) -> usize {
        if self.accumulation == AccumulationTarget::Workspace { self.elements } else { 0 }
    }

    /// Returns a map over `dims`.
    pub(super) fn map(
        context: &KernelContext<'_>,
        dims: &[usize],
        expr: &ScalarExpr,
        stores: &[ResultStore],
    ) -> Result<ElementwiseStage, KernelRefusal> {
        ElementwiseStage::new(context, dims, expr, stores, false)
    }

    /// Returns the epilogue of a reduction, contraction or convolution.
    pub(super) fn epilogue(
        context: &KernelContext<'_>,
        dims: &[usize],
        epilogue: &Epilogue,
    ) -> Result<ElementwiseStage, KernelRefusal> {
        ElementwiseStage::new(context, dims, &epilogue.expr, &epilogue.stores, true)
    }

    fn new(
        context: &KernelContext<'_>,
        dims: &[usize],
        expr: &ScalarExpr,
        stores: &[ResultStore],
        accumulates: bool,
    ) -> Result<ElementwiseStage, KernelRefusal> {
        let regions: Vec<(usize, DType)> =
            stores.iter().map(|s| (context.region(s.value), context.dtype(s.value))).collect();
        let accumulation =
            if accumulates { choose_accumulation_target(context, expr, &regions) } else { AccumulationTarget::None };
        let mut operands = Vec::new();
        let accumulated = match accumulation {
            AccumulationTarget::None => None,
            AccumulationTarget::Store(store) => Some((StageOperand::Own(store), OperandBinding::Own)),
            AccumulationTarget::Workspace => Some((StageOperand::Accumulated, OperandBinding::Shared)),
        };
        let accumulated = accumulated.map(|(operand, binding)| {
            operands.push(operand);
            (0, binding)
        });
        let mut bind = |value: ValueId| {
            let region = context.region(value);
            let own = regions.iter().position(|&(store, _)| store == region);
            let (operand, binding) = match own {
                Some(store) => (StageOperand::Own(store), OperandBinding::Own),
                None => (StageOperand::Region(region), OperandBinding::Shared),
            };
            let known = operands.iter().position(|&other| other == operand);
            let index = known.unwrap_or_else(|| {
                operands.push(operand);
                operands.len() - 1
            });
            (index, binding)
        };
        let results: Vec<_> = stores.iter().map(|store| store.register).collect();
        let routine = BlockBytecode::new(
            &BytecodeRequest { expr, dims, results: &results, accumulated, by_rows: true },
            &mut bind,
        );
        let routine = routine.ok_or(KernelRefusal::Layout)?;
        let plain = match accumulation {
            AccumulationTarget::Store(_) => stores.len() == 1 && expr.is_accumulated(stores[0].register),
            AccumulationTarget::None | AccumulationTarget::Workspace => false,
        };
        let elements = dims.iter().product();
        Ok(ElementwiseStage { routine: (!plain).then_some(routine), operands, stores: regions, accumulation, elements })
    }

    /// Takes the memory that this kernel writes out of `pieces`.
    pub(super) fn take_stores<'a>(&self, pieces: &mut [RegionSlice<'a>]) -> Vec<&'a mut [u8]> {
        self.stores.iter().map(|&(region, _)| pieces[region].take()).collect()
    }

    /// Returns the operands. Must be called after the stores were taken.
    pub(super) fn inputs<'a>(&self, pieces: &[RegionSlice<'a>]) -> Vec<OperandMemory<'a>> {
        let input = |operand: &StageOperand| match *operand {
            StageOperand::Region(region) => OperandMemory::Memory(pieces[region].read()),
            StageOperand::Own(store) => OperandMemory::Own(store),
            StageOperand::Accumulated => OperandMemory::Accumulated,
        };
        self.operands.iter().map(input).collect()
    }

    /// Splits stores into consecutive chunks of `counts` elements.
    pub(super) fn split_stores<'a>(
        &self,
        mut stores: Vec<&'a mut [u8]>,
        counts: impl Iterator<Item = usize>,
    ) -> Vec<StoreChunk<'a>> {
        let mut first = 0;
        counts
            .map(|count| {
                let cut = |(store, &(_, dtype)): (&mut &'a mut [u8], &(usize, DType))| {
                    let (head, tail) = std::mem::take(store).split_at_mut(count * dtype.bytes());
                    *store = tail;
                    head
                };
                let stores = stores.iter_mut().zip(&self.stores).map(cut).collect();
                first += count;
                StoreChunk { first: first - count, count, stores }
            })
            .collect()
    }

    /// Pairs each chunk with its part of the accumulator workspace, which is empty if the chunk accumulates in a store.
    pub(super) fn with_accumulators<'a>(
        &self,
        chunks: Vec<StoreChunk<'a>>,
        mut workspace: &'a mut [f32],
    ) -> Vec<(StoreChunk<'a>, &'a mut [f32])> {
        let window = |chunk: StoreChunk<'a>| {
            let count = match self.accumulation {
                AccumulationTarget::Workspace => chunk.count,
                AccumulationTarget::Store(_) | AccumulationTarget::None => 0,
            };
            let (mine, rest) = std::mem::take(&mut workspace).split_at_mut(count);
            workspace = rest;
            (chunk, mine)
        };
        chunks.into_iter().map(window).collect()
    }

    /// Returns the number of elements of each task.
    pub(super) fn task_counts(&self) -> impl Iterator<Item = usize> + use<> {
        let elements = self.elements;
        (0..elements).step_by(TASK_ELEMENTS).map(move |at| TASK_ELEMENTS.min(elements - at))
    }

    /// Returns the bytes of an element of each store.
    pub(super) fn element_bytes(&self) -> impl Iterator<Item = usize> {
        self.stores.iter().map(|(_, dtype)| dtype.bytes())
    }

    /// Returns the operations per element.
    pub(super) fn operations(&self) -> usize {
        self.routine.as_ref().map_or(0, BlockBytecode::operations)
    }

    /// Copies elements that were accumulated elsewhere to the store that this stage reads, if it accumulates in a
    /// store.
    pub(super) fn copy_accumulated(&self, pieces: &mut [RegionSlice<'_>], accumulated: &[u8]) {
        match self.accumulation {
            AccumulationTarget::Store(store) => pieces[self.stores[store].0].write(accumulated),
            AccumulationTarget::None | AccumulationTarget::Workspace => {}
        }
    }

    /// Finishes one chunk. `accumulated` holds its elements if the target is [`AccumulationTarget::Workspace`].
    pub(super) fn run_chunk(
        &self,
        scratch: &mut ThreadScratch,
        inputs: &[OperandMemory<'_>],
        chunk: &mut StoreChunk<'_>,
        accumulated: &[u8],
    ) {
        let Some(routine) = &self.routine else { return };
        if chunk.count == 0 {
            return;
        }
        let first = chunk.first;
        routine.run_uniform_steps(scratch, EvaluationFrame { inputs, own: &chunk.stores, accumulated, first });
        let (mut start, end) = (first, first + chunk.count);
        while start < end {
            let len = routine.block_len(start, end, BLOCK_ELEMENTS);
            let frame = EvaluationFrame { inputs, own: &chunk.stores, accumulated, first };
            routine.run_block(scratch, frame, start, len, Some(start + len));
            for index in 0..self.stores.len() {
                // The store is taken out of the frame while it is written. Dense registers never lie in a store.
                let memory = std::mem::take(&mut chunk.stores[index]);
                let frame = EvaluationFrame { inputs, own: &chunk.stores, accumulated, first };
                let dtype = routine.dtypes[index];
                with_element!(dtype, T => {
                    let register = routine.result::<T>(index, scratch, frame, start, len);
                    store_block(dtype, register, memory, start - first, len);
                });
                chunk.stores[index] = memory;
            }
            start += len;
        }
    }

    /// Computes a chunk's results and finishes them while they are in the cache. `compute` gets the destination and the
    /// index of the first result. `window` is the chunk's part of [`ElementwiseStage::with_accumulators`].
    pub(super) fn finish_chunk(
        &self,
        inputs: &[OperandMemory<'_>],
        mut chunk: StoreChunk<'_>,
        window: &mut [f32],
        compute: impl FnOnce(&mut [f32], usize),
    ) {
        match self.accumulation {
            AccumulationTarget::Store(store) => compute(elements_mut(chunk.stores[store]), chunk.first),
            AccumulationTarget::Workspace | AccumulationTarget::None => compute(window, chunk.first),
        }
        with_scratch(|scratch| self.run_chunk(scratch, inputs, &mut chunk, bytemuck::cast_slice(window)));
    }

    /// Finishes all elements, on all threads if the work is worth it.
    pub(super) fn run_all(
        &self,
        threads: &CpuThreads,
        mut pieces: Vec<RegionSlice<'_>>,
        accumulated: &[u8],
        bytes: usize,
    ) {
        let stores = self.take_stores(&mut pieces);
        let inputs = self.inputs(&pieces);
        let chunks = self.split_stores(stores, self.task_counts());
        let operations = self.elements.saturating_mul(self.operations());
        threads.for_each(operations, chunks, |mut chunk| {
            let mine = accumulated.get(chunk.first * bytes..).unwrap_or(&[]);
            with_scratch(|scratch| self.run_chunk(scratch, &inputs, &mut chunk, mine));
        });
    }
}

/// Returns the accumulation target: the first `float32` store that the epilogue does not also load, if the accumulated
/// elements are `float32` too.
fn choose_accumulation_target(
    context: &KernelContext<'_>,
    expr: &ScalarExpr,
    stores: &[(usize, DType)],
) -> AccumulationTarget {
    let mut float = true;
    let mut loaded = Vec::new();
    for (instruction, dtype) in &expr.instructions {
        match instruction {
            Instruction::Load { value, .. } | Instruction::Random { key: value, .. } => {
                loaded.push(context.region(*value));
            }
            Instruction::Accumulated => float = *dtype == DType::F32,
            Instruction::Immediate(_)
            | Instruction::Index(_)
            | Instruction::Product(_)
            | Instruction::Unary(..)
            | Instruction::Binary(..)
            | Instruction::Select(..) => {}
        }
    }
    let fits = |&(region, dtype): &(usize, DType)| float && dtype == DType::F32 && !loaded.contains(&region);
    stores.iter().position(fits).map_or(AccumulationTarget::Workspace, AccumulationTarget::Store)
}

//! Matrix products, split into tasks by their shape.

use std::sync::Arc;

use saggar_compile::program::KernelBody;
use saggar_tensor::DType;

use crate::elementwise_loops::elements_mut;
use crate::elementwise_stage::{AccumulationTarget, ElementwiseStage, StoreChunk};
use crate::epilogue::{BiasClampEpilogue, BoundBiasClamp};
use crate::evaluator::OperandMemory;
use crate::f32_access::as_f32;
use crate::gemm::macro_kernel::{LhsOperand, PackedMatrix, PanelProduct, RhsOperand};
use crate::gemm::pack::{PanelLayout, pack, split_panels};
use crate::gemm::partition::{GemmPartition, TASK_MULTIPLY_ADDS, TASK_MULTIPLY_ADDS_MIN, TASKS_MAX, task_count};
use crate::gemm::{GemmMatrix, multiply_with_epilogue};
use crate::kernel_context::{KernelContext, KernelRefusal};
use crate::prepacked::{PackedLayout, PrepackRequest, is_same_layout};
use crate::prepared_kernel::{KernelCall, PreparedKernel};
use crate::thread_scratch::with_scratch;
use crate::threads::CpuThreads;

/// How a batch of products is split into tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MatMulSplit {
    /// Each task computes this many whole batches and packs their second operands itself.
    Batches(usize),
    /// Tasks compute tiles of one batch, whose second operand is packed beforehand.
    Tiles(GemmPartition),
}

/// Returns how products of these sizes are split. With `is_prepacked`, all batches share a second operand that is prepacked.
fn split_matmul([batch, m, n, k]: [usize; 4], is_prepacked: bool) -> MatMulSplit {
    let one = m.saturating_mul(n).saturating_mul(k).max(1);
    let whole = if batch > 1 { TASK_MULTIPLY_ADDS } else { 2 * TASK_MULTIPLY_ADDS_MIN };
    if (one <= whole && !is_prepacked) || batch >= TASKS_MAX {
        return MatMulSplit::Batches(batch.div_ceil(task_count(one.saturating_mul(batch))).max(1));
    }
    MatMulSplit::Tiles(GemmPartition::new(m, 1, PanelLayout::new(k, n)))
}

/// A prepacked second operand: a matrix in panels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PackedMatrixLayout {
    panels: PanelLayout,
    /// Whether the matrix is stored as `columns x depth`.
    transposed: bool,
}

impl PackedLayout for PackedMatrixLayout {
    fn elements(&self) -> usize {
        self.panels.len()
    }

    fn pack(&self, from: &[f32], out: &mut [f32]) {
        let PanelLayout { columns, depth, .. } = self.panels;
        pack(self.panels, GemmMatrix::new(from, columns, depth, self.transposed), out);
    }

    fn is_same(&self, other: &dyn PackedLayout) -> bool {
        is_same_layout(self, other)
    }
}

/// `batch` matrix products with an epilogue.
#[derive(Debug)]
pub(crate) struct CpuMatMul {
    sizes: [usize; 4],
    a: usize,
    b: usize,
    dtype: DType,
    transposes: [bool; 2],
    batch_strides: [usize; 2],
    layout: PanelLayout,
    split: MatMulSplit,
    /// The prepacked second operand, if it does not change between dispatches.
    prepacked: Option<PrepackRequest>,
    /// The fused epilogue, or `None` if the epilogue is of another form.
    epilogue: Option<BiasClampEpilogue>,
    finish: ElementwiseStage,
}

impl CpuMatMul {
    /// Prepares a `KernelBody::MatMul`.
    pub(crate) fn new(context: &KernelContext<'_>, body: &KernelBody) -> Result<CpuMatMul, KernelRefusal> {
        let KernelBody::MatMul { sizes, a, b, transpose_a, transpose_b, batch_stride_a, batch_stride_b, epilogue } =
            body
        else {
            unreachable!("the caller has matched the body");
        };
        let dtype = context.float_dtype(*a)?;
        let [batch, m, n, k] = *sizes;
        let layout = PanelLayout::new(k, n);
        let is_shared = *batch_stride_b == 0 || batch == 1;
        let packed = PackedMatrixLayout { panels: layout, transposed: *transpose_b };
        let block = context.constant_block(*b).filter(|_| is_shared);
        let prepacked = block.map(|block| PrepackRequest { block, dtype, layout: Arc::new(packed) });
        let ending = (batch == 1).then(|| BiasClampEpilogue::recognize(context, &[m, n], 1, epilogue)).flatten();
        Ok(CpuMatMul {
            sizes: *sizes,
            a: context.operand(*a)?,
            b: context.operand(*b)?,
            dtype,
            transposes: [*transpose_a, *transpose_b],
            batch_strides: [*batch_stride_a, *batch_stride_b],
            layout,
            split: split_matmul(*sizes, prepacked.is_some()),
            prepacked,
            epilogue: ending,
            finish: ElementwiseStage::epilogue(context, &[batch, m, n], epilogue)?,
        })
    }

    /// Returns whether the second operand is packed before the tasks begin, because several tasks need the same panels.
    fn packs_ahead(&self) -> bool {
        match self.split {
            MatMulSplit::Tiles(bands) => self.prepacked.is_none() && bands.row_ranges().count() > 1,
            MatMulSplit::Batches(_) => false,
        }
    }

    /// Returns the number of multiply-adds and epilogue operations.
    fn operations(&self) -> usize {
        self.finish.elements.saturating_mul(self.sizes[3] + self.finish.operations())
    }
}

impl PreparedKernel for CpuMatMul {
    fn routine(&self) -> &'static str {
        "packed product, tiles in registers"
    }

    fn workspace_bytes(&self) -> usize {
        // Accumulators outside the stores, and the packed operand.
        4 * (self.finish.workspace_elements() + if self.packs_ahead() { self.layout.len() } else { 0 })
    }

    fn prepack_request(&self) -> Option<&PrepackRequest> {
        self.prepacked.as_ref()
    }

    fn run(&self, call: KernelCall<'_>) {
        let KernelCall { threads, mut slices, workspace, prepacked } = call;
        if self.finish.elements == 0 {
            return;
        }
        let mut stores = self.finish.take_stores(&mut slices);
        let inputs = self.finish.inputs(&slices);
        let a = as_f32(self.dtype, slices[self.a].read());
        let b = if prepacked.is_some() { Default::default() } else { as_f32(self.dtype, slices[self.b].read()) };
        let ends = self.epilogue.map(|ending| ending.bind(&slices));
        let workspace = elements_mut::<f32>(bytemuck::cast_slice_mut(workspace));
        let (sums, packed) = workspace.split_at_mut(self.finish.workspace_elements());
        let run = MatMulRun { product: self, threads, a: &a, b: &b, prepacked, epilogue: ends, inputs: &inputs };
        match self.split {
            MatMulSplit::Batches(together) => run.run_batches(stores, sums, together),
            MatMulSplit::Tiles(bands) if bands.covers_whole_rows() => run.run_bands(stores, sums, packed, bands),
            MatMulSplit::Tiles(bands) => {
                run.run_tiles(&mut stores, sums, packed, bands);
                if ends.is_none() {
                    run.run_epilogue(stores, sums);
                }
            }
        }
    }
}

/// One run of the products.
struct MatMulRun<'r> {
    product: &'r CpuMatMul,
    threads: &'r CpuThreads,
    a: &'r [f32],
    b: &'r [f32],
    prepacked: Option<&'r [f32]>,
    epilogue: Option<BoundBiasClamp<'r>>,
    inputs: &'r [OperandMemory<'r>],
}

impl<'r> MatMulRun<'r> {
    fn lhs(&self, batch: usize) -> GemmMatrix<'r> {
        let [_, m, _, k] = self.product.sizes;
        let data = self.a.get(batch * self.product.batch_strides[0]..).unwrap_or(&[]);
        GemmMatrix::new(data, k, m, self.product.transposes[0])
    }

    fn rhs(&self, batch: usize) -> GemmMatrix<'r> {
        let [_, _, n, k] = self.product.sizes;
        let data = self.b.get(batch * self.product.batch_strides[1]..).unwrap_or(&[]);
        GemmMatrix::new(data, n, k, self.product.transposes[1])
    }

    /// Runs several whole batches per task.
    fn run_batches(&self, stores: Vec<&mut [u8]>, sums: &mut [f32], together: usize) {
        let [batch, m, n, _] = self.product.sizes;
        let counts = (0..batch).step_by(together).map(|at| together.min(batch - at) * m * n);
        let chunks = self.product.finish.split_stores(stores, counts);
        let tasks = self.product.finish.with_accumulators(chunks, sums);
        self.threads.for_each(self.product.operations(), tasks, |(chunk, window)| {
            self.finish_chunk(chunk, window, |out, first| {
                with_scratch(|scratch| {
                    for (at, out) in out.chunks_exact_mut(m * n).enumerate() {
                        let batch = first / (m * n) + at;
                        match self.prepacked {
                            Some(data) => {
                                let b = RhsOperand::Packed(PackedMatrix { layout: self.product.layout, data });
                                multiply_with_epilogue(
                                    out,
                                    self.lhs(batch),
                                    b,
                                    false,
                                    self.epilogue,
                                    &mut scratch.product,
                                );
                            }
                            None => {
                                let b = RhsOperand::Unpacked(self.product.layout, self.rhs(batch));
                                multiply_with_epilogue(
                                    out,
                                    self.lhs(batch),
                                    b,
                                    false,
                                    self.epilogue,
                                    &mut scratch.product,
                                );
                            }
                        }
                    }
                });
            });
        });
    }

    /// Returns the second operand of a batch, packed if tasks share it.
    fn rhs_operand<'p>(&self, batch: usize, out: &'p mut [f32]) -> RhsOperand<'p>
    where
        'r: 'p,
    {
        let layout = self.product.layout;
        if let Some(data) = self.prepacked {
            return RhsOperand::Packed(PackedMatrix { layout, data });
        }
        if !self.product.packs_ahead() {
            return RhsOperand::Unpacked(layout, self.rhs(batch));
        }
        let out = &mut out[..layout.len()];
        let b = self.rhs(batch);
        self.threads.for_each(layout.len(), split_panels(layout, out), |part| part.pack(b));
        RhsOperand::Packed(PackedMatrix { layout, data: out })
    }

    /// Runs a band of rows per task, and finishes each band while it is in the cache.
    fn run_bands(&self, mut stores: Vec<&mut [u8]>, sums: &mut [f32], packed: &mut [f32], bands: GemmPartition) {
        let [batch, m, n, _] = self.product.sizes;
        let finish = &self.product.finish;
        let mut sums = sums;
        for batch in 0..batch {
            let b = self.rhs_operand(batch, packed);
            let mut one = Vec::with_capacity(stores.len());
            for (store, size) in stores.iter_mut().zip(finish.element_bytes()) {
                let (mine, rest) = std::mem::take(store).split_at_mut(m * n * size);
                *store = rest;
                one.push(mine);
            }
            let counts = bands.row_ranges().map(|rows| rows.len() * n);
            let mut chunks = finish.split_stores(one, counts);
            chunks.iter_mut().for_each(|chunk| chunk.first += batch * m * n);
            let here = if finish.accumulation == AccumulationTarget::Workspace { m * n } else { 0 };
            let (mine, rest) = sums.split_at_mut(here);
            sums = rest;
            let tasks = finish.with_accumulators(chunks, mine);
            self.threads.for_each(self.product.operations(), tasks, |(chunk, window)| {
                self.finish_chunk(chunk, window, |out, first| {
                    let a = self.lhs(batch).skip_rows(first / n - batch * m);
                    with_scratch(|scratch| {
                        multiply_with_epilogue(out, a, b, false, self.epilogue, &mut scratch.product)
                    });
                });
            });
        }
    }

    fn finish_chunk(&self, chunk: StoreChunk<'_>, window: &mut [f32], compute: impl FnOnce(&mut [f32], usize)) {
        let finish = &self.product.finish;
        if self.epilogue.is_none() {
            return finish.finish_chunk(self.inputs, chunk, window, compute);
        }
        let StoreChunk { first, mut stores, .. } = chunk;
        compute(elements_mut(stores[0]), first);
    }

    /// Runs tiles of rows and panels. Accumulated results are finished afterwards.
    fn run_tiles(&self, stores: &mut [&mut [u8]], sums: &mut [f32], packed: &mut [f32], bands: GemmPartition) {
        let [batch, m, n, k] = self.product.sizes;
        let layout = self.product.layout;
        let out = match self.product.finish.accumulation {
            _ if self.epilogue.is_some() => elements_mut::<f32>(stores[0]),
            AccumulationTarget::Store(store) => elements_mut::<f32>(stores[store]),
            AccumulationTarget::Workspace | AccumulationTarget::None => sums,
        };
        for (batch, out) in out[..batch * m * n].chunks_exact_mut(m * n).enumerate() {
            let b = self.rhs_operand(batch, packed);
            self.threads.for_each(m * n * k, bands.tasks(out), |(rows, panels, mut c)| {
                let a = LhsOperand::Matrix(self.lhs(batch).skip_rows(rows.start));
                let ends = self.epilogue.map(|ends| ends.skip_channels(panels.first * layout.panel_columns()));
                with_scratch(|scratch| {
                    let words = &mut scratch.product;
                    PanelProduct { c: &mut c, a, b, panels, add: false, epilogue: ends, words }.run();
                });
            });
        }
    }

    /// Runs the epilogue over the accumulated results.
    fn run_epilogue(&self, stores: Vec<&mut [u8]>, sums: &mut [f32]) {
        let finish = &self.product.finish;
        let chunks = finish.split_stores(stores, finish.task_counts());
        let tasks = finish.with_accumulators(chunks, sums);
        self.threads.for_each(finish.elements.saturating_mul(finish.operations()), tasks, |(chunk, window)| {
            finish.finish_chunk(self.inputs, chunk, window, |_, _| {});
        });
    }
}

//! Matrix products, cut into tasks by their shape.

use saggar_compile::program::Body;
use saggar_tensor::DType;

use super::bands::{Bands, LEAST_MULTIPLY_ADDS, TASK_MULTIPLY_ADDS, TASKS_MAX, tasks};
use super::ending::{Ending, Ends};
use super::evaluate::Input;
use super::floats::floats;
use super::gemm::pack::{Layout, parts};
use super::gemm::product::{Packed, Product, Right, Rows};
use super::gemm::{Matrix, multiply_by};
use super::kept::{Form, Kept};
use super::lanes::elements_mut;
use super::map::{Accumulation, Chunk, Finish};
use super::plan::{Planner, Refusal};
use super::region::Piece;
use super::registers::with_scratch;
use super::threads::Threads;

/// How products are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cut {
    /// Each task computes this many whole batches, and packs their second operands by itself.
    Batches(usize),
    /// Tasks compute tiles of one batch, whose second operand is packed before.
    Tiles(Bands),
}

/// How products of these sizes are cut; with `kept`, all batches share a second operand that is packed already.
fn cut([batch, m, n, k]: [usize; 4], kept: bool) -> Cut {
    let one = m.saturating_mul(n).saturating_mul(k).max(1);
    let whole = if batch > 1 { TASK_MULTIPLY_ADDS } else { 2 * LEAST_MULTIPLY_ADDS };
    if (one <= whole && !kept) || batch >= TASKS_MAX {
        return Cut::Batches(batch.div_ceil(tasks(one.saturating_mul(batch))).max(1));
    }
    Cut::Tiles(Bands::new(m, 1, Layout::new(k, n)))
}

/// `batch` matrix products with an epilogue.
#[derive(Debug)]
pub(super) struct MatMul {
    sizes: [usize; 4],
    a: usize,
    b: usize,
    dtype: DType,
    transposes: [bool; 2],
    batch_strides: [usize; 2],
    layout: Layout,
    cut: Cut,
    /// The second operand in its packed form, where it stays as it is from one dispatch to the next.
    kept: Option<Kept>,
    /// None where the epilogue is another one.
    ending: Option<Ending>,
    finish: Finish,
}

impl MatMul {
    /// Prepares a `Body::MatMul`.
    pub(super) fn new(planner: &Planner<'_>, body: &Body) -> Result<MatMul, Refusal> {
        let Body::MatMul { sizes, a, b, transpose_a, transpose_b, batch_stride_a, batch_stride_b, epilogue } = body
        else {
            unreachable!("the caller has matched the body");
        };
        let dtype = planner.float(*a)?;
        let [batch, m, n, k] = *sizes;
        let layout = Layout::new(k, n);
        let is_shared = *batch_stride_b == 0 || batch == 1;
        let form = Form::Matrix { layout, transposed: *transpose_b };
        let kept = planner.kept(*b).filter(|_| is_shared).map(|block| Kept { block, dtype, form });
        let ending = (batch == 1).then(|| Ending::of(planner, &[m, n], 1, epilogue)).flatten();
        Ok(MatMul {
            sizes: *sizes,
            a: planner.operand(*a)?,
            b: planner.operand(*b)?,
            dtype,
            transposes: [*transpose_a, *transpose_b],
            batch_strides: [*batch_stride_a, *batch_stride_b],
            layout,
            cut: cut(*sizes, kept.is_some()),
            kept,
            ending,
            finish: Finish::epilogue(planner, &[batch, m, n], epilogue)?,
        })
    }

    /// What it needs in another form.
    pub(super) fn kept(&self) -> Option<&Kept> {
        self.kept.as_ref()
    }

    /// What is accumulated outside the stores, and a packed operand.
    pub(super) fn workspace_bytes(&self) -> usize {
        4 * (self.finish.accumulated() + if self.is_packed_before() { self.layout.len() } else { 0 })
    }

    /// Whether the second operand is packed before the tasks begin: where several of them need the same panels.
    fn is_packed_before(&self) -> bool {
        match self.cut {
            Cut::Tiles(bands) => self.kept.is_none() && bands.ranges().count() > 1,
            Cut::Batches(_) => false,
        }
    }

    /// Runs it; `kept` is what it asked for.
    pub(super) fn run(
        &self,
        threads: &Threads,
        mut pieces: Vec<Piece<'_>>,
        workspace: &mut [u64],
        kept: Option<&[f32]>,
    ) {
        if self.finish.elements == 0 {
            return;
        }
        let mut stores = self.finish.take(&mut pieces);
        let inputs = self.finish.inputs(&pieces);
        let a = floats(self.dtype, pieces[self.a].read());
        let b = if kept.is_some() { Default::default() } else { floats(self.dtype, pieces[self.b].read()) };
        let ends = self.ending.map(|ending| ending.ends(&pieces));
        let workspace = elements_mut::<f32>(bytemuck::cast_slice_mut(workspace));
        let (sums, packed) = workspace.split_at_mut(self.finish.accumulated());
        let run = Run { product: self, threads, a: &a, b: &b, kept, ends, inputs: &inputs };
        match self.cut {
            Cut::Batches(together) => run.batches(stores, sums, together),
            Cut::Tiles(bands) if bands.is_whole() => run.bands(stores, sums, packed, bands),
            Cut::Tiles(bands) => {
                run.tiles(&mut stores, sums, packed, bands);
                if ends.is_none() {
                    run.finish(stores, sums);
                }
            }
        }
    }

    /// Multiply-adds and what follows them.
    fn operations(&self) -> usize {
        self.finish.elements.saturating_mul(self.sizes[3] + self.finish.operations())
    }
}

/// One run of a product.
struct Run<'r> {
    product: &'r MatMul,
    threads: &'r Threads,
    a: &'r [f32],
    b: &'r [f32],
    kept: Option<&'r [f32]>,
    ends: Option<Ends<'r>>,
    inputs: &'r [Input<'r>],
}

impl<'r> Run<'r> {
    fn left(&self, batch: usize) -> Matrix<'r> {
        let [_, m, _, k] = self.product.sizes;
        let data = self.a.get(batch * self.product.batch_strides[0]..).unwrap_or(&[]);
        Matrix::new(data, k, m, self.product.transposes[0])
    }

    fn right(&self, batch: usize) -> Matrix<'r> {
        let [_, _, n, k] = self.product.sizes;
        let data = self.b.get(batch * self.product.batch_strides[1]..).unwrap_or(&[]);
        Matrix::new(data, n, k, self.product.transposes[1])
    }

    /// Several whole batches a task.
    fn batches(&self, stores: Vec<&mut [u8]>, sums: &mut [f32], together: usize) {
        let [batch, m, n, _] = self.product.sizes;
        let counts = (0..batch).step_by(together).map(|at| together.min(batch - at) * m * n);
        let chunks = self.product.finish.chunks(stores, counts);
        let tasks = with_windows(chunks, sums, self.product.finish.accumulation);
        self.threads.each(self.product.operations(), tasks, |(chunk, window)| {
            self.finish_chunk(chunk, window, |out, first| {
                with_scratch(|scratch| {
                    for (at, out) in out.chunks_exact_mut(m * n).enumerate() {
                        let batch = first / (m * n) + at;
                        match self.kept {
                            Some(data) => {
                                let b = Right::Packed(Packed { layout: self.product.layout, data });
                                multiply_by(out, self.left(batch), b, false, self.ends, &mut scratch.product);
                            }
                            None => {
                                let b = Right::Plain(self.product.layout, self.right(batch));
                                multiply_by(out, self.left(batch), b, false, self.ends, &mut scratch.product);
                            }
                        }
                    }
                });
            });
        });
    }

    /// The second operand of a batch, packed where that is done before.
    fn packed<'p>(&self, batch: usize, out: &'p mut [f32]) -> Right<'p>
    where
        'r: 'p,
    {
        let layout = self.product.layout;
        if let Some(data) = self.kept {
            return Right::Packed(Packed { layout, data });
        }
        if !self.product.is_packed_before() {
            return Right::Plain(layout, self.right(batch));
        }
        let out = &mut out[..layout.len()];
        let b = self.right(batch);
        self.threads.each(layout.len(), parts(layout, out), |part| part.fill(b));
        Right::Packed(Packed { layout, data: out })
    }

    /// A band of rows a task, finished while it is in the cache.
    fn bands(&self, mut stores: Vec<&mut [u8]>, sums: &mut [f32], packed: &mut [f32], bands: Bands) {
        let [batch, m, n, _] = self.product.sizes;
        let finish = &self.product.finish;
        let mut sums = sums;
        for batch in 0..batch {
            let b = self.packed(batch, packed);
            let mut one = Vec::with_capacity(stores.len());
            for (store, size) in stores.iter_mut().zip(finish.element_bytes()) {
                let (mine, rest) = std::mem::take(store).split_at_mut(m * n * size);
                *store = rest;
                one.push(mine);
            }
            let counts = bands.ranges().map(|rows| rows.len() * n);
            let mut chunks = finish.chunks(one, counts);
            chunks.iter_mut().for_each(|chunk| chunk.first += batch * m * n);
            let here = if finish.accumulation == Accumulation::Workspace { m * n } else { 0 };
            let (mine, rest) = sums.split_at_mut(here);
            sums = rest;
            let tasks = with_windows(chunks, mine, finish.accumulation);
            self.threads.each(self.product.operations(), tasks, |(chunk, window)| {
                self.finish_chunk(chunk, window, |out, first| {
                    let a = self.left(batch).below(first / n - batch * m);
                    with_scratch(|scratch| multiply_by(out, a, b, false, self.ends, &mut scratch.product));
                });
            });
        }
    }

    fn finish_chunk(&self, chunk: Chunk<'_>, window: &mut [f32], compute: impl FnOnce(&mut [f32], usize)) {
        let finish = &self.product.finish;
        if self.ends.is_none() {
            return finish_chunk(finish, self.inputs, chunk, window, compute);
        }
        let Chunk { first, mut stores, .. } = chunk;
        compute(elements_mut(stores[0]), first);
    }

    /// Tiles of rows and panels; what was accumulated is finished afterwards.
    fn tiles(&self, stores: &mut [&mut [u8]], sums: &mut [f32], packed: &mut [f32], bands: Bands) {
        let [batch, m, n, k] = self.product.sizes;
        let layout = self.product.layout;
        let out = match self.product.finish.accumulation {
            _ if self.ends.is_some() => elements_mut::<f32>(stores[0]),
            Accumulation::Store(store) => elements_mut::<f32>(stores[store]),
            Accumulation::Workspace | Accumulation::None => sums,
        };
        for (batch, out) in out[..batch * m * n].chunks_exact_mut(m * n).enumerate() {
            let b = self.packed(batch, packed);
            self.threads.each(m * n * k, bands.tiles(out), |(rows, panels, mut c)| {
                let a = Rows::Matrix(self.left(batch).below(rows.start));
                let ends = self.ends.map(|ends| ends.from(panels.first * layout.panel_columns()));
                with_scratch(|scratch| {
                    let words = &mut scratch.product;
                    Product { c: &mut c, a, b, panels, add: false, ends, words }.run();
                });
            });
        }
    }

    /// Finishes what was accumulated.
    fn finish(&self, stores: Vec<&mut [u8]>, sums: &mut [f32]) {
        let finish = &self.product.finish;
        let chunks = finish.chunks(stores, finish.task_counts());
        let tasks = with_windows(chunks, sums, finish.accumulation);
        self.threads.each(finish.elements.saturating_mul(finish.operations()), tasks, |(chunk, window)| {
            finish_chunk(finish, self.inputs, chunk, window, |_, _| {});
        });
    }
}

/// Adds to each chunk the part of the workspace in which it accumulates; nothing where that is a store.
pub(super) fn with_windows<'a>(
    chunks: Vec<Chunk<'a>>,
    mut workspace: &'a mut [f32],
    accumulation: Accumulation,
) -> Vec<(Chunk<'a>, &'a mut [f32])> {
    let window = |chunk: Chunk<'a>| {
        let count = match accumulation {
            Accumulation::Workspace => chunk.count,
            Accumulation::Store(_) | Accumulation::None => 0,
        };
        let (mine, rest) = std::mem::take(&mut workspace).split_at_mut(count);
        workspace = rest;
        (chunk, mine)
    };
    chunks.into_iter().map(window).collect()
}

/// Computes a chunk's results with `compute`, given where they go and the first one's index, and finishes them while
/// they are in the cache.
pub(super) fn finish_chunk(
    finish: &Finish,
    inputs: &[Input<'_>],
    mut chunk: Chunk<'_>,
    window: &mut [f32],
    compute: impl FnOnce(&mut [f32], usize),
) {
    match finish.accumulation {
        Accumulation::Store(store) => compute(elements_mut(chunk.stores[store]), chunk.first),
        Accumulation::Workspace | Accumulation::None => compute(window, chunk.first),
    }
    with_scratch(|scratch| finish.run(scratch, inputs, &mut chunk, bytemuck::cast_slice(window)));
}

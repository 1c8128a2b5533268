//! Matrix products, cut into tiles by their shape.

use saggar_compile::program::Body;
use saggar_tensor::DType;

use super::evaluate::{Input, with_scratch};
use super::floats::floats;
use super::gemm::{Matrix, multiply, multiply_rows};
use super::lanes::elements_mut;
use super::map::{Accumulation, Chunk, Finish};
use super::plan::{Planner, Refusal};
use super::region::Piece;
use super::threads::Threads;

/// Multiply-adds of one task: some 200 microseconds of a core, so that packing its operands is a small part.
const TASK_MULTIPLY_ADDS: usize = 8 << 20;
/// More tasks than this give no better balance.
const TASKS_MAX: usize = 32;
/// Sides of a task's tile are multiples of this, which suits the packed kernels.
const TILE_STEP: usize = 16;
/// Least side of a tile, where the result has as much.
const TILE_MIN: usize = 64;

/// Height and width of the tiles that tasks compute; as high and wide as the result where one task is enough.
fn tile([batch, m, n, k]: [usize; 4]) -> [usize; 2] {
    let work = batch.saturating_mul(m * n).saturating_mul(k);
    let tasks = (work / TASK_MULTIPLY_ADDS).clamp(1, TASKS_MAX).div_ceil(batch.max(1));
    if tasks == 1 {
        return [m, n];
    }
    let side = (m * n / tasks).isqrt().next_multiple_of(TILE_STEP).max(TILE_MIN);
    // Where one side is short, the other takes the cuts.
    let height = side.min(m);
    let width = (m * n / tasks / height).next_multiple_of(TILE_STEP).max(TILE_MIN).min(n);
    let height = (m * n / tasks / width).next_multiple_of(TILE_STEP).max(TILE_MIN).min(m);
    [height, width]
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
    /// Height and width of a task's tile.
    tile: [usize; 2],
    /// Elements of each band of tiles, or of several whole batches.
    counts: Vec<usize>,
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
        let [batch, m, n, _] = *sizes;
        let finish = Finish::epilogue(planner, &[batch, m, n], epilogue)?;
        let tile = tile(*sizes);
        let counts = if tile[0] == m {
            let together = if tile[1] == n { batch.div_ceil(TASKS_MAX).max(1) } else { 1 };
            (0..batch).step_by(together).map(|at| together.min(batch - at) * m * n).collect()
        } else {
            let bands = (0..m).step_by(tile[0]).map(|at| tile[0].min(m - at) * n);
            std::iter::repeat_n(bands, batch).flatten().collect()
        };
        Ok(MatMul {
            sizes: *sizes,
            a: planner.operand(*a)?,
            b: planner.operand(*b)?,
            dtype,
            transposes: [*transpose_a, *transpose_b],
            batch_strides: [*batch_stride_a, *batch_stride_b],
            tile,
            counts,
            finish,
        })
    }

    /// What is accumulated outside the stores, and column tiles.
    pub(super) fn workspace_bytes(&self) -> usize {
        let [batch, m, n, _] = self.sizes;
        let apart = usize::from(self.finish.accumulation == Accumulation::Workspace);
        4 * batch * m * n * (apart + usize::from(self.is_tiled()))
    }

    /// Whether rows of the result are cut, so that tiles are computed apart and put together.
    fn is_tiled(&self) -> bool {
        self.tile[1] < self.sizes[2]
    }

    /// Runs it.
    pub(super) fn run(&self, threads: &Threads, mut pieces: Vec<Piece<'_>>, workspace: &mut [u64]) {
        let [batch, m, n, k] = self.sizes;
        let elements = batch * m * n;
        if elements == 0 {
            return;
        }
        let stores = self.finish.take(&mut pieces);
        let inputs = self.finish.inputs(&pieces);
        let (a, b) = (floats(self.dtype, pieces[self.a].read()), floats(self.dtype, pieces[self.b].read()));
        let workspace = elements_mut::<f32>(bytemuck::cast_slice_mut(workspace));
        let (tiles, workspace) = workspace.split_at_mut(if self.is_tiled() { elements } else { 0 });
        let operands = Operands { product: self, a: &a, b: &b };
        if self.is_tiled() {
            self.tiles(threads, operands, tiles);
        }
        let chunks = self.finish.chunks(stores, self.counts.iter().copied());
        let tasks = with_windows(chunks, workspace, self.finish.accumulation);
        let operations = elements.saturating_mul(k + self.finish.operations());
        threads.each(operations, tasks, |(chunk, window)| {
            finish_chunk(&self.finish, &inputs, chunk, window, |out, first| {
                if self.is_tiled() {
                    self.put_together(&tiles[first..][..out.len()], out);
                } else {
                    operands.rows(out, first);
                }
            });
        });
    }

    /// Computes all tiles, each dense, band by band.
    fn tiles(&self, threads: &Threads, operands: Operands<'_>, tiles: &mut [f32]) {
        let [batch, m, n, k] = self.sizes;
        let mut tasks = Vec::new();
        let mut rest = tiles;
        for index in 0..batch {
            for row in (0..m).step_by(self.tile[0]) {
                for column in (0..n).step_by(self.tile[1]) {
                    let size = [self.tile[0].min(m - row), self.tile[1].min(n - column)];
                    let (tile, tail) = rest.split_at_mut(size[0] * size[1]);
                    rest = tail;
                    tasks.push((tile, index, [row, column], size));
                }
            }
        }
        threads.each(batch * m * n * k, tasks, |(tile, index, [row, column], [rows, columns])| {
            let (a, b) = operands.batch(index);
            multiply(tile, [rows, columns, k], a.below(row), b.right_of(column), false);
        });
    }

    /// Puts the tiles of one band together.
    fn put_together(&self, tiles: &[f32], out: &mut [f32]) {
        let n = self.sizes[2];
        let rows = out.len() / n;
        for (row, out) in out.chunks_mut(n).enumerate() {
            for (tile, out) in out.chunks_mut(self.tile[1]).enumerate() {
                let start = tile * self.tile[1] * rows + row * out.len();
                out.copy_from_slice(&tiles[start..][..out.len()]);
            }
        }
    }
}

#[derive(Clone, Copy)]
struct Operands<'a> {
    product: &'a MatMul,
    a: &'a [f32],
    b: &'a [f32],
}

impl<'a> Operands<'a> {
    fn batch(&self, index: usize) -> (Matrix<'a>, Matrix<'a>) {
        let [_, m, n, k] = self.product.sizes;
        let a = self.a.get(index * self.product.batch_strides[0]..).unwrap_or(&[]);
        let b = self.b.get(index * self.product.batch_strides[1]..).unwrap_or(&[]);
        let [transpose_a, transpose_b] = self.product.transposes;
        (Matrix::new(a, k, m, transpose_a), Matrix::new(b, n, k, transpose_b))
    }

    /// Computes whole rows of the result from element `first` on.
    fn rows(&self, out: &mut [f32], first: usize) {
        let [_, m, n, k] = self.product.sizes;
        let mut row = first / n;
        let mut rest = out;
        while !rest.is_empty() {
            let (index, top) = (row / m, row % m);
            let rows = (m - top).min(rest.len() / n);
            let (now, later) = rest.split_at_mut(rows * n);
            let (a, b) = self.batch(index);
            multiply_rows(now, [rows, n, k], a.below(top), b);
            rest = later;
            row += rows;
        }
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

//! Filter gradient by Winograd tiles: at every point, the product of the transposed input tiles with the gradient
//! tiles.

use std::ops::Range;

use saggar_compile::program::ValueId;
use saggar_tensor::op::{Conv2d, ReduceKind};

use super::tile::{TRANSFORM_COST, WinogradTile, tile_size, with_tile};
use super::tile_grid::TileGrid;
use super::transform::{TileView, WinogradPoints, filter_grad_transform};
use crate::elementwise_loops::{accumulate, elements, elements_mut};
use crate::gemm::{GemmMatrix, multiply};
use crate::kernel_context::{KernelContext, KernelRefusal};
use crate::prepared_kernel::{KernelCall, PreparedKernel};
use crate::thread_scratch::{buffer, with_buffer, with_scratch};
use crate::threads::CpuThreads;
use crate::vector::{self, VectorIsa, VectorWork};

/// Maximum number of partial sums of a filter gradient: enough to share among threads, few enough to add up quickly.
const PARTIALS_MAX: usize = 8;

/// The filter gradient of `float32` images.
#[derive(Debug)]
pub(crate) struct WinogradFilterGrad {
    grid: TileGrid,
    input: usize,
    gradient: usize,
    output: usize,
}

impl WinogradFilterGrad {
    /// Prepares a `KernelBody::Conv2dFilterGrad` in NHWC layout of `[input, gradient, output]`. Returns `None` if
    /// another algorithm is faster.
    pub(crate) fn new(
        context: &KernelContext<'_>,
        conv: &Conv2d,
        [input, gradient, output]: [ValueId; 3],
    ) -> Result<Option<WinogradFilterGrad>, KernelRefusal> {
        let places = context.dims(gradient);
        let size = tile_size(context, conv, context.dims(output), [places[0], places[1], places[2]], false);
        let Some(size) = size else { return Ok(None) };
        Ok(Some(WinogradFilterGrad {
            grid: TileGrid::new(size, conv, context.dims(input), places),
            input: context.operand(input)?,
            gradient: context.operand(gradient)?,
            output: context.region(output),
        }))
    }

    /// Returns the elements of the sums at all points.
    fn sum_elements(&self) -> usize {
        self.grid.tile.points() * self.grid.channels[0] * self.grid.channels[1]
    }

    /// Returns the rows of tiles per partial sum. There are several partial sums if each thread has its own bands.
    fn partial_rows(&self) -> usize {
        let rows = self.grid.tile_rows();
        if self.grid.per_thread_bands { rows.div_ceil(PARTIALS_MAX) } else { rows }
    }

    /// Adds the products of a band at every point to `sums`, or replaces `sums` unless `add`.
    fn accumulate(&self, threads: &CpuThreads, [entered, values]: [&[f32]; 2], sums: &mut [f32], add: bool) {
        let ([inputs, outputs], points) = (self.grid.channels, self.grid.tile.points());
        let tiles = values.len() / (points * outputs);
        let tasks: Vec<_> = sums.chunks_exact_mut(inputs * outputs).enumerate().collect();
        threads.for_each(points * tiles * inputs * outputs, tasks, |(point, sums)| {
            let a = GemmMatrix { data: &entered[point * inputs..], row: 1, column: points * inputs };
            let b = GemmMatrix { data: &values[point * outputs..], row: points * outputs, column: 1 };
            with_scratch(|scratch| multiply(sums, [inputs, outputs, tiles], a, b, add, &mut scratch.product));
        });
    }
}

impl PreparedKernel for WinogradFilterGrad {
    fn routine(&self) -> &'static str {
        "Winograd filter gradient, channels last"
    }

    fn workspace_bytes(&self) -> usize {
        // Transformed tiles, and the sums over them.
        let partials = self.grid.tile_rows().div_ceil(self.partial_rows());
        4 * (self.grid.shared_elements() + partials * self.sum_elements())
    }

    fn run(&self, call: KernelCall<'_>) {
        let KernelCall { threads, mut slices, workspace, .. } = call;
        let output = elements_mut::<f32>(slices[self.output].take());
        let images = elements::<f32>(slices[self.input].read());
        let gradient = elements::<f32>(slices[self.gradient].read());
        let workspace = elements_mut::<f32>(bytemuck::cast_slice_mut(workspace));
        let (between, partials) = workspace.split_at_mut(self.grid.shared_elements());
        let run = |threads: &CpuThreads, between: &mut [f32], rows: Range<usize>, sums: &mut [f32]| {
            for band in self.grid.bands(rows.clone()) {
                let [entered, values] = self.grid.split_band(between, band.len());
                self.grid.transform_input(threads, images, band.start, entered);
                self.grid.transform_output_grad(threads, gradient, band.start, values);
                self.accumulate(threads, [entered, values], sums, band.start > rows.start);
            }
        };
        let rows = self.grid.tile_rows();
        let (step, elements) = (self.partial_rows(), self.grid.band_elements());
        if self.grid.per_thread_bands {
            let count = rows.div_ceil(step);
            let tasks =
                partials[..count * self.sum_elements()].chunks_exact_mut(self.sum_elements()).enumerate().collect();
            threads.for_each(self.grid.operations(), tasks, |(at, sums)| {
                let rows = at * step..((at + 1) * step).min(rows);
                with_buffer(|words| run(&CpuThreads::single_threaded(), buffer(words, elements), rows, sums));
            });
        } else {
            run(threads, between, 0..rows, &mut partials[..self.sum_elements()]);
        }
        let (sums, others) = partials.split_at_mut(self.sum_elements());
        for other in others[..(rows.div_ceil(step) - 1) * sums.len()].chunks_exact(sums.len()) {
            accumulate(ReduceKind::Sum, sums, other);
        }
        let [inputs, outputs] = self.grid.channels;
        let taps = self.grid.tile.taps();
        let tasks: Vec<_> = output.chunks_mut(LANES * inputs * taps * taps).enumerate().collect();
        threads.for_each(TRANSFORM_COST * sums.len(), tasks, |(at, out)| {
            let (sums, first) = (&*sums, at * LANES);
            let channels = [inputs, outputs];
            with_tile!(self.grid.tile, T => vector::run(FilterGradTransform::<T> { channels, sums, first, out, tile: T {} }));
        });
    }
}

/// Output channels per step of the transform. A multiple of every vector width.
const LANES: usize = 16;

/// The inverse transform of the gradient for some output channels, to `[o, c, k, k]`.
struct FilterGradTransform<'a, T> {
    /// Input and output channels.
    channels: [usize; 2],
    /// Sums `[points, c, o]`.
    sums: &'a [f32],
    /// The first output channel.
    first: usize,
    out: &'a mut [f32],
    #[expect(dead_code, reason = "names the type")]
    tile: T,
}

impl<T: WinogradTile> VectorWork for FilterGradTransform<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: VectorIsa>(self, s: S) {
        let FilterGradTransform { channels: [inputs, outputs], sums: from, first, out, .. } = self;
        let side = <T::Points as WinogradPoints>::SIDE;
        let count = T::TAPS * T::TAPS;
        let end = first + out.len() / (inputs * count);
        // Places of the view are points here. Two points are one matrix of channel pairs apart.
        let step = inputs * outputs;
        for channel in 0..inputs {
            let from = TileView { data: &from[channel * outputs..], pitch: side * step, step, channels: outputs };
            for output in (first..end).step_by(S::LANES) {
                let square = filter_grad_transform::<S, T::Points>(s, from, T::TAPS, output);
                let lanes = S::LANES.min(end - output);
                for y in 0..T::TAPS {
                    for x in 0..T::TAPS {
                        let mut some = [0.0; LANES];
                        s.store(&mut some, square[y][x]);
                        for (at, &tap) in some[..lanes].iter().enumerate() {
                            let place = (output - first + at) * inputs + channel;
                            out[place * count + y * T::TAPS + x] = tap;
                        }
                    }
                }
            }
        }
    }
}

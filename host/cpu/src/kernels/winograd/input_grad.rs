//! Input gradient by Winograd tiles.

use std::ops::Range;
use std::sync::Arc;

use saggar_compile::program::ValueId;
use saggar_tensor::op::Conv2d;

use super::filter_transform::WinogradFilterLayout;
use super::tile::tile_size;
use super::tile_grid::TileGrid;
use crate::elementwise_loops::{elements, elements_mut};
use crate::gemm::pack::PanelLayout;
use crate::kernel_context::{KernelContext, KernelRefusal};
use crate::prepacked::PrepackRequest;
use crate::prepared_kernel::{KernelCall, PreparedKernel};
use crate::thread_scratch::{buffer, with_buffer};
use crate::threads::CpuThreads;

/// The input gradient of `float32` images.
#[derive(Debug)]
pub(crate) struct WinogradInputGrad {
    grid: TileGrid,
    form: WinogradFilterLayout,
    prepacked: Option<PrepackRequest>,
    gradient: usize,
    filter: usize,
    output: usize,
}

impl WinogradInputGrad {
    /// Prepares a `KernelBody::Conv2dInputGrad` in NHWC layout of `[gradient, filter, output]`. Returns `None` if
    /// another algorithm is faster.
    pub(crate) fn new(
        context: &KernelContext<'_>,
        conv: &Conv2d,
        [gradient, filter, output]: [ValueId; 3],
    ) -> Result<Option<WinogradInputGrad>, KernelRefusal> {
        let (from, to) = (context.dims(gradient), context.dims(output));
        let block = context.constant_block(filter);
        let size = tile_size(context, conv, context.dims(filter), [from[0], from[1], from[2]], block.is_some());
        let Some(size) = size else { return Ok(None) };
        let mut grid = TileGrid::new(size, conv, to, from);
        // Tiles of an image overlap, so a thread computes whole images. A few images are not enough for all threads.
        grid.share_band_if_few_tasks(grid.images.div_ceil(grid.band_images()));
        let layout = PanelLayout::new(grid.channels[1], grid.channels[0]);
        let form = WinogradFilterLayout { layout, size, adjoint: true };
        Ok(Some(WinogradInputGrad {
            grid,
            form,
            prepacked: block.map(|block| PrepackRequest {
                block,
                layout: Arc::new(form),
                dtype: context.dtype(filter),
            }),
            gradient: context.operand(gradient)?,
            filter: context.operand(filter)?,
            output: context.region(output),
        }))
    }
}

impl PreparedKernel for WinogradInputGrad {
    fn routine(&self) -> &'static str {
        "Winograd input gradient, channels last"
    }

    fn workspace_bytes(&self) -> usize {
        // Transformed tiles, and the transformed filter.
        let filter = if self.prepacked.is_none() { self.form.len() } else { 0 };
        4 * (self.grid.shared_elements() + filter)
    }

    fn prepack_request(&self) -> Option<&PrepackRequest> {
        self.prepacked.as_ref()
    }

    fn run(&self, call: KernelCall<'_>) {
        let KernelCall { threads, mut slices, workspace, prepacked } = call;
        let output = elements_mut::<f32>(slices[self.output].take());
        let gradient = elements::<f32>(slices[self.gradient].read());
        let workspace = elements_mut::<f32>(bytemuck::cast_slice_mut(workspace));
        let (between, rest) = workspace.split_at_mut(self.grid.shared_elements());
        let filter = self.form.get_or_transform(threads, elements(slices[self.filter].read()), rest, prepacked);
        // `images` starts at the first image of the band.
        let run = |threads: &CpuThreads, between: &mut [f32], band: Range<usize>, images: (usize, &mut [f32])| {
            let [parts, values] = self.grid.split_band(between, band.len());
            self.grid.transform_output_grad(threads, gradient, band.start, values);
            self.grid.multiply(threads, values, &self.form, filter, parts);
            self.grid.add_input_grad(threads, parts, band.start, images);
        };
        if !self.grid.per_thread_bands {
            let bands = self.grid.bands(0..self.grid.tile_rows());
            return bands.for_each(|band| run(threads, between, band, (0, &mut *output)));
        }
        let (rows, elements) = (self.grid.tiles()[0], self.grid.band_elements());
        let together = self.grid.band_images();
        let images = output.chunks_mut(together * self.grid.image_elements()).enumerate();
        threads.for_each(self.grid.operations(), images.collect(), |(task, images)| {
            let first = task * together;
            let end = (first + together).min(self.grid.images);
            with_buffer(|words| {
                let between = buffer(words, elements);
                for band in self.grid.bands(first * rows..end * rows) {
                    run(&CpuThreads::single_threaded(), between, band, (first, &mut *images));
                }
            });
        });
    }
}

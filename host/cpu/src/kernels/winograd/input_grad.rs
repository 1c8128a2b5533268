//! Input gradient by Winograd tiles.

use std::ops::Range;

use saggar_compile::program::ValueId;
use saggar_tensor::op::Conv2d;

use super::WinogradFilterLayout;
use super::tile::choose_tile_size;
use super::tile_grid::TileGrid;
use crate::alias_check::RegionSlice;
use crate::elementwise_loops::{elements, elements_mut};
use crate::gemm::pack::PanelLayout;
use crate::kernel_planner::{KernelPlanner, KernelRefusal};
use crate::prepacked::{PackedLayout, PrepackRequest};
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
        planner: &KernelPlanner<'_>,
        conv: &Conv2d,
        [gradient, filter, output]: [ValueId; 3],
    ) -> Result<Option<WinogradInputGrad>, KernelRefusal> {
        let (from, to) = (planner.dims(gradient), planner.dims(output));
        let block = planner.constant_block(filter);
        let size = choose_tile_size(conv, planner.dims(filter), [from[0], from[1], from[2]], block.is_some());
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
                form: PackedLayout::Points(form),
                dtype: planner.dtype(filter),
            }),
            gradient: planner.operand(gradient)?,
            filter: planner.operand(filter)?,
            output: planner.region(output),
        }))
    }

    /// Returns the filter if it must be prepacked, which requires that it does not change between dispatches.
    pub(crate) fn prepack_request(&self) -> Option<&PrepackRequest> {
        self.prepacked.as_ref()
    }

    /// Returns the bytes of transformed tiles and of a transformed filter.
    pub(crate) fn workspace_bytes(&self) -> usize {
        let filter = if self.prepacked.is_none() { self.form.len() } else { 0 };
        4 * (self.grid.shared_elements() + filter)
    }

    /// Computes the gradient. `kept` is the prepacked filter of [`WinogradInputGrad::prepack_request`].
    pub(crate) fn run(
        &self,
        threads: &CpuThreads,
        mut pieces: Vec<RegionSlice<'_>>,
        workspace: &mut [u64],
        kept: Option<&[f32]>,
    ) {
        let output = elements_mut::<f32>(pieces[self.output].take());
        let gradient = elements::<f32>(pieces[self.gradient].read());
        let workspace = elements_mut::<f32>(bytemuck::cast_slice_mut(workspace));
        let (between, rest) = workspace.split_at_mut(self.grid.shared_elements());
        let filter = self.form.get_or_transform(threads, elements(pieces[self.filter].read()), rest, kept);
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

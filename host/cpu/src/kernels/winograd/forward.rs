//! Convolution by Winograd tiles.

use saggar_compile::program::{Epilogue, ValueId};
use saggar_tensor::op::Conv2d;

use super::WinogradFilterLayout;
use super::tile::{TRANSFORM_COST, choose_tile_size};
use super::tile_grid::TileGrid;
use crate::alias_check::RegionSlice;
use crate::elementwise_loops::{elements, elements_mut};
use crate::elementwise_stage::{ElementwiseStage, StoreChunk};
use crate::epilogue::{BiasClampEpilogue, BoundBiasClamp};
use crate::gemm::pack::PanelLayout;
use crate::kernel_planner::{KernelPlanner, KernelRefusal};
use crate::kernels::contract::{finish_chunk, with_accumulators};
use crate::prepacked::{PackedLayout, PrepackRequest};
use crate::thread_scratch::{buffer, with_buffer};
use crate::threads::CpuThreads;

/// A convolution of `float32` images with an epilogue.
#[derive(Debug)]
pub(crate) struct WinogradConv2d {
    grid: TileGrid,
    input: usize,
    filter: usize,
    form: WinogradFilterLayout,
    prepacked: Option<PrepackRequest>,
    epilogue: Option<BiasClampEpilogue>,
    finish: ElementwiseStage,
}

impl WinogradConv2d {
    /// Prepares a `KernelBody::Conv2d` in NHWC layout of `[input, filter]`. Returns `None` if another algorithm is
    /// faster.
    pub(crate) fn new(
        planner: &KernelPlanner<'_>,
        conv: &Conv2d,
        [input, filter]: [ValueId; 2],
        result: &[usize; 4],
        epilogue: &Epilogue,
    ) -> Result<Option<WinogradConv2d>, KernelRefusal> {
        let block = planner.constant_block(filter);
        let places = [result[0], result[1], result[2]];
        let Some(size) = choose_tile_size(conv, planner.dims(filter), places, block.is_some()) else { return Ok(None) };
        let mut grid = TileGrid::new(size, conv, planner.dims(input), result);
        grid.share_band_if_few_tasks(grid.tile_rows().div_ceil(grid.band_rows()));
        let form =
            WinogradFilterLayout { layout: PanelLayout::new(grid.channels[0], grid.channels[1]), size, adjoint: false };
        let kept =
            block.map(|block| PrepackRequest { block, form: PackedLayout::Points(form), dtype: planner.dtype(filter) });
        Ok(Some(WinogradConv2d {
            grid,
            input: planner.operand(input)?,
            filter: planner.operand(filter)?,
            form,
            prepacked: kept,
            epilogue: BiasClampEpilogue::recognize(planner, result, 3, epilogue),
            finish: ElementwiseStage::epilogue(planner, result, epilogue)?,
        }))
    }

    /// Returns the filter if it must be prepacked, which requires that it does not change between dispatches.
    pub(crate) fn prepack_request(&self) -> Option<&PrepackRequest> {
        self.prepacked.as_ref()
    }

    /// Returns the bytes of accumulators outside the stores, of transformed tiles and of a transformed filter.
    pub(crate) fn workspace_bytes(&self) -> usize {
        let filter = if self.prepacked.is_none() { self.form.len() } else { 0 };
        4 * (self.finish.workspace_elements() + self.grid.shared_elements() + filter)
    }

    /// Runs the convolution. `kept` is the prepacked filter of [`WinogradConv2d::prepack_request`].
    pub(crate) fn run(
        &self,
        threads: &CpuThreads,
        mut pieces: Vec<RegionSlice<'_>>,
        workspace: &mut [u64],
        kept: Option<&[f32]>,
    ) {
        let mut stores = self.finish.take_stores(&mut pieces);
        let inputs = self.finish.inputs(&pieces);
        let images = elements::<f32>(pieces[self.input].read());
        let workspace = elements_mut::<f32>(bytemuck::cast_slice_mut(workspace));
        let (sums, rest) = workspace.split_at_mut(self.finish.workspace_elements());
        let (between, rest) = rest.split_at_mut(self.grid.shared_elements());
        let filter = self.form.get_or_transform(threads, elements(pieces[self.filter].read()), rest, kept);
        let ends = self.epilogue.map(|ending| ending.bind(&pieces));
        let chunks = self.finish.split_stores(std::mem::take(&mut stores), self.grid.result_elements_per_row());
        let mut rows = with_accumulators(chunks, sums, self.finish.accumulation).into_iter();
        let run = |threads: &CpuThreads, between: &mut [f32], first: usize, band: Vec<(StoreChunk<'_>, &mut [f32])>| {
            let [entered, left] = self.grid.split_band(between, band.len());
            self.grid.transform_input(threads, images, first, entered);
            self.grid.multiply(threads, entered, &self.form, filter, left);
            let tasks = band.into_iter().zip(left.chunks_exact(self.grid.elements_per_row(1))).collect();
            threads.for_each(TRANSFORM_COST * left.len(), tasks, |((mut chunk, window), sums)| match ends {
                Some(ends) => self.grid.transform_output(sums, elements_mut(chunk.stores[0]), ends),
                None => finish_chunk(&self.finish, &inputs, chunk, window, |out, _| {
                    self.grid.transform_output(sums, out, BoundBiasClamp::NONE);
                }),
            });
        };
        let bands = self.grid.bands(0..self.grid.tile_rows());
        let bands = bands.map(|band| (band.start, rows.by_ref().take(band.len()).collect::<Vec<_>>()));
        if !self.grid.per_thread_bands {
            return bands.for_each(|(first, band)| run(threads, between, first, band));
        }
        let elements = self.grid.band_elements();
        threads.for_each(self.grid.operations(), bands.collect(), |(first, band)| {
            with_buffer(|words| run(&CpuThreads::single_threaded(), buffer(words, elements), first, band));
        });
    }
}

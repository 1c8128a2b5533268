//! Convolution by Winograd tiles.

use std::sync::Arc;

use saggar_compile::program::{Epilogue, ValueId};
use saggar_tensor::op::Conv2d;

use super::filter_transform::WinogradFilterLayout;
use super::tile::{TRANSFORM_COST, tile_size};
use super::tile_grid::TileGrid;
use crate::elementwise_loops::{elements, elements_mut};
use crate::elementwise_stage::{ElementwiseStage, StoreChunk};
use crate::epilogue::{BiasClampEpilogue, BoundBiasClamp};
use crate::gemm::pack::PanelLayout;
use crate::kernel_context::{KernelContext, KernelRefusal};
use crate::prepacked::PrepackRequest;
use crate::prepared_kernel::{KernelCall, PreparedKernel};
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
        context: &KernelContext<'_>,
        conv: &Conv2d,
        [input, filter]: [ValueId; 2],
        result: &[usize; 4],
        epilogue: &Epilogue,
    ) -> Result<Option<WinogradConv2d>, KernelRefusal> {
        let block = context.constant_block(filter);
        let places = [result[0], result[1], result[2]];
        let Some(size) = tile_size(context, conv, context.dims(filter), places, block.is_some()) else {
            return Ok(None);
        };
        let mut grid = TileGrid::new(size, conv, context.dims(input), result);
        grid.share_band_if_few_tasks(grid.tile_rows().div_ceil(grid.band_rows()));
        let form =
            WinogradFilterLayout { layout: PanelLayout::new(grid.channels[0], grid.channels[1]), size, adjoint: false };
        let prepacked =
            block.map(|block| PrepackRequest { block, layout: Arc::new(form), dtype: context.dtype(filter) });
        Ok(Some(WinogradConv2d {
            grid,
            input: context.operand(input)?,
            filter: context.operand(filter)?,
            form,
            prepacked,
            epilogue: BiasClampEpilogue::recognize(context, result, 3, epilogue),
            finish: ElementwiseStage::epilogue(context, result, epilogue)?,
        }))
    }
}

impl PreparedKernel for WinogradConv2d {
    fn routine(&self) -> &'static str {
        "Winograd convolution, channels last"
    }

    fn workspace_bytes(&self) -> usize {
        // Accumulators outside the stores, transformed tiles, and the transformed filter.
        let filter = if self.prepacked.is_none() { self.form.len() } else { 0 };
        4 * (self.finish.workspace_elements() + self.grid.shared_elements() + filter)
    }

    fn prepack_request(&self) -> Option<&PrepackRequest> {
        self.prepacked.as_ref()
    }

    fn run(&self, call: KernelCall<'_>) {
        let KernelCall { threads, mut slices, workspace, prepacked } = call;
        let mut stores = self.finish.take_stores(&mut slices);
        let inputs = self.finish.inputs(&slices);
        let images = elements::<f32>(slices[self.input].read());
        let workspace = elements_mut::<f32>(bytemuck::cast_slice_mut(workspace));
        let (sums, rest) = workspace.split_at_mut(self.finish.workspace_elements());
        let (between, rest) = rest.split_at_mut(self.grid.shared_elements());
        let filter = self.form.get_or_transform(threads, elements(slices[self.filter].read()), rest, prepacked);
        let ends = self.epilogue.map(|ending| ending.bind(&slices));
        let chunks = self.finish.split_stores(std::mem::take(&mut stores), self.grid.result_elements_per_row());
        let mut rows = self.finish.with_accumulators(chunks, sums).into_iter();
        let run = |threads: &CpuThreads, between: &mut [f32], first: usize, band: Vec<(StoreChunk<'_>, &mut [f32])>| {
            let [entered, left] = self.grid.split_band(between, band.len());
            self.grid.transform_input(threads, images, first, entered);
            self.grid.multiply(threads, entered, &self.form, filter, left);
            let tasks = band.into_iter().zip(left.chunks_exact(self.grid.elements_per_row(1))).collect();
            threads.for_each(TRANSFORM_COST * left.len(), tasks, |((mut chunk, window), sums)| match ends {
                Some(ends) => self.grid.transform_output(sums, elements_mut(chunk.stores[0]), ends),
                None => self.finish.finish_chunk(&inputs, chunk, window, |out, _| {
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

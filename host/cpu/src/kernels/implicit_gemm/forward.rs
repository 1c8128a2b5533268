//! Convolution in NHWC layout.

use std::sync::Arc;

use saggar_compile::program::{Epilogue, ValueId};
use saggar_tensor::op::Conv2d;

use super::taps::{FilterTaps, PackedFilterLayout, SummedChannels};
use super::windowed_images::WindowedImages;
use crate::elementwise_loops::{elements, elements_mut};
use crate::elementwise_stage::{AccumulationTarget, ElementwiseStage};
use crate::epilogue::{BiasClampEpilogue, BoundBiasClamp};
use crate::evaluator::OperandMemory;
use crate::gemm::macro_kernel::{LhsOperand, PackedMatrix, PanelProduct, PanelRange, RhsOperand};
use crate::gemm::partition::GemmPartition;
use crate::kernel_context::{KernelContext, KernelRefusal};
use crate::prepacked::PrepackRequest;
use crate::prepared_kernel::{KernelCall, PreparedKernel};
use crate::thread_scratch::with_scratch;
use crate::threads::CpuThreads;

/// A convolution of `float32` images with an epilogue.
#[derive(Debug)]
pub(crate) struct CpuConv2dNhwc {
    view: WindowedImages,
    outputs: usize,
    input: usize,
    filter: usize,
    form: PackedFilterLayout,
    prepacked: Option<PrepackRequest>,
    bands: GemmPartition,
    epilogue: Option<BiasClampEpilogue>,
    finish: ElementwiseStage,
}

impl CpuConv2dNhwc {
    /// Prepares a `KernelBody::Conv2d` in NHWC layout of `[input, filter]`, with one group.
    pub(crate) fn new(
        context: &KernelContext<'_>,
        conv: &Conv2d,
        [input, filter]: [ValueId; 2],
        result: &[usize; 4],
        epilogue: &Epilogue,
    ) -> Result<CpuConv2dNhwc, KernelRefusal> {
        let (dims, window) = (context.dims(input), context.dims(filter));
        let filter_dims = [window[0], window[1], window[2], window[3]];
        let offset = |axis: usize, tap: usize| (tap * conv.dilations[axis]) as isize - conv.padding[2 * axis] as isize;
        let taps = FilterTaps::new([window[2], window[3]], |[y, x]| Some([offset(0, y), offset(1, x)]));
        let form = PackedFilterLayout::new(filter_dims, &taps, SummedChannels::Inputs);
        let view = WindowedImages {
            images: dims[0],
            size: [dims[1], dims[2]],
            channels: dims[3],
            places: [result[1], result[2]],
            steps: conv.strides,
            taps,
        };
        let prepacked = context.constant_block(filter).map(|block| PrepackRequest {
            block,
            layout: Arc::new(form.clone()),
            dtype: context.dtype(filter),
        });
        Ok(CpuConv2dNhwc {
            bands: GemmPartition::new(view.place_rows(), view.places[1], form.layout),
            outputs: result[3],
            input: context.operand(input)?,
            filter: context.operand(filter)?,
            epilogue: BiasClampEpilogue::recognize(context, result, 3, epilogue),
            finish: ElementwiseStage::epilogue(context, result, epilogue)?,
            view,
            form,
            prepacked,
        })
    }

    fn operations(&self) -> usize {
        self.finish.elements.saturating_mul(self.form.layout.depth + self.finish.operations())
    }

    /// Computes all channels of a band of place rows.
    fn run_band(
        &self,
        images: &[f32],
        rows: std::ops::Range<usize>,
        b: PackedMatrix<'_>,
        out: &mut [f32],
        ends: Option<BoundBiasClamp<'_>>,
    ) {
        let mut places: Vec<&mut [f32]> = out.chunks_exact_mut(self.outputs).collect();
        self.multiply_band(images, rows, b, &mut places, PanelRange { first: 0, end: self.form.layout.panels() }, ends);
    }

    fn multiply_band(
        &self,
        images: &[f32],
        rows: std::ops::Range<usize>,
        b: PackedMatrix<'_>,
        c: &mut [&mut [f32]],
        panels: PanelRange,
        ends: Option<BoundBiasClamp<'_>>,
    ) {
        with_scratch(|scratch| {
            let band = self.view.band(images, rows, &mut scratch.buffers[0]);
            let a = LhsOperand::Gathered { data: band.data, bases: &band.bases, runs: &band.runs };
            PanelProduct {
                c,
                a,
                b: RhsOperand::Packed(b),
                panels,
                add: false,
                epilogue: ends,
                words: &mut scratch.product,
            }
            .run();
        });
    }

    /// Computes a range of channels of a band of place rows per task.
    fn run_panel_tasks(
        &self,
        threads: &CpuThreads,
        images: &[f32],
        b: PackedMatrix<'_>,
        stores: &mut [&mut [u8]],
        sums: &mut [f32],
        ends: Option<BoundBiasClamp<'_>>,
    ) {
        let out = match self.finish.accumulation {
            _ if ends.is_some() => elements_mut::<f32>(stores[0]),
            AccumulationTarget::Store(store) => elements_mut::<f32>(stores[store]),
            AccumulationTarget::Workspace | AccumulationTarget::None => sums,
        };
        let layout = self.form.layout;
        let tasks = self.bands.tasks(&mut out[..self.finish.elements]);
        threads.for_each(self.operations(), tasks, |(rows, panels, mut c)| {
            let ends = ends.map(|ends| ends.skip_channels(panels.first * layout.panel_columns()));
            self.multiply_band(images, rows, b, &mut c, panels, ends);
        });
    }

    fn run_epilogue(
        &self,
        threads: &CpuThreads,
        inputs: &[OperandMemory<'_>],
        stores: Vec<&mut [u8]>,
        sums: &mut [f32],
    ) {
        let chunks = self.finish.split_stores(stores, self.finish.task_counts());
        let tasks = self.finish.with_accumulators(chunks, sums);
        threads.for_each(self.finish.elements.saturating_mul(self.finish.operations()), tasks, |(chunk, window)| {
            self.finish.finish_chunk(inputs, chunk, window, |_, _| {});
        });
    }
}

impl PreparedKernel for CpuConv2dNhwc {
    fn routine(&self) -> &'static str {
        "convolution by implicit GEMM, channels last"
    }

    fn workspace_bytes(&self) -> usize {
        // Accumulators outside the stores, and the packed filter.
        4 * (self.finish.workspace_elements() + if self.prepacked.is_none() { self.form.layout.len() } else { 0 })
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
        let images = elements::<f32>(slices[self.input].read());
        let workspace = elements_mut::<f32>(bytemuck::cast_slice_mut(workspace));
        let (sums, packed) = workspace.split_at_mut(self.finish.workspace_elements());
        let filter = elements::<f32>(slices[self.filter].read());
        let b = self.form.get_or_pack(threads, filter, packed, prepacked);
        let ends = self.epilogue.map(|ending| ending.bind(&slices));
        if !self.bands.covers_whole_rows() {
            self.run_panel_tasks(threads, images, b, &mut stores, sums, ends);
            if ends.is_none() {
                self.run_epilogue(threads, &inputs, stores, sums);
            }
            return;
        }
        let row = self.view.places[1] * self.outputs;
        let counts = self.bands.row_ranges().map(|rows| rows.len() * row);
        let chunks = self.finish.split_stores(stores, counts);
        let tasks = self.finish.with_accumulators(chunks, sums);
        threads.for_each(self.operations(), tasks, |(mut chunk, window)| {
            let first = chunk.first / row;
            let rows = first..first + chunk.count / row;
            match ends {
                Some(_) => self.run_band(images, rows, b, elements_mut(chunk.stores[0]), ends),
                None => {
                    self.finish.finish_chunk(&inputs, chunk, window, |out, _| self.run_band(images, rows, b, out, ends))
                }
            }
        });
    }
}

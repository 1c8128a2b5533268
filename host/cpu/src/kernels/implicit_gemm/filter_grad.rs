//! Filter gradient of a convolution in NHWC layout: for each tap, the product of the transposed inputs under it with
//! the output gradient.

use saggar_compile::program::ValueId;
use saggar_tensor::op::{Conv2d, ReduceKind};

use super::taps::FilterTaps;
use super::windowed_images::WindowedImages;
use crate::elementwise_loops::{accumulate, elements, elements_mut};
use crate::gemm::GemmMatrix;
use crate::gemm::macro_kernel::{LhsOperand, PackedMatrix, PanelProduct, PanelRange, RhsOperand};
use crate::gemm::pack::{PanelLayout, pack};
use crate::kernel_context::{KernelContext, KernelRefusal};
use crate::prepared_kernel::{KernelCall, PreparedKernel};
use crate::thread_scratch::{ThreadScratch, buffer, with_scratch};

/// Maximum number of partial sums of a filter gradient: enough to share among threads, few enough to add up quickly.
const PARTIALS_MAX: usize = 16;
/// Minimum number of multiply-adds of a partial sum.
const PARTIAL_MULTIPLY_ADDS: usize = 4 << 20;
/// Places whose products are added up at a time. Their inputs stay in the caches.
const PLACES_PER_STEP: usize = 512;

/// The filter gradient of `float32` images.
#[derive(Debug)]
pub(crate) struct CpuFilterGradNhwc {
    view: WindowedImages,
    outputs: usize,
    /// Rows of places per partial sum.
    rows: usize,
    input: usize,
    gradient: usize,
    output: usize,
}

impl CpuFilterGradNhwc {
    /// Prepares a `KernelBody::Conv2dFilterGrad` in NHWC layout of `[input, gradient, output]`, with one group.
    pub(crate) fn new(
        context: &KernelContext<'_>,
        conv: &Conv2d,
        [input, gradient, output]: [ValueId; 3],
    ) -> Result<CpuFilterGradNhwc, KernelRefusal> {
        let (dims, places, window) = (context.dims(input), context.dims(gradient), context.dims(output));
        let offset = |axis: usize, tap: usize| (tap * conv.dilations[axis]) as isize - conv.padding[2 * axis] as isize;
        let view = WindowedImages {
            images: dims[0],
            size: [dims[1], dims[2]],
            channels: dims[3],
            places: [places[1], places[2]],
            steps: conv.strides,
            taps: FilterTaps::new([window[2], window[3]], |[y, x]| Some([offset(0, y), offset(1, x)])),
        };
        let outputs = window[0];
        let row = (view.taps.list.len() * view.channels * outputs * view.places[1]).max(1);
        let rows = view
            .place_rows()
            .div_ceil(PARTIALS_MAX)
            .max(PARTIAL_MULTIPLY_ADDS / row)
            .clamp(1, view.place_rows().max(1));
        Ok(CpuFilterGradNhwc {
            view,
            outputs,
            rows,
            input: context.operand(input)?,
            gradient: context.operand(gradient)?,
            output: context.region(output),
        })
    }

    fn depth(&self) -> usize {
        self.view.taps.list.len() * self.view.channels
    }

    fn partial_count(&self) -> usize {
        self.view.place_rows().div_ceil(self.rows)
    }

    /// Computes the sum over a range of place rows, as `[taps and channels, outputs]`.
    fn accumulate_partial(&self, images: &[f32], gradient: &[f32], rows: std::ops::Range<usize>, partial: &mut [f32]) {
        let row = self.view.places[1];
        let step = (PLACES_PER_STEP / row.max(1)).max(1);
        let mut out: Vec<&mut [f32]> = partial.chunks_exact_mut(self.outputs).collect();
        for first in rows.clone().step_by(step) {
            let here = first..(first + step).min(rows.end);
            let places = here.len() * row;
            let dy = &gradient[first * row * self.outputs..][..places * self.outputs];
            with_scratch(|scratch| {
                let layout = PanelLayout::new(places, self.outputs);
                let ThreadScratch { buffers: [framed, packed], product: words, .. } = scratch;
                let data = buffer::<f32>(packed, layout.len());
                pack(layout, GemmMatrix::new(dy, self.outputs, 0, false), data);
                let band = self.view.band(images, here, framed);
                let mut at = 0;
                for run in &band.runs {
                    let a = LhsOperand::Transposed { data: &band.data[run.offset..], bases: &band.bases };
                    let c = &mut out[at..at + run.len];
                    let panels = PanelRange { first: 0, end: layout.panels() };
                    let b = RhsOperand::Packed(PackedMatrix { layout, data });
                    PanelProduct { c, a, b, panels, add: first > rows.start, epilogue: None, words }.run();
                    at += run.len;
                }
            });
        }
    }

    /// Copies from `[taps, channels, outputs]` to the order of the filter.
    fn write_in_filter_order(&self, sum: &[f32], output: &mut [f32]) {
        let window = self.view.taps.list.len();
        let channels = self.view.channels;
        for (tap, rows) in self.view.taps.list.iter().zip(sum.chunks_exact(channels * self.outputs)) {
            for (channel, row) in rows.chunks_exact(self.outputs).enumerate() {
                for (out, &value) in
                    output[channel * window + tap.index..].iter_mut().step_by(channels * window).zip(row)
                {
                    *out = value;
                }
            }
        }
    }
}

impl PreparedKernel for CpuFilterGradNhwc {
    fn routine(&self) -> &'static str {
        "filter gradient by implicit GEMM, channels last"
    }

    fn workspace_bytes(&self) -> usize {
        // The partial sums.
        4 * self.partial_count() * self.depth() * self.outputs
    }

    fn run(&self, call: KernelCall<'_>) {
        let KernelCall { threads, mut slices, workspace, .. } = call;
        let output = elements_mut::<f32>(slices[self.output].take());
        let images = elements::<f32>(slices[self.input].read());
        let gradient = elements::<f32>(slices[self.gradient].read());
        let filter = self.depth() * self.outputs;
        if filter == 0 {
            return;
        }
        let workspace = elements_mut::<f32>(bytemuck::cast_slice_mut(workspace));
        let partials = &mut workspace[..self.partial_count() * filter];
        let tasks: Vec<_> = partials.chunks_exact_mut(filter).enumerate().collect();
        let operations = self.view.place_rows().saturating_mul(self.view.places[1]).saturating_mul(filter);
        threads.for_each(operations, tasks, |(index, partial)| {
            let first = index * self.rows;
            self.accumulate_partial(images, gradient, first..(first + self.rows).min(self.view.place_rows()), partial);
        });
        let (sum, others) = partials.split_at_mut(filter);
        for partial in others.chunks_exact(filter) {
            accumulate(ReduceKind::Sum, sum, partial);
        }
        self.write_in_filter_order(sum, output);
    }
}

//! Input gradient of a convolution in NHWC layout. For each stride phase of the result's places, it is a convolution of
//! the output gradient with the taps that reach those places. If many of these taps would miss the gradient, it is
//! computed by col2im instead: the contribution of each gradient place to the places under its window. That requires no
//! padding and less than 3/4 of the multiply-adds.

use saggar_compile::program::ValueId;
use saggar_tensor::op::Conv2d;

use super::col2im::Col2imInputGrad;
use super::taps::{FilterTaps, PackedFilterLayout, SummedChannels};
use super::windowed_images::WindowedImages;
use crate::elementwise_loops::{elements, elements_mut};
use crate::gemm::macro_kernel::{LhsOperand, PanelProduct, PanelRange, RhsOperand};
use crate::gemm::partition::GemmPartition;
use crate::kernel_context::{KernelContext, KernelRefusal};
use crate::prepared_kernel::{KernelCall, PreparedKernel};
use crate::thread_scratch::with_scratch;
use crate::threads::CpuThreads;

/// The input gradient of `float32` images.
#[derive(Debug)]
pub(crate) struct CpuInputGradNhwc {
    /// The col2im gradient, or `None` if the gradient is computed by convolutions.
    scatter: Option<Col2imInputGrad>,
    phases: Vec<StridePhase>,
    /// Images, height and width of the result.
    size: [usize; 3],
    steps: [usize; 2],
    channels: usize,
    gradient: usize,
    filter: usize,
    output: usize,
}

/// Places of the result that the same taps reach.
#[derive(Debug)]
struct StridePhase {
    view: WindowedImages,
    form: PackedFilterLayout,
    /// First row and column.
    first: [usize; 2],
    bands: GemmPartition,
}

impl CpuInputGradNhwc {
    /// Prepares a `KernelBody::Conv2dInputGrad` in NHWC layout of `[gradient, filter, output]`, with one group.
    pub(crate) fn new(
        context: &KernelContext<'_>,
        conv: &Conv2d,
        [gradient, filter, output]: [ValueId; 3],
    ) -> Result<CpuInputGradNhwc, KernelRefusal> {
        let (from, window, to) = (context.dims(gradient), context.dims(filter), context.dims(output));
        let filter_dims = [window[0], window[1], window[2], window[3]];
        let mut phases = Vec::new();
        for y in 0..conv.strides[0].min(to[1]) {
            for x in 0..conv.strides[1].min(to[2]) {
                let first = [y, x];
                // Solves "tap of gradient place = result place" for the gradient place.
                let along = |axis: usize, tap: usize| {
                    let distance =
                        (first[axis] + conv.padding[2 * axis]) as isize - (tap * conv.dilations[axis]) as isize;
                    let step = conv.strides[axis] as isize;
                    (distance % step == 0).then_some(distance / step)
                };
                let taps = FilterTaps::new([window[2], window[3]], |[y, x]| Some([along(0, y)?, along(1, x)?]));
                let form = PackedFilterLayout::new(filter_dims, &taps, SummedChannels::Outputs);
                let places = [0, 1].map(|axis| (to[1 + axis] - first[axis]).div_ceil(conv.strides[axis]));
                let view = WindowedImages {
                    images: from[0],
                    size: [from[1], from[2]],
                    channels: from[3],
                    places,
                    steps: [1, 1],
                    taps,
                };
                let bands = GemmPartition::new(view.place_rows(), places[1], form.layout);
                phases.push(StridePhase { view, form, first, bands });
            }
        }
        let scatter = Col2imInputGrad::new(conv, from, filter_dims, to).filter(|scatter| {
            let gathered: usize = phases.iter().map(StridePhase::multiply_adds).sum();
            scatter.multiply_adds() * 4 < gathered * 3
        });
        Ok(CpuInputGradNhwc {
            scatter,
            phases,
            size: [to[0], to[1], to[2]],
            steps: conv.strides,
            channels: to[3],
            gradient: context.operand(gradient)?,
            filter: context.operand(filter)?,
            output: context.region(output),
        })
    }
}

impl PreparedKernel for CpuInputGradNhwc {
    fn routine(&self) -> &'static str {
        "input gradient by implicit GEMM, channels last"
    }

    fn workspace_bytes(&self) -> usize {
        // The packed filter.
        let alone = self.scatter.as_ref().map(|scatter| scatter.form.layout.len());
        4 * alone.unwrap_or_else(|| self.phases.iter().map(|phase| phase.form.layout.len()).max().unwrap_or(0))
    }

    fn run(&self, call: KernelCall<'_>) {
        let KernelCall { threads, mut slices, workspace, .. } = call;
        let output = elements_mut::<f32>(slices[self.output].take());
        let gradient = elements::<f32>(slices[self.gradient].read());
        let filter = elements::<f32>(slices[self.filter].read());
        if output.is_empty() {
            return;
        }
        let workspace = elements_mut::<f32>(bytemuck::cast_slice_mut(workspace));
        if let Some(scatter) = &self.scatter {
            return scatter.run(threads, [gradient, filter], workspace, output);
        }
        for phase in &self.phases {
            phase.run(self, threads, [gradient, filter], workspace, output);
        }
    }
}

impl StridePhase {
    /// Returns the number of multiply-adds, including padding columns.
    fn multiply_adds(&self) -> usize {
        self.view.place_rows() * self.view.places[1] * self.form.layout.len()
    }

    fn run(
        &self,
        grad: &CpuInputGradNhwc,
        threads: &CpuThreads,
        [gradient, filter]: [&[f32]; 2],
        workspace: &mut [f32],
        output: &mut [f32],
    ) {
        let b = self.form.get_or_pack(threads, filter, workspace, None);
        let [_, height, width] = grad.size;
        // This phase's places, row by row.
        let mut places: Vec<&mut [f32]> = Vec::with_capacity(self.view.place_rows() * self.view.places[1]);
        for image in output.chunks_exact_mut(height * width * grad.channels) {
            for row in image.chunks_exact_mut(width * grad.channels).skip(self.first[0]).step_by(grad.steps[0]) {
                places.extend(row.chunks_exact_mut(grad.channels).skip(self.first[1]).step_by(grad.steps[1]));
            }
        }
        let mut tasks = Vec::new();
        let mut rest = &mut places[..];
        for rows in self.bands.row_ranges() {
            let (mine, later) = rest.split_at_mut(rows.len() * self.view.places[1]);
            rest = later;
            tasks.push((rows, mine));
        }
        let operations =
            self.form.layout.depth.saturating_mul(grad.channels) * self.view.place_rows() * self.view.places[1];
        let panels = PanelRange { first: 0, end: self.form.layout.panels() };
        threads.for_each(operations, tasks, |(rows, c)| {
            with_scratch(|scratch| {
                let band = self.view.band(gradient, rows, &mut scratch.buffers[0]);
                let a = LhsOperand::Gathered { data: band.data, bases: &band.bases, runs: &band.runs };
                PanelProduct {
                    c,
                    a,
                    b: RhsOperand::Packed(b),
                    panels,
                    add: false,
                    epilogue: None,
                    words: &mut scratch.product,
                }
                .run();
            });
        });
    }
}

//! Adjoint of a convolution in its filter: for each tap the product of what lies under it, turned, with the gradient.

use saggar_compile::program::ValueId;
use saggar_tensor::op::{Conv2d, ReduceKind};

use super::View;
use super::taps::Taps;
use crate::cpu::gemm::Matrix;
use crate::cpu::gemm::pack::{Layout, pack};
use crate::cpu::gemm::product::{Columns, Packed, Product, Right, Rows};
use crate::cpu::lanes::{accumulate, elements, elements_mut};
use crate::cpu::plan::{Planner, Refusal};
use crate::cpu::region::Piece;
use crate::cpu::registers::{Scratch, buffer, with_scratch};
use crate::cpu::threads::Threads;

/// Partial sums of a filter's gradient: enough to share among threads, few enough to add up quickly.
const PARTIALS_MAX: usize = 16;
/// Multiply-adds of a partial sum, at least.
const PARTIAL_MULTIPLY_ADDS: usize = 4 << 20;
/// Places whose products are added up at a time: what they see stays in the caches.
const PLACES: usize = 512;

/// Adjoint in the filter, of `float32` images.
#[derive(Debug)]
pub(in super::super) struct FilterGrad {
    view: View,
    outputs: usize,
    /// Rows of places of one partial sum.
    rows: usize,
    input: usize,
    gradient: usize,
    output: usize,
}

impl FilterGrad {
    /// Prepares a `Body::Conv2dFilterGrad` with channels last of `[input, gradient, output]`, of one group.
    pub(in super::super) fn new(
        planner: &Planner<'_>,
        conv: &Conv2d,
        [input, gradient, output]: [ValueId; 3],
    ) -> Result<FilterGrad, Refusal> {
        let (dims, places, window) = (planner.dims(input), planner.dims(gradient), planner.dims(output));
        let offset = |axis: usize, tap: usize| (tap * conv.dilations[axis]) as isize - conv.padding[2 * axis] as isize;
        let view = View {
            images: dims[0],
            size: [dims[1], dims[2]],
            channels: dims[3],
            places: [places[1], places[2]],
            steps: conv.strides,
            taps: Taps::new([window[2], window[3]], |[y, x]| Some([offset(0, y), offset(1, x)])),
        };
        let outputs = window[0];
        let row = (view.taps.list.len() * view.channels * outputs * view.places[1]).max(1);
        let rows = view.rows().div_ceil(PARTIALS_MAX).max(PARTIAL_MULTIPLY_ADDS / row).clamp(1, view.rows().max(1));
        Ok(FilterGrad {
            view,
            outputs,
            rows,
            input: planner.operand(input)?,
            gradient: planner.operand(gradient)?,
            output: planner.region(output),
        })
    }

    fn depth(&self) -> usize {
        self.view.taps.list.len() * self.view.channels
    }

    fn partials(&self) -> usize {
        self.view.rows().div_ceil(self.rows)
    }

    /// Partial sums.
    pub(in super::super) fn workspace_bytes(&self) -> usize {
        4 * self.partials() * self.depth() * self.outputs
    }

    /// Runs it.
    pub(in super::super) fn run(&self, threads: &Threads, mut pieces: Vec<Piece<'_>>, workspace: &mut [u64]) {
        let output = elements_mut::<f32>(pieces[self.output].take());
        let images = elements::<f32>(pieces[self.input].read());
        let gradient = elements::<f32>(pieces[self.gradient].read());
        let filter = self.depth() * self.outputs;
        if filter == 0 {
            return;
        }
        let workspace = elements_mut::<f32>(bytemuck::cast_slice_mut(workspace));
        let partials = &mut workspace[..self.partials() * filter];
        let tasks: Vec<_> = partials.chunks_exact_mut(filter).enumerate().collect();
        let operations = self.view.rows().saturating_mul(self.view.places[1]).saturating_mul(filter);
        threads.each(operations, tasks, |(index, partial)| {
            let first = index * self.rows;
            self.partial(images, gradient, first..(first + self.rows).min(self.view.rows()), partial);
        });
        let (sum, others) = partials.split_at_mut(filter);
        for partial in others.chunks_exact(filter) {
            accumulate(ReduceKind::Sum, sum, partial);
        }
        self.turn(sum, output);
    }

    /// The sum over some rows of places: taps and channels by outputs.
    fn partial(&self, images: &[f32], gradient: &[f32], rows: std::ops::Range<usize>, partial: &mut [f32]) {
        let row = self.view.places[1];
        let step = (PLACES / row.max(1)).max(1);
        let mut out: Vec<&mut [f32]> = partial.chunks_exact_mut(self.outputs).collect();
        for first in rows.clone().step_by(step) {
            let here = first..(first + step).min(rows.end);
            let places = here.len() * row;
            let dy = &gradient[first * row * self.outputs..][..places * self.outputs];
            with_scratch(|scratch| {
                let layout = Layout::new(places, self.outputs);
                let Scratch { buffers: [framed, packed], product: words, .. } = scratch;
                let data = buffer::<f32>(packed, layout.len());
                pack(layout, Matrix::new(dy, self.outputs, 0, false), data);
                let band = self.view.band(images, here, framed);
                let mut at = 0;
                for run in &band.runs {
                    let a = Rows::Turned { data: &band.data[run.offset..], bases: &band.bases };
                    let c = &mut out[at..at + run.len];
                    let panels = Columns { first: 0, end: layout.panels() };
                    let b = Right::Packed(Packed { layout, data });
                    Product { c, a, b, panels, add: first > rows.start, ends: None, words }.run();
                    at += run.len;
                }
            });
        }
    }

    /// From taps, channels and outputs to the filter's own order.
    fn turn(&self, sum: &[f32], output: &mut [f32]) {
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

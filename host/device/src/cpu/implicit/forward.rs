//! Convolution.

use saggar_compile::program::{Epilogue, ValueId};
use saggar_tensor::op::Conv2d;

use super::View;
use super::taps::{FilterForm, Order, Taps};
use crate::cpu::bands::Bands;
use crate::cpu::contract::{finish_chunk, with_windows};
use crate::cpu::ending::{Ending, Ends};
use crate::cpu::evaluate::Input;
use crate::cpu::gemm::product::{Columns, Packed, Product, Right, Rows};
use crate::cpu::kept::{Form, Kept};
use crate::cpu::lanes::{elements, elements_mut};
use crate::cpu::map::{Accumulation, Finish};
use crate::cpu::plan::{Planner, Refusal};
use crate::cpu::region::Piece;
use crate::cpu::registers::with_scratch;
use crate::cpu::threads::Threads;

/// Convolution of `float32` images with an epilogue.
#[derive(Debug)]
pub(in super::super) struct Forward {
    view: View,
    outputs: usize,
    input: usize,
    filter: usize,
    form: FilterForm,
    kept: Option<Kept>,
    bands: Bands,
    ending: Option<Ending>,
    finish: Finish,
}

impl Forward {
    /// Prepares a `Body::Conv2d` with channels last of `[input, filter]`, of one group.
    pub(in super::super) fn new(
        planner: &Planner<'_>,
        conv: &Conv2d,
        [input, filter]: [ValueId; 2],
        result: &[usize; 4],
        epilogue: &Epilogue,
    ) -> Result<Forward, Refusal> {
        let (dims, window) = (planner.dims(input), planner.dims(filter));
        let filter_dims = [window[0], window[1], window[2], window[3]];
        let offset = |axis: usize, tap: usize| (tap * conv.dilations[axis]) as isize - conv.padding[2 * axis] as isize;
        let taps = Taps::new([window[2], window[3]], |[y, x]| Some([offset(0, y), offset(1, x)]));
        let form = FilterForm::new(filter_dims, &taps, Order::Inputs);
        let view = View {
            images: dims[0],
            size: [dims[1], dims[2]],
            channels: dims[3],
            places: [result[1], result[2]],
            steps: conv.strides,
            taps,
        };
        let kept = planner.kept(filter).map(|block| Kept {
            block,
            form: Form::Filter(form.clone()),
            dtype: planner.dtype(filter),
        });
        Ok(Forward {
            bands: Bands::new(view.rows(), view.places[1], form.layout),
            outputs: result[3],
            input: planner.operand(input)?,
            filter: planner.operand(filter)?,
            ending: Ending::of(planner, result, 3, epilogue),
            finish: Finish::epilogue(planner, result, epilogue)?,
            view,
            form,
            kept,
        })
    }

    /// The filter in its packed form, where it stays as it is.
    pub(in super::super) fn kept(&self) -> Option<&Kept> {
        self.kept.as_ref()
    }

    /// What is accumulated outside the stores, and a packed filter.
    pub(in super::super) fn workspace_bytes(&self) -> usize {
        4 * (self.finish.accumulated() + if self.kept.is_none() { self.form.layout.len() } else { 0 })
    }

    /// Runs it; `kept` is what it asked for.
    pub(in super::super) fn run(
        &self,
        threads: &Threads,
        mut pieces: Vec<Piece<'_>>,
        workspace: &mut [u64],
        kept: Option<&[f32]>,
    ) {
        if self.finish.elements == 0 {
            return;
        }
        let mut stores = self.finish.take(&mut pieces);
        let inputs = self.finish.inputs(&pieces);
        let images = elements::<f32>(pieces[self.input].read());
        let workspace = elements_mut::<f32>(bytemuck::cast_slice_mut(workspace));
        let (sums, packed) = workspace.split_at_mut(self.finish.accumulated());
        let filter = elements::<f32>(pieces[self.filter].read());
        let b = super::packed(&self.form, filter, threads, packed, kept);
        let ends = self.ending.map(|ending| ending.ends(&pieces));
        if !self.bands.is_whole() {
            self.stretches(threads, images, b, &mut stores, sums, ends);
            if ends.is_none() {
                self.finish_all(threads, &inputs, stores, sums);
            }
            return;
        }
        let row = self.view.places[1] * self.outputs;
        let counts = self.bands.ranges().map(|rows| rows.len() * row);
        let chunks = self.finish.chunks(stores, counts);
        let tasks = with_windows(chunks, sums, self.finish.accumulation);
        threads.each(self.operations(), tasks, |(mut chunk, window)| {
            let first = chunk.first / row;
            let rows = first..first + chunk.count / row;
            match ends {
                Some(_) => self.band(images, rows, b, elements_mut(chunk.stores[0]), ends),
                None => {
                    finish_chunk(&self.finish, &inputs, chunk, window, |out, _| self.band(images, rows, b, out, ends))
                }
            }
        });
    }

    fn operations(&self) -> usize {
        self.finish.elements.saturating_mul(self.form.layout.depth + self.finish.operations())
    }

    /// All channels of a band of rows of places.
    fn band(
        &self,
        images: &[f32],
        rows: std::ops::Range<usize>,
        b: Packed<'_>,
        out: &mut [f32],
        ends: Option<Ends<'_>>,
    ) {
        let mut places: Vec<&mut [f32]> = out.chunks_exact_mut(self.outputs).collect();
        self.product(images, rows, b, &mut places, Columns { first: 0, end: self.form.layout.panels() }, ends);
    }

    fn product(
        &self,
        images: &[f32],
        rows: std::ops::Range<usize>,
        b: Packed<'_>,
        c: &mut [&mut [f32]],
        panels: Columns,
        ends: Option<Ends<'_>>,
    ) {
        with_scratch(|scratch| {
            let band = self.view.band(images, rows, &mut scratch.buffers[0]);
            let a = Rows::Gathered { data: band.data, bases: &band.bases, runs: &band.runs };
            Product { c, a, b: Right::Packed(b), panels, add: false, ends, words: &mut scratch.product }.run();
        });
    }

    /// Some channels of a band of rows a task.
    fn stretches(
        &self,
        threads: &Threads,
        images: &[f32],
        b: Packed<'_>,
        stores: &mut [&mut [u8]],
        sums: &mut [f32],
        ends: Option<Ends<'_>>,
    ) {
        let out = match self.finish.accumulation {
            _ if ends.is_some() => elements_mut::<f32>(stores[0]),
            Accumulation::Store(store) => elements_mut::<f32>(stores[store]),
            Accumulation::Workspace | Accumulation::None => sums,
        };
        let layout = self.form.layout;
        let tasks = self.bands.tiles(&mut out[..self.finish.elements]);
        threads.each(self.operations(), tasks, |(rows, panels, mut c)| {
            let ends = ends.map(|ends| ends.from(panels.first * layout.panel_columns()));
            self.product(images, rows, b, &mut c, panels, ends);
        });
    }

    fn finish_all(&self, threads: &Threads, inputs: &[Input<'_>], stores: Vec<&mut [u8]>, sums: &mut [f32]) {
        let chunks = self.finish.chunks(stores, self.finish.task_counts());
        let tasks = with_windows(chunks, sums, self.finish.accumulation);
        threads.each(self.finish.elements.saturating_mul(self.finish.operations()), tasks, |(chunk, window)| {
            finish_chunk(&self.finish, inputs, chunk, window, |_, _| {});
        });
    }
}

//! Convolution.

use saggar_compile::program::{Epilogue, ValueId};
use saggar_tensor::op::Conv2d;

use super::PointsForm;
use super::grid::Grid;
use super::tile::{TRANSFORM, choose};
use crate::cpu::contract::{finish_chunk, with_windows};
use crate::cpu::ending::{Ending, Ends};
use crate::cpu::gemm::pack::Layout;
use crate::cpu::kept::{Form, Kept};
use crate::cpu::lanes::{elements, elements_mut};
use crate::cpu::map::{Chunk, Finish};
use crate::cpu::plan::{Planner, Refusal};
use crate::cpu::region::Piece;
use crate::cpu::registers::{buffer, with_buffer};
use crate::cpu::threads::Threads;

/// Convolution of `float32` images with an epilogue.
#[derive(Debug)]
pub(in super::super) struct Forward {
    grid: Grid,
    input: usize,
    filter: usize,
    form: PointsForm,
    kept: Option<Kept>,
    ending: Option<Ending>,
    finish: Finish,
}

impl Forward {
    /// Prepares a `Body::Conv2d` with channels last of `[input, filter]`, if it is worth it.
    pub(in super::super) fn new(
        planner: &Planner<'_>,
        conv: &Conv2d,
        [input, filter]: [ValueId; 2],
        result: &[usize; 4],
        epilogue: &Epilogue,
    ) -> Result<Option<Forward>, Refusal> {
        let block = planner.kept(filter);
        let places = [result[0], result[1], result[2]];
        let Some(size) = choose(conv, planner.dims(filter), places, block.is_some()) else { return Ok(None) };
        let mut grid = Grid::new(size, conv, planner.dims(input), result);
        grid.share_few(grid.rows().div_ceil(grid.band_rows()));
        let form = PointsForm { layout: Layout::new(grid.channels[0], grid.channels[1]), size, adjoint: false };
        let kept = block.map(|block| Kept { block, form: Form::Points(form), dtype: planner.dtype(filter) });
        Ok(Some(Forward {
            grid,
            input: planner.operand(input)?,
            filter: planner.operand(filter)?,
            form,
            kept,
            ending: Ending::of(planner, result, 3, epilogue),
            finish: Finish::epilogue(planner, result, epilogue)?,
        }))
    }

    /// The filter at the points, where it stays as it is.
    pub(in super::super) fn kept(&self) -> Option<&Kept> {
        self.kept.as_ref()
    }

    /// What is accumulated outside the stores, tiles between their transforms, and a filter.
    pub(in super::super) fn workspace_bytes(&self) -> usize {
        let filter = if self.kept.is_none() { self.form.len() } else { 0 };
        4 * (self.finish.accumulated() + self.grid.shared_elements() + filter)
    }

    /// Runs it; `kept` is what it asked for.
    pub(in super::super) fn run(
        &self,
        threads: &Threads,
        mut pieces: Vec<Piece<'_>>,
        workspace: &mut [u64],
        kept: Option<&[f32]>,
    ) {
        let mut stores = self.finish.take(&mut pieces);
        let inputs = self.finish.inputs(&pieces);
        let images = elements::<f32>(pieces[self.input].read());
        let workspace = elements_mut::<f32>(bytemuck::cast_slice_mut(workspace));
        let (sums, rest) = workspace.split_at_mut(self.finish.accumulated());
        let (between, rest) = rest.split_at_mut(self.grid.shared_elements());
        let filter = self.form.made(threads, elements(pieces[self.filter].read()), rest, kept);
        let ends = self.ending.map(|ending| ending.ends(&pieces));
        let chunks = self.finish.chunks(std::mem::take(&mut stores), self.grid.counts());
        let mut rows = with_windows(chunks, sums, self.finish.accumulation).into_iter();
        let run = |threads: &Threads, between: &mut [f32], first: usize, band: Vec<(Chunk<'_>, &mut [f32])>| {
            let [entered, left] = self.grid.split(between, band.len());
            self.grid.enter(threads, images, first, entered);
            self.grid.multiply(threads, entered, &self.form, filter, left);
            let tasks = band.into_iter().zip(left.chunks_exact(self.grid.row(1))).collect();
            threads.each(TRANSFORM * left.len(), tasks, |((mut chunk, window), sums)| match ends {
                Some(ends) => self.grid.leave(sums, elements_mut(chunk.stores[0]), ends),
                None => finish_chunk(&self.finish, &inputs, chunk, window, |out, _| {
                    self.grid.leave(sums, out, Ends::NONE);
                }),
            });
        };
        let bands = self.grid.bands(0..self.grid.rows());
        let bands = bands.map(|band| (band.start, rows.by_ref().take(band.len()).collect::<Vec<_>>()));
        if !self.grid.near {
            return bands.for_each(|(first, band)| run(threads, between, first, band));
        }
        let elements = self.grid.band_elements();
        threads.each(self.grid.operations(), bands.collect(), |(first, band)| {
            with_buffer(|words| run(&Threads::alone(), buffer(words, elements), first, band));
        });
    }
}

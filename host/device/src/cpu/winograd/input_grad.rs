//! Adjoint of a convolution in its input.

use std::ops::Range;

use saggar_compile::program::ValueId;
use saggar_tensor::op::Conv2d;

use super::PointsForm;
use super::grid::Grid;
use super::tile::choose;
use crate::cpu::gemm::pack::Layout;
use crate::cpu::kept::{Form, Kept};
use crate::cpu::lanes::{elements, elements_mut};
use crate::cpu::plan::{Planner, Refusal};
use crate::cpu::region::Piece;
use crate::cpu::registers::{buffer, with_buffer};
use crate::cpu::threads::Threads;

/// Adjoint in the input, of `float32` images.
#[derive(Debug)]
pub(in super::super) struct InputGrad {
    grid: Grid,
    form: PointsForm,
    kept: Option<Kept>,
    gradient: usize,
    filter: usize,
    output: usize,
}

impl InputGrad {
    /// Prepares a `Body::Conv2dInputGrad` with channels last of `[gradient, filter, output]`, if it is worth it.
    pub(in super::super) fn new(
        planner: &Planner<'_>,
        conv: &Conv2d,
        [gradient, filter, output]: [ValueId; 3],
    ) -> Result<Option<InputGrad>, Refusal> {
        let (from, to) = (planner.dims(gradient), planner.dims(output));
        let block = planner.kept(filter);
        let size = choose(conv, planner.dims(filter), [from[0], from[1], from[2]], block.is_some());
        let Some(size) = size else { return Ok(None) };
        let mut grid = Grid::new(size, conv, to, from);
        // Tiles of an image overlap, so a thread takes whole images; few of them are not enough for all threads.
        grid.share_few(grid.images.div_ceil(grid.band_images()));
        let layout = Layout::new(grid.channels[1], grid.channels[0]);
        let form = PointsForm { layout, size, adjoint: true };
        Ok(Some(InputGrad {
            grid,
            form,
            kept: block.map(|block| Kept { block, form: Form::Points(form), dtype: planner.dtype(filter) }),
            gradient: planner.operand(gradient)?,
            filter: planner.operand(filter)?,
            output: planner.region(output),
        }))
    }

    /// The filter at the points, where it stays as it is.
    pub(in super::super) fn kept(&self) -> Option<&Kept> {
        self.kept.as_ref()
    }

    /// Tiles between their transforms, and a filter.
    pub(in super::super) fn workspace_bytes(&self) -> usize {
        let filter = if self.kept.is_none() { self.form.len() } else { 0 };
        4 * (self.grid.shared_elements() + filter)
    }

    /// Runs it; `kept` is what it asked for.
    pub(in super::super) fn run(
        &self,
        threads: &Threads,
        mut pieces: Vec<Piece<'_>>,
        workspace: &mut [u64],
        kept: Option<&[f32]>,
    ) {
        let output = elements_mut::<f32>(pieces[self.output].take());
        let gradient = elements::<f32>(pieces[self.gradient].read());
        let workspace = elements_mut::<f32>(bytemuck::cast_slice_mut(workspace));
        let (between, rest) = workspace.split_at_mut(self.grid.shared_elements());
        let filter = self.form.made(threads, elements(pieces[self.filter].read()), rest, kept);
        // Of images from the band's on.
        let run = |threads: &Threads, between: &mut [f32], band: Range<usize>, images: (usize, &mut [f32])| {
            let [parts, values] = self.grid.split(between, band.len());
            self.grid.values(threads, gradient, band.start, values);
            self.grid.multiply(threads, values, &self.form, filter, parts);
            self.grid.spread(threads, parts, band.start, images);
        };
        if !self.grid.near {
            let bands = self.grid.bands(0..self.grid.rows());
            return bands.for_each(|band| run(threads, between, band, (0, &mut *output)));
        }
        let (rows, elements) = (self.grid.tiles()[0], self.grid.band_elements());
        let together = self.grid.band_images();
        let images = output.chunks_mut(together * self.grid.image_elements()).enumerate();
        threads.each(self.grid.operations(), images.collect(), |(task, images)| {
            let first = task * together;
            let end = (first + together).min(self.grid.images);
            with_buffer(|words| {
                let between = buffer(words, elements);
                for band in self.grid.bands(first * rows..end * rows) {
                    run(&Threads::alone(), between, band, (first, &mut *images));
                }
            });
        });
    }
}

//! Filters of three by three taps at the points of a tile: for every point a matrix of input channels by results.

use super::Size;
use super::transform::{Four, Two, filter};
use crate::cpu::gemm::pack::{Layout, Part, parts};
use crate::cpu::gemm::product::Packed;

/// A filter `[o, c, 3, 3]` as the second operands of a tile's products, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct PointsForm {
    /// The panels of each of them.
    pub(super) layout: Layout,
    /// Of which tile.
    pub(super) size: Size,
}

impl PointsForm {
    /// Elements.
    pub(in super::super) fn len(&self) -> usize {
        self.size.points() * self.layout.len()
    }

    /// The matrix of a point.
    pub(super) fn at<'a>(&self, data: &'a [f32], point: usize) -> Packed<'a> {
        let len = self.layout.len();
        Packed { layout: self.layout, data: &data[point * len..][..len] }
    }

    /// The parts of all matrices, each with its point.
    pub(super) fn parts<'a>(&self, out: &'a mut [f32]) -> Vec<(usize, Part<'a>)> {
        let points = out[..self.len()].chunks_exact_mut(self.layout.len()).enumerate();
        points.flat_map(|(point, out)| parts(self.layout, out).into_iter().map(move |part| (point, part))).collect()
    }

    /// Fills a part from a filter.
    pub(super) fn fill(&self, taps: &[f32], (point, part): (usize, Part<'_>)) {
        let PointsForm { layout, size } = *self;
        let place = [point / size.side(), point % size.side()];
        let taps = |depth: usize, column: usize| &taps[(column * layout.depth + depth) * 9..][..9];
        part.fill_with(|depth, column| match size {
            Size::Four => filter::<Four>(taps(depth, column), place),
            Size::Two => filter::<Two>(taps(depth, column), place),
        });
    }

    /// Fills all of it from a filter.
    pub(in super::super) fn write(&self, taps: &[f32], out: &mut [f32]) {
        self.parts(out).into_iter().for_each(|part| self.fill(taps, part));
    }
}

//! Sizes of tiles, and where each is worth it.

use saggar_tensor::op::Conv2d;

use super::transform::{FourPoints, SixPoints, WinogradPoints};

/// A size of tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum WinogradTileSize {
    /// Four results a side by three taps.
    FourByThree,
    /// Two results a side by three taps.
    TwoByThree,
    /// Two results a side by five taps.
    TwoByFive,
}

/// A size of tile that functions are compiled for.
pub(super) trait WinogradTile {
    /// Where it is evaluated.
    type Points: WinogradPoints;
    /// Taps along a side.
    const TAPS: usize;
    /// Results along a side.
    const STEP: usize = Self::Points::SIDE + 1 - Self::TAPS;
}

/// [`WinogradTileSize::FourByThree`].
pub(super) struct FourByThree;

/// [`WinogradTileSize::TwoByThree`].
pub(super) struct TwoByThree;

/// [`WinogradTileSize::TwoByFive`].
pub(super) struct TwoByFive;

impl WinogradTile for FourByThree {
    type Points = SixPoints;
    const TAPS: usize = 3;
}

impl WinogradTile for TwoByThree {
    type Points = FourPoints;
    const TAPS: usize = 3;
}

impl WinogradTile for TwoByFive {
    type Points = SixPoints;
    const TAPS: usize = 5;
}

/// An expression for the type of tile that a size names.
macro_rules! with_tile {
    ($size:expr, $tile:ident => $run:expr) => {
        match $size {
            $crate::cpu::winograd::tile::WinogradTileSize::FourByThree => {
                type $tile = $crate::cpu::winograd::tile::FourByThree;
                $run
            }
            $crate::cpu::winograd::tile::WinogradTileSize::TwoByThree => {
                type $tile = $crate::cpu::winograd::tile::TwoByThree;
                $run
            }
            $crate::cpu::winograd::tile::WinogradTileSize::TwoByFive => {
                type $tile = $crate::cpu::winograd::tile::TwoByFive;
                $run
            }
        }
    };
}
pub(super) use with_tile;

impl WinogradTileSize {
    const ALL: [WinogradTileSize; 3] =
        [WinogradTileSize::FourByThree, WinogradTileSize::TwoByThree, WinogradTileSize::TwoByFive];

    /// Elements along a side.
    pub(super) fn side(self) -> usize {
        with_tile!(self, T => <T as WinogradTile>::Points::SIDE)
    }

    /// Results along a side.
    pub(super) fn step(self) -> usize {
        with_tile!(self, T => T::STEP)
    }

    /// Taps along a side.
    pub(super) fn taps(self) -> usize {
        with_tile!(self, T => T::TAPS)
    }

    /// Points of a tile.
    pub(super) fn points(self) -> usize {
        self.side() * self.side()
    }
}

/// What transforming one element takes, in multiply-adds of a product.
pub(super) const TRANSFORM_COST: usize = 10;
/// What reading one element of a filter takes: filters are larger than the caches, and are read once for each batch.
const FILTER_READ_COST: usize = 8;
/// What making one element of a filter takes, where it changes from step to step, or of its gradient.
const FILTER_TRANSFORM_COST: usize = 40;

/// The tile that takes least, if any takes less than sums of products do: by the image and not by the batch, so that an
/// image has the same bits in every batch, but where the filter changes from step to step. `filter` is
/// `[o, c, kh, kw]`, `result` has `[images, height, width]` and `kept` says that the filter stays as it is.
pub(super) fn choose_tile_size(
    conv: &Conv2d,
    filter: &[usize],
    result: [usize; 3],
    kept: bool,
) -> Option<WinogradTileSize> {
    let plain = conv.groups == 1 && conv.strides == [1, 1] && conv.dilations == [1, 1];
    let &[outputs, inputs, taps, across] = filter else { return None };
    let [images, height, width] = result;
    if !plain || taps != across || images * height * width * outputs * inputs == 0 {
        return None;
    }
    let pairs = inputs * outputs;
    let direct = taps * taps * pairs * (height * width + FILTER_READ_COST);
    let cost = |size: WinogradTileSize| {
        let tiles = height.div_ceil(size.step()) * width.div_ceil(size.step());
        let filter = if kept { FILTER_READ_COST } else { FILTER_READ_COST + FILTER_TRANSFORM_COST.div_ceil(images) };
        size.points() * (tiles * (pairs + TRANSFORM_COST * (inputs + outputs)) + pairs * filter)
    };
    let best = WinogradTileSize::ALL.into_iter().filter(|size| size.taps() == taps).min_by_key(|&size| cost(size))?;
    (5 * cost(best) < 4 * direct).then_some(best)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn winograd_is_chosen_only_where_it_saves_work() {
        let conv = |strides| Conv2d { padding: [1; 4], strides, dilations: [1, 1], groups: 1 };
        let tile = |[inputs, outputs, side]: [usize; 3], images, kept| {
            choose_tile_size(&conv([1, 1]), &[outputs, inputs, 3, 3], [images, side, side], kept)
        };
        for images in [1, 32] {
            assert_eq!(tile([64, 64, 56], images, true), Some(WinogradTileSize::FourByThree));
            assert_eq!(tile([48, 35, 14], images, true), Some(WinogradTileSize::FourByThree));
            assert_eq!(tile([512, 512, 7], images, true), Some(WinogradTileSize::TwoByThree));
            assert_eq!(tile([90, 70, 10], images, true), Some(WinogradTileSize::TwoByThree));
            assert_eq!(tile([512, 512, 2], images, true), None, "the filter would be most of the work");
            assert_eq!(tile([8, 8, 56], images, true), None, "the transforms would be most of the work");
        }
        // To make a filter pays with many images only.
        assert_eq!(tile([64, 64, 14], 1, false), None);
        assert_eq!(tile([64, 64, 14], 32, false), Some(WinogradTileSize::FourByThree));
        assert_eq!(choose_tile_size(&conv([2, 2]), &[64, 64, 3, 3], [1, 56, 56], true), None);
        assert_eq!(choose_tile_size(&conv([1, 1]), &[64, 64, 7, 7], [1, 56, 56], true), None);
        assert_eq!(choose_tile_size(&conv([1, 1]), &[64, 64, 3, 5], [1, 56, 56], true), None);
        assert_eq!(
            choose_tile_size(&conv([1, 1]), &[64, 64, 5, 5], [1, 56, 56], true),
            Some(WinogradTileSize::TwoByFive)
        );
        assert_eq!(tile([64, 64, 56], 0, false), None);
    }
}

//! Winograd tile sizes, and the choice between them by estimated cost.

use saggar_compile::Optimization;
use saggar_tensor::op::Conv2d;

use crate::kernel_context::KernelContext;

use super::transform::{FourPoints, SixPoints, WinogradPoints};

/// A tile size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WinogradTileSize {
    /// Four results and three taps per side: F(4x4, 3x3).
    FourByThree,
    /// Two results and three taps per side: F(2x2, 3x3).
    TwoByThree,
    /// Two results and five taps per side: F(2x2, 5x5).
    TwoByFive,
}

/// A tile size as a type, for which functions are compiled.
pub(super) trait WinogradTile {
    /// The points at which the polynomials are evaluated.
    type Points: WinogradPoints;
    /// Taps per side.
    const TAPS: usize;
    /// Results per side.
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

/// Evaluates an expression with `$tile` as the type of a tile size.
macro_rules! with_tile {
    ($size:expr, $tile:ident => $run:expr) => {
        match $size {
            $crate::kernels::winograd::tile::WinogradTileSize::FourByThree => {
                type $tile = $crate::kernels::winograd::tile::FourByThree;
                $run
            }
            $crate::kernels::winograd::tile::WinogradTileSize::TwoByThree => {
                type $tile = $crate::kernels::winograd::tile::TwoByThree;
                $run
            }
            $crate::kernels::winograd::tile::WinogradTileSize::TwoByFive => {
                type $tile = $crate::kernels::winograd::tile::TwoByFive;
                $run
            }
        }
    };
}
pub(super) use with_tile;

impl WinogradTileSize {
    const ALL: [WinogradTileSize; 3] =
        [WinogradTileSize::FourByThree, WinogradTileSize::TwoByThree, WinogradTileSize::TwoByFive];

    /// Returns the elements per side.
    pub(super) fn side(self) -> usize {
        with_tile!(self, T => <T as WinogradTile>::Points::SIDE)
    }

    /// Returns the results per side.
    pub(super) fn step(self) -> usize {
        with_tile!(self, T => T::STEP)
    }

    /// Returns the taps per side.
    pub(super) fn taps(self) -> usize {
        with_tile!(self, T => T::TAPS)
    }

    /// Returns the points of a tile.
    pub(super) fn points(self) -> usize {
        self.side() * self.side()
    }
}

/// Cost of transforming one element, in multiply-adds of a product.
pub(super) const TRANSFORM_COST: usize = 10;
/// Cost of reading one filter element. Filters are larger than the caches and are read once per batch.
const FILTER_READ_COST: usize = 8;
/// Cost of transforming one element of a filter that changes between dispatches, or of its gradient.
const FILTER_TRANSFORM_COST: usize = 40;

/// Returns the tile size of a kernel as [`choose_tile_size`] does, or `None` if Winograd's method is switched off.
pub(super) fn tile_size(
    context: &KernelContext<'_>,
    conv: &Conv2d,
    filter: &[usize],
    result: [usize; 3],
    is_constant: bool,
) -> Option<WinogradTileSize> {
    let is_used = context.enables(Optimization::Winograd);
    is_used.then(|| choose_tile_size(conv, filter, result, is_constant)).flatten()
}

/// Returns the cheapest tile size, or `None` if a direct sum of products is cheaper. The choice depends on the image
/// and not on the batch, so that an image has the same bits in every batch, unless the filter changes between
/// dispatches. `filter` is `[o, c, kh, kw]`, `result` is `[images, height, width]`, and `is_constant` means that the filter
/// does not change.
fn choose_tile_size(
    conv: &Conv2d,
    filter: &[usize],
    result: [usize; 3],
    is_constant: bool,
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
        let filter =
            if is_constant { FILTER_READ_COST } else { FILTER_READ_COST + FILTER_TRANSFORM_COST.div_ceil(images) };
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
        let tile = |[inputs, outputs, side]: [usize; 3], images, is_constant| {
            choose_tile_size(&conv([1, 1]), &[outputs, inputs, 3, 3], [images, side, side], is_constant)
        };
        for images in [1, 32] {
            assert_eq!(tile([64, 64, 56], images, true), Some(WinogradTileSize::FourByThree));
            assert_eq!(tile([48, 35, 14], images, true), Some(WinogradTileSize::FourByThree));
            assert_eq!(tile([512, 512, 7], images, true), Some(WinogradTileSize::TwoByThree));
            assert_eq!(tile([90, 70, 10], images, true), Some(WinogradTileSize::TwoByThree));
            assert_eq!(tile([512, 512, 2], images, true), None, "the filter would be most of the work");
            assert_eq!(tile([8, 8, 56], images, true), None, "the transforms would be most of the work");
        }
        // Transforming a filter pays off only with many images.
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

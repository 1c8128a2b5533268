//! Tests the transforms alone: for one tile, they must compute a convolution and its adjoints.

use super::filter_transform::WinogradFilterLayout;
use super::tile::{FourByThree, TwoByFive, TwoByThree, WinogradTile, WinogradTileSize};
use super::transform::{
    TileSquare, TileView, WinogradPoints, filter_grad_transform, input_grad_transform, input_transform,
    output_grad_transform, output_transform,
};
use crate::gemm::pack::PanelLayout;
use crate::prepacked::PackedLayout as _;
use crate::vector::PlainVectors;

/// Returns `side` by `side` test values.
fn test_square(side: usize, seed: usize) -> Vec<f32> {
    (0..side * side).map(|at| (((at + seed) * 7919) % 2003) as f32 / 1001.5 - 1.0).collect()
}

/// Views one channel of `side` by `side` places.
fn tile_view(data: &[f32], side: usize) -> TileView<'_> {
    TileView { data, pitch: side, step: 1, channels: 1 }
}

/// Returns the transformed filter of one pair of channels.
fn filter_at_points(size: WinogradTileSize, taps: &[f32]) -> Vec<f32> {
    let layout = PanelLayout::new(1, 1);
    let form = WinogradFilterLayout { layout, size, adjoint: false };
    let mut panels = vec![f32::NAN; form.len()];
    form.pack(taps, &mut panels);
    let first = |panel: &[f32]| {
        assert!(panel[1..].iter().all(|&other| other == 0.0), "padding columns must be zeros");
        panel[0]
    };
    panels.chunks_exact(layout.len()).map(first).collect()
}

fn elementwise_product(a: &[f32], b: &[f32]) -> Vec<f32> {
    a.iter().zip(b).map(|(a, b)| a * b).collect()
}

fn check_tile_size<T: WinogradTile>(size: WinogradTileSize, most: f64) {
    let (side, step, count) = (<T::Points as WinogradPoints>::SIDE, T::STEP, T::TAPS);
    let (tile, filter, gradient) = (test_square(side, 0), test_square(count, 77), test_square(step, 191));
    let at_points = filter_at_points(size, &filter);
    let close = |what: &str, found: TileSquare<[f32; 8]>, count: usize, exact: &dyn Fn(usize, usize) -> f64| {
        for y in 0..count {
            for x in 0..count {
                let (found, exact) = (f64::from(found[y][x][0]), exact(y, x));
                assert!((found - exact).abs() < most, "{size:?} {what} {y} {x}: {found} {exact}");
            }
        }
    };
    let mut entered = vec![f32::NAN; side * side];
    input_transform::<_, T::Points>(PlainVectors, tile_view(&tile, side), 0, &mut entered);
    let results = output_transform::<_, T::Points>(
        PlainVectors,
        tile_view(&elementwise_product(&entered, &at_points), side),
        step,
        0,
    );
    close("convolution", results, step, &|y, x| {
        let term = |tap: usize| f64::from(filter[tap]) * f64::from(tile[(y + tap / count) * side + x + tap % count]);
        (0..count * count).map(term).sum()
    });
    let mut given = vec![f32::NAN; side * side];
    output_grad_transform::<_, T::Points>(PlainVectors, tile_view(&gradient, step), step, 0, &mut given);
    let parts = input_grad_transform::<_, T::Points>(
        PlainVectors,
        tile_view(&elementwise_product(&given, &at_points), side),
        0,
    );
    close("input gradient", parts, side, &|y, x| {
        let term = |at: usize| {
            let [v, u] = [at / step, at % step];
            let tap = (v <= y && u <= x && y - v < count && x - u < count).then(|| filter[(y - v) * count + x - u]);
            f64::from(gradient[at]) * f64::from(tap.unwrap_or(0.0))
        };
        (0..step * step).map(term).sum()
    });
    let filter_gradient = filter_grad_transform::<_, T::Points>(
        PlainVectors,
        tile_view(&elementwise_product(&entered, &given), side),
        count,
        0,
    );
    close("filter gradient", filter_gradient, count, &|y, x| {
        let term = |at: usize| f64::from(gradient[at]) * f64::from(tile[(y + at / step) * side + x + at % step]);
        (0..step * step).map(term).sum()
    });
}

#[test]
fn winograd_tiles_match_convolution_and_its_adjoints() {
    check_tile_size::<FourByThree>(WinogradTileSize::FourByThree, 4e-6);
    check_tile_size::<TwoByThree>(WinogradTileSize::TwoByThree, 1e-6);
    check_tile_size::<TwoByFive>(WinogradTileSize::TwoByFive, 8e-6);
}

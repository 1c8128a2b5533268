//! The transforms, by themselves: what they compute for one tile is what a convolution and its adjoints mean.

use super::filter::PointsForm;
use super::tile::{FourByThree, Size, Tile, TwoByFive, TwoByThree};
use super::transform::{Places, Points, Square, enter, spread, sums, taps, values};
use crate::cpu::gemm::pack::Layout;
use crate::cpu::vector::Plain;

/// `side` by `side` numbers.
fn numbers(side: usize, seed: usize) -> Vec<f32> {
    (0..side * side).map(|at| (((at + seed) * 7919) % 2003) as f32 / 1001.5 - 1.0).collect()
}

/// One channel of `side` by `side` places.
fn places(data: &[f32], side: usize) -> Places<'_> {
    Places { data, pitch: side, step: 1, channels: 1 }
}

/// The filter of one pair of channels at the points.
fn points(size: Size, taps: &[f32]) -> Vec<f32> {
    let layout = Layout::new(1, 1);
    let form = PointsForm { layout, size, adjoint: false };
    let mut made = vec![f32::NAN; form.len()];
    form.write(taps, &mut made);
    let first = |panel: &[f32]| {
        assert!(panel[1..].iter().all(|&other| other == 0.0), "columns that there are not");
        panel[0]
    };
    made.chunks_exact(layout.len()).map(first).collect()
}

fn product(a: &[f32], b: &[f32]) -> Vec<f32> {
    a.iter().zip(b).map(|(a, b)| a * b).collect()
}

fn agree<T: Tile>(size: Size, most: f64) {
    let (side, step, count) = (<T::Points as Points>::SIDE, T::STEP, T::TAPS);
    let (tile, filter, gradient) = (numbers(side, 0), numbers(count, 77), numbers(step, 191));
    let at_points = points(size, &filter);
    let close = |what: &str, found: Square<[f32; 8]>, count: usize, exact: &dyn Fn(usize, usize) -> f64| {
        for y in 0..count {
            for x in 0..count {
                let (found, exact) = (f64::from(found[y][x][0]), exact(y, x));
                assert!((found - exact).abs() < most, "{size:?} {what} {y} {x}: {found} {exact}");
            }
        }
    };
    let mut entered = vec![f32::NAN; side * side];
    enter::<_, T::Points>(Plain, places(&tile, side), 0, &mut entered);
    let results = sums::<_, T::Points>(Plain, places(&product(&entered, &at_points), side), step, 0);
    close("convolution", results, step, &|y, x| {
        let term = |tap: usize| f64::from(filter[tap]) * f64::from(tile[(y + tap / count) * side + x + tap % count]);
        (0..count * count).map(term).sum()
    });
    let mut given = vec![f32::NAN; side * side];
    values::<_, T::Points>(Plain, places(&gradient, step), step, 0, &mut given);
    let parts = spread::<_, T::Points>(Plain, places(&product(&given, &at_points), side), 0);
    close("adjoint in the input", parts, side, &|y, x| {
        let term = |at: usize| {
            let [v, u] = [at / step, at % step];
            let tap = (v <= y && u <= x && y - v < count && x - u < count).then(|| filter[(y - v) * count + x - u]);
            f64::from(gradient[at]) * f64::from(tap.unwrap_or(0.0))
        };
        (0..step * step).map(term).sum()
    });
    let made = taps::<_, T::Points>(Plain, places(&product(&entered, &given), side), count, 0);
    close("adjoint in the filter", made, count, &|y, x| {
        let term = |at: usize| f64::from(gradient[at]) * f64::from(tile[(y + at / step) * side + x + at % step]);
        (0..step * step).map(term).sum()
    });
}

#[test]
fn a_tile_is_a_convolution_and_its_adjoints() {
    agree::<FourByThree>(Size::FourByThree, 4e-6);
    agree::<TwoByThree>(Size::TwoByThree, 1e-6);
    agree::<TwoByFive>(Size::TwoByFive, 8e-6);
}

//! Filter transform: at every point of a tile, a matrix of the summed channels by the other channels.

use super::tile::{WinogradTile, WinogradTileSize, with_tile};
use super::transform::{SIDE_MAX, TAPS_MAX, WinogradPoints};
use crate::gemm::macro_kernel::PackedMatrix;
use crate::gemm::pack::{PackTargetView, PanelLayout, split_panels};
use crate::prepacked::{PackedLayout, is_same_layout};
use crate::simd::{self, SimdWork};
use crate::threads::CpuThreads;

/// A filter `[o, c, k, k]` as the second operands of a tile's products, one matrix per point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WinogradFilterLayout {
    /// The panels of each matrix.
    pub(super) layout: PanelLayout,
    /// The tile size.
    pub(super) size: WinogradTileSize,
    /// Whether rows are output channels and columns are input channels, as in the input gradient. Otherwise it is the
    /// other way round.
    pub(super) adjoint: bool,
}

impl WinogradFilterLayout {
    /// Returns the number of elements.
    pub(super) fn len(&self) -> usize {
        self.size.points() * self.layout.len()
    }

    /// Returns the matrix of a point.
    pub(super) fn matrix_at_point<'a>(&self, data: &'a [f32], point: usize) -> PackedMatrix<'a> {
        let len = self.layout.len();
        PackedMatrix { layout: self.layout, data: &data[point * len..][..len] }
    }

    /// Returns `prepacked` if there is one, else transforms `taps` into `out` on these threads.
    pub(super) fn get_or_transform<'a>(
        &self,
        threads: &CpuThreads,
        taps: &[f32],
        out: &'a mut [f32],
        prepacked: Option<&'a [f32]>,
    ) -> &'a [f32] {
        prepacked.unwrap_or_else(|| {
            self.transform_on(threads, taps, out);
            &out[..self.len()]
        })
    }

    /// Transforms a filter to this layout, on these threads.
    fn transform_on(&self, threads: &CpuThreads, taps: &[f32], out: &mut [f32]) {
        // A task computes the same panel of every point.
        let mut tasks: Vec<Vec<PackTargetView<'_>>> = Vec::new();
        for point in out[..self.len()].chunks_exact_mut(self.layout.len()) {
            for (at, part) in split_panels(self.layout, point).into_iter().enumerate() {
                if at == tasks.len() {
                    tasks.push(Vec::with_capacity(self.size.points()));
                }
                tasks[at].push(part.view());
            }
        }
        threads.for_each(TAPS_MAX * self.len(), tasks, |points| {
            with_tile!(self.size, T => simd::dispatch(FilterTransform::<T> { form: self, taps, points, tile: T {} }));
        });
    }
}

impl PackedLayout for WinogradFilterLayout {
    fn elements(&self) -> usize {
        self.len()
    }

    fn pack(&self, from: &[f32], out: &mut [f32]) {
        self.transform_on(&CpuThreads::single_threaded(), from, out);
    }

    fn is_same(&self, other: &dyn PackedLayout) -> bool {
        is_same_layout(self, other)
    }
}

/// Columns per step.
const LANES: usize = 8;

/// One value per column.
type F64Lanes = [f64; LANES];

/// The transform of one panel at every point.
struct FilterTransform<'a, 'o, T> {
    form: &'a WinogradFilterLayout,
    taps: &'a [f32],
    points: Vec<PackTargetView<'o>>,
    #[expect(dead_code, reason = "names the type")]
    tile: T,
}

impl<T: WinogradTile> SimdWork for FilterTransform<'_, '_, T> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let FilterTransform { form, taps, mut points, .. } = self;
        let layout = form.layout;
        let [PackTargetView { first, column, columns, width, .. }, ..] = points[..] else { return };
        let depths = points[0].out.len() / width;
        let count = T::TAPS * T::TAPS;
        for depth in 0..depths {
            for lane in (0..columns).step_by(LANES) {
                let lanes = LANES.min(columns - lane);
                let mut square = [[[0.0; LANES]; TAPS_MAX]; TAPS_MAX];
                for at in 0..lanes {
                    let [row, column] = [first + depth, column + lane + at];
                    let pair = if form.adjoint { row * layout.columns + column } else { column * layout.depth + row };
                    let taps = &taps[pair * count..][..count];
                    for y in 0..T::TAPS {
                        for x in 0..T::TAPS {
                            square[y][x][at] = f64::from(taps[y * T::TAPS + x]);
                        }
                    }
                }
                let mut rows = [[[0.0; LANES]; SIDE_MAX]; TAPS_MAX];
                for y in 0..T::TAPS {
                    rows[y] = transform_line::<T>(&square[y]);
                }
                for x in 0..<T::Points as WinogradPoints>::SIDE {
                    let mut down = [[0.0; LANES]; TAPS_MAX];
                    for y in 0..T::TAPS {
                        down[y] = rows[y][x];
                    }
                    let transformed = transform_line::<T>(&down);
                    for y in 0..<T::Points as WinogradPoints>::SIDE {
                        let out = &mut points[y * <T::Points as WinogradPoints>::SIDE + x].out;
                        let out = &mut out[depth * width + lane..][..lanes];
                        for (out, value) in out.iter_mut().zip(transformed[y]) {
                            *out = value as f32;
                        }
                    }
                }
            }
            for point in &mut points {
                point.out[depth * width + columns..(depth + 1) * width].fill(0.0);
            }
        }
    }
}

/// Returns the values of the taps' polynomial at each point along a side. Opposite points share the sums of even and of
/// odd powers.
#[inline(always)]
fn transform_line<T: WinogradTile>(taps: &[F64Lanes; TAPS_MAX]) -> [F64Lanes; SIDE_MAX] {
    let mut points = [[0.0; LANES]; SIDE_MAX];
    points[0] = taps[0];
    points[<T::Points as WinogradPoints>::SIDE - 1] = taps[T::TAPS - 1];
    let mut point = 1;
    while point + 2 < <T::Points as WinogradPoints>::SIDE {
        let factor = <T::Points as WinogradPoints>::FACTORS[point];
        let powers = <T::Points as WinogradPoints>::POWERS[point];
        for at in 0..LANES {
            let (mut even, mut odd) = (taps[0][at], 0.0);
            for tap in 1..T::TAPS {
                let part = powers[tap] * taps[tap][at];
                if tap % 2 == 0 {
                    even += part;
                } else {
                    odd += part;
                }
            }
            points[point][at] = factor * (even + odd);
            points[point + 1][at] = factor * (even - odd);
        }
        point += 2;
    }
    points
}

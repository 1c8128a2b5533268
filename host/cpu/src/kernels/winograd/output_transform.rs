//! Transforms of output tiles: from points to results, and from output gradients to points.

use super::tile::{TRANSFORM_COST, WinogradTile, with_tile};
use super::tile_grid::TileGrid;
use super::transform::{TileView, WinogradPoints, output_grad_transform, output_transform};
use crate::epilogue::BoundBiasClamp;
use crate::threads::CpuThreads;
use crate::vector::{self, VectorIsa, VectorWork};

impl TileGrid {
    /// Transforms a row of tiles, `[tiles, points, o]`, to results.
    pub(super) fn transform_output(&self, from: &[f32], out: &mut [f32], epilogue: BoundBiasClamp<'_>) {
        with_tile!(self.tile, T => vector::run(OutputTransform::<T> { grid: self, from, out, epilogue, tile: T {} }));
    }

    /// Returns the number of result elements of each row of tiles.
    pub(super) fn result_elements_per_row(&self) -> impl Iterator<Item = usize> {
        let step = self.tile.step();
        let [height, width] = self.places;
        let rows = move || (0..height).step_by(step).map(move |row| step.min(height - row));
        let row = width * self.channels[1];
        (0..self.images).flat_map(move |_| rows()).map(move |rows| rows * row)
    }

    /// Transforms the output gradient for the rows of tiles from `first` on, to `[tiles, points, o]`.
    pub(super) fn transform_output_grad(&self, threads: &CpuThreads, gradient: &[f32], first: usize, out: &mut [f32]) {
        let operations = TRANSFORM_COST * out.len();
        threads.for_each(operations, out.chunks_exact_mut(self.elements_per_row(1)).enumerate().collect(), |(row, out)| {
            let (grid, row) = (self, first + row);
            with_tile!(self.tile, T => vector::run(OutputGradTransform::<T> { grid, gradient, row, out, tile: T {} }));
        });
    }
}

/// The output transform of a row of tiles.
struct OutputTransform<'a, T> {
    grid: &'a TileGrid,
    /// Sums `[tiles, points, o]`.
    from: &'a [f32],
    /// The rows of results that the tiles cover.
    out: &'a mut [f32],
    epilogue: BoundBiasClamp<'a>,
    #[expect(dead_code, reason = "names the type")]
    tile: T,
}

impl<T: WinogradTile> VectorWork for OutputTransform<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: VectorIsa>(self, s: S) {
        let OutputTransform { grid, from, out, epilogue: ends, .. } = self;
        let side = <T::Points as WinogradPoints>::SIDE;
        let (channels, width) = (grid.channels[1], grid.places[1]);
        let rows = out.len() / (width * channels);
        for (column, data) in from.chunks_exact(side * side * channels).enumerate() {
            let columns = T::STEP.min(width - column * T::STEP);
            let from = TileView { data, pitch: side * channels, step: channels, channels };
            for channel in (0..channels).step_by(S::LANES) {
                let square = output_transform::<S, T::Points>(s, from, T::STEP, channel);
                for y in 0..T::STEP {
                    for x in 0..T::STEP {
                        if y >= rows || x >= columns {
                            continue;
                        }
                        let mut value = square[y][x];
                        let place = (y * width + column * T::STEP + x) * channels;
                        if let Some(bias) = ends.bias {
                            value = s.add(value, s.load_some(&bias[channel..channels]));
                        }
                        value = s.at_least(value, s.splat(ends.least));
                        s.store_some(&mut out[place + channel..place + channels], value);
                    }
                }
            }
        }
    }
}

/// The output gradient transform of a row of tiles.
struct OutputGradTransform<'a, T> {
    grid: &'a TileGrid,
    gradient: &'a [f32],
    /// Row of tiles, counted over all images.
    row: usize,
    out: &'a mut [f32],
    #[expect(dead_code, reason = "names the type")]
    tile: T,
}

impl<T: WinogradTile> VectorWork for OutputGradTransform<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: VectorIsa>(self, s: S) {
        let OutputGradTransform { grid, gradient, row, out, .. } = self;
        let [down, across] = grid.tiles();
        let [height, width] = grid.places;
        let channels = grid.channels[1];
        let image = &gradient[row / down * height * width * channels..][..height * width * channels];
        let top = row % down * T::STEP;
        let mut framed = Vec::new();
        for (column, out) in out.chunks_exact_mut(out.len() / across).enumerate() {
            let left = column * T::STEP;
            let start = (top * width + left) * channels;
            let from = if top + T::STEP <= height && left + T::STEP <= width {
                TileView { data: &image[start..], pitch: width * channels, step: channels, channels }
            } else {
                framed.clear();
                framed.resize(T::STEP * T::STEP * channels, 0.0);
                let rows = framed.chunks_exact_mut(T::STEP * channels).take(height - top);
                for (out, from) in rows.zip(image[start..].chunks(width * channels)) {
                    let columns = T::STEP.min(width - left) * channels;
                    out[..columns].copy_from_slice(&from[..columns]);
                }
                TileView { data: &framed, pitch: T::STEP * channels, step: channels, channels }
            };
            for channel in (0..channels).step_by(S::LANES) {
                output_grad_transform::<S, T::Points>(s, from, T::STEP, channel, out);
            }
        }
    }
}

//! The side of results: the sums of tiles back into results, and gradients of results into the domain of products.

use super::grid::Grid;
use super::tile::{TRANSFORM, Tile, with_tile};
use super::transform::{Places, Points, sums, values};
use crate::cpu::ending::Ends;
use crate::cpu::threads::Threads;
use crate::cpu::vector::{self, VectorWork, Vectors};

impl Grid {
    /// Transforms a row of tiles, `[tiles, points, o]`, back to results.
    pub(super) fn leave(&self, from: &[f32], out: &mut [f32], ends: Ends<'_>) {
        with_tile!(self.tile, T => vector::run(Leave::<T> { grid: self, from, out, ends, tile: T {} }));
    }

    /// Elements of results of each row of tiles.
    pub(super) fn counts(&self) -> impl Iterator<Item = usize> {
        let step = self.tile.step();
        let [height, width] = self.places;
        let rows = move || (0..height).step_by(step).map(move |row| step.min(height - row));
        let row = width * self.channels[1];
        (0..self.images).flat_map(move |_| rows()).map(move |rows| rows * row)
    }

    /// Transforms what is to become of the results of rows of tiles from `first` on: `[tiles, points, o]`.
    pub(super) fn values(&self, threads: &Threads, gradient: &[f32], first: usize, out: &mut [f32]) {
        let operations = TRANSFORM * out.len();
        threads.each(operations, out.chunks_exact_mut(self.row(1)).enumerate().collect(), |(row, out)| {
            let (grid, row) = (self, first + row);
            with_tile!(self.tile, T => vector::run(Values::<T> { grid, gradient, row, out, tile: T {} }));
        });
    }
}

/// The way back of a row of tiles.
struct Leave<'a, T> {
    grid: &'a Grid,
    /// Sums `[tiles, points, o]`.
    from: &'a [f32],
    /// The rows of results that it covers.
    out: &'a mut [f32],
    ends: Ends<'a>,
    #[expect(dead_code, reason = "names the type")]
    tile: T,
}

impl<T: Tile> VectorWork for Leave<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Vectors>(self, s: S) {
        let Leave { grid, from, out, ends, .. } = self;
        let side = <T::Points as Points>::SIDE;
        let (channels, width) = (grid.channels[1], grid.places[1]);
        let rows = out.len() / (width * channels);
        for (column, data) in from.chunks_exact(side * side * channels).enumerate() {
            let columns = T::STEP.min(width - column * T::STEP);
            let from = Places { data, pitch: side * channels, step: channels, channels };
            for channel in (0..channels).step_by(S::LANES) {
                let square = sums::<S, T::Points>(s, from, T::STEP, channel);
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

/// The way in of the gradients of a row of tiles.
struct Values<'a, T> {
    grid: &'a Grid,
    gradient: &'a [f32],
    /// Counted over all images.
    row: usize,
    out: &'a mut [f32],
    #[expect(dead_code, reason = "names the type")]
    tile: T,
}

impl<T: Tile> VectorWork for Values<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Vectors>(self, s: S) {
        let Values { grid, gradient, row, out, .. } = self;
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
                Places { data: &image[start..], pitch: width * channels, step: channels, channels }
            } else {
                framed.clear();
                framed.resize(T::STEP * T::STEP * channels, 0.0);
                let rows = framed.chunks_exact_mut(T::STEP * channels).take(height - top);
                for (out, from) in rows.zip(image[start..].chunks(width * channels)) {
                    let columns = T::STEP.min(width - left) * channels;
                    out[..columns].copy_from_slice(&from[..columns]);
                }
                Places { data: &framed, pitch: T::STEP * channels, step: channels, channels }
            };
            for channel in (0..channels).step_by(S::LANES) {
                values::<S, T::Points>(s, from, T::STEP, channel, out);
            }
        }
    }
}

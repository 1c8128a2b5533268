//! The side of images: their tiles into the domain of products, and the parts of tiles back into images.

use super::grid::Grid;
use super::tile::{TRANSFORM, Tile, with_tile};
use super::transform::{Places, Points, enter, spread};
use crate::cpu::threads::Threads;
use crate::cpu::vector::{self, VectorWork, Vectors};

impl Grid {
    /// Transforms the tiles of rows from `first` on, counted over all images: `[tiles, points, c]`.
    pub(super) fn enter(&self, threads: &Threads, images: &[f32], first: usize, out: &mut [f32]) {
        let operations = TRANSFORM * out.len();
        threads.each(operations, out.chunks_exact_mut(self.row(0)).enumerate().collect(), |(row, out)| {
            let (grid, row) = (self, first + row);
            with_tile!(self.tile, T => vector::run(Enter::<T> { grid, images, row, out, tile: T {} }));
        });
    }

    /// Adds what rows of tiles from `first` on, `[tiles, points, c]`, give to images, of which the first has this number.
    /// Rows of an image come in order; its first ones find it empty.
    pub(super) fn spread(&self, threads: &Threads, from: &[f32], first: usize, images: (usize, &mut [f32])) {
        let (rows, band) = (self.tiles()[0], from.len() / self.row(0));
        let mut tasks = Vec::new();
        for (number, image) in images.1.chunks_exact_mut(self.image_elements()).enumerate() {
            let number = images.0 + number;
            let here = (number * rows).max(first)..((number + 1) * rows).min(first + band);
            if !here.is_empty() {
                tasks.push((image, here));
            }
        }
        threads.each(TRANSFORM * from.len(), tasks, |(image, rows)| {
            with_tile!(self.tile, T => vector::run(Spread::<T> { grid: self, from, first, rows, image, tile: T {} }));
        });
    }

    /// The element at a tile's top left, counted from the image's.
    fn corner(&self, row: usize, column: usize) -> [isize; 2] {
        let along = |axis: usize, tile: usize| (tile * self.tile.step()) as isize - self.before[axis] as isize;
        [along(0, row), along(1, column)]
    }

    /// Where a tile begins in an image, if all of it is inside.
    #[inline(always)]
    fn inside(&self, [top, left]: [isize; 2], side: usize) -> Option<usize> {
        let fits = |start: isize, size: usize| start >= 0 && start as usize + side <= size;
        let is_inside = fits(top, self.size[0]) && fits(left, self.size[1]);
        is_inside.then(|| top as usize * self.size[1] + left as usize)
    }

    /// Where a place of a tile is in an image, if it is in it.
    #[inline(always)]
    fn place(&self, corner: [isize; 2], [y, x]: [usize; 2]) -> Option<usize> {
        let [height, width] = self.size.map(|size| size as isize);
        let (y, x) = (corner[0] + y as isize, corner[1] + x as isize);
        ((0..height).contains(&y) && (0..width).contains(&x)).then_some((y * width + x) as usize)
    }
}

/// The way in of a row of tiles.
struct Enter<'a, T> {
    grid: &'a Grid,
    images: &'a [f32],
    /// Counted over all images.
    row: usize,
    out: &'a mut [f32],
    #[expect(dead_code, reason = "names the type")]
    tile: T,
}

impl<T: Tile> VectorWork for Enter<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Vectors>(self, s: S) {
        let Enter { grid, images, row, out, .. } = self;
        let side = <T::Points as Points>::SIDE;
        let [down, across] = grid.tiles();
        let channels = grid.channels[0];
        let image = &images[row / down * grid.image_elements()..][..grid.image_elements()];
        let mut framed = Vec::new();
        for (column, out) in out.chunks_exact_mut(out.len() / across).enumerate() {
            let corner = grid.corner(row % down, column);
            let from = match grid.inside(corner, side) {
                Some(start) => Places {
                    data: &image[start * channels..],
                    pitch: grid.size[1] * channels,
                    step: channels,
                    channels,
                },
                None => {
                    grid.frame(image, corner, side, &mut framed);
                    Places { data: &framed, pitch: side * channels, step: channels, channels }
                }
            };
            for channel in (0..channels).step_by(S::LANES) {
                enter::<S, T::Points>(s, from, channel, out);
            }
        }
    }
}

impl Grid {
    /// Copies a tile of which some is outside, with zeros there.
    fn frame(&self, image: &[f32], corner: [isize; 2], side: usize, framed: &mut Vec<f32>) {
        let channels = self.channels[0];
        framed.clear();
        framed.resize(side * side * channels, 0.0);
        for (at, out) in framed.chunks_exact_mut(channels).enumerate() {
            if let Some(place) = self.place(corner, [at / side, at % side]) {
                out.copy_from_slice(&image[place * channels..][..channels]);
            }
        }
    }
}

/// The way back of some rows of an image's tiles.
struct Spread<'a, T> {
    grid: &'a Grid,
    /// `[tiles, points, c]`.
    from: &'a [f32],
    /// The row of the first tile there.
    first: usize,
    rows: std::ops::Range<usize>,
    image: &'a mut [f32],
    #[expect(dead_code, reason = "names the type")]
    tile: T,
}

impl<T: Tile> VectorWork for Spread<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Vectors>(self, s: S) {
        let Spread { grid, from, first, rows, image, .. } = self;
        let side = <T::Points as Points>::SIDE;
        let [down, across] = grid.tiles();
        let channels = grid.channels[0];
        if rows.start % down == 0 {
            image.fill(0.0);
        }
        let rows_from = from.chunks_exact(grid.row(0)).skip(rows.start - first);
        for (row, from) in rows.zip(rows_from) {
            for (column, data) in from.chunks_exact(grid.row(0) / across).enumerate() {
                let corner = grid.corner(row % down, column);
                let start = grid.inside(corner, side);
                let from = Places { data, pitch: side * channels, step: channels, channels };
                for channel in (0..channels).step_by(S::LANES) {
                    let square = spread::<S, T::Points>(s, from, channel);
                    for y in 0..side {
                        for x in 0..side {
                            let place = match start {
                                Some(start) => start + y * grid.size[1] + x,
                                None => match grid.place(corner, [y, x]) {
                                    Some(place) => place,
                                    None => continue,
                                },
                            };
                            let out = &mut image[place * channels..][..channels][channel..];
                            s.store_some(out, s.add(s.load_some(out), square[y][x]));
                        }
                    }
                }
            }
        }
    }
}

//! Transforms of input tiles: from images to points, and from points to input gradients.

use super::tile::{TRANSFORM_COST, WinogradTile, with_tile};
use super::tile_grid::TileGrid;
use super::transform::{TileView, WinogradPoints, input_grad_transform, input_transform};
use crate::threads::CpuThreads;
use crate::vector::{self, VectorIsa, VectorWork};

impl TileGrid {
    /// Transforms the rows of tiles from `first` on, counted over all images, to `[tiles, points, c]`.
    pub(super) fn transform_input(&self, threads: &CpuThreads, images: &[f32], first: usize, out: &mut [f32]) {
        let operations = TRANSFORM_COST * out.len();
        threads.for_each(
            operations,
            out.chunks_exact_mut(self.elements_per_row(0)).enumerate().collect(),
            |(row, out)| {
                let (grid, row) = (self, first + row);
                with_tile!(self.tile, T => vector::run(InputTransform::<T> { grid, images, row, out, tile: T {} }));
            },
        );
    }

    /// Adds the rows of tiles from `first` on, `[tiles, points, c]`, to the gradient of images. `images` is the number
    /// of the first image and the gradient's memory. The rows of an image come in order, and the first ones overwrite
    /// its memory.
    pub(super) fn add_input_grad(&self, threads: &CpuThreads, from: &[f32], first: usize, images: (usize, &mut [f32])) {
        let (rows, band) = (self.tiles()[0], from.len() / self.elements_per_row(0));
        let mut tasks = Vec::new();
        for (number, image) in images.1.chunks_exact_mut(self.image_elements()).enumerate() {
            let number = images.0 + number;
            let here = (number * rows).max(first)..((number + 1) * rows).min(first + band);
            if !here.is_empty() {
                tasks.push((image, here));
            }
        }
        threads.for_each(TRANSFORM_COST * from.len(), tasks, |(image, rows)| {
            with_tile!(self.tile, T => vector::run(InputGradTransform::<T> { grid: self, from, first, rows, image, tile: T {} }));
        });
    }

    /// Returns the top left corner of a tile, relative to the image's.
    fn tile_corner(&self, row: usize, column: usize) -> [isize; 2] {
        let along = |axis: usize, tile: usize| (tile * self.tile.step()) as isize - self.padding[axis] as isize;
        [along(0, row), along(1, column)]
    }

    /// Returns the position of a tile in an image, or `None` if it is partly outside.
    #[inline(always)]
    fn start_if_inside(&self, [top, left]: [isize; 2], side: usize) -> Option<usize> {
        let fits = |start: isize, size: usize| start >= 0 && start as usize + side <= size;
        let is_inside = fits(top, self.size[0]) && fits(left, self.size[1]);
        is_inside.then(|| top as usize * self.size[1] + left as usize)
    }

    /// Returns the position in an image of a place of a tile, or `None` if it is outside.
    #[inline(always)]
    fn place_if_inside(&self, corner: [isize; 2], [y, x]: [usize; 2]) -> Option<usize> {
        let [height, width] = self.size.map(|size| size as isize);
        let (y, x) = (corner[0] + y as isize, corner[1] + x as isize);
        ((0..height).contains(&y) && (0..width).contains(&x)).then_some((y * width + x) as usize)
    }
}

/// The input transform of a row of tiles.
struct InputTransform<'a, T> {
    grid: &'a TileGrid,
    images: &'a [f32],
    /// Row of tiles, counted over all images.
    row: usize,
    out: &'a mut [f32],
    #[expect(dead_code, reason = "names the type")]
    tile: T,
}

impl<T: WinogradTile> VectorWork for InputTransform<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: VectorIsa>(self, s: S) {
        let InputTransform { grid, images, row, out, .. } = self;
        let side = <T::Points as WinogradPoints>::SIDE;
        let [down, across] = grid.tiles();
        let channels = grid.channels[0];
        let image = &images[row / down * grid.image_elements()..][..grid.image_elements()];
        let mut framed = Vec::new();
        for (column, out) in out.chunks_exact_mut(out.len() / across).enumerate() {
            let corner = grid.tile_corner(row % down, column);
            let from = match grid.start_if_inside(corner, side) {
                Some(start) => TileView {
                    data: &image[start * channels..],
                    pitch: grid.size[1] * channels,
                    step: channels,
                    channels,
                },
                None => {
                    grid.copy_padded_tile(image, corner, side, &mut framed);
                    TileView { data: &framed, pitch: side * channels, step: channels, channels }
                }
            };
            for channel in (0..channels).step_by(S::LANES) {
                input_transform::<S, T::Points>(s, from, channel, out);
            }
        }
    }
}

impl TileGrid {
    /// Copies a tile that is partly outside the image, with zeros outside.
    fn copy_padded_tile(&self, image: &[f32], corner: [isize; 2], side: usize, framed: &mut Vec<f32>) {
        let channels = self.channels[0];
        framed.clear();
        framed.resize(side * side * channels, 0.0);
        for (at, out) in framed.chunks_exact_mut(channels).enumerate() {
            if let Some(place) = self.place_if_inside(corner, [at / side, at % side]) {
                out.copy_from_slice(&image[place * channels..][..channels]);
            }
        }
    }
}

/// The input gradient transform of some rows of an image's tiles.
struct InputGradTransform<'a, T> {
    grid: &'a TileGrid,
    /// Products `[tiles, points, c]`.
    from: &'a [f32],
    /// The row of the first tile in `from`.
    first: usize,
    rows: std::ops::Range<usize>,
    image: &'a mut [f32],
    #[expect(dead_code, reason = "names the type")]
    tile: T,
}

impl<T: WinogradTile> VectorWork for InputGradTransform<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: VectorIsa>(self, s: S) {
        let InputGradTransform { grid, from, first, rows, image, .. } = self;
        let side = <T::Points as WinogradPoints>::SIDE;
        let [down, across] = grid.tiles();
        let channels = grid.channels[0];
        if rows.start % down == 0 {
            image.fill(0.0);
        }
        let rows_from = from.chunks_exact(grid.elements_per_row(0)).skip(rows.start - first);
        for (row, from) in rows.zip(rows_from) {
            for (column, data) in from.chunks_exact(grid.elements_per_row(0) / across).enumerate() {
                let corner = grid.tile_corner(row % down, column);
                let start = grid.start_if_inside(corner, side);
                let from = TileView { data, pitch: side * channels, step: channels, channels };
                for channel in (0..channels).step_by(S::LANES) {
                    let square = input_grad_transform::<S, T::Points>(s, from, channel);
                    for y in 0..side {
                        for x in 0..side {
                            let place = match start {
                                Some(start) => start + y * grid.size[1] + x,
                                None => match grid.place_if_inside(corner, [y, x]) {
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

//! The grid of Winograd tiles over images: the number of tiles, the bands that are transformed at a time, and the
//! products at their points.

use std::ops::Range;

use saggar_tensor::op::Conv2d;

use super::filter_transform::WinogradFilterLayout;
use super::tile::{TRANSFORM_COST, WinogradTileSize};
use crate::gemm::{GemmMatrix, multiply_rows};
use crate::thread_scratch::with_scratch;
use crate::threads::CpuThreads;

/// Elements of transformed tiles at a time if all threads share a band. They should stay in the last-level cache.
const SHARED_BAND_ELEMENTS: usize = 1 << 20;
/// Elements of transformed tiles at a time if each thread has its own band. They should stay in its core's cache.
const THREAD_BAND_ELEMENTS: usize = 1 << 17;
/// Tasks from which threads have their own bands.
const TASKS_MIN: usize = 8;
/// Elements of a transformed filter that also stay in a core's cache. Larger filters are read for many tiles at a time.
const THREAD_FILTER_ELEMENTS: usize = 1 << 17;

/// The tiles over the images of a convolution in NHWC layout, with one group and stride 1.
#[derive(Clone, Debug)]
pub(super) struct TileGrid {
    /// Tile size.
    pub(super) tile: WinogradTileSize,
    /// Number of images.
    pub(super) images: usize,
    /// Height and width of an image.
    pub(super) size: [usize; 2],
    /// Input and output channels.
    pub(super) channels: [usize; 2],
    /// Rows and columns of results.
    pub(super) places: [usize; 2],
    /// Padding at the top and left.
    pub(super) padding: [usize; 2],
    /// Whether each thread runs all steps of separate bands, because the filter is small. Depends only on the
    /// convolution's shape.
    pub(super) per_thread_bands: bool,
}

impl TileGrid {
    /// Returns the grid over images `[n, h, w, c]` with results `[n, oh, ow, o]`.
    pub(super) fn new(tile: WinogradTileSize, conv: &Conv2d, images: &[usize], results: &[usize]) -> TileGrid {
        let mut grid = TileGrid {
            per_thread_bands: tile.points() * images[3] * results[3] <= THREAD_FILTER_ELEMENTS,
            tile,
            images: images[0],
            size: [images[1], images[2]],
            channels: [images[3], results[3]],
            places: [results[1], results[2]],
            padding: [conv.padding[0], conv.padding[2]],
        };
        // A band has at least one row of tiles, and per-thread memory is not charged, so rows must be small.
        grid.per_thread_bands &= grid.row_elements() <= THREAD_BAND_ELEMENTS;
        grid
    }

    /// Makes all threads share a band if `tasks` are too few for separate ones.
    pub(super) fn share_band_if_few_tasks(&mut self, tasks: usize) {
        self.per_thread_bands &= tasks >= TASKS_MIN;
    }

    /// Returns the rows and columns of tiles of an image.
    pub(super) fn tiles(&self) -> [usize; 2] {
        self.places.map(|places| places.div_ceil(self.tile.step()))
    }

    /// Returns the rows of tiles of all images.
    pub(super) fn tile_rows(&self) -> usize {
        self.images * self.tiles()[0]
    }

    /// Returns the elements of a transformed row of tiles: inputs and outputs of the products.
    fn row_elements(&self) -> usize {
        self.elements_per_row(0) + self.elements_per_row(1)
    }

    /// Returns the rows of tiles of a band.
    pub(super) fn band_rows(&self) -> usize {
        let elements = if self.per_thread_bands { THREAD_BAND_ELEMENTS } else { SHARED_BAND_ELEMENTS };
        (elements / self.row_elements().max(1)).clamp(1, self.tile_rows().max(1))
    }

    /// Returns the elements of a transformed band: inputs and outputs of the products.
    pub(super) fn band_elements(&self) -> usize {
        self.band_rows() * self.row_elements()
    }

    /// Returns [`TileGrid::band_elements`] if all threads share a band, else 0.
    pub(super) fn shared_elements(&self) -> usize {
        if self.per_thread_bands { 0 } else { self.band_elements() }
    }

    /// Splits a range of rows of tiles into bands.
    pub(super) fn bands(&self, rows: Range<usize>) -> impl Iterator<Item = Range<usize>> {
        let step = self.band_rows();
        rows.clone().step_by(step).map(move |first| first..(first + step).min(rows.end))
    }

    /// Splits the memory of a band of `rows` rows into that of input tiles, `[tiles, points, c]`, and of output tiles,
    /// `[tiles, points, o]`.
    pub(super) fn split_band<'a>(&self, between: &'a mut [f32], rows: usize) -> [&'a mut [f32]; 2] {
        let elements = [0, 1].map(|side| rows * self.elements_per_row(side));
        let (images, results) = between.split_at_mut(elements[0]);
        [images, &mut results[..elements[1]]]
    }

    /// Returns the elements of a transformed row of tiles. `side` is 0 for input tiles and 1 for output tiles.
    pub(super) fn elements_per_row(&self, side: usize) -> usize {
        self.tiles()[1] * self.tile.points() * self.channels[side]
    }

    /// Returns the number of consecutive images per thread. It is above 1 if images are small.
    pub(super) fn band_images(&self) -> usize {
        (self.band_rows() / self.tiles()[0].max(1)).max(1)
    }

    /// Returns the elements of an image.
    pub(super) fn image_elements(&self) -> usize {
        self.size[0] * self.size[1] * self.channels[0]
    }

    /// Returns the multiply-adds of all products, plus the cost of the transforms in the same unit.
    pub(super) fn operations(&self) -> usize {
        let [inputs, outputs] = self.channels;
        let tile = inputs.saturating_mul(outputs).saturating_add(TRANSFORM_COST * (inputs + outputs));
        tile.saturating_mul(self.tile.points() * self.tile_rows() * self.tiles()[1])
    }

    /// Multiplies a band's tiles with a filter, at every point.
    pub(super) fn multiply(
        &self,
        threads: &CpuThreads,
        from: &[f32],
        form: &WinogradFilterLayout,
        filter: &[f32],
        out: &mut [f32],
    ) {
        let (depth, columns, points) = (form.layout.depth, form.layout.columns, self.tile.points());
        let tiles = from.len() / (points * depth);
        let mut tasks: Vec<(usize, Vec<&mut [f32]>)> = (0..points).map(|at| (at, Vec::with_capacity(tiles))).collect();
        for tile in out.chunks_exact_mut(points * columns) {
            for ((_, rows), row) in tasks.iter_mut().zip(tile.chunks_exact_mut(columns)) {
                rows.push(row);
            }
        }
        threads.for_each(points * tiles * depth * columns, tasks, |(point, mut rows)| {
            let a = GemmMatrix { data: &from[point * depth..], row: points * depth, column: 1 };
            with_scratch(|scratch| {
                multiply_rows(&mut rows, a, form.matrix_at_point(filter, point), &mut scratch.product)
            });
        });
    }
}

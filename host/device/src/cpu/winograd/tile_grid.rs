//! Tiles over images: how many there are, how many are between their transforms at a time, and the products there.

use std::ops::Range;

use saggar_tensor::op::Conv2d;

use super::tile::{TRANSFORM_COST, WinogradTileSize};
use crate::cpu::gemm::{GemmMatrix, multiply_rows};
use crate::cpu::thread_scratch::with_scratch;
use crate::cpu::threads::CpuThreads;
use crate::cpu::winograd::WinogradFilterLayout;

/// Elements of tiles that are between their transforms at the same time where all threads share them: they should stay in
/// the last-level cache.
const SHARED_BAND_ELEMENTS: usize = 1 << 20;
/// And where each thread has its own: they should stay in the cache next to it.
const THREAD_BAND_ELEMENTS: usize = 1 << 17;
/// Tasks that are enough for threads to have their own bands.
const TASKS_MIN: usize = 8;
/// Elements of a filter at the points that stay in that cache too. Larger ones are read for many tiles at a time.
const THREAD_FILTER_ELEMENTS: usize = 1 << 17;

/// Tiles over the images of a convolution with channels last, of one group, in steps of one.
#[derive(Clone, Debug)]
pub(super) struct TileGrid {
    /// How large they are.
    pub(super) tile: WinogradTileSize,
    /// How many images.
    pub(super) images: usize,
    /// Height and width of an image.
    pub(super) size: [usize; 2],
    /// Of images and of results.
    pub(super) channels: [usize; 2],
    /// Rows and columns of results.
    pub(super) places: [usize; 2],
    /// Rows above and columns before the first element.
    pub(super) padding: [usize; 2],
    /// Whether each thread takes bands of its own from one transform to the other, because a filter is small. By the
    /// convolution's shape alone.
    pub(super) per_thread_bands: bool,
}

impl TileGrid {
    /// Over images `[n, h, w, c]` with results `[n, oh, ow, o]`.
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
        // A row of tiles is the least that a band has, and memory that each thread has is not charged.
        grid.per_thread_bands &= grid.row_elements() <= THREAD_BAND_ELEMENTS;
        grid
    }

    /// Has all threads share a band, where so many tasks are too few for them to have their own.
    pub(super) fn share_band_if_few_tasks(&mut self, tasks: usize) {
        self.per_thread_bands &= tasks >= TASKS_MIN;
    }

    /// Rows and columns of tiles of an image.
    pub(super) fn tiles(&self) -> [usize; 2] {
        self.places.map(|places| places.div_ceil(self.tile.step()))
    }

    /// Rows of tiles of all images.
    pub(super) fn tile_rows(&self) -> usize {
        self.images * self.tiles()[0]
    }

    /// Elements of a row of tiles between its transforms, on both sides of a product.
    fn row_elements(&self) -> usize {
        self.elements_per_row(0) + self.elements_per_row(1)
    }

    /// Rows of tiles that are computed together.
    pub(super) fn band_rows(&self) -> usize {
        let elements = if self.per_thread_bands { THREAD_BAND_ELEMENTS } else { SHARED_BAND_ELEMENTS };
        (elements / self.row_elements().max(1)).clamp(1, self.tile_rows().max(1))
    }

    /// Elements of a band between its transforms, on both sides of a product.
    pub(super) fn band_elements(&self) -> usize {
        self.band_rows() * self.row_elements()
    }

    /// As [`TileGrid::band_elements`], where all threads share a band.
    pub(super) fn shared_elements(&self) -> usize {
        if self.per_thread_bands { 0 } else { self.band_elements() }
    }

    /// The bands of some rows.
    pub(super) fn bands(&self, rows: Range<usize>) -> impl Iterator<Item = Range<usize>> {
        let step = self.band_rows();
        rows.clone().step_by(step).map(move |first| first..(first + step).min(rows.end))
    }

    /// Memory of a band of so many rows: that of images at the points, `[tiles, points, c]`, and that of results.
    pub(super) fn split_band<'a>(&self, between: &'a mut [f32], rows: usize) -> [&'a mut [f32]; 2] {
        let elements = [0, 1].map(|side| rows * self.elements_per_row(side));
        let (images, results) = between.split_at_mut(elements[0]);
        [images, &mut results[..elements[1]]]
    }

    /// Elements of a row of tiles at the points, on the side of images, 0, or of results, 1.
    pub(super) fn elements_per_row(&self, side: usize) -> usize {
        self.tiles()[1] * self.tile.points() * self.channels[side]
    }

    /// Images whose bands one thread takes after each other, where they are small.
    pub(super) fn band_images(&self) -> usize {
        (self.band_rows() / self.tiles()[0].max(1)).max(1)
    }

    /// Elements of an image.
    pub(super) fn image_elements(&self) -> usize {
        self.size[0] * self.size[1] * self.channels[0]
    }

    /// Multiply-adds of all products, and as much as the transforms take.
    pub(super) fn operations(&self) -> usize {
        let [inputs, outputs] = self.channels;
        let tile = inputs.saturating_mul(outputs).saturating_add(TRANSFORM_COST * (inputs + outputs));
        tile.saturating_mul(self.tile.points() * self.tile_rows() * self.tiles()[1])
    }

    /// The products of a band's tiles with a filter, at every point.
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

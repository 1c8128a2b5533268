//! Images under windows, and the bands of rows that products read of them.

use super::taps::FilterTaps;
use crate::aligned_buffer::AlignedBuffer;
use crate::gemm::macro_kernel::RowSegment;
use crate::thread_scratch::buffer;

/// Images `[images, height, width, channels]` seen through windows.
#[derive(Clone, Debug)]
pub(super) struct WindowedImages {
    pub(super) images: usize,
    /// Height and width of an image.
    pub(super) size: [usize; 2],
    pub(super) channels: usize,
    /// Rows and columns of output places.
    pub(super) places: [usize; 2],
    /// Strides from one place to the next.
    pub(super) steps: [usize; 2],
    /// Offsets of the elements of a window, relative to the place's position times the strides.
    pub(super) taps: FilterTaps,
}

/// The images as a band of rows of places reads them.
pub(super) struct ImageBand<'a> {
    /// The images, or a padded copy of part of them.
    pub(super) data: &'a [f32],
    /// For each place, the position in `data` of its first tap.
    pub(super) bases: Vec<u32>,
    /// Segments of every window.
    pub(super) runs: Vec<RowSegment>,
}

impl WindowedImages {
    /// Returns the rows of places in all images.
    pub(super) fn place_rows(&self) -> usize {
        self.images * self.places[0]
    }

    /// Returns the smallest and largest tap offset along an axis.
    fn tap_reach(&self, axis: usize) -> [isize; 2] {
        let along = self.taps.list.iter().map(|tap| tap.offset[axis]);
        [along.clone().min().unwrap_or(0), along.max().unwrap_or(0)]
    }

    /// Returns whether all windows lie inside the image along an axis.
    fn is_inside(&self, axis: usize) -> bool {
        let [least, most] = self.tap_reach(axis);
        least >= 0 && (self.places[axis].max(1) - 1) * self.steps[axis] + most.unsigned_abs() < self.size[axis]
    }

    /// Returns the pixels of an image row under all windows of one row of places.
    fn padded_width(&self) -> usize {
        let [least, most] = self.tap_reach(1);
        (self.places[1].max(1) - 1) * self.steps[1] + (most - least).unsigned_abs() + 1
    }

    /// Returns the segments of a window if image rows are `pitch` elements apart.
    fn row_segments(&self, pitch: usize) -> Vec<RowSegment> {
        let [top, left] = [self.tap_reach(0)[0], self.tap_reach(1)[0]];
        let mut runs: Vec<RowSegment> = Vec::new();
        for tap in &self.taps.list {
            let [y, x] = [(tap.offset[0] - top).unsigned_abs(), (tap.offset[1] - left).unsigned_abs()];
            let offset = y * pitch + x * self.channels;
            match runs.last_mut() {
                Some(last) if last.offset + last.len == offset => last.len += self.channels,
                Some(_) | None => runs.push(RowSegment { offset, len: self.channels }),
            }
        }
        runs
    }

    /// Returns what the place rows `rows`, counted over all images, read of `images`.
    pub(super) fn band<'a>(
        &self,
        images: &'a [f32],
        rows: std::ops::Range<usize>,
        words: &'a mut AlignedBuffer,
    ) -> ImageBand<'a> {
        if self.is_inside(0) && self.is_inside(1) {
            self.unpadded_band(images, rows)
        } else {
            self.padded_band(images, rows, words)
        }
    }

    /// Returns the band without a copy. Only if all windows lie inside the images.
    fn unpadded_band<'a>(&self, images: &'a [f32], rows: std::ops::Range<usize>) -> ImageBand<'a> {
        let pitch = self.size[1] * self.channels;
        let [top, left] = [self.tap_reach(0)[0].unsigned_abs(), self.tap_reach(1)[0].unsigned_abs()];
        let first = rows.start / self.places[0] * self.size[0] * pitch;
        let mut bases = Vec::with_capacity(rows.len() * self.places[1]);
        for row in rows {
            let (image, row) = (row / self.places[0], row % self.places[0]);
            let start = (image * self.size[0] + row * self.steps[0] + top) * pitch + left * self.channels - first;
            bases.extend((0..self.places[1]).map(|column| (start + column * self.steps[1] * self.channels) as u32));
        }
        ImageBand { data: &images[first..], bases, runs: self.row_segments(pitch) }
    }

    /// Returns the band as a zero-padded copy.
    fn padded_band<'a>(
        &self,
        images: &[f32],
        rows: std::ops::Range<usize>,
        words: &'a mut AlignedBuffer,
    ) -> ImageBand<'a> {
        let pitch = self.padded_width() * self.channels;
        let [[top, bottom], [left, _]] = [self.tap_reach(0), self.tap_reach(1)];
        let height = |rows: usize| (rows - 1) * self.steps[0] + (bottom - top).unsigned_abs() + 1;
        // The rows of places, by image.
        let mut parts = Vec::new();
        let mut row = rows.start;
        while row < rows.end {
            let (image, first) = (row / self.places[0], row % self.places[0]);
            let count = (self.places[0] - first).min(rows.end - row);
            parts.push((image, first, count));
            row += count;
        }
        let elements = parts.iter().map(|&(_, _, count)| height(count) * pitch).sum();
        let copy = buffer::<f32>(words, elements);
        let mut bases = Vec::with_capacity(rows.len() * self.places[1]);
        let (mut rest, mut start) = (&mut copy[..], 0);
        for (image, first, count) in parts {
            let (part, later) = std::mem::take(&mut rest).split_at_mut(height(count) * pitch);
            rest = later;
            let image = &images[image * self.size[0] * self.size[1] * self.channels..];
            for (at, out) in part.chunks_exact_mut(pitch).enumerate() {
                self.copy_padded_row(image, (first * self.steps[0] + at) as isize + top, left, out);
            }
            for row in 0..count {
                let start = start + row * self.steps[0] * pitch;
                bases.extend((0..self.places[1]).map(|column| (start + column * self.steps[1] * self.channels) as u32));
            }
            start += height(count) * pitch;
        }
        ImageBand { data: copy, bases, runs: self.row_segments(pitch) }
    }

    /// Copies row `row` of an image from column `left` on, with zeros outside the image.
    fn copy_padded_row(&self, image: &[f32], row: isize, left: isize, out: &mut [f32]) {
        let [height, width] = self.size;
        if row < 0 || row >= height as isize {
            return out.fill(0.0);
        }
        let columns = out.len() / self.channels;
        let before = left.min(0).unsigned_abs().min(columns);
        let from = left.max(0).unsigned_abs().min(width);
        let count = (width - from).min(columns - before);
        let source = (row.unsigned_abs() * width + from) * self.channels;
        let (zeros, rest) = out.split_at_mut(before * self.channels);
        let (middle, after) = rest.split_at_mut(count * self.channels);
        zeros.fill(0.0);
        middle.copy_from_slice(&image[source..][..middle.len()]);
        after.fill(0.0);
    }
}

//! Convolutions and their adjoints with channels last, as products whose first operand is the image itself: the row of a
//! place is put together from the stretches under its window, so no patches are written anywhere.
//!
//! Images are copied only where windows reach past them, band by band, with zeros around.

mod filter_grad;
mod forward;
mod input_grad;
mod scatter;
mod taps;

pub(super) use filter_grad::FilterGrad;
pub(super) use forward::Forward;
pub(super) use input_grad::InputGrad;
pub(super) use taps::FilterForm;

use super::gemm::pack::parts;
use super::gemm::product::{Packed, Run};
use super::registers::buffer;
use super::threads::Threads;
use super::words::Words;
use taps::Taps;

/// Images `[images, height, width, channels]` seen through windows: places of results, and what lies under them.
#[derive(Clone, Debug)]
struct View {
    images: usize,
    /// Height and width of an image.
    size: [usize; 2],
    channels: usize,
    /// Rows and columns of results.
    places: [usize; 2],
    /// Steps from one place to the next.
    steps: [usize; 2],
    /// Where elements lie under a place, from the element at the place's own position times the steps on.
    taps: Taps,
}

/// What a band of rows of places sees.
struct Band<'a> {
    /// Images, or a copy of part of them.
    data: &'a [f32],
    /// Where the element at each place's first tap is in it.
    bases: Vec<u32>,
    /// Stretches under every place.
    runs: Vec<Run>,
}

impl View {
    /// Rows of places in all images.
    fn rows(&self) -> usize {
        self.images * self.places[0]
    }

    /// First and last tap along an axis, from a place's own position on.
    fn reach(&self, axis: usize) -> [isize; 2] {
        let along = self.taps.list.iter().map(|tap| tap.offset[axis]);
        [along.clone().min().unwrap_or(0), along.max().unwrap_or(0)]
    }

    /// Whether no window reaches past an image along an axis.
    fn is_inside(&self, axis: usize) -> bool {
        let [least, most] = self.reach(axis);
        least >= 0 && (self.places[axis].max(1) - 1) * self.steps[axis] + most.unsigned_abs() < self.size[axis]
    }

    /// Elements of a row under all windows of one row of places.
    fn width(&self) -> usize {
        let [least, most] = self.reach(1);
        (self.places[1].max(1) - 1) * self.steps[1] + (most - least).unsigned_abs() + 1
    }

    /// Stretches under a place, where rows of images are `pitch` elements apart.
    fn runs(&self, pitch: usize) -> Vec<Run> {
        let [top, left] = [self.reach(0)[0], self.reach(1)[0]];
        let mut runs: Vec<Run> = Vec::new();
        for tap in &self.taps.list {
            let [y, x] = [(tap.offset[0] - top).unsigned_abs(), (tap.offset[1] - left).unsigned_abs()];
            let offset = y * pitch + x * self.channels;
            match runs.last_mut() {
                Some(last) if last.offset + last.len == offset => last.len += self.channels,
                Some(_) | None => runs.push(Run { offset, len: self.channels }),
            }
        }
        runs
    }

    /// What rows `rows` of places, counted over all images, see of `images`.
    fn band<'a>(&self, images: &'a [f32], rows: std::ops::Range<usize>, words: &'a mut Words) -> Band<'a> {
        if self.is_inside(0) && self.is_inside(1) { self.whole(images, rows) } else { self.framed(images, rows, words) }
    }

    /// Where nothing reaches past an image.
    fn whole<'a>(&self, images: &'a [f32], rows: std::ops::Range<usize>) -> Band<'a> {
        let pitch = self.size[1] * self.channels;
        let [top, left] = [self.reach(0)[0].unsigned_abs(), self.reach(1)[0].unsigned_abs()];
        let first = rows.start / self.places[0] * self.size[0] * pitch;
        let mut bases = Vec::with_capacity(rows.len() * self.places[1]);
        for row in rows {
            let (image, row) = (row / self.places[0], row % self.places[0]);
            let start = (image * self.size[0] + row * self.steps[0] + top) * pitch + left * self.channels - first;
            bases.extend((0..self.places[1]).map(|column| (start + column * self.steps[1] * self.channels) as u32));
        }
        Band { data: &images[first..], bases, runs: self.runs(pitch) }
    }

    /// A copy with zeros around.
    fn framed<'a>(&self, images: &[f32], rows: std::ops::Range<usize>, words: &'a mut Words) -> Band<'a> {
        let pitch = self.width() * self.channels;
        let [[top, bottom], [left, _]] = [self.reach(0), self.reach(1)];
        let height = |rows: usize| (rows - 1) * self.steps[0] + (bottom - top).unsigned_abs() + 1;
        // Each image's rows of places, apart.
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
                self.frame_row(image, (first * self.steps[0] + at) as isize + top, left, out);
            }
            for row in 0..count {
                let start = start + row * self.steps[0] * pitch;
                bases.extend((0..self.places[1]).map(|column| (start + column * self.steps[1] * self.channels) as u32));
            }
            start += height(count) * pitch;
        }
        Band { data: copy, bases, runs: self.runs(pitch) }
    }

    /// Row `row` of an image from column `left` on, zeros where there is none.
    fn frame_row(&self, image: &[f32], row: isize, left: isize, out: &mut [f32]) {
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

/// A filter in its packed form: the one that is kept, or made of `filter` in `out`.
fn packed<'a>(
    form: &FilterForm,
    filter: &[f32],
    threads: &Threads,
    out: &'a mut [f32],
    kept: Option<&'a [f32]>,
) -> Packed<'a> {
    let layout = form.layout;
    if let Some(data) = kept {
        return Packed { layout, data };
    }
    let out = &mut out[..layout.len()];
    threads.each(layout.len(), parts(layout, out), |part| {
        part.fill_with(|depth, column| form.element(filter, depth, column));
    });
    Packed { layout, data: out }
}

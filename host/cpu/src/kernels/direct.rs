//! Direct convolution without im2col. Tiles of output channels by output places stay in registers while every tap of
//! the window is added to them.
//!
//! An image is first copied to padded planes whose rows are `pitch` elements long. Output places are numbered along
//! those rows as if they were one line. The input of a tap then lies at the same distance from every place, and vectors
//! can run across row ends. The results between rows are discarded. With strides, there is one plane per phase: its
//! rows and columns are those with the same remainder by the stride.
//!
//! Every result is one chain of multiply-adds over the taps in filter order, from zero on. Its bits therefore do not
//! depend on how places and channels are split into tiles.

use super::im2col::{WindowGeometry, copy_row};
use crate::aligned_buffer::AlignedBuffer;
use crate::cancel;
use crate::epilogue::{BoundBiasClamp, ChannelBiasClamp};
use crate::simd::{FusedWork, MulAdd, dispatch_fused};
use crate::thread_scratch::buffer;

/// Maximum number of output channels of a tile. With two vectors of places, the sums, a vector of each and a factor
/// take fifteen of sixteen registers.
const HEIGHT_MAX: usize = 6;
/// Places of one vector.
const LANES: usize = 8;
/// Taps of the tiles computed between two checks for cancellation.
const TAPS_BETWEEN_CHECKS: usize = 1 << 14;
/// Output channels up to which a packed product is slow for any geometry.
const FEW_OUTPUTS: usize = 8;
/// Elements of a group's filter beyond which it is better packed.
const FILTER_ELEMENTS_MAX: usize = 1 << 18;
/// Output channels of strided convolutions beyond which im2col is a small part of the work.
const STEPPED_OUTPUTS_MAX: usize = 64;
/// Elements that a padded image can take beyond the size of its patch matrix. Dilated windows can span any number of
/// zeros.
const SPARE_ELEMENTS: usize = 1 << 16;

/// A direct convolution: the geometry of its padded images.
#[derive(Clone, Debug)]
pub(crate) struct DirectConv2d {
    windows: WindowGeometry,
    channels: usize,
    /// Elements from one row to the next.
    pitch: usize,
    /// Rows of a plane.
    rows: usize,
    /// Columns of a plane that hold image elements.
    columns: usize,
    /// For each tap, channels outermost, the distance in elements from a place to its input.
    offsets: Vec<u32>,
    /// Elements of a padded image, including what vectors read beyond its end.
    padded_elements: usize,
}

impl DirectConv2d {
    /// Returns the convolution for windows over `channels` channels, or `None` if padded images would take much more
    /// memory than patches.
    pub(crate) fn new(windows: WindowGeometry, channels: usize) -> Option<DirectConv2d> {
        let WindowGeometry { input, window, output, strides, dilations, padding } = windows;
        let last = |axis: usize| (window[axis].max(1) - 1) * dilations[axis] / strides[axis];
        let (rows, wide) = (output[0] + last(0), output[1] + last(1));
        let columns = (input[1] + padding[1]).div_ceil(strides[1]).min(wide);
        // Padding right of a row overlaps the zeros at the beginning of the next row as far as possible.
        let pitch = columns.max(output[1]).max(wide - (padding[1] / strides[1]).min(wide));
        let plane = rows.checked_mul(pitch)?;
        let planes = channels.checked_mul(strides[0])?.checked_mul(strides[1])?;
        let patches = (channels * window[0] * window[1]).saturating_mul(windows.output_plane());
        let all = plane.checked_mul(planes).filter(|&all| all <= patches.saturating_add(SPARE_ELEMENTS))?;
        let mut offsets = Vec::with_capacity(channels * window[0] * window[1]);
        for channel in 0..channels {
            for y in (0..window[0]).map(|y| y * dilations[0]) {
                for x in (0..window[1]).map(|x| x * dilations[1]) {
                    let phase = y % strides[0] * strides[1] + x % strides[1];
                    let start = (channel * strides[0] * strides[1] + phase) * plane;
                    let offset = start + y / strides[0] * pitch + x / strides[1];
                    offsets.push(u32::try_from(offset).ok()?);
                }
            }
        }
        let read = offsets.iter().max().map_or(0, |&last| last as usize) + rows * pitch + 2 * LANES;
        Some(DirectConv2d { windows, channels, pitch, rows, columns, offsets, padded_elements: read.max(all) })
    }

    /// Returns the number of computed places: all rows and the places between them.
    fn computed_places(&self) -> usize {
        let [height, width] = self.windows.output;
        height.saturating_sub(1) * self.pitch + width
    }

    /// Returns the elements from one channel's line of results to the next, with room for vectors that overrun.
    fn line_elements(&self) -> usize {
        self.computed_places().next_multiple_of(LANES) + LANES
    }

    /// Returns whether this is faster than im2col and a packed product, for `outputs` output channels of a group.
    ///
    /// Measured on one core of an EPYC (AVX2), in GFLOP/s of im2col and of this: 48 and 82 for 32 outputs of 14x14 by
    /// windows of 5x5 over 16 channels, 60 and 77 for 64 of 56x56 by 3x3 over 64, 76 and 77 for 128 of 28x28 over 128,
    /// 3 and 15 for 64 groups of one channel of 14x14. But 75 and 55 for 256 of 4x4 over 256, where a third of the
    /// computed places is discarded, and 69 and 59 for 128 of 28x28 over 64 with stride 2, though 12 and 27 for 8 of
    /// 48x48 over 3. A 1x1 window needs no im2col: 67 and 55 for 64 of 56x56 over 64. A filter larger than the
    /// second-level cache is read again for every image: 53 and 40 for 8 images of 256 of 14x14 over 256.
    pub(crate) fn is_faster(&self, outputs: usize) -> bool {
        let output_places = self.windows.output_plane();
        let computed = self.computed_places().next_multiple_of(LANES);
        let few = outputs <= FEW_OUTPUTS;
        let full = 3 * output_places > 2 * computed && outputs * self.offsets.len() <= FILTER_ELEMENTS_MAX;
        let stepped = self.windows.strides != [1, 1];
        !self.windows.is_pointwise() && (few || full) && (outputs <= STEPPED_OUTPUTS_MAX || !stepped)
    }

    /// Convolves one group of one image: `image` is `[channels, height, width]`, `filter` is `[outputs, taps]`, and
    /// `out` is `[outputs, height, width]`.
    pub(crate) fn run(
        &self,
        image: &[f32],
        filter: &[f32],
        out: &mut [f32],
        ends: BoundBiasClamp<'_>,
        words: &mut [AlignedBuffer; 2],
    ) {
        let [laid_out, lines] = words;
        let laid_out = buffer::<f32>(laid_out, self.padded_elements);
        let lines = buffer::<f32>(lines, HEIGHT_MAX * self.line_elements());
        dispatch_fused(DirectConv2dWork { direct: self, image, filter, out, epilogue: ends, padded: laid_out, lines });
    }

    /// Copies an image's rows to the padded planes.
    #[inline(always)]
    fn pad_image(&self, image: &[f32], laid_out: &mut [f32]) {
        let WindowGeometry { input: [height, width], strides: [down, right], padding: [top, left], .. } = self.windows;
        let plane = self.rows * self.pitch;
        let (columns, rows) = (self.columns.saturating_sub(left), self.rows.saturating_sub(top).min(height));
        if [down, right] != [1, 1] || columns * rows == 0 {
            return self.pad_strided_image(image, laid_out);
        }
        for channel in 0..self.channels {
            let (image, to) = (&image[channel * height * width..], &mut laid_out[channel * plane..]);
            to[..top * self.pitch + left].fill(0.0);
            for row in 0..rows {
                let (from, to) = (&image[row * width..], &mut to[(top + row) * self.pitch + left..]);
                copy_vectors(to, from, columns);
                // Fill up to the next row's first element. The next row overwrites what a whole vector writes beyond
                // it.
                zero_vectors(&mut to[columns..], self.pitch - columns);
            }
            let end = (top + rows) * self.pitch;
            to[end..plane.max(end)].fill(0.0);
        }
        laid_out[self.channels * plane..].fill(0.0);
    }

    /// Copies an image's rows to the padded planes of a strided convolution.
    #[inline(always)]
    fn pad_strided_image(&self, image: &[f32], laid_out: &mut [f32]) {
        let WindowGeometry { input: [height, width], strides: [down, right], padding: [top, left], .. } = self.windows;
        laid_out.fill(0.0);
        let plane = self.rows * self.pitch;
        if height * width == 0 || plane == 0 {
            return;
        }
        for (image, planes) in image.chunks_exact(height * width).zip(laid_out.chunks_exact_mut(down * right * plane)) {
            let rows = image.chunks_exact(width).enumerate().map(|(y, row)| (y + top, row));
            for (y, row) in rows.take_while(|(y, _)| y / down < self.rows) {
                let to = y % down * right * plane + y / down * self.pitch;
                for phase in 0..right {
                    let first = (phase + right - left % right) % right;
                    let column = (first + left) / right;
                    if column < self.columns {
                        let to = &mut planes[to + phase * plane + column..][..self.columns - column];
                        for (to, &value) in to.iter_mut().zip(row.iter().skip(first).step_by(right)) {
                            *to = value;
                        }
                    }
                }
            }
        }
    }

    /// Computes a line of results for each of `HEIGHT` output channels, in tiles of `WIDTH` places and narrower ones
    /// for the rest.
    #[inline(always)]
    fn run_band<M: MulAdd, const HEIGHT: usize, const WIDTH: usize>(
        &self,
        laid_out: &[f32],
        filter: &[f32],
        lines: &mut [f32],
    ) {
        let (places, line) = (self.computed_places(), self.line_elements());
        let between = WIDTH * (TAPS_BETWEEN_CHECKS / self.offsets.len().max(1)).max(1);
        let (mut at, mut check_at) = (0, between);
        while at + WIDTH <= places {
            if at >= check_at {
                cancel::check();
                check_at = at + between;
            }
            self.run_tile::<M, HEIGHT, WIDTH>(&laid_out[at..], filter, &mut lines[at..], line);
            at += WIDTH;
        }
        while at + LANES < places {
            self.run_tile::<M, HEIGHT, { 2 * LANES }>(&laid_out[at..], filter, &mut lines[at..], line);
            at += 2 * LANES;
        }
        if at < places {
            self.run_tile::<M, HEIGHT, LANES>(&laid_out[at..], filter, &mut lines[at..], line);
        }
    }

    /// Writes the lines of `channels` to the result.
    #[inline(always)]
    fn write_channels(
        &self,
        lines: &[f32],
        out: &mut [f32],
        ends: BoundBiasClamp<'_>,
        channels: std::ops::Range<usize>,
    ) {
        let [height, width] = self.windows.output;
        for (index, channel) in channels.enumerate() {
            for row in 0..height {
                let from = &lines[index * self.line_elements() + row * self.pitch..];
                // The next row overwrites what is written beyond the end of this one.
                epilogue_vectors(&mut out[(channel * height + row) * width..], from, width, ends.channel(channel));
            }
        }
    }

    // Loops over constants are unrolled, so the sums stay in registers. Iterators over them are not.
    #[inline(always)]
    fn run_tile<M: MulAdd, const HEIGHT: usize, const WIDTH: usize>(
        &self,
        laid_out: &[f32],
        filter: &[f32],
        lines: &mut [f32],
        line: usize,
    ) {
        let taps = self.offsets.len();
        let mut filters = [&filter[..taps]; HEIGHT];
        for (channel, one) in filters.iter_mut().enumerate() {
            *one = &filter[channel * taps..][..taps];
        }
        let mut sums = [[0.0f32; WIDTH]; HEIGHT];
        for (tap, &offset) in self.offsets.iter().enumerate() {
            let x = laid_out[offset as usize..].first_chunk::<WIDTH>().expect("vectors lie in the padded image");
            for channel in 0..HEIGHT {
                let factor = filters[channel][tap];
                for place in 0..WIDTH {
                    sums[channel][place] = M::mul_add(x[place], factor, sums[channel][place]);
                }
            }
        }
        for (channel, sums) in sums.iter().enumerate() {
            lines[channel * line..][..WIDTH].copy_from_slice(sums);
        }
    }
}

/// Copies `count` elements, rounded up to a whole vector if both sides have room.
#[inline(always)]
fn copy_vectors(to: &mut [f32], from: &[f32], count: usize) {
    let whole = count.next_multiple_of(LANES);
    let count = if whole <= to.len().min(from.len()) { whole } else { count };
    copy_row(&mut to[..count], &from[..count]);
}

/// Applies the epilogue to `count` elements and writes them, rounded up as in [`copy_vectors`].
#[inline(always)]
fn epilogue_vectors(to: &mut [f32], from: &[f32], count: usize, end: ChannelBiasClamp) {
    let whole = count.next_multiple_of(LANES);
    let count = if whole <= to.len().min(from.len()) { whole } else { count };
    let ((to, to_rest), (from, rest)) = (to[..count].as_chunks_mut::<LANES>(), from[..count].as_chunks::<LANES>());
    for (to, from) in to.iter_mut().zip(from) {
        *to = from.map(|x| end.apply(x));
    }
    for (to, &x) in to_rest.iter_mut().zip(rest) {
        *to = end.apply(x);
    }
}

/// Writes `count` zeros, and up to a whole vector if there is room.
#[inline(always)]
fn zero_vectors(to: &mut [f32], count: usize) {
    match to.first_chunk_mut::<LANES>() {
        Some(vector) if count <= LANES => *vector = [0.0; LANES],
        Some(_) | None => to[..count].fill(0.0),
    }
}

/// The direct convolution of one group of one image.
struct DirectConv2dWork<'a> {
    direct: &'a DirectConv2d,
    image: &'a [f32],
    filter: &'a [f32],
    out: &'a mut [f32],
    epilogue: BoundBiasClamp<'a>,
    padded: &'a mut [f32],
    lines: &'a mut [f32],
}

impl FusedWork for DirectConv2dWork<'_> {
    type Output = ();

    #[inline(always)]
    fn run<M: MulAdd>(self) {
        let DirectConv2dWork { direct, image, filter, out, epilogue: ends, padded: laid_out, lines } = self;
        direct.pad_image(image, laid_out);
        let plane = direct.windows.output_plane();
        let outputs = out.len() / plane.max(1);
        let bands = outputs.div_ceil(HEIGHT_MAX);
        let mut channel = 0;
        for band in 0..bands {
            cancel::check();
            // Bands have nearly the same height: a band of few channels would wait for the latency of each
            // multiply-add.
            let height = (outputs - channel).div_ceil(bands - band);
            let filter = &filter[channel * direct.offsets.len()..];
            match height {
                1 => direct.run_band::<M, 1, { 8 * LANES }>(laid_out, filter, lines),
                2 => direct.run_band::<M, 2, { 4 * LANES }>(laid_out, filter, lines),
                3 => direct.run_band::<M, 3, { 3 * LANES }>(laid_out, filter, lines),
                4 => direct.run_band::<M, 4, { 2 * LANES }>(laid_out, filter, lines),
                5 => direct.run_band::<M, 5, { 2 * LANES }>(laid_out, filter, lines),
                HEIGHT_MAX => direct.run_band::<M, HEIGHT_MAX, { 2 * LANES }>(laid_out, filter, lines),
                _ => unreachable!("no band is higher than a tile"),
            }
            direct.write_channels(lines, out, ends, channel..channel + height);
            channel += height;
        }
    }
}

#[cfg(test)]
mod tests;

//! Image patches as columns of a matrix and back: what turns convolutions into matrix products.

use saggar_tensor::op::Conv2d;

/// Outputs along one axis whose tap at `offset` (tap position less padding) lies inside the input: `low..high`.
pub(super) fn span(outputs: usize, size: usize, stride: usize, offset: isize) -> (usize, usize) {
    let low = if offset < 0 { offset.unsigned_abs().div_ceil(stride) } else { 0 };
    let high = match size.checked_add_signed(-offset) {
        Some(room) if offset < size as isize => room.div_ceil(stride),
        Some(_) | None => 0,
    };
    let high = high.min(outputs);
    (low.min(high), high)
}

/// One tap's row of inputs for one row of outputs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taps {
    /// First output column whose tap is inside.
    pub(super) low: usize,
    /// First output column past those.
    pub(super) high: usize,
    /// Input element under output column `low`.
    pub(super) start: usize,
}

/// Windows over one image plane.
#[derive(Clone, Copy, Debug)]
pub(super) struct Windows {
    /// Height, width of the input plane.
    pub(super) input: [usize; 2],
    /// Height, width of the window.
    pub(super) window: [usize; 2],
    /// Height, width of the output plane.
    pub(super) output: [usize; 2],
    /// Steps of the window.
    pub(super) strides: [usize; 2],
    /// Distances of taps.
    pub(super) dilations: [usize; 2],
    /// Padding before: top, left.
    pub(super) padding: [usize; 2],
}

impl Windows {
    /// The windows of a convolution.
    pub(super) fn of(conv: &Conv2d, input: [usize; 2], window: [usize; 2], output: [usize; 2]) -> Windows {
        Windows {
            input,
            window,
            output,
            strides: conv.strides,
            dilations: conv.dilations,
            padding: [conv.padding[0], conv.padding[2]],
        }
    }

    /// Inputs under one tap for a row of outputs; none where the row lies in padding.
    pub(super) fn taps(&self, row: usize, tap: [usize; 2]) -> Option<Taps> {
        let y = (row * self.strides[0] + tap[0] * self.dilations[0]).checked_sub(self.padding[0])?;
        if y >= self.input[0] {
            return None;
        }
        let offset = (tap[1] * self.dilations[1]) as isize - self.padding[1] as isize;
        let (low, high) = span(self.output[1], self.input[1], self.strides[1], offset);
        if low == high {
            return None;
        }
        let x = (low * self.strides[1]).checked_add_signed(offset)?;
        Some(Taps { low, high, start: y * self.input[1] + x })
    }

    /// Whether patches are the image itself.
    pub(super) fn is_pointwise(&self) -> bool {
        self.window == [1, 1] && self.strides == [1, 1] && self.padding == [0, 0] && self.input == self.output
    }

    /// Rows of the patch matrix for one channel, and its columns.
    pub(super) fn sizes(&self) -> [usize; 2] {
        [self.window[0] * self.window[1], self.output[0] * self.output[1]]
    }

    /// Writes the patches of `image` (whole channels): row `(channel, tap)`, column `output`.
    pub(super) fn unfold(&self, image: &[f32], patches: &mut [f32]) {
        let plane = self.input[0] * self.input[1];
        let [taps, columns] = self.sizes();
        for (channel, patches) in patches.chunks_mut(taps * columns).enumerate() {
            let image = &image[channel * plane..][..plane];
            for (tap, rows) in patches.chunks_mut(columns).enumerate() {
                let tap = [tap / self.window[1], tap % self.window[1]];
                for (row, out) in rows.chunks_mut(self.output[1]).enumerate() {
                    self.unfold_row(image, row, tap, out);
                }
            }
        }
    }

    fn unfold_row(&self, image: &[f32], row: usize, tap: [usize; 2], out: &mut [f32]) {
        let Some(taps) = self.taps(row, tap) else {
            out.fill(0.0);
            return;
        };
        out[..taps.low].fill(0.0);
        out[taps.high..].fill(0.0);
        let out = &mut out[taps.low..taps.high];
        if self.strides[1] == 1 {
            out.copy_from_slice(&image[taps.start..][..out.len()]);
        } else {
            for (out, &value) in out.iter_mut().zip(image[taps.start..].iter().step_by(self.strides[1])) {
                *out = value;
            }
        }
    }

    /// Adds patches to the places of `image` (whole channels) that they came from.
    pub(super) fn fold(&self, patches: &[f32], image: &mut [f32]) {
        let plane = self.input[0] * self.input[1];
        let [taps, columns] = self.sizes();
        for (channel, patches) in patches.chunks(taps * columns).enumerate() {
            let image = &mut image[channel * plane..][..plane];
            for (tap, rows) in patches.chunks(columns).enumerate() {
                let tap = [tap / self.window[1], tap % self.window[1]];
                for (row, values) in rows.chunks(self.output[1]).enumerate() {
                    self.fold_row(&values[..self.output[1]], row, tap, image);
                }
            }
        }
    }

    /// Adds a row of values to the places of `image` under one tap.
    pub(super) fn fold_row(&self, values: &[f32], row: usize, tap: [usize; 2], image: &mut [f32]) {
        let Some(taps) = self.taps(row, tap) else { return };
        let values = &values[taps.low..taps.high];
        if self.strides[1] == 1 {
            for (out, &value) in image[taps.start..].iter_mut().zip(values) {
                *out += value;
            }
        } else {
            for (out, &value) in image[taps.start..].iter_mut().step_by(self.strides[1]).zip(values) {
                *out += value;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_hold_exactly_the_taps_inside() {
        for outputs in 0..6 {
            for size in 1..6 {
                for stride in 1..4 {
                    for offset in -6..6 {
                        let inside = |o: &usize| (0..size as isize).contains(&((o * stride) as isize + offset));
                        let expected: Vec<usize> = (0..outputs).filter(inside).collect();
                        let (low, high) = span(outputs, size, stride, offset);
                        assert_eq!((low..high).collect::<Vec<_>>(), expected, "{outputs} {size} {stride} {offset}");
                    }
                }
            }
        }
    }
}

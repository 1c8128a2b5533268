//! im2col and col2im: image patches as columns of a matrix, and back. Turns convolutions into matrix products.

use saggar_tensor::op::Conv2d;

/// Returns the outputs `low..high` along one axis for which the tap at `offset` (tap position minus padding) lies
/// inside the input.
pub(crate) fn outputs_inside(outputs: usize, size: usize, stride: usize, offset: isize) -> (usize, usize) {
    let low = if offset < 0 { offset.unsigned_abs().div_ceil(stride) } else { 0 };
    let high = match size.checked_add_signed(-offset) {
        Some(room) if offset < size as isize => room.div_ceil(stride),
        Some(_) | None => 0,
    };
    let high = high.min(outputs);
    (low.min(high), high)
}

/// A tap of the window, and the outputs for which it lies inside the input.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WindowTap {
    /// Rows of these outputs: first, and one past the last.
    rows: (usize, usize),
    /// Columns of these outputs: first, and one past the last.
    columns: (usize, usize),
    /// Input element of the first of these outputs.
    start: usize,
    /// Input elements from one row of outputs to the next.
    row_step: usize,
    /// Input elements from one output to the next.
    step: usize,
    /// Outputs per row.
    width: usize,
}

/// The part of a row of outputs for which a tap lies inside the input.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TapRow {
    /// First output, in the plane.
    pub(crate) output: usize,
    /// Input element of the first output.
    pub(crate) input: usize,
    /// Number of outputs.
    pub(crate) len: usize,
}

impl WindowTap {
    /// Returns the input elements from one output to the next.
    pub(crate) fn step(&self) -> usize {
        self.step
    }

    /// Returns the outputs of row `row` for which the tap lies inside the input, or `None` if there are no such
    /// outputs.
    pub(crate) fn row(&self, row: usize) -> Option<TapRow> {
        let (low, high) = self.rows;
        let (left, right) = self.columns;
        let inside = (low..high).contains(&row) && left < right;
        inside.then(|| TapRow {
            output: row * self.width + left,
            input: self.start + (row - low) * self.row_step,
            len: right - left,
        })
    }

    /// Calls `visit` for every row of outputs for which the tap lies inside the input.
    pub(crate) fn each_row(&self, mut visit: impl FnMut(TapRow)) {
        for row in self.rows.0..self.rows.1 {
            if let Some(row) = self.row(row) {
                visit(row);
            }
        }
    }
}

/// Windows over one image plane.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WindowGeometry {
    /// Height and width of the input plane.
    pub(crate) input: [usize; 2],
    /// Height and width of the window.
    pub(crate) window: [usize; 2],
    /// Height and width of the output plane.
    pub(crate) output: [usize; 2],
    /// Strides of the window.
    pub(crate) strides: [usize; 2],
    /// Dilations: distances between taps.
    pub(crate) dilations: [usize; 2],
    /// Padding at the top and left.
    pub(crate) padding: [usize; 2],
}

impl WindowGeometry {
    /// Returns the windows of a convolution.
    pub(crate) fn from_conv(
        conv: &Conv2d,
        input: [usize; 2],
        window: [usize; 2],
        output: [usize; 2],
    ) -> WindowGeometry {
        WindowGeometry {
            input,
            window,
            output,
            strides: conv.strides,
            dilations: conv.dilations,
            padding: [conv.padding[0], conv.padding[2]],
        }
    }

    /// Returns tap `index` of the window, in row-major order.
    pub(crate) fn tap(&self, index: usize) -> WindowTap {
        let tap = [index / self.window[1], index % self.window[1]];
        let axis = |axis: usize| {
            let offset = (tap[axis] * self.dilations[axis]) as isize - self.padding[axis] as isize;
            let (low, high) = outputs_inside(self.output[axis], self.input[axis], self.strides[axis], offset);
            // If the range is empty, the start is not used.
            (low, high, (low * self.strides[axis]).checked_add_signed(offset).unwrap_or(0))
        };
        let (top, bottom, y) = axis(0);
        let (left, right, x) = axis(1);
        WindowTap {
            rows: (top, bottom),
            columns: (left, right),
            start: y * self.input[1] + x,
            row_step: self.strides[0] * self.input[1],
            step: self.strides[1],
            width: self.output[1],
        }
    }

    /// Returns all taps of the window, in row-major order.
    pub(crate) fn taps(&self) -> impl Iterator<Item = WindowTap> {
        (0..self.window[0] * self.window[1]).map(|index| self.tap(index))
    }

    /// Returns the elements of one input plane.
    pub(crate) fn input_plane(&self) -> usize {
        self.input[0] * self.input[1]
    }

    /// Returns the elements of one output plane.
    pub(crate) fn output_plane(&self) -> usize {
        self.output[0] * self.output[1]
    }

    /// Returns whether the patch matrix is the image itself.
    pub(crate) fn is_pointwise(&self) -> bool {
        self.window == [1, 1] && self.strides == [1, 1] && self.padding == [0, 0] && self.input == self.output
    }

    /// Writes the patches of `image` (whole channels). Row `(channel, tap)` of `patches` has one element per output.
    /// Rows are `width` elements apart.
    pub(crate) fn unfold(&self, image: &[f32], patches: &mut [f32], width: usize) {
        let taps: Vec<WindowTap> = self.taps().collect();
        let mut rows = patches.chunks_mut(width);
        for image in image.chunks(self.input_plane()) {
            for (tap, row) in taps.iter().zip(&mut rows) {
                self.unfold_tap(image, tap, &mut row[..self.output_plane()]);
            }
        }
    }

    fn unfold_tap(&self, image: &[f32], tap: &WindowTap, out: &mut [f32]) {
        // Outputs outside the tap's rows are padding.
        let mut done = 0;
        tap.each_row(|row| {
            if done < row.output {
                out[done..row.output].fill(0.0);
            }
            done = row.output + row.len;
            let out = &mut out[row.output..done];
            if tap.step == 1 {
                copy_row(out, &image[row.input..][..row.len]);
            } else {
                for (out, &value) in out.iter_mut().zip(image[row.input..].iter().step_by(tap.step)) {
                    *out = value;
                }
            }
        });
        out[done..].fill(0.0);
    }

    /// Adds patches to the elements of `image` (whole channels) from which they came.
    pub(crate) fn fold(&self, patches: &[f32], width: usize, image: &mut [f32]) {
        let taps: Vec<WindowTap> = self.taps().collect();
        let mut rows = patches.chunks(width);
        for image in image.chunks_mut(self.input_plane()) {
            for (tap, row) in taps.iter().zip(&mut rows) {
                fold_tap(&row[..self.output_plane()], tap, image);
            }
        }
    }
}

/// Elements per step of copying rows. Rows are often so short that a call to copy them costs more than the copying.
const ROW_CHUNK: usize = 8;

#[inline(always)]
pub(crate) fn copy_row(out: &mut [f32], values: &[f32]) {
    let (out, out_rest) = out.as_chunks_mut::<ROW_CHUNK>();
    let (values, rest) = values.as_chunks::<ROW_CHUNK>();
    for (out, values) in out.iter_mut().zip(values) {
        *out = *values;
    }
    for (out, &value) in out_rest.iter_mut().zip(rest) {
        *out = value;
    }
}

#[inline(always)]
fn add_row(out: &mut [f32], values: &[f32]) {
    let (out, out_rest) = out.as_chunks_mut::<ROW_CHUNK>();
    let (values, rest) = values.as_chunks::<ROW_CHUNK>();
    for (out, values) in out.iter_mut().zip(values) {
        for (out, &value) in out.iter_mut().zip(values) {
            *out += value;
        }
    }
    for (out, &value) in out_rest.iter_mut().zip(rest) {
        *out += value;
    }
}

/// Adds a value per output to the element of `image` under one tap.
pub(crate) fn fold_tap(values: &[f32], tap: &WindowTap, image: &mut [f32]) {
    tap.each_row(|row| {
        let values = &values[row.output..][..row.len];
        if tap.step == 1 {
            add_row(&mut image[row.input..][..row.len], values);
        } else {
            for (out, &value) in image[row.input..].iter_mut().step_by(tap.step).zip(values) {
                *out += value;
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_inside_are_exactly_those_whose_tap_is_in_the_input() {
        for outputs in 0..6 {
            for size in 1..6 {
                for stride in 1..4 {
                    for offset in -6..6 {
                        let inside = |o: &usize| (0..size as isize).contains(&((o * stride) as isize + offset));
                        let expected: Vec<usize> = (0..outputs).filter(inside).collect();
                        let (low, high) = outputs_inside(outputs, size, stride, offset);
                        assert_eq!((low..high).collect::<Vec<_>>(), expected, "{outputs} {size} {stride} {offset}");
                    }
                }
            }
        }
    }
}

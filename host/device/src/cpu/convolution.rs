//! Convolutions and their adjoints: patches and matrix products, image by image.

use saggar_compile::program::{Epilogue, ValueId};
use saggar_tensor::DType;
use saggar_tensor::op;

use super::contract::{finish_chunk, with_windows};
use super::evaluate::{buffer, with_scratch};
use super::floats::{floats, write_floats};
use super::gemm::{Matrix, multiply};
use super::lanes::{accumulate, elements_mut};
use super::map::{Accumulation, Finish};
use super::patch::Windows;
use super::plan::{Planner, Refusal};
use super::region::Piece;
use super::threads::Threads;

/// Partial sums of a filter's gradient: enough to share among threads, few enough to add up quickly.
const PARTIALS_MAX: usize = 16;

/// Sizes of a convolution.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    images: usize,
    groups: usize,
    /// Input channels of one group.
    channels: usize,
    /// Output channels of one group.
    outputs: usize,
    windows: Windows,
}

impl Sizes {
    /// From dimensions of input `[n, c, h, w]`, filter `[o, c/groups, kh, kw]` and result `[n, o, oh, ow]`.
    fn new(conv: &op::Conv2d, input: &[usize], filter: &[usize], result: &[usize]) -> Sizes {
        let plane = |dims: &[usize]| [dims[2], dims[3]];
        Sizes {
            images: input[0],
            groups: conv.groups,
            channels: filter[1],
            outputs: filter[0] / conv.groups.max(1),
            windows: Windows::of(conv, plane(input), plane(filter), plane(result)),
        }
    }

    /// Elements of one group of one input image.
    fn input(&self) -> usize {
        self.channels * self.windows.input[0] * self.windows.input[1]
    }

    /// Columns of the patch matrix: output places.
    fn columns(&self) -> usize {
        self.windows.sizes()[1]
    }

    /// Rows of the patch matrix: taps of one group.
    fn depth(&self) -> usize {
        self.channels * self.windows.sizes()[0]
    }

    /// Elements of one group of one result image.
    fn result(&self) -> usize {
        self.outputs * self.columns()
    }

    /// Elements of one group of the filter.
    fn filter(&self) -> usize {
        self.outputs * self.depth()
    }

    fn multiply_adds(&self) -> usize {
        (self.images * self.groups * self.result()).saturating_mul(self.depth())
    }

    /// The patch matrix of one group of an image, in `words` unless it is the image itself.
    fn patches<'a>(&self, image: &'a [f32], words: &'a mut Vec<u64>) -> &'a [f32] {
        if self.windows.is_pointwise() {
            return image;
        }
        let patches = buffer::<f32>(words, self.depth() * self.columns());
        if !patches.is_empty() {
            self.windows.unfold(image, patches);
        }
        patches
    }
}

/// Convolution with an epilogue.
#[derive(Debug)]
pub(super) struct Conv2d {
    sizes: Sizes,
    dtype: DType,
    input: usize,
    filter: usize,
    finish: Finish,
}

impl Conv2d {
    /// Prepares a `Body::Conv2d` of `[input, filter]`.
    pub(super) fn new(
        planner: &Planner<'_>,
        conv: &op::Conv2d,
        [input, filter]: [ValueId; 2],
        result: &[usize; 4],
        epilogue: &Epilogue,
    ) -> Result<Conv2d, Refusal> {
        Ok(Conv2d {
            sizes: Sizes::new(conv, planner.dims(input), planner.dims(filter), result),
            dtype: planner.float(input)?,
            input: planner.operand(input)?,
            filter: planner.operand(filter)?,
            finish: Finish::epilogue(planner, result, epilogue)?,
        })
    }

    /// What is accumulated outside the stores.
    pub(super) fn workspace_bytes(&self) -> usize {
        if self.finish.accumulation == Accumulation::Workspace { 4 * self.finish.elements } else { 0 }
    }

    /// Runs it.
    pub(super) fn run(&self, threads: &Threads, mut pieces: Vec<Piece<'_>>, workspace: &mut [u64]) {
        let sizes = &self.sizes;
        let image = sizes.groups * sizes.result();
        if self.finish.elements == 0 {
            return;
        }
        let stores = self.finish.take(&mut pieces);
        let inputs = self.finish.inputs(&pieces);
        let (x, filter) = (pieces[self.input].read(), pieces[self.filter].read());
        let (x, filter) = (floats(self.dtype, x), floats(self.dtype, filter));
        let chunks = self.finish.chunks(stores, std::iter::repeat_n(image, sizes.images));
        let workspace = elements_mut::<f32>(bytemuck::cast_slice_mut(workspace));
        let tasks = with_windows(chunks, workspace, self.finish.accumulation);
        threads.each(sizes.multiply_adds(), tasks, |(chunk, window)| {
            finish_chunk(&self.finish, &inputs, chunk, window, |out, first| {
                let x = x.get(first / image * sizes.groups * sizes.input()..).unwrap_or(&[]);
                self.image(x, &filter, out);
            });
        });
    }

    fn image(&self, x: &[f32], filter: &[f32], out: &mut [f32]) {
        let sizes = &self.sizes;
        with_scratch(|scratch| {
            for (group, out) in out.chunks_mut(sizes.result()).enumerate() {
                let x = &x[group * sizes.input()..][..sizes.input()];
                let patches = sizes.patches(x, &mut scratch.buffers[0]);
                let a = Matrix::new(&filter[group * sizes.filter()..][..sizes.filter()], sizes.depth(), 0, false);
                let b = Matrix::new(patches, sizes.columns(), 0, false);
                multiply(out, [sizes.outputs, sizes.columns(), sizes.depth()], a, b, false);
            }
        });
    }
}

/// Adjoint of a convolution in its input.
#[derive(Debug)]
pub(super) struct InputGrad {
    sizes: Sizes,
    dtype: DType,
    gradient: usize,
    filter: usize,
    output: usize,
}

impl InputGrad {
    /// Prepares a `Body::Conv2dInputGrad` of `[gradient, filter, output]`.
    pub(super) fn new(
        planner: &Planner<'_>,
        conv: &op::Conv2d,
        [gradient, filter, output]: [ValueId; 3],
    ) -> Result<InputGrad, Refusal> {
        Ok(InputGrad {
            sizes: Sizes::new(conv, planner.dims(output), planner.dims(filter), planner.dims(gradient)),
            dtype: planner.float(gradient)?,
            gradient: planner.operand(gradient)?,
            filter: planner.operand(filter)?,
            output: planner.region(output),
        })
    }

    /// Runs it.
    pub(super) fn run(&self, threads: &Threads, mut pieces: Vec<Piece<'_>>) {
        let sizes = &self.sizes;
        let output = pieces[self.output].take();
        let (dy, filter) = (pieces[self.gradient].read(), pieces[self.filter].read());
        let (dy, filter) = (floats(self.dtype, dy), floats(self.dtype, filter));
        let image = sizes.groups * sizes.input();
        if image == 0 {
            return;
        }
        write_floats(self.dtype, output, |dx| {
            let tasks: Vec<_> = dx.chunks_mut(image).enumerate().collect();
            threads.each(sizes.multiply_adds(), tasks, |(index, dx)| {
                let dy = dy.get(index * sizes.groups * sizes.result()..).unwrap_or(&[]);
                self.image(dy, &filter, dx);
            });
        });
    }

    fn image(&self, dy: &[f32], filter: &[f32], dx: &mut [f32]) {
        let sizes = &self.sizes;
        let shape = [sizes.depth(), sizes.columns(), sizes.outputs];
        with_scratch(|scratch| {
            for (group, dx) in dx.chunks_mut(sizes.input()).enumerate() {
                let filter = &filter[group * sizes.filter()..][..sizes.filter()];
                let dy = &dy[group * sizes.result()..][..sizes.result()];
                let a = Matrix::new(filter, 0, sizes.depth(), true);
                let b = Matrix::new(dy, sizes.columns(), 0, false);
                if sizes.windows.is_pointwise() {
                    multiply(dx, shape, a, b, false);
                    continue;
                }
                let patches = buffer::<f32>(&mut scratch.buffers[0], sizes.depth() * sizes.columns());
                multiply(patches, shape, a, b, false);
                dx.fill(0.0);
                if !patches.is_empty() {
                    sizes.windows.fold(patches, dx);
                }
            }
        });
    }
}

/// Adjoint of a convolution in its filter.
#[derive(Debug)]
pub(super) struct FilterGrad {
    sizes: Sizes,
    dtype: DType,
    input: usize,
    gradient: usize,
    output: usize,
}

impl FilterGrad {
    /// Prepares a `Body::Conv2dFilterGrad` of `[input, gradient, output]`.
    pub(super) fn new(
        planner: &Planner<'_>,
        conv: &op::Conv2d,
        [input, gradient, output]: [ValueId; 3],
    ) -> Result<FilterGrad, Refusal> {
        Ok(FilterGrad {
            sizes: Sizes::new(conv, planner.dims(input), planner.dims(output), planner.dims(gradient)),
            dtype: planner.float(input)?,
            input: planner.operand(input)?,
            gradient: planner.operand(gradient)?,
            output: planner.region(output),
        })
    }

    /// Images whose gradients are added up by one task.
    fn images(&self) -> usize {
        self.sizes.images.div_ceil(PARTIALS_MAX).max(1)
    }

    fn partials(&self) -> usize {
        self.sizes.images.div_ceil(self.images())
    }

    /// Partial sums.
    pub(super) fn workspace_bytes(&self) -> usize {
        4 * self.partials() * self.sizes.groups * self.sizes.filter()
    }

    /// Runs it.
    pub(super) fn run(&self, threads: &Threads, mut pieces: Vec<Piece<'_>>, workspace: &mut [u64]) {
        let sizes = &self.sizes;
        let output = pieces[self.output].take();
        let (x, dy) = (pieces[self.input].read(), pieces[self.gradient].read());
        let (x, dy) = (floats(self.dtype, x), floats(self.dtype, dy));
        let filter = sizes.groups * sizes.filter();
        if filter == 0 {
            return;
        }
        let workspace = elements_mut::<f32>(bytemuck::cast_slice_mut(workspace));
        let partials = &mut workspace[..self.partials() * filter];
        let tasks: Vec<_> = partials.chunks_mut(filter).enumerate().collect();
        threads.each(sizes.multiply_adds(), tasks, |(index, partial)| {
            partial.fill(0.0);
            let first = index * self.images();
            for image in first..(first + self.images()).min(sizes.images) {
                let x = x.get(image * sizes.groups * sizes.input()..).unwrap_or(&[]);
                let dy = dy.get(image * sizes.groups * sizes.result()..).unwrap_or(&[]);
                self.image(x, dy, partial);
            }
        });
        write_floats(self.dtype, output, |sum| {
            sum.fill(0.0);
            for partial in partials.chunks(filter) {
                accumulate(op::ReduceKind::Sum, sum, partial);
            }
        });
    }

    fn image(&self, x: &[f32], dy: &[f32], partial: &mut [f32]) {
        let sizes = &self.sizes;
        with_scratch(|scratch| {
            for (group, partial) in partial.chunks_mut(sizes.filter()).enumerate() {
                let x = &x[group * sizes.input()..][..sizes.input()];
                let dy = &dy[group * sizes.result()..][..sizes.result()];
                let patches = sizes.patches(x, &mut scratch.buffers[0]);
                let a = Matrix::new(dy, sizes.columns(), 0, false);
                let b = Matrix::new(patches, 0, sizes.columns(), true);
                multiply(partial, [sizes.outputs, sizes.depth(), sizes.columns()], a, b, true);
            }
        });
    }
}

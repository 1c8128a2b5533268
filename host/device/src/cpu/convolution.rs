//! Convolutions and their adjoints, image by image: patches and matrix products, or a convolution without patches where
//! that is faster.

use saggar_compile::program::{Epilogue, ValueId};
use saggar_tensor::DType;
use saggar_tensor::op;

use super::contract::{finish_chunk, with_windows};
use super::direct::Direct;
use super::ending::{Ending, Ends};
use super::floats::{floats, write_floats};
use super::gemm::{Matrix, multiply};
use super::lanes::{accumulate, elements_mut};
use super::map::Finish;
use super::patch::Windows;
use super::plan::{Planner, Refusal};
use super::region::Piece;
use super::registers::{Scratch, buffer, with_scratch};
use super::threads::Threads;
use super::words::Words;

/// Partial sums of a filter's gradient: enough to share among threads, few enough to add up quickly.
const PARTIALS_MAX: usize = 16;

/// Elements of a patch matrix that stay in the second-level cache while they are multiplied.
const PATCH_ELEMENTS_MAX: usize = 1 << 16;
/// Columns past which a patch matrix gains nothing from being wider.
const PATCH_COLUMNS: usize = 512;

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

    /// Columns of one image's patch matrix: output places.
    fn columns(&self) -> usize {
        self.windows.output_plane()
    }

    /// Rows of the patch matrix: taps of one group.
    fn depth(&self) -> usize {
        self.channels * self.windows.window[0] * self.windows.window[1]
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

    /// Images whose patches make one matrix: as many as fit the cache, where one alone has few columns.
    fn together(&self) -> usize {
        let fit = PATCH_ELEMENTS_MAX / (self.depth() * self.columns()).max(1);
        let useful = PATCH_COLUMNS.div_ceil(self.columns().max(1));
        fit.min(useful).max(1)
    }

    /// Whether images are multiplied as they are.
    fn is_pointwise(&self) -> bool {
        self.windows.is_pointwise() && self.together() == 1
    }

    /// The patch matrix of group `group` of whole images, side by side.
    fn patches<'a>(&self, images: &'a [f32], group: usize, words: &'a mut Words) -> &'a [f32] {
        let image = self.groups * self.input();
        let count = images.len() / image.max(1);
        if self.is_pointwise() {
            return &images[group * self.input()..][..self.input()];
        }
        let width = count * self.columns();
        let patches = buffer::<f32>(words, self.depth() * width);
        if !patches.is_empty() {
            for (index, image) in images.chunks(image).enumerate() {
                let image = &image[group * self.input()..][..self.input()];
                self.windows.unfold(image, &mut patches[index * self.columns()..], width);
            }
        }
        patches
    }

    /// Group `group` of whole result images as a matrix of output channels and places, images side by side.
    fn side_by_side<'a>(&self, results: &'a [f32], group: usize, words: &'a mut Words) -> &'a [f32] {
        let image = self.groups * self.result();
        let count = results.len() / image.max(1);
        if count <= 1 {
            return &results[group * self.result()..][..self.result()];
        }
        let matrix = buffer::<f32>(words, count * self.result());
        for (index, image) in results.chunks(image).enumerate() {
            let image = &image[group * self.result()..][..self.result()];
            for (channel, place) in image.chunks(self.columns()).enumerate() {
                matrix[(channel * count + index) * self.columns()..][..self.columns()].copy_from_slice(place);
            }
        }
        matrix
    }
}

/// Convolution with an epilogue.
#[derive(Debug)]
pub(super) struct Conv2d {
    sizes: Sizes,
    /// None where images become patches.
    direct: Option<Direct>,
    /// None where the epilogue is another one, or runs after patches were multiplied.
    ending: Option<Ending>,
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
        let sizes = Sizes::new(conv, planner.dims(input), planner.dims(filter), result);
        let direct = Direct::new(sizes.windows, sizes.channels).filter(|direct| direct.pays(sizes.outputs));
        Ok(Conv2d {
            sizes,
            ending: direct.as_ref().and_then(|_| Ending::of(planner, result, 1, epilogue)),
            direct,
            dtype: planner.float(input)?,
            input: planner.operand(input)?,
            filter: planner.operand(filter)?,
            finish: Finish::epilogue(planner, result, epilogue)?,
        })
    }

    /// Whether images are convolved as they are, without patches.
    pub(super) fn is_direct(&self) -> bool {
        self.direct.is_some()
    }

    /// What is accumulated outside the stores.
    pub(super) fn workspace_bytes(&self) -> usize {
        4 * self.finish.accumulated()
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
        let together = if self.direct.is_some() { 1 } else { sizes.together() };
        let counts = (0..sizes.images).step_by(together).map(|at| together.min(sizes.images - at) * image);
        let chunks = self.finish.chunks(stores, counts);
        let workspace = elements_mut::<f32>(bytemuck::cast_slice_mut(workspace));
        let tasks = with_windows(chunks, workspace, self.finish.accumulation);
        let ends = self.ending.map(|ending| ending.ends(&pieces));
        threads.each(sizes.multiply_adds(), tasks, |(mut chunk, window)| {
            let input = sizes.groups * sizes.input();
            let x = &x[chunk.first / image * input..][..chunk.count / image * input];
            match (&self.direct, ends) {
                (Some(direct), Some(ends)) => {
                    let ends = |group: usize| ends.from(group * sizes.outputs);
                    self.directly(direct, x, &filter, elements_mut(chunk.stores[0]), ends);
                }
                (Some(direct), None) => finish_chunk(&self.finish, &inputs, chunk, window, |out, _| {
                    self.directly(direct, x, &filter, out, |_| Ends::NONE);
                }),
                (None, _) => finish_chunk(&self.finish, &inputs, chunk, window, |out, _| {
                    self.images(x, &filter, out);
                }),
            }
        });
    }

    /// One image, without patches; `ends` of each group.
    fn directly<'a>(
        &self,
        direct: &Direct,
        x: &[f32],
        filter: &[f32],
        out: &mut [f32],
        ends: impl Fn(usize) -> Ends<'a>,
    ) {
        let sizes = &self.sizes;
        with_scratch(|scratch| {
            for (group, out) in out.chunks_mut(sizes.result()).enumerate() {
                let x = &x[group * sizes.input()..][..sizes.input()];
                let filter = &filter[group * sizes.filter()..][..sizes.filter()];
                direct.run(x, filter, out, ends(group), &mut scratch.buffers);
            }
        });
    }

    fn images(&self, x: &[f32], filter: &[f32], out: &mut [f32]) {
        let sizes = &self.sizes;
        let image = sizes.groups * sizes.result();
        let count = out.len() / image;
        let columns = count * sizes.columns();
        with_scratch(|scratch| {
            let Scratch { buffers: [words, others], product, .. } = scratch;
            for group in 0..sizes.groups {
                let patches = sizes.patches(x, group, words);
                let a = Matrix::new(&filter[group * sizes.filter()..][..sizes.filter()], sizes.depth(), 0, false);
                let b = Matrix::new(patches, columns, 0, false);
                let shape = [sizes.outputs, columns, sizes.depth()];
                if count == 1 {
                    multiply(&mut out[group * sizes.result()..][..sizes.result()], shape, a, b, false, product);
                    continue;
                }
                let matrix = buffer::<f32>(others, sizes.outputs * columns);
                multiply(matrix, shape, a, b, false, product);
                for (index, out) in out.chunks_mut(image).enumerate() {
                    let out = &mut out[group * sizes.result()..][..sizes.result()];
                    for (out, row) in out.chunks_mut(sizes.columns()).zip(matrix.chunks(columns)) {
                        out.copy_from_slice(&row[index * sizes.columns()..][..sizes.columns()]);
                    }
                }
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
            let together = sizes.together();
            let tasks: Vec<_> = dx.chunks_mut(image * together).enumerate().collect();
            threads.each(sizes.multiply_adds(), tasks, |(index, dx)| {
                let result = sizes.groups * sizes.result();
                self.images(&dy[index * together * result..][..dx.len() / image * result], &filter, dx);
            });
        });
    }

    fn images(&self, dy: &[f32], filter: &[f32], dx: &mut [f32]) {
        let sizes = &self.sizes;
        let image = sizes.groups * sizes.input();
        let columns = dx.len() / image * sizes.columns();
        let shape = [sizes.depth(), columns, sizes.outputs];
        with_scratch(|scratch| {
            let Scratch { buffers: [words, others], product, .. } = scratch;
            for group in 0..sizes.groups {
                let filter = &filter[group * sizes.filter()..][..sizes.filter()];
                let a = Matrix::new(filter, 0, sizes.depth(), true);
                let b = Matrix::new(sizes.side_by_side(dy, group, others), columns, 0, false);
                if sizes.is_pointwise() {
                    multiply(&mut dx[group * sizes.input()..][..sizes.input()], shape, a, b, false, product);
                    continue;
                }
                let patches = buffer::<f32>(words, sizes.depth() * columns);
                multiply(patches, shape, a, b, false, product);
                for (index, dx) in dx.chunks_mut(image).enumerate() {
                    let dx = &mut dx[group * sizes.input()..][..sizes.input()];
                    dx.fill(0.0);
                    if !patches.is_empty() {
                        sizes.windows.fold(&patches[index * sizes.columns()..], columns, dx);
                    }
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
            let last = (first + self.images()).min(sizes.images);
            for image in (first..last).step_by(sizes.together()) {
                let count = sizes.together().min(last - image);
                let (input, result) = (sizes.groups * sizes.input(), sizes.groups * sizes.result());
                self.add(&x[image * input..][..count * input], &dy[image * result..][..count * result], partial);
            }
        });
        write_floats(self.dtype, output, |sum| {
            sum.fill(0.0);
            for partial in partials.chunks(filter) {
                accumulate(op::ReduceKind::Sum, sum, partial);
            }
        });
    }

    /// Adds the gradients of whole images.
    fn add(&self, x: &[f32], dy: &[f32], partial: &mut [f32]) {
        let sizes = &self.sizes;
        let columns = dy.len() / sizes.groups.max(1) / sizes.outputs.max(1);
        with_scratch(|scratch| {
            let Scratch { buffers: [words, others], product, .. } = scratch;
            for (group, partial) in partial.chunks_mut(sizes.filter()).enumerate() {
                let a = Matrix::new(sizes.side_by_side(dy, group, others), columns, 0, false);
                let b = Matrix::new(sizes.patches(x, group, words), 0, columns, true);
                multiply(partial, [sizes.outputs, sizes.depth(), columns], a, b, true, product);
            }
        });
    }
}

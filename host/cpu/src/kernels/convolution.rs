//! Convolutions and their adjoints in NCHW layout, image by image: im2col and matrix products, or a direct convolution
//! if that is faster.

use saggar_compile::Optimization;
use saggar_compile::program::{Epilogue, ValueId};
use saggar_tensor::DType;
use saggar_tensor::op;

use super::direct::DirectConv2d;
use super::im2col::WindowGeometry;
use crate::aligned_buffer::AlignedBuffer;
use crate::elementwise_loops::{accumulate, elements_mut};
use crate::elementwise_stage::ElementwiseStage;
use crate::epilogue::{BiasClampEpilogue, BoundBiasClamp};
use crate::f32_access::{as_f32, write_as_f32};
use crate::gemm::{GemmMatrix, multiply};
use crate::kernel_context::{KernelContext, KernelRefusal};
use crate::prepared_kernel::{KernelCall, PreparedKernel};
use crate::thread_scratch::{ThreadScratch, buffer, with_scratch};

/// Maximum number of partial sums of a filter gradient: enough to share among threads, few enough to add up quickly.
const PARTIALS_MAX: usize = 16;

/// Elements of a patch matrix that stay in the second-level cache during the multiplication.
const PATCH_ELEMENTS_MAX: usize = 1 << 16;
/// Columns beyond which a wider patch matrix is no faster.
const PATCH_COLUMNS: usize = 512;

/// Sizes of a convolution.
#[derive(Clone, Copy, Debug)]
struct Conv2dSizes {
    images: usize,
    groups: usize,
    /// Input channels of one group.
    channels: usize,
    /// Output channels of one group.
    outputs: usize,
    windows: WindowGeometry,
}

impl Conv2dSizes {
    /// Derives the sizes from input `[n, c, h, w]`, filter `[o, c/groups, kh, kw]` and result `[n, o, oh, ow]`.
    fn new(conv: &op::Conv2d, input: &[usize], filter: &[usize], result: &[usize]) -> Conv2dSizes {
        let plane = |dims: &[usize]| [dims[2], dims[3]];
        Conv2dSizes {
            images: input[0],
            groups: conv.groups,
            channels: filter[1],
            outputs: filter[0] / conv.groups.max(1),
            windows: WindowGeometry::from_conv(conv, plane(input), plane(filter), plane(result)),
        }
    }

    /// Returns the elements of one group of one input image.
    fn input_elements(&self) -> usize {
        self.channels * self.windows.input[0] * self.windows.input[1]
    }

    /// Returns the columns of one image's patch matrix, one per output place.
    fn patch_columns(&self) -> usize {
        self.windows.output_plane()
    }

    /// Returns the rows of the patch matrix, one per tap of a group.
    fn patch_rows(&self) -> usize {
        self.channels * self.windows.window[0] * self.windows.window[1]
    }

    /// Returns the elements of one group of one result image.
    fn result_elements(&self) -> usize {
        self.outputs * self.patch_columns()
    }

    /// Returns the elements of one group of the filter.
    fn filter_elements(&self) -> usize {
        self.outputs * self.patch_rows()
    }

    fn multiply_adds(&self) -> usize {
        (self.images * self.groups * self.result_elements()).saturating_mul(self.patch_rows())
    }

    /// Returns how many images share a patch matrix: as many as fit the cache if one image has few columns, else 1.
    fn images_per_patch_matrix(&self) -> usize {
        let fit = PATCH_ELEMENTS_MAX / (self.patch_rows() * self.patch_columns()).max(1);
        let useful = PATCH_COLUMNS.div_ceil(self.patch_columns().max(1));
        fit.min(useful).max(1)
    }

    /// Returns whether images can be multiplied without im2col.
    fn is_pointwise(&self) -> bool {
        self.windows.is_pointwise() && self.images_per_patch_matrix() == 1
    }

    /// Returns the patch matrix of group `group` of whole images, side by side.
    fn patch_matrix<'a>(&self, images: &'a [f32], group: usize, words: &'a mut AlignedBuffer) -> &'a [f32] {
        let image = self.groups * self.input_elements();
        let count = images.len() / image.max(1);
        if self.is_pointwise() {
            return &images[group * self.input_elements()..][..self.input_elements()];
        }
        let width = count * self.patch_columns();
        let patches = buffer::<f32>(words, self.patch_rows() * width);
        if !patches.is_empty() {
            for (index, image) in images.chunks(image).enumerate() {
                let image = &image[group * self.input_elements()..][..self.input_elements()];
                self.windows.unfold(image, &mut patches[index * self.patch_columns()..], width);
            }
        }
        patches
    }

    /// Returns group `group` of whole result images as a matrix `[output channels, places]`, images side by side.
    fn result_matrix<'a>(&self, results: &'a [f32], group: usize, words: &'a mut AlignedBuffer) -> &'a [f32] {
        let image = self.groups * self.result_elements();
        let count = results.len() / image.max(1);
        if count <= 1 {
            return &results[group * self.result_elements()..][..self.result_elements()];
        }
        let matrix = buffer::<f32>(words, count * self.result_elements());
        for (index, image) in results.chunks(image).enumerate() {
            let image = &image[group * self.result_elements()..][..self.result_elements()];
            for (channel, place) in image.chunks(self.patch_columns()).enumerate() {
                matrix[(channel * count + index) * self.patch_columns()..][..self.patch_columns()]
                    .copy_from_slice(place);
            }
        }
        matrix
    }
}

/// A convolution with an epilogue.
#[derive(Debug)]
pub(crate) struct CpuConv2dNchw {
    sizes: Conv2dSizes,
    /// The direct convolution, or `None` for im2col.
    direct: Option<DirectConv2d>,
    /// The fused epilogue, or `None` if the epilogue is of another form or runs after an im2col product.
    epilogue: Option<BiasClampEpilogue>,
    dtype: DType,
    input: usize,
    filter: usize,
    finish: ElementwiseStage,
}

impl CpuConv2dNchw {
    /// Prepares a `KernelBody::Conv2d` of `[input, filter]`.
    pub(crate) fn new(
        context: &KernelContext<'_>,
        conv: &op::Conv2d,
        [input, filter]: [ValueId; 2],
        result: &[usize; 4],
        epilogue: &Epilogue,
    ) -> Result<CpuConv2dNchw, KernelRefusal> {
        let sizes = Conv2dSizes::new(conv, context.dims(input), context.dims(filter), result);
        let direct = DirectConv2d::new(sizes.windows, sizes.channels)
            .filter(|direct| context.enables(Optimization::DirectConvolution) && direct.is_faster(sizes.outputs));
        Ok(CpuConv2dNchw {
            sizes,
            epilogue: direct.as_ref().and_then(|_| BiasClampEpilogue::recognize(context, result, 1, epilogue)),
            direct,
            dtype: context.float_dtype(input)?,
            input: context.operand(input)?,
            filter: context.operand(filter)?,
            finish: ElementwiseStage::epilogue(context, result, epilogue)?,
        })
    }

    /// Convolves one image directly. `ends` returns the epilogue of a group.
    fn run_direct<'a>(
        &self,
        direct: &DirectConv2d,
        x: &[f32],
        filter: &[f32],
        out: &mut [f32],
        ends: impl Fn(usize) -> BoundBiasClamp<'a>,
    ) {
        let sizes = &self.sizes;
        with_scratch(|scratch| {
            for (group, out) in out.chunks_mut(sizes.result_elements()).enumerate() {
                let x = &x[group * sizes.input_elements()..][..sizes.input_elements()];
                let filter = &filter[group * sizes.filter_elements()..][..sizes.filter_elements()];
                direct.run(x, filter, out, ends(group), &mut scratch.buffers);
            }
        });
    }

    fn run_im2col(&self, x: &[f32], filter: &[f32], out: &mut [f32]) {
        let sizes = &self.sizes;
        let image = sizes.groups * sizes.result_elements();
        let count = out.len() / image;
        let columns = count * sizes.patch_columns();
        with_scratch(|scratch| {
            let ThreadScratch { buffers: [words, others], product, .. } = scratch;
            for group in 0..sizes.groups {
                let patches = sizes.patch_matrix(x, group, words);
                let a = GemmMatrix::new(
                    &filter[group * sizes.filter_elements()..][..sizes.filter_elements()],
                    sizes.patch_rows(),
                    0,
                    false,
                );
                let b = GemmMatrix::new(patches, columns, 0, false);
                let shape = [sizes.outputs, columns, sizes.patch_rows()];
                if count == 1 {
                    multiply(
                        &mut out[group * sizes.result_elements()..][..sizes.result_elements()],
                        shape,
                        a,
                        b,
                        false,
                        product,
                    );
                    continue;
                }
                let matrix = buffer::<f32>(others, sizes.outputs * columns);
                multiply(matrix, shape, a, b, false, product);
                for (index, out) in out.chunks_mut(image).enumerate() {
                    let out = &mut out[group * sizes.result_elements()..][..sizes.result_elements()];
                    for (out, row) in out.chunks_mut(sizes.patch_columns()).zip(matrix.chunks(columns)) {
                        out.copy_from_slice(&row[index * sizes.patch_columns()..][..sizes.patch_columns()]);
                    }
                }
            }
        });
    }
}

impl PreparedKernel for CpuConv2dNchw {
    fn routine(&self) -> &'static str {
        if self.direct.is_some() {
            "direct convolution, channels first"
        } else {
            "convolution by im2col and products, channels first"
        }
    }

    fn workspace_bytes(&self) -> usize {
        // Accumulators outside the stores.
        4 * self.finish.workspace_elements()
    }

    fn run(&self, call: KernelCall<'_>) {
        let KernelCall { threads, mut slices, workspace, .. } = call;
        let sizes = &self.sizes;
        let image = sizes.groups * sizes.result_elements();
        if self.finish.elements == 0 {
            return;
        }
        let stores = self.finish.take_stores(&mut slices);
        let inputs = self.finish.inputs(&slices);
        let (x, filter) = (slices[self.input].read(), slices[self.filter].read());
        let (x, filter) = (as_f32(self.dtype, x), as_f32(self.dtype, filter));
        let together = if self.direct.is_some() { 1 } else { sizes.images_per_patch_matrix() };
        let counts = (0..sizes.images).step_by(together).map(|at| together.min(sizes.images - at) * image);
        let chunks = self.finish.split_stores(stores, counts);
        let workspace = elements_mut::<f32>(bytemuck::cast_slice_mut(workspace));
        let tasks = self.finish.with_accumulators(chunks, workspace);
        let ends = self.epilogue.map(|ending| ending.bind(&slices));
        threads.for_each(sizes.multiply_adds(), tasks, |(mut chunk, window)| {
            let input = sizes.groups * sizes.input_elements();
            let x = &x[chunk.first / image * input..][..chunk.count / image * input];
            match (&self.direct, ends) {
                (Some(direct), Some(ends)) => {
                    let ends = |group: usize| ends.skip_channels(group * sizes.outputs);
                    self.run_direct(direct, x, &filter, elements_mut(chunk.stores[0]), ends);
                }
                (Some(direct), None) => self.finish.finish_chunk(&inputs, chunk, window, |out, _| {
                    self.run_direct(direct, x, &filter, out, |_| BoundBiasClamp::NONE);
                }),
                (None, _) => self.finish.finish_chunk(&inputs, chunk, window, |out, _| {
                    self.run_im2col(x, &filter, out);
                }),
            }
        });
    }
}

/// The gradient of a convolution with respect to its input.
#[derive(Debug)]
pub(crate) struct CpuInputGradNchw {
    sizes: Conv2dSizes,
    dtype: DType,
    gradient: usize,
    filter: usize,
    output: usize,
}

impl CpuInputGradNchw {
    /// Prepares a `KernelBody::Conv2dInputGrad` of `[gradient, filter, output]`.
    pub(crate) fn new(
        context: &KernelContext<'_>,
        conv: &op::Conv2d,
        [gradient, filter, output]: [ValueId; 3],
    ) -> Result<CpuInputGradNchw, KernelRefusal> {
        Ok(CpuInputGradNchw {
            sizes: Conv2dSizes::new(conv, context.dims(output), context.dims(filter), context.dims(gradient)),
            dtype: context.float_dtype(gradient)?,
            gradient: context.operand(gradient)?,
            filter: context.operand(filter)?,
            output: context.region(output),
        })
    }

    fn run_col2im(&self, dy: &[f32], filter: &[f32], dx: &mut [f32]) {
        let sizes = &self.sizes;
        let image = sizes.groups * sizes.input_elements();
        let columns = dx.len() / image * sizes.patch_columns();
        let shape = [sizes.patch_rows(), columns, sizes.outputs];
        with_scratch(|scratch| {
            let ThreadScratch { buffers: [words, others], product, .. } = scratch;
            for group in 0..sizes.groups {
                let filter = &filter[group * sizes.filter_elements()..][..sizes.filter_elements()];
                let a = GemmMatrix::new(filter, 0, sizes.patch_rows(), true);
                let b = GemmMatrix::new(sizes.result_matrix(dy, group, others), columns, 0, false);
                if sizes.is_pointwise() {
                    multiply(
                        &mut dx[group * sizes.input_elements()..][..sizes.input_elements()],
                        shape,
                        a,
                        b,
                        false,
                        product,
                    );
                    continue;
                }
                let patches = buffer::<f32>(words, sizes.patch_rows() * columns);
                multiply(patches, shape, a, b, false, product);
                for (index, dx) in dx.chunks_mut(image).enumerate() {
                    let dx = &mut dx[group * sizes.input_elements()..][..sizes.input_elements()];
                    dx.fill(0.0);
                    if !patches.is_empty() {
                        sizes.windows.fold(&patches[index * sizes.patch_columns()..], columns, dx);
                    }
                }
            }
        });
    }
}

impl PreparedKernel for CpuInputGradNchw {
    fn routine(&self) -> &'static str {
        "input gradient by products and col2im, channels first"
    }

    fn run(&self, call: KernelCall<'_>) {
        let KernelCall { threads, mut slices, .. } = call;
        let sizes = &self.sizes;
        let output = slices[self.output].take();
        let (dy, filter) = (slices[self.gradient].read(), slices[self.filter].read());
        let (dy, filter) = (as_f32(self.dtype, dy), as_f32(self.dtype, filter));
        let image = sizes.groups * sizes.input_elements();
        if image == 0 {
            return;
        }
        write_as_f32(self.dtype, output, |dx| {
            let together = sizes.images_per_patch_matrix();
            let tasks: Vec<_> = dx.chunks_mut(image * together).enumerate().collect();
            threads.for_each(sizes.multiply_adds(), tasks, |(index, dx)| {
                let result = sizes.groups * sizes.result_elements();
                self.run_col2im(&dy[index * together * result..][..dx.len() / image * result], &filter, dx);
            });
        });
    }
}

/// The gradient of a convolution with respect to its filter.
#[derive(Debug)]
pub(crate) struct CpuFilterGradNchw {
    sizes: Conv2dSizes,
    dtype: DType,
    input: usize,
    gradient: usize,
    output: usize,
}

impl CpuFilterGradNchw {
    /// Prepares a `KernelBody::Conv2dFilterGrad` of `[input, gradient, output]`.
    pub(crate) fn new(
        context: &KernelContext<'_>,
        conv: &op::Conv2d,
        [input, gradient, output]: [ValueId; 3],
    ) -> Result<CpuFilterGradNchw, KernelRefusal> {
        Ok(CpuFilterGradNchw {
            sizes: Conv2dSizes::new(conv, context.dims(input), context.dims(output), context.dims(gradient)),
            dtype: context.float_dtype(input)?,
            input: context.operand(input)?,
            gradient: context.operand(gradient)?,
            output: context.region(output),
        })
    }

    /// Returns how many images' gradients one task adds up.
    fn images_per_partial(&self) -> usize {
        self.sizes.images.div_ceil(PARTIALS_MAX).max(1)
    }

    fn partials(&self) -> usize {
        self.sizes.images.div_ceil(self.images_per_partial())
    }

    /// Adds the gradients of whole images.
    fn add_images(&self, x: &[f32], dy: &[f32], partial: &mut [f32]) {
        let sizes = &self.sizes;
        let columns = dy.len() / sizes.groups.max(1) / sizes.outputs.max(1);
        with_scratch(|scratch| {
            let ThreadScratch { buffers: [words, others], product, .. } = scratch;
            for (group, partial) in partial.chunks_mut(sizes.filter_elements()).enumerate() {
                let a = GemmMatrix::new(sizes.result_matrix(dy, group, others), columns, 0, false);
                let b = GemmMatrix::new(sizes.patch_matrix(x, group, words), 0, columns, true);
                multiply(partial, [sizes.outputs, sizes.patch_rows(), columns], a, b, true, product);
            }
        });
    }
}

impl PreparedKernel for CpuFilterGradNchw {
    fn routine(&self) -> &'static str {
        "filter gradient by im2col and products, channels first"
    }

    fn workspace_bytes(&self) -> usize {
        // The partial sums.
        4 * self.partials() * self.sizes.groups * self.sizes.filter_elements()
    }

    fn run(&self, call: KernelCall<'_>) {
        let KernelCall { threads, mut slices, workspace, .. } = call;
        let sizes = &self.sizes;
        let output = slices[self.output].take();
        let (x, dy) = (slices[self.input].read(), slices[self.gradient].read());
        let (x, dy) = (as_f32(self.dtype, x), as_f32(self.dtype, dy));
        let filter = sizes.groups * sizes.filter_elements();
        if filter == 0 {
            return;
        }
        let workspace = elements_mut::<f32>(bytemuck::cast_slice_mut(workspace));
        let partials = &mut workspace[..self.partials() * filter];
        let tasks: Vec<_> = partials.chunks_mut(filter).enumerate().collect();
        threads.for_each(sizes.multiply_adds(), tasks, |(index, partial)| {
            partial.fill(0.0);
            let first = index * self.images_per_partial();
            let last = (first + self.images_per_partial()).min(sizes.images);
            for image in (first..last).step_by(sizes.images_per_patch_matrix()) {
                let count = sizes.images_per_patch_matrix().min(last - image);
                let (input, result) = (sizes.groups * sizes.input_elements(), sizes.groups * sizes.result_elements());
                self.add_images(&x[image * input..][..count * input], &dy[image * result..][..count * result], partial);
            }
        });
        write_as_f32(self.dtype, output, |sum| {
            sum.fill(0.0);
            for partial in partials.chunks(filter) {
                accumulate(op::ReduceKind::Sum, sum, partial);
            }
        });
    }
}

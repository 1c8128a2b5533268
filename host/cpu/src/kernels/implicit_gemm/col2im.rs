//! Input gradient of a convolution by col2im: the product of each output place's gradient with the filter, added to the
//! elements under the place's window.

use saggar_tensor::op::Conv2d;

use super::taps::{FilterTaps, PackedFilterLayout, SummedChannels};
use crate::gemm::macro_kernel::{PackedMatrix, RhsOperand};
use crate::gemm::{GemmMatrix, multiply_with_epilogue};
use crate::simd::{self, SimdWork};
use crate::thread_scratch::{ThreadScratch, buffer, with_scratch};
use crate::threads::CpuThreads;

/// Elements of the products that are computed at a time. They stay in the second-level cache.
const PRODUCT_ELEMENTS: usize = 1 << 16;

/// The input gradient.
#[derive(Debug)]
pub(super) struct Col2imInputGrad {
    pub(super) form: PackedFilterLayout,
    taps: FilterTaps,
    conv: Conv2d,
    /// Images, height, width and channels of the output gradient.
    from: [usize; 4],
    /// Images, height, width and channels of the result.
    to: [usize; 4],
}

impl Col2imInputGrad {
    /// Returns the gradient for `[n, oh, ow, o]` by `[o, c, kh, kw]` to `[n, h, w, c]`, or `None` if there is padding,
    /// because most padded gradients are faster by convolution.
    pub(super) fn new(conv: &Conv2d, from: &[usize], filter: [usize; 4], to: &[usize]) -> Option<Col2imInputGrad> {
        let taps = FilterTaps::new([filter[2], filter[3]], |[y, x]| {
            Some([(y * conv.dilations[0]) as isize, (x * conv.dilations[1]) as isize])
        });
        let form = PackedFilterLayout::new(filter, &taps, SummedChannels::OutputsAlone);
        let four = |dims: &[usize]| [dims[0], dims[1], dims[2], dims[3]];
        (conv.padding == [0; 4]).then(|| Col2imInputGrad { form, taps, conv: *conv, from: four(from), to: four(to) })
    }

    /// Returns the number of multiply-adds, including padding columns.
    pub(super) fn multiply_adds(&self) -> usize {
        let [images, height, width, _] = self.from;
        images * height * width * self.form.layout.len()
    }

    /// Computes the gradient, with one image per task.
    pub(super) fn run(
        &self,
        threads: &CpuThreads,
        [gradient, filter]: [&[f32]; 2],
        workspace: &mut [f32],
        output: &mut [f32],
    ) {
        let b = self.form.get_or_pack(threads, filter, workspace, None);
        let image = |dims: [usize; 4]| dims[1] * dims[2] * dims[3];
        let tasks: Vec<_> =
            output.chunks_exact_mut(image(self.to)).zip(gradient.chunks_exact(image(self.from))).collect();
        threads.for_each(self.multiply_adds(), tasks, |(dx, dy)| self.run_image(dy, b, dx));
    }

    fn run_image(&self, dy: &[f32], b: PackedMatrix<'_>, dx: &mut [f32]) {
        let outputs = self.from[3];
        let columns = self.form.layout.columns;
        let together = (PRODUCT_ELEMENTS / columns.max(1)).max(1);
        dx.fill(0.0);
        with_scratch(|scratch| {
            let ThreadScratch { buffers: [words, _], product, .. } = scratch;
            for (at, dy) in dy.chunks(together * outputs).enumerate() {
                let places = dy.len() / outputs;
                let products = buffer::<f32>(words, places * columns);
                multiply_with_epilogue(
                    products,
                    GemmMatrix::new(dy, outputs, 0, false),
                    RhsOperand::Packed(b),
                    false,
                    None,
                    product,
                );
                simd::dispatch(Col2imAdd { scatter: self, products, first: at * together, dx });
            }
        });
    }
}

/// Adds the products of the places from `first` on.
struct Col2imAdd<'a> {
    scatter: &'a Col2imInputGrad,
    products: &'a [f32],
    first: usize,
    dx: &'a mut [f32],
}

/// Elements that are added at a time. Segments are often too short for the compiler's own choice.
const LANES: usize = 8;

impl SimdWork for Col2imAdd<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Col2imAdd { scatter, products, first, dx } = self;
        let [_, _, width, channels] = scatter.to;
        let run = scatter.segment_elements();
        for (at, products) in products.chunks_exact(scatter.form.layout.columns).enumerate() {
            let place = first + at;
            let [y, x] =
                [place / scatter.from[2] * scatter.conv.strides[0], place % scatter.from[2] * scatter.conv.strides[1]];
            for (tap, products) in scatter.taps.list.iter().step_by(run / channels).zip(products.chunks_exact(run)) {
                let [down, right] = tap.offset.map(isize::unsigned_abs);
                let dx = &mut dx[((y + down) * width + x + right) * channels..][..run];
                let ((dx, dx_rest), (products, rest)) = (dx.as_chunks_mut::<LANES>(), products.as_chunks::<LANES>());
                for (dx, products) in dx.iter_mut().zip(products) {
                    *dx = std::array::from_fn(|i| dx[i] + products[i]);
                }
                for (dx, &product) in dx_rest.iter_mut().zip(rest) {
                    *dx += product;
                }
            }
        }
    }
}

impl Col2imInputGrad {
    /// Returns the elements of a window that are contiguous: a row of taps, or one tap if it is dilated.
    fn segment_elements(&self) -> usize {
        let row = self.taps.list.iter().take_while(|tap| tap.offset[0] == 0).count();
        if self.conv.dilations[1] == 1 { row * self.to[3] } else { self.to[3] }
    }
}

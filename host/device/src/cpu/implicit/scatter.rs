//! Adjoint of a convolution in its input from the gradient's side: the product of each place's gradient with the filter,
//! added to what lies under the place's window.

use saggar_tensor::op::Conv2d;

use super::packed;
use super::taps::{FilterForm, Order, Taps};
use crate::cpu::gemm::product::{Packed, Right};
use crate::cpu::gemm::{Matrix, multiply_by};
use crate::cpu::registers::{Scratch, buffer, with_scratch};
use crate::cpu::simd::{self, Work};
use crate::cpu::threads::Threads;

/// Elements of the products of the places that are taken at a time: they stay in the second-level cache.
const PRODUCTS: usize = 1 << 16;

/// The whole adjoint.
#[derive(Debug)]
pub(super) struct Scatter {
    pub(super) form: FilterForm,
    taps: Taps,
    conv: Conv2d,
    /// Images, height, width and channels of the gradient.
    from: [usize; 4],
    /// And of the result.
    to: [usize; 4],
}

impl Scatter {
    /// From `[n, oh, ow, o]` by `[o, c, kh, kw]` to `[n, h, w, c]`; none where a tap could miss the result, for then most
    /// adjoints are faster otherwise.
    pub(super) fn new(conv: &Conv2d, from: &[usize], filter: [usize; 4], to: &[usize]) -> Option<Scatter> {
        let taps = Taps::new([filter[2], filter[3]], |[y, x]| {
            Some([(y * conv.dilations[0]) as isize, (x * conv.dilations[1]) as isize])
        });
        let form = FilterForm::new(filter, &taps, Order::OutputsAlone);
        let four = |dims: &[usize]| [dims[0], dims[1], dims[2], dims[3]];
        (conv.padding == [0; 4]).then(|| Scatter { form, taps, conv: *conv, from: four(from), to: four(to) })
    }

    /// With those of columns that there are not.
    pub(super) fn multiply_adds(&self) -> usize {
        let [images, height, width, _] = self.from;
        images * height * width * self.form.layout.len()
    }

    /// Runs it, an image a task.
    pub(super) fn run(
        &self,
        threads: &Threads,
        [gradient, filter]: [&[f32]; 2],
        workspace: &mut [f32],
        output: &mut [f32],
    ) {
        let b = packed(&self.form, filter, threads, workspace, None);
        let image = |dims: [usize; 4]| dims[1] * dims[2] * dims[3];
        let tasks: Vec<_> =
            output.chunks_exact_mut(image(self.to)).zip(gradient.chunks_exact(image(self.from))).collect();
        threads.each(self.multiply_adds(), tasks, |(dx, dy)| self.image(dy, b, dx));
    }

    fn image(&self, dy: &[f32], b: Packed<'_>, dx: &mut [f32]) {
        let outputs = self.from[3];
        let columns = self.form.layout.columns;
        let together = (PRODUCTS / columns.max(1)).max(1);
        dx.fill(0.0);
        with_scratch(|scratch| {
            let Scratch { buffers: [words, _], product, .. } = scratch;
            for (at, dy) in dy.chunks(together * outputs).enumerate() {
                let places = dy.len() / outputs;
                let products = buffer::<f32>(words, places * columns);
                multiply_by(products, Matrix::new(dy, outputs, 0, false), Right::Packed(b), false, None, product);
                simd::dispatch(Add { scatter: self, products, first: at * together, dx });
            }
        });
    }
}

/// Adds the products of the places from `first` on.
struct Add<'a> {
    scatter: &'a Scatter,
    products: &'a [f32],
    first: usize,
    dx: &'a mut [f32],
}

/// Elements that are added at a time: stretches are often too short for the compiler's own choice.
const LANES: usize = 8;

impl Work for Add<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Add { scatter, products, first, dx } = self;
        let [_, _, width, channels] = scatter.to;
        let run = scatter.run_channels();
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

impl Scatter {
    /// Elements that lie side by side under a window: a row of taps, or one tap where they are apart.
    fn run_channels(&self) -> usize {
        let row = self.taps.list.iter().take_while(|tap| tap.offset[0] == 0).count();
        if self.conv.dilations[1] == 1 { row * self.to[3] } else { self.to[3] }
    }
}

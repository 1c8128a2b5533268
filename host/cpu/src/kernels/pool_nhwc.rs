//! Pooling and its gradients in NHWC layout: every place is a loop over channels.

use saggar_compile::program::ValueId;
use saggar_tensor::op;

use super::im2col::WindowGeometry;
use crate::elementwise_loops::{elements, elements_mut};
use crate::kernel_context::{KernelContext, KernelRefusal};
use crate::prepared_kernel::{KernelCall, PreparedKernel};
use crate::vector::{self, VectorIsa, VectorWork};

/// Approximate number of elements that one task reads or writes.
const TASK_ELEMENTS: usize = 1 << 13;

/// The geometry that all pooling kernels share.
#[derive(Clone, Copy, Debug)]
struct PooledImages {
    windows: WindowGeometry,
    channels: usize,
}

impl PooledImages {
    /// Returns the geometry of `[n, h, w, c]` and `[n, oh, ow, c]`.
    fn new(pool: &op::Pool2d, input: &[usize], output: &[usize]) -> PooledImages {
        let windows = WindowGeometry {
            input: [input[1], input[2]],
            window: pool.window,
            output: [output[1], output[2]],
            strides: pool.strides,
            dilations: pool.dilations,
            padding: [pool.padding[0], pool.padding[2]],
        };
        PooledImages { windows, channels: input[3] }
    }

    /// Returns the elements of an input image and of a result image.
    fn image_elements(&self) -> [usize; 2] {
        [self.windows.input_plane() * self.channels, self.windows.output_plane() * self.channels]
    }

    /// Collects the taps of the window at result `place` that lie inside the image, as places in the image.
    fn collect_taps(&self, place: usize, taps: &mut Vec<usize>) {
        let windows = &self.windows;
        let [y, x] = [place / windows.output[1], place % windows.output[1]];
        taps.clear();
        for tap_y in 0..windows.window[0] {
            let row = y * windows.strides[0] + tap_y * windows.dilations[0];
            if row < windows.padding[0] || row - windows.padding[0] >= windows.input[0] {
                continue;
            }
            for tap_x in 0..windows.window[1] {
                let column = x * windows.strides[1] + tap_x * windows.dilations[1];
                if column >= windows.padding[1] && column - windows.padding[1] < windows.input[1] {
                    taps.push((row - windows.padding[0]) * windows.input[1] + column - windows.padding[1]);
                }
            }
        }
    }

    /// Returns the operations for `results` elements, in units comparable to multiply-adds.
    fn operations(&self, results: usize) -> usize {
        results.saturating_mul(self.windows.window[0] * self.windows.window[1])
    }
}

/// Max or sum pooling in NHWC layout.
#[derive(Debug)]
pub(crate) struct CpuPoolNhwc {
    kind: op::PoolKind,
    images: PooledImages,
    input: usize,
    output: usize,
}

impl CpuPoolNhwc {
    /// Prepares a `KernelBody::Pool2d` of `[input, output]`.
    pub(crate) fn new(
        context: &KernelContext<'_>,
        kind: op::PoolKind,
        pool: &op::Pool2d,
        [input, output]: [ValueId; 2],
    ) -> Result<CpuPoolNhwc, KernelRefusal> {
        let images = PooledImages::new(pool, context.dims(input), context.dims(output));
        Ok(CpuPoolNhwc { kind, images, input: context.operand(input)?, output: context.region(output) })
    }
}

impl PreparedKernel for CpuPoolNhwc {
    fn routine(&self) -> &'static str {
        "pooling, vectorised over channels, channels last"
    }

    fn run(&self, call: KernelCall<'_>) {
        let KernelCall { threads, mut slices, .. } = call;
        let out = elements_mut::<f32>(slices[self.output].take());
        let x = elements::<f32>(slices[self.input].read());
        let PooledImages { windows, channels } = self.images;
        let (operations, places) = (self.images.operations(out.len()), windows.output_plane());
        let together = (TASK_ELEMENTS / channels.max(1)).max(1);
        let tasks: Vec<_> = out.chunks_mut(channels * together).enumerate().collect();
        threads.for_each(operations, tasks, |(task, out)| {
            vector::run(PoolNhwcWork { pool: self, x, out, first: task * together, places });
        });
    }
}

/// The results from place `first` on.
struct PoolNhwcWork<'a> {
    pool: &'a CpuPoolNhwc,
    x: &'a [f32],
    out: &'a mut [f32],
    first: usize,
    /// Places per image.
    places: usize,
}

impl VectorWork for PoolNhwcWork<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: VectorIsa>(self, s: S) {
        let PoolNhwcWork { pool, x, out, first, places } = self;
        let channels = pool.images.channels;
        let image = pool.images.image_elements()[0];
        let mut taps = Vec::new();
        for (at, out) in out.chunks_exact_mut(channels).enumerate() {
            let (number, place) = ((first + at) / places, (first + at) % places);
            let x = &x[number * image..][..image];
            pool.images.collect_taps(place, &mut taps);
            for channel in (0..channels).step_by(S::LANES) {
                let result = match pool.kind {
                    op::PoolKind::Max => max_under_taps(s, x, &taps, channel..channels),
                    op::PoolKind::Sum => {
                        let mut sum = s.splat(0.0);
                        for tap in &taps {
                            sum = s.add(sum, s.load_some(&x[tap * channels..][channel..channels]));
                        }
                        sum
                    }
                };
                s.store_some(&mut out[channel..], result);
            }
        }
    }
}

/// Returns the largest element under the taps for the first of these channels. NaN counts as largest.
#[inline(always)]
fn max_under_taps<S: VectorIsa>(s: S, x: &[f32], taps: &[usize], channels: std::ops::Range<usize>) -> S::V {
    let mut largest = s.splat(f32::NEG_INFINITY);
    for tap in taps {
        largest = s.larger(largest, s.load_some(&x[tap * channels.end..][channels.clone()]));
    }
    largest
}

/// The gradient of pooling in NHWC layout.
#[derive(Debug)]
pub(crate) struct CpuPoolGradNhwc {
    images: PooledImages,
    /// The operand in which the largest elements are found.
    operand: MaxPoolOperand<usize>,
    gradient: usize,
    output: usize,
    /// Whether windows are tiles, so that every element of the result is written once.
    tiling: bool,
}

/// The operand of a max pooling gradient.
#[derive(Clone, Copy, Debug)]
enum MaxPoolOperand<T> {
    /// No operand: the gradient of sum pooling.
    None,
    /// The forward operand, in separate memory.
    Separate(T),
    /// The forward operand, in the memory of the result. It is overwritten tile by tile.
    InPlace,
}

impl CpuPoolGradNhwc {
    /// Prepares a `KernelBody::MaxPool2dGrad`, or a `KernelBody::SumPool2dGrad` without `input`, of `[gradient,
    /// output]`.
    pub(crate) fn new(
        context: &KernelContext<'_>,
        pool: &op::Pool2d,
        input: Option<ValueId>,
        [gradient, output]: [ValueId; 2],
    ) -> Result<CpuPoolGradNhwc, KernelRefusal> {
        let images = PooledImages::new(pool, context.dims(output), context.dims(gradient));
        let tiling = pool.is_tiling(images.windows.input);
        let (gradient, output) = (context.operand(gradient)?, context.region(output));
        let operand = match input {
            None => MaxPoolOperand::None,
            Some(input) if tiling && context.region(input) == output => MaxPoolOperand::InPlace,
            Some(input) => MaxPoolOperand::Separate(context.operand(input)?),
        };
        Ok(CpuPoolGradNhwc { images, operand, gradient, output, tiling })
    }
}

impl PreparedKernel for CpuPoolGradNhwc {
    fn routine(&self) -> &'static str {
        "pooling gradient, vectorised over channels, channels last"
    }

    fn run(&self, call: KernelCall<'_>) {
        let KernelCall { threads, mut slices, .. } = call;
        let dx = elements_mut::<f32>(slices[self.output].take());
        let dy = elements::<f32>(slices[self.gradient].read());
        let x = match self.operand {
            MaxPoolOperand::Separate(input) => MaxPoolOperand::Separate(elements::<f32>(slices[input].read())),
            MaxPoolOperand::InPlace => MaxPoolOperand::InPlace,
            MaxPoolOperand::None => MaxPoolOperand::None,
        };
        let [image, result] = self.images.image_elements();
        if image == 0 {
            return;
        }
        let tasks: Vec<_> = dx.chunks_exact_mut(image).enumerate().collect();
        threads.for_each(self.images.operations(dy.len()), tasks, |(number, dx)| {
            let dy = &dy[number * result..][..result];
            match x {
                MaxPoolOperand::None => vector::run(PoolGradWork { images: &self.images, x: None, dy, dx }),
                MaxPoolOperand::Separate(x) => {
                    let x = Some(&x[number * image..][..image]);
                    if self.tiling {
                        vector::run(TiledMaxPoolGradWork { images: &self.images, x, dy, dx });
                    } else {
                        vector::run(PoolGradWork { images: &self.images, x, dy, dx });
                    }
                }
                MaxPoolOperand::InPlace => vector::run(TiledMaxPoolGradWork { images: &self.images, x: None, dy, dx }),
            }
        });
    }
}

/// The gradient of one image.
struct PoolGradWork<'a> {
    images: &'a PooledImages,
    x: Option<&'a [f32]>,
    dy: &'a [f32],
    dx: &'a mut [f32],
}

impl VectorWork for PoolGradWork<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: VectorIsa>(self, s: S) {
        let PoolGradWork { images, x, dy, dx } = self;
        let channels = images.channels;
        dx.fill(0.0);
        let mut taps = Vec::new();
        for (place, dy) in dy.chunks_exact(channels).enumerate() {
            images.collect_taps(place, &mut taps);
            for channel in (0..channels).step_by(S::LANES) {
                let here = channel..channels;
                let gradient = s.load_some(&dy[channel..]);
                #[expect(clippy::manual_map, reason = "a closure is not sure to be compiled for the processor")]
                let first = match x {
                    Some(x) => Some(argmax_tap(s, x, &taps, here.clone())),
                    None => None,
                };
                for (at, tap) in taps.iter().enumerate() {
                    let dx = &mut dx[tap * channels..][here.clone()];
                    let before = s.load_some(dx);
                    let mut after = s.add(before, gradient);
                    if let Some(first) = first {
                        // Adding zero would turn -0 into 0. An element that is no window's largest must keep its sign.
                        after = s.where_same(first, s.splat(at as f32), after, before);
                    }
                    s.store_some(dx, after);
                }
            }
        }
    }
}

/// The max pooling gradient of one image whose windows are tiles.
struct TiledMaxPoolGradWork<'a> {
    images: &'a PooledImages,
    /// The forward operand, or `None` if it is in the memory of the result.
    x: Option<&'a [f32]>,
    dy: &'a [f32],
    dx: &'a mut [f32],
}

impl VectorWork for TiledMaxPoolGradWork<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: VectorIsa>(self, s: S) {
        let TiledMaxPoolGradWork { images, x, dy, dx } = self;
        let channels = images.channels;
        let zero = s.splat(0.0);
        let mut taps = Vec::new();
        for (place, dy) in dy.chunks_exact(channels).enumerate() {
            images.collect_taps(place, &mut taps);
            for channel in (0..channels).step_by(S::LANES) {
                let here = channel..channels;
                // Added to zero, as with overlapping windows: -0 becomes 0.
                let gradient = s.add(zero, s.load_some(&dy[channel..]));
                let first = argmax_tap(s, x.unwrap_or(dx), &taps, here.clone());
                for (at, tap) in taps.iter().enumerate() {
                    let chosen = s.where_same(first, s.splat(at as f32), gradient, zero);
                    s.store_some(&mut dx[tap * channels..][here.clone()], chosen);
                }
            }
        }
    }
}

/// Returns the index of the tap with the largest element, the first if there are several.
#[inline(always)]
fn argmax_tap<S: VectorIsa>(s: S, x: &[f32], taps: &[usize], channels: std::ops::Range<usize>) -> S::V {
    let best = max_under_taps(s, x, taps, channels.clone());
    let mut first = s.splat(-1.0);
    for (at, tap) in taps.iter().enumerate().rev() {
        let x = s.load_some(&x[tap * channels.end..][channels.clone()]);
        first = s.where_same(x, best, s.splat(at as f32), first);
    }
    first
}

//! Pooling and its gradients with channels last: every place is a loop over channels.

use saggar_compile::program::ValueId;
use saggar_tensor::op;

use super::element::{Max, Operator};
use super::halve::beats;
use super::lanes::{elements, elements_mut};
use super::patch::Windows;
use super::plan::{Planner, Refusal};
use super::region::Piece;
use super::simd::{self, Work};
use super::threads::Threads;

/// Elements that one task reads or writes, about.
const TASK_ELEMENTS: usize = 1 << 15;

/// What all of them share.
#[derive(Clone, Copy, Debug)]
struct Images {
    windows: Windows,
    channels: usize,
}

impl Images {
    /// Of `[n, h, w, c]` and `[n, oh, ow, c]`.
    fn new(pool: &op::Pool2d, input: &[usize], output: &[usize]) -> Images {
        let windows = Windows {
            input: [input[1], input[2]],
            window: pool.window,
            output: [output[1], output[2]],
            strides: pool.strides,
            dilations: pool.dilations,
            padding: [pool.padding[0], pool.padding[2]],
        };
        Images { windows, channels: input[3] }
    }

    /// Elements of an image of the input, and of the result.
    fn sizes(&self) -> [usize; 2] {
        [self.windows.input_plane() * self.channels, self.windows.output_plane() * self.channels]
    }

    /// Calls `visit` with every tap of the window at result `place` that lies inside: its place in the image.
    #[inline(always)]
    fn each_tap(&self, place: usize, mut visit: impl FnMut(usize)) {
        let windows = &self.windows;
        let [y, x] = [place / windows.output[1], place % windows.output[1]];
        for tap_y in 0..windows.window[0] {
            let row = y * windows.strides[0] + tap_y * windows.dilations[0];
            if row < windows.padding[0] || row - windows.padding[0] >= windows.input[0] {
                continue;
            }
            for tap_x in 0..windows.window[1] {
                let column = x * windows.strides[1] + tap_x * windows.dilations[1];
                if column >= windows.padding[1] && column - windows.padding[1] < windows.input[1] {
                    visit((row - windows.padding[0]) * windows.input[1] + column - windows.padding[1]);
                }
            }
        }
    }

    /// Multiply-adds, or as much work, for each element of a result.
    fn operations(&self, results: usize) -> usize {
        results.saturating_mul(self.windows.window[0] * self.windows.window[1])
    }
}

/// Pooling with channels last.
#[derive(Debug)]
pub(super) struct PoolLast {
    kind: op::Pool,
    images: Images,
    input: usize,
    output: usize,
}

impl PoolLast {
    /// Prepares a `Body::Pool2d` of `[input, output]`.
    pub(super) fn new(
        planner: &Planner<'_>,
        kind: op::Pool,
        pool: &op::Pool2d,
        [input, output]: [ValueId; 2],
    ) -> Result<PoolLast, Refusal> {
        let images = Images::new(pool, planner.dims(input), planner.dims(output));
        Ok(PoolLast { kind, images, input: planner.operand(input)?, output: planner.region(output) })
    }

    /// Runs it.
    pub(super) fn run(&self, threads: &Threads, mut pieces: Vec<Piece<'_>>) {
        let out = elements_mut::<f32>(pieces[self.output].take());
        let x = elements::<f32>(pieces[self.input].read());
        let Images { windows, channels } = self.images;
        let (operations, places) = (self.images.operations(out.len()), windows.output_plane());
        let together = (TASK_ELEMENTS / channels.max(1)).max(1);
        let tasks: Vec<_> = out.chunks_mut(channels * together).enumerate().collect();
        threads.each(operations, tasks, |(task, out)| {
            simd::dispatch(Places { pool: self, x, out, first: task * together, places });
        });
    }
}

/// Results from place `first` on.
struct Places<'a> {
    pool: &'a PoolLast,
    x: &'a [f32],
    out: &'a mut [f32],
    first: usize,
    /// Places of an image.
    places: usize,
}

impl Work for Places<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Places { pool, x, out, first, places } = self;
        let channels = pool.images.channels;
        let image = pool.images.sizes()[0];
        for (at, out) in out.chunks_exact_mut(channels).enumerate() {
            let (number, place) = ((first + at) / places, (first + at) % places);
            let x = &x[number * image..][..image];
            match pool.kind {
                op::Pool::Max => {
                    out.fill(f32::NEG_INFINITY);
                    pool.images.each_tap(place, |tap| {
                        for (out, &x) in out.iter_mut().zip(&x[tap * channels..][..channels]) {
                            *out = <Max as Operator<f32, f32>>::apply(*out, x);
                        }
                    });
                }
                op::Pool::Sum => {
                    out.fill(0.0);
                    pool.images.each_tap(place, |tap| {
                        for (out, &x) in out.iter_mut().zip(&x[tap * channels..][..channels]) {
                            *out += x;
                        }
                    });
                }
            }
        }
    }
}

/// Gradient of pooling with channels last.
#[derive(Debug)]
pub(super) struct PoolGradLast {
    images: Images,
    /// The operand, where the largest elements are looked for; none for sums.
    input: Option<usize>,
    gradient: usize,
    output: usize,
}

impl PoolGradLast {
    /// Prepares a `Body::MaxPool2dGrad`, or without `input` a `Body::SumPool2dGrad`, of `[gradient, output]`.
    pub(super) fn new(
        planner: &Planner<'_>,
        pool: &op::Pool2d,
        input: Option<ValueId>,
        [gradient, output]: [ValueId; 2],
    ) -> Result<PoolGradLast, Refusal> {
        Ok(PoolGradLast {
            images: Images::new(pool, planner.dims(output), planner.dims(gradient)),
            input: input.map(|input| planner.operand(input)).transpose()?,
            gradient: planner.operand(gradient)?,
            output: planner.region(output),
        })
    }

    /// Runs it.
    pub(super) fn run(&self, threads: &Threads, mut pieces: Vec<Piece<'_>>) {
        let dx = elements_mut::<f32>(pieces[self.output].take());
        let dy = elements::<f32>(pieces[self.gradient].read());
        let x = self.input.map(|input| elements::<f32>(pieces[input].read()));
        let [image, result] = self.images.sizes();
        if image == 0 {
            return;
        }
        let tasks: Vec<_> = dx.chunks_exact_mut(image).enumerate().collect();
        threads.each(self.images.operations(dy.len()), tasks, |(number, dx)| {
            let dy = &dy[number * result..][..result];
            let x = x.map(|x| &x[number * image..][..image]);
            simd::dispatch(Image { images: &self.images, x, dy, dx });
        });
    }
}

/// The gradient of one image.
struct Image<'a> {
    images: &'a Images,
    x: Option<&'a [f32]>,
    dy: &'a [f32],
    dx: &'a mut [f32],
}

impl Work for Image<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Image { images, x, dy, dx } = self;
        let channels = images.channels;
        dx.fill(0.0);
        // The largest element of a window so far, and its place.
        let mut best = vec![0.0f32; channels];
        let mut places = vec![0u32; channels];
        for (place, dy) in dy.chunks_exact(channels).enumerate() {
            let Some(x) = x else {
                images.each_tap(place, |tap| {
                    for (dx, &dy) in dx[tap * channels..][..channels].iter_mut().zip(dy) {
                        *dx += dy;
                    }
                });
                continue;
            };
            let mut seen = false;
            images.each_tap(place, |tap| {
                let x = &x[tap * channels..][..channels];
                for ((best, at), &x) in best.iter_mut().zip(&mut places).zip(x) {
                    let better = !seen || beats(x, *best);
                    *best = if better { x } else { *best };
                    *at = if better { tap as u32 } else { *at };
                }
                seen = true;
            });
            images.each_tap(place, |tap| {
                for ((dx, &at), &dy) in dx[tap * channels..][..channels].iter_mut().zip(&places).zip(dy) {
                    // Adding nothing would turn -0 into 0, which a place that no window chose may not be.
                    *dx = if at == tap as u32 { *dx + dy } else { *dx };
                }
            });
        }
    }
}

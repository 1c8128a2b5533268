//! Pooling and its gradients with channels last: every place is a loop over channels.

use saggar_compile::program::ValueId;
use saggar_tensor::op;

use super::element::{Max, Operator};
use super::lanes::{elements, elements_mut};
use super::patch::Windows;
use super::plan::{Planner, Refusal};
use super::region::Piece;
use super::simd::{self, Work};
use super::threads::Threads;

/// Elements that one task reads or writes, about.
const TASK_ELEMENTS: usize = 1 << 15;

/// `out[i] = f(out[i], x[i])`.
#[inline(always)]
fn each(out: &mut [f32], x: &[f32], f: impl Fn(f32, f32) -> f32) {
    for (out, &x) in out.iter_mut().zip(x) {
        *out = f(*out, x);
    }
}

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

    /// The taps of the window at result `place` that lie inside, as places in the image.
    fn taps(&self, place: usize, taps: &mut Vec<usize>) {
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
        let mut taps = Vec::new();
        for (at, out) in out.chunks_exact_mut(channels).enumerate() {
            let (number, place) = ((first + at) / places, (first + at) % places);
            let x = &x[number * image..][..image];
            pool.images.taps(place, &mut taps);
            match pool.kind {
                op::Pool::Max => largest(x, &taps, out),
                op::Pool::Sum => {
                    out.fill(0.0);
                    for tap in &taps {
                        each(out, &x[tap * channels..][..channels], |sum, x| sum + x);
                    }
                }
            }
        }
    }
}

/// The largest under the taps, NaN being largest.
#[inline(always)]
fn largest(x: &[f32], taps: &[usize], out: &mut [f32]) {
    let channels = out.len();
    out.fill(f32::NEG_INFINITY);
    for tap in taps {
        each(out, &x[tap * channels..][..channels], <Max as Operator<f32, f32>>::apply);
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
        // The largest elements under a window, and where each of them is first.
        let mut best = vec![0.0f32; channels];
        let mut firsts = vec![0u32; channels];
        let mut taps = Vec::new();
        for (place, dy) in dy.chunks_exact(channels).enumerate() {
            images.taps(place, &mut taps);
            let Some(x) = x else {
                for tap in &taps {
                    each(&mut dx[tap * channels..][..channels], dy, |sum, dy| sum + dy);
                }
                continue;
            };
            largest(x, &taps, &mut best);
            for tap in taps.iter().rev() {
                find(&mut firsts, &best, &x[tap * channels..][..channels], *tap as u32);
            }
            for tap in &taps {
                give(&mut dx[tap * channels..][..channels], &firsts, dy, *tap as u32);
            }
        }
    }
}

/// `firsts[i] = tap` where `x[i]` is the largest.
#[inline(always)]
fn find(firsts: &mut [u32], best: &[f32], x: &[f32], tap: u32) {
    for ((first, &best), &x) in firsts.iter_mut().zip(best).zip(x) {
        let is = (x == best) | (x.is_nan() & best.is_nan());
        *first = if is { tap } else { *first };
    }
}

/// Adds gradients where their place is this tap. Adding nothing would turn -0 into 0, which a place that no window chose
/// may not be.
#[inline(always)]
fn give(dx: &mut [f32], firsts: &[u32], dy: &[f32], tap: u32) {
    for ((dx, &first), &dy) in dx.iter_mut().zip(firsts).zip(dy) {
        *dx = if first == tap { *dx + dy } else { *dx };
    }
}

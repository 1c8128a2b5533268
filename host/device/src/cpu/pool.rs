//! Pooling and its gradients, plane by plane: tap by tap over rows of outputs, so that inner loops are plain.

use saggar_compile::program::ValueId;
use saggar_tensor::DType;
use saggar_tensor::op;

use super::element::{Max, Operator};
use super::floats::{floats, write_floats};
use super::halve::{Max2, Max2Grad, beats, is_halving};
use super::patch::{Windows, fold_tap};
use super::plan::{Planner, Refusal};
use super::region::Piece;
use super::simd;
use super::threads::Threads;

/// Elements that one task writes, about.
const TASK_ELEMENTS: usize = 1 << 14;

fn windows(pool: &op::Pool2d, input: &[usize], output: &[usize]) -> Windows {
    Windows {
        input: [input[2], input[3]],
        window: pool.window,
        output: [output[2], output[3]],
        strides: pool.strides,
        dilations: pool.dilations,
        padding: [pool.padding[0], pool.padding[2]],
    }
}

/// Runs `f` for every task's planes of `plane` elements of `out`, and the index of the first of them.
fn tasks(
    threads: &Threads,
    out: &mut [f32],
    plane: usize,
    operations: usize,
    f: impl Fn(usize, &mut [f32]) + Send + Sync,
) {
    if plane == 0 {
        return;
    }
    let together = (TASK_ELEMENTS / plane).max(1);
    let tasks: Vec<_> = out.chunks_mut(plane * together).enumerate().collect();
    threads.each(operations, tasks, |(task, out)| f(task * together, out));
}

/// Runs `f` for every plane of `plane` elements of `out`, several planes a task.
fn planes(
    threads: &Threads,
    out: &mut [f32],
    plane: usize,
    operations: usize,
    f: impl Fn(usize, &mut [f32]) + Send + Sync,
) {
    tasks(threads, out, plane, operations, |first, out| {
        out.chunks_mut(plane).enumerate().for_each(|(index, out)| f(first + index, out));
    });
}

/// Pooling.
#[derive(Debug)]
pub(super) struct Pool {
    kind: op::Pool,
    windows: Windows,
    dtype: DType,
    input: usize,
    output: usize,
}

impl Pool {
    /// Prepares a `Body::Pool2d` of `[input, output]`.
    pub(super) fn new(
        planner: &Planner<'_>,
        kind: op::Pool,
        pool: op::Pool2d,
        [input, output]: [ValueId; 2],
    ) -> Result<Pool, Refusal> {
        Ok(Pool {
            kind,
            windows: windows(&pool, planner.dims(input), planner.dims(output)),
            dtype: planner.float(input)?,
            input: planner.operand(input)?,
            output: planner.region(output),
        })
    }

    /// Runs it.
    pub(super) fn run(&self, threads: &Threads, mut pieces: Vec<Piece<'_>>) {
        let windows = &self.windows;
        let output = pieces[self.output].take();
        let x = floats(self.dtype, pieces[self.input].read());
        write_floats(self.dtype, output, |out| {
            let operations = out.len() * windows.window[0] * windows.window[1];
            let halves = match self.kind {
                op::Pool::Max => is_halving(windows),
                op::Pool::Sum => false,
            };
            if halves {
                return tasks(threads, out, windows.output_plane(), operations, |first, out| {
                    simd::dispatch(Max2 { windows, x: &x[first * windows.input_plane()..], out });
                });
            }
            planes(threads, out, windows.output_plane(), operations, |index, out| {
                let x = x.get(index * windows.input_plane()..).unwrap_or(&[]);
                match self.kind {
                    op::Pool::Max => {
                        out.fill(f32::NEG_INFINITY);
                        self.plane(x, out, <Max as Operator<f32, f32>>::apply);
                    }
                    op::Pool::Sum => {
                        out.fill(0.0);
                        self.plane(x, out, |a, b| a + b);
                    }
                }
            });
        });
    }

    #[inline(always)]
    fn plane(&self, x: &[f32], out: &mut [f32], combine: impl Fn(f32, f32) -> f32) {
        for tap in self.windows.taps() {
            tap.each_row(|row| {
                let out = &mut out[row.output..][..row.len];
                for (out, &value) in out.iter_mut().zip(x[row.input..].iter().step_by(tap.step())) {
                    *out = combine(*out, value);
                }
            });
        }
    }
}

/// Gradient of max pooling.
#[derive(Debug)]
pub(super) struct MaxGrad {
    windows: Windows,
    dtype: DType,
    input: usize,
    gradient: usize,
    output: usize,
}

impl MaxGrad {
    /// Prepares a `Body::MaxPool2dGrad` of `[input, gradient, output]`.
    pub(super) fn new(
        planner: &Planner<'_>,
        pool: op::Pool2d,
        [input, gradient, output]: [ValueId; 3],
    ) -> Result<MaxGrad, Refusal> {
        Ok(MaxGrad {
            windows: windows(&pool, planner.dims(input), planner.dims(gradient)),
            dtype: planner.float(input)?,
            input: planner.operand(input)?,
            gradient: planner.operand(gradient)?,
            output: planner.region(output),
        })
    }

    /// Runs it.
    pub(super) fn run(&self, threads: &Threads, mut pieces: Vec<Piece<'_>>) {
        let windows = &self.windows;
        let output = pieces[self.output].take();
        let (x, dy) = (pieces[self.input].read(), pieces[self.gradient].read());
        let (x, dy) = (floats(self.dtype, x), floats(self.dtype, dy));
        write_floats(self.dtype, output, |dx| {
            let operations = dy.len() * windows.window[0] * windows.window[1];
            planes(threads, dx, windows.input_plane(), operations, |index, dx| {
                let x = &x[index * windows.input_plane()..][..windows.input_plane()];
                let dy = &dy[index * windows.output_plane()..][..windows.output_plane()];
                self.plane(x, dy, dx);
            });
        });
    }

    fn plane(&self, x: &[f32], dy: &[f32], dx: &mut [f32]) {
        /// No tap seen yet.
        const NONE: u32 = u32::MAX;
        let windows = &self.windows;
        dx.fill(0.0);
        if dy.is_empty() {
            return;
        }
        if is_halving(windows) {
            return simd::dispatch(Max2Grad { windows, x, dy, dx });
        }
        // Largest element of each window of one row of outputs, and its place in the plane.
        let width = windows.output[1];
        let mut best = vec![(f32::NEG_INFINITY, NONE); width];
        let taps: Vec<_> = windows.taps().collect();
        for (row, dy) in dy.chunks(width).enumerate() {
            best.fill((f32::NEG_INFINITY, NONE));
            for tap in &taps {
                let Some(inside) = tap.row(row) else { continue };
                let best = &mut best[inside.output - row * width..][..inside.len];
                let places = (inside.input..).step_by(tap.step());
                for ((best, place), &value) in
                    best.iter_mut().zip(places).zip(x[inside.input..].iter().step_by(tap.step()))
                {
                    let beaten = best.1 == NONE || beats(value, best.0);
                    *best = if beaten { (value, place as u32) } else { *best };
                }
            }
            for (&(_, place), &dy) in best.iter().zip(dy) {
                // A window whose every tap is padding has no largest element.
                if place != NONE {
                    dx[place as usize] += dy;
                }
            }
        }
    }
}

/// Adjoint of sum pooling.
#[derive(Debug)]
pub(super) struct SumGrad {
    windows: Windows,
    dtype: DType,
    gradient: usize,
    output: usize,
}

impl SumGrad {
    /// Prepares a `Body::SumPool2dGrad` of `[gradient, output]`.
    pub(super) fn new(
        planner: &Planner<'_>,
        pool: op::Pool2d,
        [gradient, output]: [ValueId; 2],
    ) -> Result<SumGrad, Refusal> {
        Ok(SumGrad {
            windows: windows(&pool, planner.dims(output), planner.dims(gradient)),
            dtype: planner.float(gradient)?,
            gradient: planner.operand(gradient)?,
            output: planner.region(output),
        })
    }

    /// Runs it.
    pub(super) fn run(&self, threads: &Threads, mut pieces: Vec<Piece<'_>>) {
        let windows = &self.windows;
        let output = pieces[self.output].take();
        let dy = floats(self.dtype, pieces[self.gradient].read());
        write_floats(self.dtype, output, |dx| {
            let operations = dy.len() * windows.window[0] * windows.window[1];
            planes(threads, dx, windows.input_plane(), operations, |index, dx| {
                dx.fill(0.0);
                let dy = &dy[index * windows.output_plane()..][..windows.output_plane()];
                windows.taps().for_each(|tap| fold_tap(dy, &tap, dx));
            });
        });
    }
}

//! Pooling and its gradients in NCHW layout, plane by plane. Each tap is a loop over rows of outputs, so that inner
//! loops are simple.

use saggar_compile::program::ValueId;
use saggar_tensor::DType;
use saggar_tensor::op;

use super::im2col::{WindowGeometry, fold_tap};
use super::max_pool_2x2::{MaxPool2x2, MaxPool2x2Grad, is_2x2_pooling, is_new_max};
use crate::element::{BinaryOperator, Max};
use crate::f32_access::{as_f32, write_as_f32};
use crate::kernel_context::{KernelContext, KernelRefusal};
use crate::prepared_kernel::{KernelCall, PreparedKernel};
use crate::simd;
use crate::threads::CpuThreads;

/// Approximate number of elements that one task writes.
const TASK_ELEMENTS: usize = 1 << 14;

fn pool_windows(pool: &op::Pool2d, input: &[usize], output: &[usize]) -> WindowGeometry {
    WindowGeometry {
        input: [input[2], input[3]],
        window: pool.window,
        output: [output[2], output[3]],
        strides: pool.strides,
        dilations: pool.dilations,
        padding: [pool.padding[0], pool.padding[2]],
    }
}

/// Calls `f` for each task with the index of its first plane and the planes, which have `plane` elements of `out` each.
fn for_each_task(
    threads: &CpuThreads,
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
    threads.for_each(operations, tasks, |(task, out)| f(task * together, out));
}

/// Calls `f` for every plane of `plane` elements of `out`. A task has several planes.
fn for_each_plane(
    threads: &CpuThreads,
    out: &mut [f32],
    plane: usize,
    operations: usize,
    f: impl Fn(usize, &mut [f32]) + Send + Sync,
) {
    for_each_task(threads, out, plane, operations, |first, out| {
        out.chunks_mut(plane).enumerate().for_each(|(index, out)| f(first + index, out));
    });
}

/// Max or sum pooling.
#[derive(Debug)]
pub(crate) struct CpuPoolNchw {
    kind: op::PoolKind,
    windows: WindowGeometry,
    dtype: DType,
    input: usize,
    output: usize,
}

impl CpuPoolNchw {
    /// Prepares a `KernelBody::Pool2d` of `[input, output]`.
    pub(crate) fn new(
        context: &KernelContext<'_>,
        kind: op::PoolKind,
        pool: op::Pool2d,
        [input, output]: [ValueId; 2],
    ) -> Result<CpuPoolNchw, KernelRefusal> {
        Ok(CpuPoolNchw {
            kind,
            windows: pool_windows(&pool, context.dims(input), context.dims(output)),
            dtype: context.float_dtype(input)?,
            input: context.operand(input)?,
            output: context.region(output),
        })
    }

    #[inline(always)]
    fn pool_plane(&self, x: &[f32], out: &mut [f32], combine: impl Fn(f32, f32) -> f32) {
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

impl PreparedKernel for CpuPoolNchw {
    fn routine(&self) -> &'static str {
        "pooling, channels first"
    }

    fn run(&self, call: KernelCall<'_>) {
        let KernelCall { threads, mut slices, .. } = call;
        let windows = &self.windows;
        let output = slices[self.output].take();
        let x = as_f32(self.dtype, slices[self.input].read());
        write_as_f32(self.dtype, output, |out| {
            let operations = out.len() * windows.window[0] * windows.window[1];
            let halves = match self.kind {
                op::PoolKind::Max => is_2x2_pooling(windows),
                op::PoolKind::Sum => false,
            };
            if halves {
                return for_each_task(threads, out, windows.output_plane(), operations, |first, out| {
                    simd::dispatch(MaxPool2x2 { windows, x: &x[first * windows.input_plane()..], out });
                });
            }
            for_each_plane(threads, out, windows.output_plane(), operations, |index, out| {
                let x = x.get(index * windows.input_plane()..).unwrap_or(&[]);
                match self.kind {
                    op::PoolKind::Max => {
                        out.fill(f32::NEG_INFINITY);
                        self.pool_plane(x, out, <Max as BinaryOperator<f32, f32>>::apply);
                    }
                    op::PoolKind::Sum => {
                        out.fill(0.0);
                        self.pool_plane(x, out, |a, b| a + b);
                    }
                }
            });
        });
    }
}

/// The gradient of max pooling.
#[derive(Debug)]
pub(crate) struct CpuMaxPoolGradNchw {
    windows: WindowGeometry,
    dtype: DType,
    input: usize,
    gradient: usize,
    output: usize,
}

impl CpuMaxPoolGradNchw {
    /// Prepares a `KernelBody::MaxPool2dGrad` of `[input, gradient, output]`.
    pub(crate) fn new(
        context: &KernelContext<'_>,
        pool: op::Pool2d,
        [input, gradient, output]: [ValueId; 3],
    ) -> Result<CpuMaxPoolGradNchw, KernelRefusal> {
        Ok(CpuMaxPoolGradNchw {
            windows: pool_windows(&pool, context.dims(input), context.dims(gradient)),
            dtype: context.float_dtype(input)?,
            input: context.operand(input)?,
            gradient: context.operand(gradient)?,
            output: context.region(output),
        })
    }

    fn max_grad_plane(&self, x: &[f32], dy: &[f32], dx: &mut [f32]) {
        /// No tap seen yet.
        const NONE: u32 = u32::MAX;
        let windows = &self.windows;
        dx.fill(0.0);
        if dy.is_empty() {
            return;
        }
        if is_2x2_pooling(windows) {
            return simd::dispatch(MaxPool2x2Grad { windows, x, dy, dx });
        }
        // The largest element of each window of one row of outputs, and its position in the plane.
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
                    let beaten = best.1 == NONE || is_new_max(value, best.0);
                    *best = if beaten { (value, place as u32) } else { *best };
                }
            }
            for (&(_, place), &dy) in best.iter().zip(dy) {
                // A window that only covers padding has no largest element.
                if place != NONE {
                    dx[place as usize] += dy;
                }
            }
        }
    }
}

impl PreparedKernel for CpuMaxPoolGradNchw {
    fn routine(&self) -> &'static str {
        "max pooling gradient, channels first"
    }

    fn run(&self, call: KernelCall<'_>) {
        let KernelCall { threads, mut slices, .. } = call;
        let windows = &self.windows;
        let output = slices[self.output].take();
        let (x, dy) = (slices[self.input].read(), slices[self.gradient].read());
        let (x, dy) = (as_f32(self.dtype, x), as_f32(self.dtype, dy));
        write_as_f32(self.dtype, output, |dx| {
            let operations = dy.len() * windows.window[0] * windows.window[1];
            for_each_plane(threads, dx, windows.input_plane(), operations, |index, dx| {
                let x = &x[index * windows.input_plane()..][..windows.input_plane()];
                let dy = &dy[index * windows.output_plane()..][..windows.output_plane()];
                self.max_grad_plane(x, dy, dx);
            });
        });
    }
}

/// The gradient of sum pooling.
#[derive(Debug)]
pub(crate) struct CpuSumPoolGradNchw {
    windows: WindowGeometry,
    dtype: DType,
    gradient: usize,
    output: usize,
}

impl CpuSumPoolGradNchw {
    /// Prepares a `KernelBody::SumPool2dGrad` of `[gradient, output]`.
    pub(crate) fn new(
        context: &KernelContext<'_>,
        pool: op::Pool2d,
        [gradient, output]: [ValueId; 2],
    ) -> Result<CpuSumPoolGradNchw, KernelRefusal> {
        Ok(CpuSumPoolGradNchw {
            windows: pool_windows(&pool, context.dims(output), context.dims(gradient)),
            dtype: context.float_dtype(gradient)?,
            gradient: context.operand(gradient)?,
            output: context.region(output),
        })
    }
}

impl PreparedKernel for CpuSumPoolGradNchw {
    fn routine(&self) -> &'static str {
        "sum pooling gradient, channels first"
    }

    fn run(&self, call: KernelCall<'_>) {
        let KernelCall { threads, mut slices, .. } = call;
        let windows = &self.windows;
        let output = slices[self.output].take();
        let dy = as_f32(self.dtype, slices[self.gradient].read());
        write_as_f32(self.dtype, output, |dx| {
            let operations = dy.len() * windows.window[0] * windows.window[1];
            for_each_plane(threads, dx, windows.input_plane(), operations, |index, dx| {
                dx.fill(0.0);
                let dy = &dy[index * windows.output_plane()..][..windows.output_plane()];
                windows.taps().for_each(|tap| fold_tap(dy, &tap, dx));
            });
        });
    }
}

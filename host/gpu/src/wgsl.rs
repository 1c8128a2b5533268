//! WGSL code generation for kernels. Pure text generation: naga validates the text, in this crate's tests and in the
//! driver.
//!
//! A kernel has one storage binding for each distinct resource that it touches, all `read_write`, so that a buffer that
//! is both read and written has one usage. Sizes, strides and slab offsets are constants in the text: a shader belongs
//! to one kernel of one program. Work is one-dimensional, folded into two dimensions if it would exceed the device's
//! workgroup limit. 8-bit integers occupy a word and are wrapped to their range after every operation. Half-precision
//! floats are `f32` values rounded after every operation, stored as `f16` if the device supports it; sums are
//! accumulated in `f32` and rounded once. 64-bit integers are `i64` and `u64`, naga's extension of WGSL, if the device
//! supports them, otherwise two words.
//!
//! No atomics: every sum has a fixed order, so equal programs give equal bits on one device and driver.

mod binary;
mod contract;
mod convolution;
mod expression;
mod fused_matmul;
mod index;
mod library;
mod literal;
mod map;
mod pool;
mod reduce;
mod shader;
mod tile;
mod unary;
mod wide_integer;
mod writer;

#[cfg(test)]
mod tests;

use saggar_compile::program::{ChannelLayout, Kernel, KernelBody, Program};
pub use shader::{
    COOPERATIVE_MATRIX_SHARED_BYTES, CooperativeMatrix, FIRST_GROUP, FUSED_MATMUL_BINDINGS, Shader, ShaderBinding,
    ShaderCandidate, ShaderError, ShaderResource, ShaderTuning, WORKGROUPS_MAX,
};
use writer::ShaderWriter;

/// Returns the autotuning candidates of `kernel`, the one with the lowest estimated time first. Returns an empty list
/// if there is only one variant. Results of different candidates can differ in their last bits.
///
/// # Errors
/// As [`shader_passes`].
pub fn autotune_candidates(
    program: &Program,
    kernel: &Kernel,
    tuning: ShaderTuning,
) -> Result<Vec<ShaderCandidate>, ShaderError> {
    let mut writer = ShaderWriter::new(program, kernel, tuning, None);
    write_body(&mut writer, kernel)?;
    Ok(writer.into_candidates())
}

/// Generates the WGSL of `kernel`, one of `program.kernels`: one pass, or two to run in order.
///
/// # Errors
/// Returns `ChannelsLast` for a kernel with channels last, and `Iterations` for a kernel with too many loop iterations.
pub fn shader_passes(program: &Program, kernel: &Kernel, tuning: ShaderTuning) -> Result<Vec<Shader>, ShaderError> {
    shader_passes_of_candidate(program, kernel, tuning, None)
}

/// Generates the WGSL as [`shader_passes`] does, with the candidate named `way`. If no candidate has this name, uses
/// the one with the lowest estimated time.
///
/// # Errors
/// As [`shader_passes`].
pub fn shader_passes_of_candidate(
    program: &Program,
    kernel: &Kernel,
    tuning: ShaderTuning,
    way: Option<&str>,
) -> Result<Vec<Shader>, ShaderError> {
    let mut first = ShaderWriter::new(program, kernel, tuning, way);
    write_body(&mut first, kernel)?;
    let second = first.second_pass();
    let mut passes = vec![first.finish()?];
    if let Some(mut second) = second {
        write_body(&mut second, kernel)?;
        passes.push(second.finish()?);
    }
    Ok(passes)
}

fn write_body(w: &mut ShaderWriter<'_>, kernel: &Kernel) -> Result<(), ShaderError> {
    if kernel.body.layout() == ChannelLayout::ChannelsLast {
        return Err(ShaderError::ChannelsLast { kernel: kernel.label.clone() });
    }
    match &kernel.body {
        KernelBody::Map { dims, expr, stores } => map::map_kernel(w, dims, expr, stores),
        KernelBody::Fold { kind, outer, inner, prologue, epilogue } => {
            let fold = reduce::FoldDescription { kind: *kind, outer, inner, prologue, epilogue };
            reduce::fold_kernel(w, &fold);
        }
        KernelBody::ArgFold { largest, dims, input, output } => {
            reduce::arg_fold(w, *largest, *dims, *input, *output);
        }
        KernelBody::MatMul { sizes, a, b, transpose_a, transpose_b, batch_stride_a, batch_stride_b, epilogue } => {
            let a = contract::MatMulOperand { value: *a, transposed: *transpose_a, batch_stride: *batch_stride_a };
            let b = contract::MatMulOperand { value: *b, transposed: *transpose_b, batch_stride: *batch_stride_b };
            contract::mat_mul(w, *sizes, &a, &b, epilogue);
        }
        KernelBody::Chain { dims, products, link, softmax, end, results, epilogue } => {
            let (softmax, end) = (softmax.as_ref(), *end);
            fused_matmul::fused_matmul(
                w,
                &fused_matmul::FusedMatMul {
                    dims,
                    products,
                    score_expr: link,
                    softmax,
                    consumer: end,
                    results,
                    epilogue,
                },
            );
        }
        KernelBody::Conv2d { conv, layout: _, input, filter, result, epilogue } => {
            convolution::conv2d(w, conv, *input, *filter, *result, epilogue);
        }
        KernelBody::Conv2dInputGrad { conv, layout: _, gradient, filter, output } => {
            convolution::input_grad(w, conv, *gradient, *filter, *output);
        }
        KernelBody::Conv2dFilterGrad { conv, layout: _, input, gradient, output } => {
            convolution::filter_grad(w, conv, *input, *gradient, *output);
        }
        KernelBody::Pool2d { kind, pool, layout: _, input, output } => pool::pool2d(w, *kind, pool, *input, *output),
        KernelBody::MaxPool2dGrad { pool, layout: _, input, gradient, output } => {
            pool::max_pool_grad(w, pool, *input, *gradient, *output);
        }
        KernelBody::SumPool2dGrad { pool, layout: _, gradient, output } => {
            pool::sum_pool_grad(w, pool, *gradient, *output)
        }
        KernelBody::Gather { dims, input, indices, output } => {
            index::gather(w, *dims, *input, *indices, *output);
        }
        KernelBody::Scatter { dims, combine, base, indices, updates, output } => {
            index::scatter(w, *dims, (*combine, *base), [*indices, *updates, *output]);
        }
    }
    Ok(())
}

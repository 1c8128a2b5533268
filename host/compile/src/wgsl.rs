//! Kernels as WGSL text. Pure text generation: what is valid is for naga to say, in this crate's tests and in the driver.
//!
//! One storage binding for each distinct resource a kernel touches, all `read_write`, so that a buffer that is read
//! and written has one usage. Sizes, strides and slab offsets are baked in: a shader belongs to one kernel of one
//! program. Work is one-dimensional, folded into two dimensions where a device's limit of workgroups would be passed.
//! Integers of 8 bits occupy a word and are kept in their range after every operation. Half-precision floats are `f32`
//! that are rounded after every operation, and in memory `f16` where the device has it; sums are accumulated in `f32` and
//! rounded once. Integers of 64 bits are `i64` and `u64`, naga's extension of WGSL, where the device has it, and two words where
//! it has not.
//!
//! No atomics: every sum has a fixed order, so equal programs give equal bits on one device and driver.

mod binary;
mod contract;
mod convolution;
mod expression;
mod fused_matmul;
mod index;
mod library;
mod map;
mod pool;
mod reduce;
mod tile;
mod unary;
mod wide_integer;
mod writer;

#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use tests::{check_valid, shared_bytes};

use thiserror::Error;

use crate::program::{ChannelLayout, Kernel, KernelBody, Program};
use writer::ShaderWriter;

/// Workgroups a device takes along one dimension (WebGPU's lowest limit, which every adapter meets).
pub const WORKGROUPS_MAX: u32 = 65_535;

/// Storage bindings of a kernel that every adapter takes (WebGPU's lowest limit). Kernels with windows may need more.
const BINDINGS_MAX: usize = 8;

/// Storage bindings that a device must allow where programs have chains.
pub const FUSED_MATMUL_BINDINGS: usize = 16;

/// The name of the constant that says where a slice of a shader's workgroups begins.
pub const FIRST_GROUP: &str = "first_group";

/// Which kernels suit the device, and which it cannot have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ShaderTuning {
    /// Stage tiles in workgroup memory: right for GPUs, slow where shaders run on a processor.
    pub workgroup_memory: bool,
    /// Whether shaders have `i64` and `u64`; integers of 64 bits are two words otherwise, which takes several operations for one.
    pub wide_integers: bool,
    /// Whether storage has `f16`; floats of 16 bits take words otherwise.
    pub half_storage: bool,
    /// Bytes of a buffer that one binding shows at most, a multiple of the element sizes. A kernel sees a larger one through
    /// several bindings.
    pub window_bytes: usize,
    /// Times that loops may run in one invocation, all together; kernels with more are refused. Mesa's llvmpipe ends loops
    /// silently after 65,535.
    pub iterations_max: usize,
    /// Operations that one dispatch does at most, about: kernels of more are several dispatches of some of their workgroups,
    /// so that others have their turn between them and no driver takes the device for one that hangs.
    pub operations_max: u64,
    /// Workgroups that run at the same time, about: products are cut into enough tiles, and parts of their depth, for so many.
    pub workgroups_at_once: usize,
    /// Operations of subgroups on small matrices, where there are any: products of 16-bit floats are made of them.
    pub cooperative_matrix: Option<CooperativeMatrix>,
    /// Lanes of a subgroup, a power of two from 8 to 64, where every subgroup has as many and its lanes can read each other's
    /// registers: folds go that way instead of through the memory that lanes share.
    pub subgroup: Option<usize>,
}

/// Bytes that lanes share, at most, where products are made of small matrices; tested.
pub const COOPERATIVE_MATRIX_SHARED_BYTES: usize = 32 << 10;

/// An operation of a subgroup that multiplies two small square matrices of 16-bit floats and adds the product to a third, of
/// 32-bit floats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CooperativeMatrix {
    /// Rows and columns: 8 or 16.
    pub side: usize,
    /// Lanes of a subgroup, of which every subgroup has as many.
    pub subgroup: usize,
}

impl ShaderTuning {
    /// What a GPU without limits would have, of the size of today's in servers.
    pub const UNLIMITED: ShaderTuning = ShaderTuning {
        workgroup_memory: true,
        wide_integers: true,
        half_storage: true,
        window_bytes: usize::MAX,
        iterations_max: usize::MAX,
        operations_max: u64::MAX,
        workgroups_at_once: 128,
        cooperative_matrix: None,
        subgroup: None,
    };
}

/// What stands behind a binding number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ShaderResource {
    /// The caller's tensor for an input of the program.
    Input(u32),
    /// The buffer of a variable.
    Variable(u32),
    /// The device's copy of a constant.
    Constant(u32),
    /// The fresh tensor of an output.
    Output(u32),
    /// A slab of scratch memory.
    Slab(u32),
    /// What a kernel's first pass leaves to its second, scratch memory too.
    PassBuffer,
}

/// The part of a resource that one binding shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ShaderBinding {
    /// Which resource.
    pub resource: ShaderResource,
    /// Where the part begins.
    pub offset_bytes: usize,
    /// How long it is; none: to the end.
    pub bytes: Option<usize>,
}

/// A pass of a kernel. Its entry point is `main`.
#[derive(Clone, Debug, PartialEq)]
pub struct Shader {
    /// WGSL.
    pub source: String,
    /// What binding `k` of group 0 shows, at position `k`.
    pub bindings: Vec<ShaderBinding>,
    /// Workgroups to dispatch; the first is 0 where the kernel has nothing to write.
    pub workgroups: [u32; 3],
    /// Dispatches of so many workgroups, at least 1. Each has the number of its first workgroup in the shader's constant
    /// [`FIRST_GROUP`]: the product of `workgroups` more than the one before it.
    pub slices: u32,
    /// What [`ShaderResource::PassBuffer`] holds; 0 where the kernel is one pass.
    pub pass_buffer_bytes: usize,
}

/// Why a kernel has no shader.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum ShaderError {
    /// Windows over channels that lie side by side: programs for devices with shaders have none.
    #[error("{kernel}: shaders read windows with channels first")]
    ChannelsLast {
        /// The kernel's label.
        kernel: String,
    },
    /// More loop iterations than the device runs.
    #[error("{kernel}: its loops run {iterations} times in one invocation, and this device ends them after {limit}")]
    Iterations {
        /// The kernel's label.
        kernel: String,
        /// How many.
        iterations: usize,
        /// How many are allowed.
        limit: usize,
    },
}

/// One of several ways to compute a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShaderCandidate {
    /// What it is called, the same in every build that has it.
    pub name: String,
    /// What it takes by the compiler's figures, in no unit, which the kernel's other ways share.
    pub estimated_time: usize,
}

/// The ways to compute `kernel`, the best one by the compiler's figures first; none where there is only one. Their results may
/// differ in their last bits.
///
/// # Errors
/// Those of [`shader_passes`].
pub fn autotune_candidates(
    program: &Program,
    kernel: &Kernel,
    tuning: ShaderTuning,
) -> Result<Vec<ShaderCandidate>, ShaderError> {
    let mut writer = ShaderWriter::new(program, kernel, tuning, None);
    write_body(&mut writer, kernel)?;
    Ok(writer.into_candidates())
}

/// Writes `kernel`, one of `program.kernels`, as WGSL: one pass, or two, one after the other.
///
/// # Errors
/// `ChannelsLast`; `Iterations`.
pub fn shader_passes(program: &Program, kernel: &Kernel, tuning: ShaderTuning) -> Result<Vec<Shader>, ShaderError> {
    shader_passes_of_candidate(program, kernel, tuning, None)
}

/// As [`shader_passes`], in the way of this name; in the best one by the compiler's figures where there is no such way.
///
/// # Errors
/// Those of [`shader_passes`].
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

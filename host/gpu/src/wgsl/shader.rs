//! Generated shaders, what they bind, and the device properties that they depend on.

use saggar_compile::{DisabledOptimizations, Optimization};
use thiserror::Error;

/// Most workgroups of a dispatch along one dimension (WebGPU's lowest limit, which every adapter meets).
pub const WORKGROUPS_MAX: u32 = 65_535;

/// Storage bindings of a kernel that every adapter supports (WebGPU's lowest limit). Kernels that split buffers into
/// several bindings can need more.
pub(super) const BINDINGS_MAX: usize = 8;

/// Storage bindings that a device must support for programs with fused matmuls.
pub const FUSED_MATMUL_BINDINGS: usize = 16;

/// Name of the shader constant that holds the number of the first workgroup of a slice.
pub const FIRST_GROUP: &str = "first_group";

/// Device properties that decide which kernels are generated, and which are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ShaderTuning {
    /// Whether to stage tiles in workgroup memory: fast on GPUs, slow if shaders run on a CPU.
    pub workgroup_memory: bool,
    /// Whether shaders support `i64` and `u64`. Otherwise 64-bit integers are two words, and one operation on them
    /// takes several.
    pub wide_integers: bool,
    /// Whether storage supports `f16`; otherwise 16-bit floats take a word.
    pub half_storage: bool,
    /// Most bytes of a buffer visible through one binding, a multiple of the element sizes. A kernel sees a larger
    /// buffer through several bindings.
    pub window_bytes: usize,
    /// Most loop iterations in one invocation, all loops together; kernels with more are refused. Mesa's llvmpipe
    /// silently ends loops after 65,535 iterations.
    pub iterations_max: usize,
    /// Most operations in one dispatch, approximately. Larger kernels are split into several dispatches, so that other
    /// work can run in between and no driver takes the device for hung.
    pub operations_max: u64,
    /// Number of workgroups that run at the same time, approximately: products are cut into enough tiles, and their
    /// depth into enough parts, for this number.
    pub workgroups_at_once: usize,
    /// Whether to split the depth of products with few results between workgroups.
    pub split_k: bool,
    /// Cooperative matrix operations, or `None` if unsupported. Products of 16-bit floats use them.
    pub cooperative_matrix: Option<CooperativeMatrix>,
    /// Subgroup size, a power of two from 8 to 64, if every subgroup has this size and its lanes can read each other's
    /// registers; otherwise `None`. With it, reductions use subgroups instead of workgroup memory.
    pub subgroup: Option<usize>,
}

impl ShaderTuning {
    /// Returns the tuning of a program without these optimizations.
    #[must_use]
    pub fn without(self, without: DisabledOptimizations) -> ShaderTuning {
        ShaderTuning {
            workgroup_memory: self.workgroup_memory && without.enables(Optimization::Tiles),
            subgroup: self.subgroup.filter(|_| without.enables(Optimization::Subgroups)),
            split_k: self.split_k && without.enables(Optimization::SplitK),
            cooperative_matrix: self.cooperative_matrix.filter(|_| without.enables(Optimization::CooperativeMatrices)),
            ..self
        }
    }
}

/// Fewest bytes of workgroup memory with which products by cooperative matrices are possible.
pub const COOPERATIVE_MATRIX_SHARED_BYTES: usize = 32 << 10;

/// A cooperative matrix operation: a subgroup multiplies two small square matrices of 16-bit floats and adds the
/// product to a third one of 32-bit floats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CooperativeMatrix {
    /// Rows and columns of the matrices: 8 or 16.
    pub side: usize,
    /// Lanes of a subgroup; every subgroup has the same size.
    pub subgroup: usize,
    /// Bytes of workgroup memory that a product can use: at least [`COOPERATIVE_MATRIX_SHARED_BYTES`].
    pub shared_bytes: usize,
}

impl ShaderTuning {
    /// The properties of a GPU without limits, of the size of current server GPUs.
    pub const UNLIMITED: ShaderTuning = ShaderTuning {
        workgroup_memory: true,
        wide_integers: true,
        half_storage: true,
        window_bytes: usize::MAX,
        iterations_max: usize::MAX,
        operations_max: u64::MAX,
        workgroups_at_once: 128,
        split_k: true,
        cooperative_matrix: None,
        subgroup: None,
    };
}

/// The resource behind a binding number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ShaderResource {
    /// The caller's tensor for an input of the program.
    Input(u32),
    /// The buffer of a variable.
    Variable(u32),
    /// The device's copy of a constant.
    Constant(u32),
    /// The new tensor of an output.
    Output(u32),
    /// A slab of scratch memory.
    Slab(u32),
    /// Scratch memory that a kernel's first pass writes and its second pass reads.
    PassBuffer,
}

/// The part of a resource that one binding exposes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ShaderBinding {
    /// The resource.
    pub resource: ShaderResource,
    /// Offset of the part in bytes.
    pub offset_bytes: usize,
    /// Length of the part in bytes; `None` means up to the end of the resource.
    pub bytes: Option<usize>,
}

/// One pass of a kernel. Its entry point is `main`.
#[derive(Clone, Debug, PartialEq)]
pub struct Shader {
    /// WGSL text.
    pub source: String,
    /// Bindings of group 0, by binding number.
    pub bindings: Vec<ShaderBinding>,
    /// Workgroups to dispatch; the first number is 0 if the kernel has nothing to write.
    pub workgroups: [u32; 3],
    /// Number of dispatches of `workgroups`, at least 1. The shader's constant [`FIRST_GROUP`] is the number of a
    /// dispatch's first workgroup, and grows by the product of `workgroups` from one dispatch to the next.
    pub slices: u32,
    /// Size of [`ShaderResource::PassBuffer`] in bytes; 0 if the kernel has one pass.
    pub pass_buffer_bytes: usize,
}

/// Reasons why a kernel has no shader.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum ShaderError {
    /// A windowed kernel with channels last; the compiler does not generate these for devices with shaders.
    #[error("{kernel}: channels last, but shaders support only channels first")]
    ChannelsLast {
        /// The kernel's label.
        kernel: String,
    },
    /// More loop iterations than the device runs.
    #[error("{kernel}: {iterations} loop iterations in one invocation, but this device allows {limit}")]
    Iterations {
        /// The kernel's label.
        kernel: String,
        /// Iterations of the kernel.
        iterations: usize,
        /// Most iterations that the device allows.
        limit: usize,
    },
}

/// An autotuning candidate: one of several variants of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShaderCandidate {
    /// Name of the candidate, equal in every build that supports it.
    pub name: String,
    /// Estimated time, in an arbitrary unit that all candidates of the kernel share.
    pub estimated_time: usize,
}

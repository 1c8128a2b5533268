//! The kernels of the CPU device, one module per family of kernels and memory layout.

pub(crate) mod arg_reduce;
pub(crate) mod contract;
pub(crate) mod convolution;
pub(crate) mod direct;
pub(crate) mod im2col;
pub(crate) mod implicit_gemm;
pub(crate) mod index;
pub(crate) mod map;
pub(crate) mod max_pool_2x2;
pub(crate) mod pool;
pub(crate) mod pool_nhwc;
pub(crate) mod reduce;
pub(crate) mod winograd;

//! Descriptions of kernel routines for people.

use super::{CpuKernel, PreparedKernel};

impl PreparedKernel {
    /// Describes the routine that the kernel uses, such as `Winograd convolution, channels last; weights are packed
    /// once`.
    pub(in super::super) fn describe(&self) -> String {
        let routine = match &self.kernel {
            CpuKernel::Map(_) => "element-wise, in blocks that fit the cache",
            CpuKernel::Fold(fold) if fold.is_one_hot_sum() => "one-hot sum: one element of each row, read by index",
            CpuKernel::Fold(_) => "reduction in blocks, partial results in a fixed tree",
            CpuKernel::ArgFold(_) => "arg-max or arg-min along one axis",
            CpuKernel::MatMul(_) => "packed product, tiles in registers",
            CpuKernel::Conv2dNchw(conv) if conv.is_direct() => "direct convolution, channels first",
            CpuKernel::Conv2dNchw(_) => "convolution by im2col and products, channels first",
            CpuKernel::InputGradNchw(_) => "input gradient by products and col2im, channels first",
            CpuKernel::FilterGradNchw(_) => "filter gradient by im2col and products, channels first",
            CpuKernel::Conv2dNhwc(_) => "convolution by implicit GEMM, channels last",
            CpuKernel::Winograd(_) => "Winograd convolution, channels last",
            CpuKernel::WinogradInputGrad(_) => "Winograd input gradient, channels last",
            CpuKernel::WinogradFilterGrad(_) => "Winograd filter gradient, channels last",
            CpuKernel::InputGradNhwc(_) => "input gradient by implicit GEMM, channels last",
            CpuKernel::FilterGradNhwc(_) => "filter gradient by implicit GEMM, channels last",
            CpuKernel::PoolNhwc(_) => "pooling, vectorised over channels, channels last",
            CpuKernel::PoolGradNhwc(_) => "pooling gradient, vectorised over channels, channels last",
            CpuKernel::PoolNchw(_) => "pooling, channels first",
            CpuKernel::MaxPoolGradNchw(_) => "max pooling gradient, channels first",
            CpuKernel::SumPoolGradNchw(_) => "sum pooling gradient, channels first",
            CpuKernel::Gather(_) => "gather: rows copied by index",
            CpuKernel::Scatter(_) => "scatter: rows written by index, in order",
        };
        let kept = if self.prepack_request().is_some() { "; weights are packed once" } else { "" };
        let bytes = self.workspace_bytes();
        let workspace = if bytes == 0 { String::new() } else { format!("; {bytes} bytes of workspace") };
        format!("{routine}{kept}{workspace}")
    }
}

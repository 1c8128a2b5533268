//! What is said of a kernel's routine to people.

use super::{CpuKernel, PreparedKernel};

impl PreparedKernel {
    /// Which routine it takes: `packed product, its weights packed once`.
    pub(in super::super) fn describe(&self) -> String {
        let routine = match &self.kernel {
            CpuKernel::Map(_) => "element by element, in blocks that fit the cache",
            CpuKernel::Fold(fold) if fold.is_one_hot_sum() => "what an index chooses of each row, read alone",
            CpuKernel::Fold(_) => "folded in blocks, partial results in a fixed tree",
            CpuKernel::ArgFold(_) => "searched along one axis",
            CpuKernel::MatMul(_) => "product by tiles of sums in registers",
            CpuKernel::Conv2dNchw(conv) if conv.is_direct() => "direct convolution, channels first",
            CpuKernel::Conv2dNchw(_) => "convolution by patches and products, channels first",
            CpuKernel::InputGradNchw(_) => "gradient of images with channels first: products, scattered as patches",
            CpuKernel::FilterGradNchw(_) => "gradient of filters with channels first: products of patches",
            CpuKernel::Conv2dNhwc(_) => "implicit convolution: products without patches, channels last",
            CpuKernel::Winograd(_) => "convolution by tiles (Winograd), channels last",
            CpuKernel::WinogradInputGrad(_) => {
                "adjoint of a convolution in its input by tiles (Winograd), channels last"
            }
            CpuKernel::WinogradFilterGrad(_) => {
                "adjoint of a convolution in its filter by tiles (Winograd), channels last"
            }
            CpuKernel::InputGradNhwc(_) => "implicit gradient of images: products without patches, channels last",
            CpuKernel::FilterGradNhwc(_) => "implicit gradient of filters: products without patches, channels last",
            CpuKernel::PoolNhwc(_) => "pooling in vectors over channels, channels last",
            CpuKernel::PoolGradNhwc(_) => "gradient of pooling in vectors over channels, channels last",
            CpuKernel::PoolNchw(_) => "pooling with channels first",
            CpuKernel::MaxPoolGradNchw(_) => "gradient of max-pooling with channels first",
            CpuKernel::SumPoolGradNchw(_) => "gradient of sum-pooling with channels first",
            CpuKernel::Gather(_) => "rows copied by index",
            CpuKernel::Scatter(_) => "rows written by index, in order",
        };
        let kept = if self.prepack_request().is_some() { "; weights are packed once" } else { "" };
        let bytes = self.workspace_bytes();
        let workspace = if bytes == 0 { String::new() } else { format!("; {bytes} bytes of workspace") };
        format!("{routine}{kept}{workspace}")
    }
}

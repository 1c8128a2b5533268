//! What is said of a kernel's routine to people.

use super::{Prepared, Work};

impl Prepared {
    /// Which routine it takes: `packed product, its weights packed once`.
    pub(in super::super) fn described(&self) -> String {
        let routine = match &self.work {
            Work::Map(_) => "element by element, in blocks that fit the cache",
            Work::Fold(fold) if fold.is_chosen() => "what an index chooses of each row, read alone",
            Work::Fold(_) => "folded in blocks, partial results in a fixed tree",
            Work::ArgFold(_) => "searched along one axis",
            Work::MatMul(_) => "product by tiles of sums in registers",
            Work::Conv2d(conv) if conv.is_direct() => "direct convolution, channels first",
            Work::Conv2d(_) => "convolution by patches and products, channels first",
            Work::InputGrad(_) => "gradient of images with channels first: products, scattered as patches",
            Work::FilterGrad(_) => "gradient of filters with channels first: products of patches",
            Work::Forward(_) => "implicit convolution: products without patches, channels last",
            Work::Winograd(_) => "convolution by tiles (Winograd), channels last",
            Work::WinogradInputGrad(_) => "adjoint of a convolution in its input by tiles (Winograd), channels last",
            Work::WinogradFilterGrad(_) => "adjoint of a convolution in its filter by tiles (Winograd), channels last",
            Work::InputGradLast(_) => "implicit gradient of images: products without patches, channels last",
            Work::FilterGradLast(_) => "implicit gradient of filters: products without patches, channels last",
            Work::PoolLast(_) => "pooling in vectors over channels, channels last",
            Work::PoolGradLast(_) => "gradient of pooling in vectors over channels, channels last",
            Work::Pool(_) => "pooling with channels first",
            Work::MaxGrad(_) => "gradient of max-pooling with channels first",
            Work::SumGrad(_) => "gradient of sum-pooling with channels first",
            Work::Gather(_) => "rows copied by index",
            Work::Scatter(_) => "rows written by index, in order",
        };
        let kept = if self.kept().is_some() { "; weights are packed once" } else { "" };
        let bytes = self.workspace_bytes();
        let workspace = if bytes == 0 { String::new() } else { format!("; {bytes} bytes of workspace") };
        format!("{routine}{kept}{workspace}")
    }
}

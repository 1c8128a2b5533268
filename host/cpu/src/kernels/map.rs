//! Element-wise kernels.

use saggar_compile::program::ResultStore;
use saggar_compile::program::expr::ScalarExpr;

use crate::elementwise_stage::ElementwiseStage;
use crate::kernel_context::{KernelContext, KernelRefusal};
use crate::prepared_kernel::{KernelCall, PreparedKernel};

/// An element-wise kernel.
#[derive(Debug)]
pub(crate) struct CpuMap(ElementwiseStage);

impl CpuMap {
    /// Prepares a `KernelBody::Map` over `dims`.
    pub(crate) fn new(
        context: &KernelContext<'_>,
        dims: &[usize],
        expr: &ScalarExpr,
        stores: &[ResultStore],
    ) -> Result<CpuMap, KernelRefusal> {
        ElementwiseStage::map(context, dims, expr, stores).map(CpuMap)
    }
}

impl PreparedKernel for CpuMap {
    fn routine(&self) -> &'static str {
        "element-wise, in blocks that fit the cache"
    }

    fn run(&self, call: KernelCall<'_>) {
        self.0.run_all(call.threads, call.slices, &[], 0);
    }
}

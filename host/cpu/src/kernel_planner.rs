//! Kernel planning: prepares a program's kernel to run on slices of memory.

mod describe;

use saggar_compile::program::{ChannelLayout, Kernel, KernelBody, Program, ValueId, ValueLocation};
use saggar_tensor::DType;

use super::alias_check::{KernelRegions, OverlapError, RegionSlice, block_index};
use super::elementwise_stage::ElementwiseStage;
use super::kernels::contract::CpuMatMul;
use super::kernels::convolution::{CpuConv2dNchw, CpuFilterGradNchw, CpuInputGradNchw};
use super::kernels::implicit_gemm;
use super::kernels::index::{CpuGather, CpuScatter};
use super::kernels::pool::{CpuMaxPoolGradNchw, CpuPoolNchw, CpuSumPoolGradNchw};
use super::kernels::pool_nhwc::{CpuPoolGradNhwc, CpuPoolNhwc};
use super::kernels::reduce::{CpuArgFold, CpuFold};
use super::kernels::winograd;
use super::prepacked::PrepackRequest;
use super::threads::CpuThreads;

/// Why a kernel cannot run: the compiler broke a guarantee of [`saggar_compile::program`].
#[derive(Clone, Copy, Debug)]
pub(super) enum KernelRefusal {
    /// A written value shares part of its memory with another one.
    Overlap,
    /// A written value is also read, but not element by element.
    ReadWhileWritten,
    /// Too many dimensions, or a view of a written value that is not the identity.
    Layout,
    /// A fused matrix product. Programs for hosts contain none.
    FusedMatMul,
    /// The kernel is not defined for this data type.
    Type(DType),
}

impl std::fmt::Display for KernelRefusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            KernelRefusal::Overlap => f.write_str("a written value shares part of its memory with another one"),
            KernelRefusal::ReadWhileWritten => f.write_str("a written value is also read out of order"),
            KernelRefusal::Layout => f.write_str("too many dimensions, or a written value is not read in order"),
            KernelRefusal::FusedMatMul => f.write_str("the cpu device has no fused matrix products"),
            KernelRefusal::Type(dtype) => write!(f, "not defined for {dtype}"),
        }
    }
}

impl From<OverlapError> for KernelRefusal {
    fn from(_: OverlapError) -> KernelRefusal {
        KernelRefusal::Overlap
    }
}

/// A kernel's values, as seen by its preparation.
pub(super) struct KernelPlanner<'a> {
    program: &'a Program,
    regions: &'a KernelRegions,
}

impl KernelPlanner<'_> {
    /// Returns the region of a value.
    pub(super) fn region(&self, value: ValueId) -> usize {
        self.regions.index_of(value)
    }

    /// Returns the region of a value that is read as a whole.
    ///
    /// # Errors
    /// Returns `ReadWhileWritten` if the kernel also writes it.
    pub(super) fn operand(&self, value: ValueId) -> Result<usize, KernelRefusal> {
        let region = self.regions.index_of(value);
        if self.regions.is_written(region) { Err(KernelRefusal::ReadWhileWritten) } else { Ok(region) }
    }

    /// Returns the block of a value that fills it and does not change between dispatches: a constant, or a variable
    /// that this program does not write. Returns `None` for other values.
    pub(super) fn constant_block(&self, value: ValueId) -> Option<usize> {
        let place = self.program.values[value.index()].place;
        match place {
            ValueLocation::Variable(variable) if self.program.written_variables.contains(&variable) => None,
            ValueLocation::Variable(_) | ValueLocation::Constant(_) => Some(block_index(self.program, place).0),
            ValueLocation::Input(_) | ValueLocation::Output(_) | ValueLocation::Slab { .. } => None,
        }
    }

    /// Returns the data type of a value.
    pub(super) fn dtype(&self, value: ValueId) -> DType {
        self.program.values[value.index()].descriptor.dtype
    }

    /// Returns the dimensions of a value.
    pub(super) fn dims(&self, value: ValueId) -> &[usize] {
        self.program.values[value.index()].descriptor.shape.dims()
    }

    /// Returns the data type of a value that must be a float.
    ///
    /// # Errors
    /// Returns `Type` if it is not.
    pub(super) fn float_dtype(&self, value: ValueId) -> Result<DType, KernelRefusal> {
        let dtype = self.dtype(value);
        if dtype.is_float() { Ok(dtype) } else { Err(KernelRefusal::Type(dtype)) }
    }
}

/// A kernel ready to run.
#[derive(Debug)]
pub(super) struct PreparedKernel {
    /// The memory that it accesses.
    pub(super) regions: KernelRegions,
    kernel: CpuKernel,
}

#[derive(Debug)]
enum CpuKernel {
    Map(ElementwiseStage),
    Fold(CpuFold),
    ArgFold(CpuArgFold),
    MatMul(CpuMatMul),
    Conv2dNchw(CpuConv2dNchw),
    InputGradNchw(CpuInputGradNchw),
    FilterGradNchw(CpuFilterGradNchw),
    Conv2dNhwc(implicit_gemm::CpuConv2dNhwc),
    Winograd(winograd::WinogradConv2d),
    WinogradInputGrad(winograd::WinogradInputGrad),
    WinogradFilterGrad(winograd::WinogradFilterGrad),
    InputGradNhwc(implicit_gemm::CpuInputGradNhwc),
    FilterGradNhwc(implicit_gemm::CpuFilterGradNhwc),
    PoolNhwc(CpuPoolNhwc),
    PoolGradNhwc(CpuPoolGradNhwc),
    PoolNchw(CpuPoolNchw),
    MaxPoolGradNchw(CpuMaxPoolGradNchw),
    SumPoolGradNchw(CpuSumPoolGradNchw),
    Gather(CpuGather),
    Scatter(CpuScatter),
}

impl PreparedKernel {
    /// Prepares `kernel`.
    ///
    /// # Errors
    /// Returns a `KernelRefusal` if the kernel cannot run.
    pub(super) fn new(program: &Program, kernel: &Kernel) -> Result<PreparedKernel, KernelRefusal> {
        let (reads, writes) = (kernel.body.read_values(), kernel.body.written_values());
        let regions = KernelRegions::new(program, &reads, &writes)?;
        let planner = KernelPlanner { program, regions: &regions };
        let work = prepare_kernel(&planner, &kernel.body)?;
        Ok(PreparedKernel { regions, kernel: work })
    }

    /// Returns the bytes of workspace that the kernel needs.
    pub(super) fn workspace_bytes(&self) -> usize {
        match &self.kernel {
            CpuKernel::Fold(fold) => fold.workspace_bytes(),
            CpuKernel::MatMul(product) => product.workspace_bytes(),
            CpuKernel::Conv2dNchw(conv) => conv.workspace_bytes(),
            CpuKernel::FilterGradNchw(grad) => grad.workspace_bytes(),
            CpuKernel::Conv2dNhwc(conv) => conv.workspace_bytes(),
            CpuKernel::Winograd(conv) => conv.workspace_bytes(),
            CpuKernel::WinogradInputGrad(grad) => grad.workspace_bytes(),
            CpuKernel::WinogradFilterGrad(grad) => grad.workspace_bytes(),
            CpuKernel::InputGradNhwc(grad) => grad.workspace_bytes(),
            CpuKernel::FilterGradNhwc(grad) => grad.workspace_bytes(),
            CpuKernel::Map(_)
            | CpuKernel::ArgFold(_)
            | CpuKernel::InputGradNchw(_)
            | CpuKernel::PoolNchw(_)
            | CpuKernel::MaxPoolGradNchw(_)
            | CpuKernel::SumPoolGradNchw(_)
            | CpuKernel::PoolNhwc(_)
            | CpuKernel::PoolGradNhwc(_)
            | CpuKernel::Gather(_)
            | CpuKernel::Scatter(_) => 0,
        }
    }

    /// Returns the operand that must be prepacked, if any.
    pub(super) fn prepack_request(&self) -> Option<&PrepackRequest> {
        match &self.kernel {
            CpuKernel::MatMul(product) => product.prepack_request(),
            CpuKernel::Conv2dNhwc(conv) => conv.prepack_request(),
            CpuKernel::Winograd(conv) => conv.prepack_request(),
            CpuKernel::WinogradInputGrad(grad) => grad.prepack_request(),
            CpuKernel::Conv2dNchw(_)
            | CpuKernel::WinogradFilterGrad(_)
            | CpuKernel::InputGradNhwc(_)
            | CpuKernel::FilterGradNhwc(_)
            | CpuKernel::PoolNhwc(_)
            | CpuKernel::PoolGradNhwc(_)
            | CpuKernel::Fold(_)
            | CpuKernel::FilterGradNchw(_)
            | CpuKernel::Map(_)
            | CpuKernel::ArgFold(_)
            | CpuKernel::InputGradNchw(_)
            | CpuKernel::PoolNchw(_)
            | CpuKernel::MaxPoolGradNchw(_)
            | CpuKernel::SumPoolGradNchw(_)
            | CpuKernel::Gather(_)
            | CpuKernel::Scatter(_) => None,
        }
    }

    /// Runs the kernel. `kept` is the prepacked operand of [`PreparedKernel::prepack_request`].
    pub(super) fn run(
        &self,
        threads: &CpuThreads,
        pieces: Vec<RegionSlice<'_>>,
        workspace: &mut [u64],
        kept: Option<&[f32]>,
    ) {
        match &self.kernel {
            CpuKernel::Map(map) => map.run_all(threads, pieces, &[], 0),
            CpuKernel::Fold(fold) => fold.run(threads, pieces, workspace),
            CpuKernel::ArgFold(fold) => fold.run(threads, pieces),
            CpuKernel::MatMul(product) => product.run(threads, pieces, workspace, kept),
            CpuKernel::Conv2dNchw(conv) => conv.run(threads, pieces, workspace),
            CpuKernel::InputGradNchw(grad) => grad.run(threads, pieces),
            CpuKernel::FilterGradNchw(grad) => grad.run(threads, pieces, workspace),
            CpuKernel::Conv2dNhwc(conv) => conv.run(threads, pieces, workspace, kept),
            CpuKernel::Winograd(conv) => conv.run(threads, pieces, workspace, kept),
            CpuKernel::WinogradInputGrad(grad) => grad.run(threads, pieces, workspace, kept),
            CpuKernel::WinogradFilterGrad(grad) => grad.run(threads, pieces, workspace),
            CpuKernel::InputGradNhwc(grad) => grad.run(threads, pieces, workspace),
            CpuKernel::FilterGradNhwc(grad) => grad.run(threads, pieces, workspace),
            CpuKernel::PoolNhwc(pool) => pool.run(threads, pieces),
            CpuKernel::PoolGradNhwc(grad) => grad.run(threads, pieces),
            CpuKernel::PoolNchw(pool) => pool.run(threads, pieces),
            CpuKernel::MaxPoolGradNchw(grad) => grad.run(threads, pieces),
            CpuKernel::SumPoolGradNchw(grad) => grad.run(threads, pieces),
            CpuKernel::Gather(gather) => gather.run(threads, pieces),
            CpuKernel::Scatter(scatter) => scatter.run(threads, pieces),
        }
    }
}

/// Prepares a windowed kernel in NHWC layout.
fn prepare_nhwc(planner: &KernelPlanner<'_>, body: &KernelBody) -> Result<CpuKernel, KernelRefusal> {
    Ok(match body {
        KernelBody::Conv2d { conv, layout: _, input, filter, result, epilogue } => {
            match winograd::WinogradConv2d::new(planner, conv, [*input, *filter], result, epilogue)? {
                Some(conv) => CpuKernel::Winograd(conv),
                None => CpuKernel::Conv2dNhwc(implicit_gemm::CpuConv2dNhwc::new(
                    planner,
                    conv,
                    [*input, *filter],
                    result,
                    epilogue,
                )?),
            }
        }
        KernelBody::Conv2dInputGrad { conv, layout: _, gradient, filter, output } => {
            let values = [*gradient, *filter, *output];
            match winograd::WinogradInputGrad::new(planner, conv, values)? {
                Some(grad) => CpuKernel::WinogradInputGrad(grad),
                None => CpuKernel::InputGradNhwc(implicit_gemm::CpuInputGradNhwc::new(planner, conv, values)?),
            }
        }
        KernelBody::Conv2dFilterGrad { conv, layout: _, input, gradient, output } => {
            let values = [*input, *gradient, *output];
            match winograd::WinogradFilterGrad::new(planner, conv, values)? {
                Some(grad) => CpuKernel::WinogradFilterGrad(grad),
                None => CpuKernel::FilterGradNhwc(implicit_gemm::CpuFilterGradNhwc::new(planner, conv, values)?),
            }
        }
        KernelBody::Pool2d { kind, pool, layout: _, input, output } => {
            CpuKernel::PoolNhwc(CpuPoolNhwc::new(planner, *kind, pool, [*input, *output])?)
        }
        KernelBody::MaxPool2dGrad { pool, layout: _, input, gradient, output } => {
            CpuKernel::PoolGradNhwc(CpuPoolGradNhwc::new(planner, pool, Some(*input), [*gradient, *output])?)
        }
        KernelBody::SumPool2dGrad { pool, layout: _, gradient, output } => {
            CpuKernel::PoolGradNhwc(CpuPoolGradNhwc::new(planner, pool, None, [*gradient, *output])?)
        }
        KernelBody::Map { .. }
        | KernelBody::Fold { .. }
        | KernelBody::ArgFold { .. }
        | KernelBody::MatMul { .. }
        | KernelBody::Chain { .. }
        | KernelBody::Gather { .. }
        | KernelBody::Scatter { .. } => unreachable!("kernels without windows have no channel layout"),
    })
}

fn prepare_kernel(planner: &KernelPlanner<'_>, body: &KernelBody) -> Result<CpuKernel, KernelRefusal> {
    match body.layout() {
        ChannelLayout::ChannelsFirst => {}
        ChannelLayout::ChannelsLast => return prepare_nhwc(planner, body),
    }
    Ok(match body {
        KernelBody::Map { dims, expr, stores } => CpuKernel::Map(ElementwiseStage::map(planner, dims, expr, stores)?),
        KernelBody::Fold { kind, outer, inner, prologue, epilogue } => {
            CpuKernel::Fold(CpuFold::new(planner, *kind, [outer, inner], prologue, epilogue)?)
        }
        KernelBody::ArgFold { largest, dims, input, output } => {
            CpuKernel::ArgFold(CpuArgFold::new(planner, *largest, *dims, *input, *output)?)
        }
        KernelBody::MatMul { .. } => CpuKernel::MatMul(CpuMatMul::new(planner, body)?),
        KernelBody::Chain { .. } => return Err(KernelRefusal::FusedMatMul),
        KernelBody::Conv2d { conv, layout: _, input, filter, result, epilogue } => {
            CpuKernel::Conv2dNchw(CpuConv2dNchw::new(planner, conv, [*input, *filter], result, epilogue)?)
        }
        KernelBody::Conv2dInputGrad { conv, layout: _, gradient, filter, output } => {
            CpuKernel::InputGradNchw(CpuInputGradNchw::new(planner, conv, [*gradient, *filter, *output])?)
        }
        KernelBody::Conv2dFilterGrad { conv, layout: _, input, gradient, output } => {
            CpuKernel::FilterGradNchw(CpuFilterGradNchw::new(planner, conv, [*input, *gradient, *output])?)
        }
        KernelBody::Pool2d { kind, pool, layout: _, input, output } => {
            CpuKernel::PoolNchw(CpuPoolNchw::new(planner, *kind, *pool, [*input, *output])?)
        }
        KernelBody::MaxPool2dGrad { pool, layout: _, input, gradient, output } => {
            CpuKernel::MaxPoolGradNchw(CpuMaxPoolGradNchw::new(planner, *pool, [*input, *gradient, *output])?)
        }
        KernelBody::SumPool2dGrad { pool, layout: _, gradient, output } => {
            CpuKernel::SumPoolGradNchw(CpuSumPoolGradNchw::new(planner, *pool, [*gradient, *output])?)
        }
        KernelBody::Gather { dims, input, indices, output } => {
            CpuKernel::Gather(CpuGather::new(planner, *dims, [*input, *indices, *output])?)
        }
        KernelBody::Scatter { dims, combine, base, indices, updates, output } => {
            CpuKernel::Scatter(CpuScatter::new(planner, *dims, (*combine, *base), [*indices, *updates, *output])?)
        }
    })
}

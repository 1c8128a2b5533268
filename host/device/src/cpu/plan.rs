//! From a program's kernel to one that is ready to run on slices of memory.

mod described;

use saggar_compile::program::{Body, Kernel, Layout, Place, Program, ValueId};
use saggar_tensor::DType;

use super::contract::MatMul;
use super::convolution::{Conv2d, FilterGrad, InputGrad};
use super::implicit;
use super::index::{Gather, Scatter};
use super::kept::Kept;
use super::map::Finish;
use super::pool::{MaxGrad, Pool, SumGrad};
use super::pool_last::{PoolGradLast, PoolLast};
use super::reduce::{ArgFold, Fold};
use super::region::{Overlap, Piece, Regions, block_of};
use super::threads::Threads;
use super::winograd;

/// Why a kernel cannot be run: the compiler broke a promise that [`saggar_compile::program`] makes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Refusal {
    /// A written value shares part of its memory with another one.
    Overlap,
    /// A written value is also read, but not element by element.
    ReadWhileWritten,
    /// Too many dimensions, or a view of a written value that is not the identity.
    Layout,
    /// A chain: programs for hosts have none.
    Chain,
    /// A data type this kernel is not defined for.
    Type(DType),
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Refusal::Overlap => f.write_str("a written value shares part of its memory with another one"),
            Refusal::ReadWhileWritten => f.write_str("a written value is also read out of order"),
            Refusal::Layout => f.write_str("too many dimensions, or a written value is not read in order"),
            Refusal::Chain => f.write_str("this processor's kernels have no chains"),
            Refusal::Type(dtype) => write!(f, "not defined for {dtype}"),
        }
    }
}

impl From<Overlap> for Refusal {
    fn from(_: Overlap) -> Refusal {
        Refusal::Overlap
    }
}

/// What a kernel's preparation can ask about its values.
pub(super) struct Planner<'a> {
    program: &'a Program,
    regions: &'a Regions,
}

impl Planner<'_> {
    /// The region of a value.
    pub(super) fn region(&self, value: ValueId) -> usize {
        self.regions.of(value)
    }

    /// The region of a value that is read as a whole.
    ///
    /// # Errors
    /// `ReadWhileWritten` where the kernel writes it too.
    pub(super) fn operand(&self, value: ValueId) -> Result<usize, Refusal> {
        let region = self.regions.of(value);
        if self.regions.is_written(region) { Err(Refusal::ReadWhileWritten) } else { Ok(region) }
    }

    /// The block that a value is all of, where dispatches leave it as it is: a constant, or a variable that this program
    /// does not write.
    pub(super) fn kept(&self, value: ValueId) -> Option<usize> {
        let place = self.program.values[value.index()].place;
        match place {
            Place::Variable(variable) if self.program.written_variables.contains(&variable) => None,
            Place::Variable(_) | Place::Constant(_) => Some(block_of(self.program, place).0),
            Place::Input(_) | Place::Output(_) | Place::Slab { .. } => None,
        }
    }

    /// The type of a value.
    pub(super) fn dtype(&self, value: ValueId) -> DType {
        self.program.values[value.index()].descriptor.dtype
    }

    /// The dimensions of a value.
    pub(super) fn dims(&self, value: ValueId) -> &[usize] {
        self.program.values[value.index()].descriptor.shape.dims()
    }

    /// The type of a value that must be a float.
    ///
    /// # Errors
    /// `Type` where it is not.
    pub(super) fn float(&self, value: ValueId) -> Result<DType, Refusal> {
        let dtype = self.dtype(value);
        if dtype.is_float() { Ok(dtype) } else { Err(Refusal::Type(dtype)) }
    }
}

/// A kernel ready to run.
#[derive(Debug)]
pub(super) struct Prepared {
    /// The memory it touches.
    pub(super) regions: Regions,
    work: Work,
}

#[derive(Debug)]
enum Work {
    Map(Finish),
    Fold(Fold),
    ArgFold(ArgFold),
    MatMul(MatMul),
    Conv2d(Conv2d),
    InputGrad(InputGrad),
    FilterGrad(FilterGrad),
    Forward(implicit::Forward),
    Winograd(winograd::Forward),
    WinogradInputGrad(winograd::InputGrad),
    WinogradFilterGrad(winograd::FilterGrad),
    InputGradLast(implicit::InputGrad),
    FilterGradLast(implicit::FilterGrad),
    PoolLast(PoolLast),
    PoolGradLast(PoolGradLast),
    Pool(Pool),
    MaxGrad(MaxGrad),
    SumGrad(SumGrad),
    Gather(Gather),
    Scatter(Scatter),
}

impl Prepared {
    /// Prepares `kernel`.
    ///
    /// # Errors
    /// `Refusal` where it cannot be run as it is.
    pub(super) fn new(program: &Program, kernel: &Kernel) -> Result<Prepared, Refusal> {
        let (reads, writes) = (kernel.body.reads(), kernel.body.writes());
        let regions = Regions::new(program, &reads, &writes)?;
        let planner = Planner { program, regions: &regions };
        let work = prepare(&planner, &kernel.body)?;
        Ok(Prepared { regions, work })
    }

    /// Bytes of workspace it needs.
    pub(super) fn workspace_bytes(&self) -> usize {
        match &self.work {
            Work::Fold(fold) => fold.workspace_bytes(),
            Work::MatMul(product) => product.workspace_bytes(),
            Work::Conv2d(conv) => conv.workspace_bytes(),
            Work::FilterGrad(grad) => grad.workspace_bytes(),
            Work::Forward(conv) => conv.workspace_bytes(),
            Work::Winograd(conv) => conv.workspace_bytes(),
            Work::WinogradInputGrad(grad) => grad.workspace_bytes(),
            Work::WinogradFilterGrad(grad) => grad.workspace_bytes(),
            Work::InputGradLast(grad) => grad.workspace_bytes(),
            Work::FilterGradLast(grad) => grad.workspace_bytes(),
            Work::Map(_)
            | Work::ArgFold(_)
            | Work::InputGrad(_)
            | Work::Pool(_)
            | Work::MaxGrad(_)
            | Work::SumGrad(_)
            | Work::PoolLast(_)
            | Work::PoolGradLast(_)
            | Work::Gather(_)
            | Work::Scatter(_) => 0,
        }
    }

    /// What it needs in another form than that in memory.
    pub(super) fn kept(&self) -> Option<&Kept> {
        match &self.work {
            Work::MatMul(product) => product.kept(),
            Work::Forward(conv) => conv.kept(),
            Work::Winograd(conv) => conv.kept(),
            Work::WinogradInputGrad(grad) => grad.kept(),
            Work::Conv2d(_)
            | Work::WinogradFilterGrad(_)
            | Work::InputGradLast(_)
            | Work::FilterGradLast(_)
            | Work::PoolLast(_)
            | Work::PoolGradLast(_)
            | Work::Fold(_)
            | Work::FilterGrad(_)
            | Work::Map(_)
            | Work::ArgFold(_)
            | Work::InputGrad(_)
            | Work::Pool(_)
            | Work::MaxGrad(_)
            | Work::SumGrad(_)
            | Work::Gather(_)
            | Work::Scatter(_) => None,
        }
    }

    /// Runs it; `kept` is what it asked for.
    pub(super) fn run(&self, threads: &Threads, pieces: Vec<Piece<'_>>, workspace: &mut [u64], kept: Option<&[f32]>) {
        match &self.work {
            Work::Map(map) => map.run_all(threads, pieces, &[], 0),
            Work::Fold(fold) => fold.run(threads, pieces, workspace),
            Work::ArgFold(fold) => fold.run(threads, pieces),
            Work::MatMul(product) => product.run(threads, pieces, workspace, kept),
            Work::Conv2d(conv) => conv.run(threads, pieces, workspace),
            Work::InputGrad(grad) => grad.run(threads, pieces),
            Work::FilterGrad(grad) => grad.run(threads, pieces, workspace),
            Work::Forward(conv) => conv.run(threads, pieces, workspace, kept),
            Work::Winograd(conv) => conv.run(threads, pieces, workspace, kept),
            Work::WinogradInputGrad(grad) => grad.run(threads, pieces, workspace, kept),
            Work::WinogradFilterGrad(grad) => grad.run(threads, pieces, workspace),
            Work::InputGradLast(grad) => grad.run(threads, pieces, workspace),
            Work::FilterGradLast(grad) => grad.run(threads, pieces, workspace),
            Work::PoolLast(pool) => pool.run(threads, pieces),
            Work::PoolGradLast(grad) => grad.run(threads, pieces),
            Work::Pool(pool) => pool.run(threads, pieces),
            Work::MaxGrad(grad) => grad.run(threads, pieces),
            Work::SumGrad(grad) => grad.run(threads, pieces),
            Work::Gather(gather) => gather.run(threads, pieces),
            Work::Scatter(scatter) => scatter.run(threads, pieces),
        }
    }
}

/// Windowed kernels with channels last.
fn prepare_last(planner: &Planner<'_>, body: &Body) -> Result<Work, Refusal> {
    Ok(match body {
        Body::Conv2d { conv, layout: _, input, filter, result, epilogue } => {
            match winograd::Forward::new(planner, conv, [*input, *filter], result, epilogue)? {
                Some(conv) => Work::Winograd(conv),
                None => Work::Forward(implicit::Forward::new(planner, conv, [*input, *filter], result, epilogue)?),
            }
        }
        Body::Conv2dInputGrad { conv, layout: _, gradient, filter, output } => {
            let values = [*gradient, *filter, *output];
            match winograd::InputGrad::new(planner, conv, values)? {
                Some(grad) => Work::WinogradInputGrad(grad),
                None => Work::InputGradLast(implicit::InputGrad::new(planner, conv, values)?),
            }
        }
        Body::Conv2dFilterGrad { conv, layout: _, input, gradient, output } => {
            let values = [*input, *gradient, *output];
            match winograd::FilterGrad::new(planner, conv, values)? {
                Some(grad) => Work::WinogradFilterGrad(grad),
                None => Work::FilterGradLast(implicit::FilterGrad::new(planner, conv, values)?),
            }
        }
        Body::Pool2d { kind, pool, layout: _, input, output } => {
            Work::PoolLast(PoolLast::new(planner, *kind, pool, [*input, *output])?)
        }
        Body::MaxPool2dGrad { pool, layout: _, input, gradient, output } => {
            Work::PoolGradLast(PoolGradLast::new(planner, pool, Some(*input), [*gradient, *output])?)
        }
        Body::SumPool2dGrad { pool, layout: _, gradient, output } => {
            Work::PoolGradLast(PoolGradLast::new(planner, pool, None, [*gradient, *output])?)
        }
        Body::Map { .. }
        | Body::Fold { .. }
        | Body::ArgFold { .. }
        | Body::MatMul { .. }
        | Body::Chain { .. }
        | Body::Gather { .. }
        | Body::Scatter { .. } => unreachable!("a kernel without windows has no layout"),
    })
}

fn prepare(planner: &Planner<'_>, body: &Body) -> Result<Work, Refusal> {
    match body.layout() {
        Layout::ChannelsFirst => {}
        Layout::ChannelsLast => return prepare_last(planner, body),
    }
    Ok(match body {
        Body::Map { dims, expr, stores } => Work::Map(Finish::map(planner, dims, expr, stores)?),
        Body::Fold { kind, outer, inner, prologue, epilogue } => {
            Work::Fold(Fold::new(planner, *kind, [outer, inner], prologue, epilogue)?)
        }
        Body::ArgFold { largest, dims, input, output } => {
            Work::ArgFold(ArgFold::new(planner, *largest, *dims, *input, *output)?)
        }
        Body::MatMul { .. } => Work::MatMul(MatMul::new(planner, body)?),
        Body::Chain { .. } => return Err(Refusal::Chain),
        Body::Conv2d { conv, layout: _, input, filter, result, epilogue } => {
            Work::Conv2d(Conv2d::new(planner, conv, [*input, *filter], result, epilogue)?)
        }
        Body::Conv2dInputGrad { conv, layout: _, gradient, filter, output } => {
            Work::InputGrad(InputGrad::new(planner, conv, [*gradient, *filter, *output])?)
        }
        Body::Conv2dFilterGrad { conv, layout: _, input, gradient, output } => {
            Work::FilterGrad(FilterGrad::new(planner, conv, [*input, *gradient, *output])?)
        }
        Body::Pool2d { kind, pool, layout: _, input, output } => {
            Work::Pool(Pool::new(planner, *kind, *pool, [*input, *output])?)
        }
        Body::MaxPool2dGrad { pool, layout: _, input, gradient, output } => {
            Work::MaxGrad(MaxGrad::new(planner, *pool, [*input, *gradient, *output])?)
        }
        Body::SumPool2dGrad { pool, layout: _, gradient, output } => {
            Work::SumGrad(SumGrad::new(planner, *pool, [*gradient, *output])?)
        }
        Body::Gather { dims, input, indices, output } => {
            Work::Gather(Gather::new(planner, *dims, [*input, *indices, *output])?)
        }
        Body::Scatter { dims, combine, base, indices, updates, output } => {
            Work::Scatter(Scatter::new(planner, *dims, (*combine, *base), [*indices, *updates, *output])?)
        }
    })
}

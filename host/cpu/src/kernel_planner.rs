//! Kernel planner: chooses the kernel that computes each kernel body of a program, and prepares it. This is the only
//! module that knows all kernels.

use saggar_compile::program::{ChannelLayout, Epilogue, Kernel, KernelBody, Program, ValueId};
use saggar_tensor::op::Conv2d;

use super::alias_check::KernelRegions;
use super::kernel_context::{KernelContext, KernelRefusal};
use super::kernels::arg_reduce::CpuArgFold;
use super::kernels::contract::CpuMatMul;
use super::kernels::convolution::{CpuConv2dNchw, CpuFilterGradNchw, CpuInputGradNchw};
use super::kernels::implicit_gemm::{CpuConv2dNhwc, CpuFilterGradNhwc, CpuInputGradNhwc};
use super::kernels::index::{CpuGather, CpuScatter};
use super::kernels::map::CpuMap;
use super::kernels::pool::{CpuMaxPoolGradNchw, CpuPoolNchw, CpuSumPoolGradNchw};
use super::kernels::pool_nhwc::{CpuPoolGradNhwc, CpuPoolNhwc};
use super::kernels::reduce::CpuFold;
use super::kernels::winograd::{WinogradConv2d, WinogradFilterGrad, WinogradInputGrad};
use super::prepared_kernel::PreparedKernel;

/// A prepared kernel and the memory that it accesses.
#[derive(Debug)]
pub(super) struct PlannedKernel {
    /// The regions that it reads and writes.
    pub(super) regions: KernelRegions,
    /// The kernel.
    pub(super) kernel: Box<dyn PreparedKernel>,
}

impl PlannedKernel {
    /// Chooses and prepares the kernel for `kernel`, one of `program.kernels`.
    ///
    /// # Errors
    /// Returns a `KernelRefusal` if the kernel cannot run.
    pub(super) fn new(program: &Program, kernel: &Kernel) -> Result<PlannedKernel, KernelRefusal> {
        let (reads, writes) = (kernel.body.read_values(), kernel.body.written_values());
        let regions = KernelRegions::new(program, &reads, &writes)?;
        let kernel = prepare_kernel(&KernelContext::new(program, &regions), &kernel.body)?;
        Ok(PlannedKernel { regions, kernel })
    }

    /// Describes the routine, its packed operand and its workspace for people, such as `Winograd convolution, channels
    /// last; weights are packed once`.
    pub(super) fn describe(&self) -> String {
        let packed = if self.kernel.prepack_request().is_some() { "; weights are packed once" } else { "" };
        let bytes = self.kernel.workspace_bytes();
        let workspace = if bytes == 0 { String::new() } else { format!("; {bytes} bytes of workspace") };
        format!("{}{packed}{workspace}", self.kernel.routine())
    }
}

/// The chosen kernel, or the reason why it cannot run.
type KernelChoice = Result<Box<dyn PreparedKernel>, KernelRefusal>;

fn box_kernel(kernel: impl PreparedKernel + 'static) -> Box<dyn PreparedKernel> {
    Box::new(kernel)
}

/// Prepares the kernel for a body.
fn prepare_kernel(context: &KernelContext<'_>, body: &KernelBody) -> KernelChoice {
    use ChannelLayout::{ChannelsFirst, ChannelsLast};
    Ok(match body {
        KernelBody::Map { dims, expr, stores } => box_kernel(CpuMap::new(context, dims, expr, stores)?),
        KernelBody::Fold { kind, outer, inner, prologue, epilogue } => {
            box_kernel(CpuFold::new(context, *kind, [outer, inner], prologue, epilogue)?)
        }
        KernelBody::ArgFold { largest, dims, input, output } => {
            box_kernel(CpuArgFold::new(context, *largest, *dims, *input, *output)?)
        }
        KernelBody::MatMul { .. } => box_kernel(CpuMatMul::new(context, body)?),
        KernelBody::Chain { .. } => return Err(KernelRefusal::FusedMatMul),
        KernelBody::Conv2d { conv, layout, input, filter, result, epilogue } => match layout {
            ChannelsFirst => box_kernel(CpuConv2dNchw::new(context, conv, [*input, *filter], result, epilogue)?),
            ChannelsLast => return prepare_conv2d_nhwc(context, conv, [*input, *filter], result, epilogue),
        },
        KernelBody::Conv2dInputGrad { conv, layout, gradient, filter, output } => match layout {
            ChannelsFirst => box_kernel(CpuInputGradNchw::new(context, conv, [*gradient, *filter, *output])?),
            ChannelsLast => return prepare_input_grad_nhwc(context, conv, [*gradient, *filter, *output]),
        },
        KernelBody::Conv2dFilterGrad { conv, layout, input, gradient, output } => match layout {
            ChannelsFirst => box_kernel(CpuFilterGradNchw::new(context, conv, [*input, *gradient, *output])?),
            ChannelsLast => return prepare_filter_grad_nhwc(context, conv, [*input, *gradient, *output]),
        },
        KernelBody::Pool2d { kind, pool, layout, input, output } => match layout {
            ChannelsFirst => box_kernel(CpuPoolNchw::new(context, *kind, *pool, [*input, *output])?),
            ChannelsLast => box_kernel(CpuPoolNhwc::new(context, *kind, pool, [*input, *output])?),
        },
        KernelBody::MaxPool2dGrad { pool, layout, input, gradient, output } => match layout {
            ChannelsFirst => box_kernel(CpuMaxPoolGradNchw::new(context, *pool, [*input, *gradient, *output])?),
            ChannelsLast => box_kernel(CpuPoolGradNhwc::new(context, pool, Some(*input), [*gradient, *output])?),
        },
        KernelBody::SumPool2dGrad { pool, layout, gradient, output } => match layout {
            ChannelsFirst => box_kernel(CpuSumPoolGradNchw::new(context, *pool, [*gradient, *output])?),
            ChannelsLast => box_kernel(CpuPoolGradNhwc::new(context, pool, None, [*gradient, *output])?),
        },
        KernelBody::Gather { dims, input, indices, output } => {
            box_kernel(CpuGather::new(context, *dims, [*input, *indices, *output])?)
        }
        KernelBody::Scatter { dims, combine, base, indices, updates, output } => {
            box_kernel(CpuScatter::new(context, *dims, (*combine, *base), [*indices, *updates, *output])?)
        }
    })
}

/// Prepares a convolution of `[input, filter]` in NHWC layout: by Winograd tiles if they are faster.
fn prepare_conv2d_nhwc(
    context: &KernelContext<'_>,
    conv: &Conv2d,
    values: [ValueId; 2],
    result: &[usize; 4],
    epilogue: &Epilogue,
) -> KernelChoice {
    Ok(match WinogradConv2d::new(context, conv, values, result, epilogue)? {
        Some(kernel) => box_kernel(kernel),
        None => box_kernel(CpuConv2dNhwc::new(context, conv, values, result, epilogue)?),
    })
}

/// Prepares the input gradient of `[gradient, filter, output]` in NHWC layout: by Winograd tiles if they are faster.
fn prepare_input_grad_nhwc(context: &KernelContext<'_>, conv: &Conv2d, values: [ValueId; 3]) -> KernelChoice {
    Ok(match WinogradInputGrad::new(context, conv, values)? {
        Some(kernel) => box_kernel(kernel),
        None => box_kernel(CpuInputGradNhwc::new(context, conv, values)?),
    })
}

/// Prepares the filter gradient of `[input, gradient, output]` in NHWC layout: by Winograd tiles if they are faster.
fn prepare_filter_grad_nhwc(context: &KernelContext<'_>, conv: &Conv2d, values: [ValueId; 3]) -> KernelChoice {
    Ok(match WinogradFilterGrad::new(context, conv, values)? {
        Some(kernel) => box_kernel(kernel),
        None => box_kernel(CpuFilterGradNhwc::new(context, conv, values)?),
    })
}

#[cfg(test)]
mod tests {
    use saggar_compile::{compile, target::CompileTarget};
    use saggar_tensor::nn::{self, Conv2dOptions};
    use saggar_tensor::{DType, Descriptor, GraphBuilder, GraphError, NodeId, Shape, verify};

    use super::*;

    /// Returns whether a convolution of `images` images with a bias and this end is fused with its epilogue.
    fn fuses_epilogue(images: usize, end: impl Fn(&mut GraphBuilder, NodeId) -> Result<NodeId, GraphError>) -> bool {
        let mut g = GraphBuilder::new();
        let mut input = |name: &str, dims: &[usize]| {
            g.input(name, Descriptor::new(DType::F32, Shape::new(dims).expect("small"))).expect("names differ")
        };
        let (x, filter, bias) = (input("x", &[images, 2, 8, 8]), input("f", &[4, 2, 3, 3]), input("b", &[4]));
        let y = nn::conv2d(&mut g, x, filter, Some(bias), Conv2dOptions::default()).expect("shapes agree");
        let y = end(&mut g, y).expect("one operand");
        g.output("y", y).expect("one output");
        let program = compile(&verify(g.finish()).expect("valid"), &CompileTarget::cpu()).expect("all types are there");
        let prepared = |kernel| PlannedKernel::new(&program, kernel).expect("it runs");
        let kernels: Vec<String> = program.kernels.iter().map(|kernel| format!("{:?}", prepared(kernel))).collect();
        kernels.iter().any(|kernel| kernel.contains("epilogue: Some(BiasClampEpilogue { bias: Some("))
    }

    #[test]
    fn bias_and_relu_epilogues_are_fused() {
        for images in [1, 3] {
            assert!(fuses_epilogue(images, |_, y| Ok(y)));
            assert!(fuses_epilogue(images, nn::relu));
            assert!(fuses_epilogue(images, |g, y| {
                let least = g.scalar(DType::F32, saggar_tensor::op::Scalar::Float(0.5))?;
                g.max(y, least)
            }));
            assert!(!fuses_epilogue(images, |g, y| g.tanh(y)));
            assert!(!fuses_epilogue(images, |g, y| {
                let doubled = g.add(y, y)?;
                nn::relu(g, doubled)
            }));
        }
    }
}

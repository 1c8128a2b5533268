//! Kernel costs: the least floating-point operations and bytes of a kernel, for profiles and estimates.
//!
//! A multiply-add counts as two operations, any other scalar instruction as one, a load as none. Every value that a
//! kernel touches counts once, however often it is read. So the numbers describe the computation, not the device's
//! implementation.

use saggar_tensor::op::Pool2d;

use crate::program::expr::{Instruction, ScalarExpr};
use crate::program::{ChannelLayout, Epilogue, FusedConsumer, Kernel, KernelBody, Program, ValueId};

/// Operations per element of a softmax: maximum, difference, exponential and sum.
const SOFTMAX_OPERATIONS: u64 = 4;

/// The least work of a kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelCost {
    /// Operations on elements.
    pub operations: u64,
    /// Bytes read and written.
    pub bytes: u64,
}

/// Returns the least work of one of `program`'s kernels.
pub fn kernel_cost(program: &Program, kernel: &Kernel) -> KernelCost {
    let body = &kernel.body;
    let reads = body.read_values();
    let updated = |value: &ValueId| !reads.contains(value);
    let touched = reads.iter().copied().chain(body.written_values().into_iter().filter(updated));
    let bytes = touched.map(|value| program.values[value.index()].descriptor.bytes() as u64).sum();
    KernelCost { operations: operations(program, body), bytes }
}

fn operations(program: &Program, body: &KernelBody) -> u64 {
    let elements = |value: &ValueId| program.values[value.index()].descriptor.shape.elements() as u64;
    let dims = |value: &ValueId| program.values[value.index()].descriptor.shape.to_vec();
    let size = |dims: &[usize]| dims.iter().map(|&dim| dim as u64).product::<u64>();
    let ended = |results: u64, sums: u64, epilogue: &Epilogue| results * (sums + instructions(&epilogue.expr));
    let taps = |pool: &Pool2d| (pool.window[0] * pool.window[1]) as u64;
    // Products of each element of a gradient, or of a result, with its filter.
    let filtered = |filter: &ValueId| {
        let filter = dims(filter);
        2 * (filter[1] * filter[2] * filter[3]) as u64
    };
    match body {
        KernelBody::Map { dims, expr, .. } => size(dims) * instructions(expr),
        KernelBody::Fold { outer, inner, prologue, epilogue, .. } => {
            size(outer) * (size(inner) * (1 + instructions(prologue)) + instructions(&epilogue.expr))
        }
        KernelBody::ArgFold { input, .. } => elements(input),
        KernelBody::MatMul { sizes, epilogue, .. } => {
            let [batch, m, n, k] = sizes.map(|size| size as u64);
            ended(batch * m * n, 2 * k, epilogue)
        }
        KernelBody::Chain { dims, products, link, softmax, end, results, epilogue } => {
            let made: u64 = products.iter().map(|product| 2 * product.depth as u64).sum();
            let weighted = if softmax.is_some() { SOFTMAX_OPERATIONS } else { 0 };
            let used = match end {
                FusedConsumer::Fold(_) => 1,
                FusedConsumer::Product { columns, .. } => 2 * *columns as u64,
            };
            size(dims) * (made + instructions(link) + weighted + used) + size(results) * instructions(&epilogue.expr)
        }
        KernelBody::Conv2d { filter, result, epilogue, .. } => ended(size(result), filtered(filter), epilogue),
        KernelBody::Conv2dInputGrad { gradient, filter, .. } => elements(gradient) * filtered(filter),
        KernelBody::Conv2dFilterGrad { layout, gradient, output, .. } => {
            let gradient = dims(gradient);
            let channels = match layout {
                ChannelLayout::ChannelsFirst => gradient[1],
                ChannelLayout::ChannelsLast => gradient[3],
            };
            2 * size(&gradient) / (channels as u64).max(1) * elements(output)
        }
        KernelBody::Pool2d { pool, output, .. } => elements(output) * taps(pool),
        KernelBody::MaxPool2dGrad { pool, gradient, .. } | KernelBody::SumPool2dGrad { pool, gradient, .. } => {
            elements(gradient) * taps(pool)
        }
        KernelBody::Gather { .. } => 0,
        KernelBody::Scatter { updates, .. } => elements(updates),
    }
}

/// Returns the number of instructions that compute, each counted as one operation per element.
fn instructions(expr: &ScalarExpr) -> u64 {
    let computes = |instruction: &Instruction| match instruction {
        Instruction::Load { .. }
        | Instruction::Immediate(_)
        | Instruction::Index(_)
        | Instruction::Accumulated
        | Instruction::Product(_) => 0,
        Instruction::Random { .. } | Instruction::Unary(..) | Instruction::Binary(..) | Instruction::Select(..) => 1,
    };
    expr.instructions.iter().map(|(instruction, _)| computes(instruction)).sum()
}

#[cfg(test)]
mod tests {
    use saggar_tensor::{DType, Descriptor, GraphBuilder, Shape, nn, verify};

    use super::*;
    use crate::{CompileTarget, compile};

    #[test]
    fn a_linear_layer_costs_its_matmul_and_its_bias() {
        let mut g = GraphBuilder::new();
        let float = |dims: &[usize]| Descriptor::new(DType::F32, Shape::new(dims).unwrap());
        let x = g.input("x", float(&[3, 5])).unwrap();
        let (w, b) = (g.variable("w", float(&[5, 7])).unwrap(), g.variable("b", float(&[7])).unwrap());
        let y = nn::linear(&mut g, x, w, Some(b)).unwrap();
        g.output("y", y).unwrap();
        let program = compile(&verify(g.finish()).unwrap(), &CompileTarget::cpu()).unwrap();
        let bytes = 4 * (3 * 5 + 5 * 7 + 7 + 3 * 7);
        assert_eq!(kernel_cost(&program, &program.kernels[0]), KernelCost { operations: 3 * 7 * (2 * 5 + 1), bytes });
    }

    #[test]
    fn a_convolution_and_its_adjoints_cost_the_same() {
        let mut g = GraphBuilder::new();
        let float = |dims: &[usize]| Descriptor::new(DType::F32, Shape::new(dims).unwrap());
        let (x, f) = (g.input("x", float(&[2, 8, 6, 6])).unwrap(), g.input("f", float(&[16, 8, 3, 3])).unwrap());
        let y = nn::conv2d(&mut g, x, f, None, nn::Conv2dOptions::default()).unwrap();
        let squares = g.mul(y, y).unwrap();
        let sum = g.reduce_sum(squares, &[0, 1, 2, 3], false).unwrap();
        for (at, gradient) in saggar_tensor::grad::gradients(&mut g, sum, &[x, f]).unwrap().into_iter().enumerate() {
            g.output(&format!("d{at}"), gradient).unwrap();
        }
        let program = compile(&verify(g.finish()).unwrap(), &CompileTarget::cpu()).unwrap();
        let products = 2 * 16 * 4 * 4 * 8 * 9 * 2;
        let windowed = |kernel: &&Kernel| kernel.body.layout() == ChannelLayout::ChannelsLast;
        let costs: Vec<u64> =
            program.kernels.iter().filter(windowed).map(|kernel| kernel_cost(&program, kernel).operations).collect();
        // The forward kernel also squares its results.
        assert_eq!(costs, [products + 2 * 16 * 4 * 4, products, products]);
    }
}

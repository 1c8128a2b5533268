//! The common epilogue of convolutions and matrix products: add a bias per channel and clamp from below. It is fused
//! into the writing of results. Any other epilogue runs over the results afterwards.

use saggar_compile::program::expr::{AffineView, Instruction, Register, ScalarExpr};
use saggar_compile::program::{Epilogue, ValueId};
use saggar_tensor::DType;
use saggar_tensor::op::BinaryOp;

use super::alias_check::RegionSlice;
use super::element::{BinaryOperator, Element as _, Max};
use super::elementwise_loops::elements;
use super::kernel_context::KernelContext;

/// A bias and a lower bound for each element of `[n, channels, height, width]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct BiasClampEpilogue {
    /// Region of the bias, `float32[channels]`.
    bias: Option<usize>,
    /// Lower bound, or negative infinity without a clamp.
    least: f32,
}

/// An epilogue bound to its operand.
#[derive(Clone, Copy, Debug)]
pub(super) struct BoundBiasClamp<'a> {
    /// Bias of each channel of a group.
    pub(super) bias: Option<&'a [f32]>,
    /// Lower bound, or negative infinity without a clamp.
    pub(super) least: f32,
}

/// The epilogue of one channel.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChannelBiasClamp {
    bias: f32,
    least: f32,
}

impl BiasClampEpilogue {
    /// Recognizes an epilogue over `dims` with channels along `axis`. Returns `None` if it is of another form.
    pub(super) fn recognize(
        context: &KernelContext<'_>,
        dims: &[usize],
        axis: usize,
        epilogue: &Epilogue,
    ) -> Option<BiasClampEpilogue> {
        let expr = &epilogue.expr;
        let [store] = &epilogue.stores[..] else { return None };
        if context.dtype(store.value) != DType::F32 {
            return None;
        }
        let (sum, least) = match_relu(expr, store.register).unwrap_or((store.register, f32::NEG_INFINITY));
        let bias = match as_binary(expr, sum) {
            Some((BinaryOp::Add, a, b)) if is_accumulated_f32(expr, a) => {
                Some(match_channel_bias(expr, b, dims, axis)?)
            }
            Some((BinaryOp::Add, a, b)) if is_accumulated_f32(expr, b) => {
                Some(match_channel_bias(expr, a, dims, axis)?)
            }
            Some(_) | None if is_accumulated_f32(expr, sum) => None,
            Some(_) | None => return None,
        };
        // If this kernel also writes the operand, the evaluator must run the epilogue.
        let bias = bias.map(|value| context.operand(value)).transpose().ok()?;
        Some(BiasClampEpilogue { bias, least })
    }

    /// Binds the bias of all channels to its memory in `pieces`.
    pub(super) fn bind<'a>(&self, pieces: &[RegionSlice<'a>]) -> BoundBiasClamp<'a> {
        BoundBiasClamp { bias: self.bias.map(|region| elements(pieces[region].read())), least: self.least }
    }
}

impl<'a> BoundBiasClamp<'a> {
    /// The epilogue that leaves elements unchanged.
    pub(super) const NONE: BoundBiasClamp<'static> = BoundBiasClamp { bias: None, least: f32::NEG_INFINITY };

    /// Returns the epilogue for channels from `first` on.
    pub(super) fn skip_channels(self, first: usize) -> BoundBiasClamp<'a> {
        BoundBiasClamp { bias: self.bias.map(|bias| &bias[first..]), ..self }
    }

    /// Returns the epilogue of one channel of the group.
    #[inline(always)]
    pub(super) fn channel(&self, channel: usize) -> ChannelBiasClamp {
        // Adding negative zero changes no value.
        ChannelBiasClamp { bias: self.bias.map_or(-0.0, |bias| bias[channel]), least: self.least }
    }
}

impl ChannelBiasClamp {
    /// Applies the epilogue to one element. Gives the same bits as the evaluator.
    #[inline(always)]
    pub(super) fn apply(self, x: f32) -> f32 {
        <Max as BinaryOperator<f32, f32>>::apply(x + self.bias, self.least)
    }
}

/// Matches the maximum of a register and a constant, with NaN propagated. It can be written as a maximum, or as a
/// selection if the register is not at most the constant (`tensor::nn::relu`); both give the same bits. Returns the
/// register and the constant, or `None`.
fn match_relu(expr: &ScalarExpr, register: Register) -> Option<(Register, f32)> {
    match expr.instructions[register.0 as usize].0 {
        Instruction::Binary(BinaryOp::Max, x, least) => Some((x, as_immediate(expr, least)?)),
        Instruction::Select(condition, least, x) => {
            let (BinaryOp::LessOrEqual, compared, limit) = as_binary(expr, condition)? else { return None };
            let (least, limit) = (as_immediate(expr, least)?, as_immediate(expr, limit)?);
            (compared == x && least.to_bits() == limit.to_bits()).then_some((x, least))
        }
        Instruction::Binary(..)
        | Instruction::Load { .. }
        | Instruction::Immediate(_)
        | Instruction::Index(_)
        | Instruction::Random { .. }
        | Instruction::Accumulated
        | Instruction::Product(_)
        | Instruction::Unary(..) => None,
    }
}

fn as_binary(expr: &ScalarExpr, register: Register) -> Option<(BinaryOp, Register, Register)> {
    let Instruction::Binary(op, a, b) = expr.instructions[register.0 as usize].0 else { return None };
    Some((op, a, b))
}

fn as_immediate(expr: &ScalarExpr, register: Register) -> Option<f32> {
    let Instruction::Immediate(scalar) = expr.instructions[register.0 as usize].0 else { return None };
    Some(f32::from_scalar(scalar))
}

/// Returns whether the register is the accumulated element, in the type that this kernel writes.
fn is_accumulated_f32(expr: &ScalarExpr, register: Register) -> bool {
    expr.is_accumulated(register) && expr.instructions[register.0 as usize].1 == DType::F32
}

/// Returns the value that the register loads per channel, or `None`.
fn match_channel_bias(expr: &ScalarExpr, register: Register, dims: &[usize], axis: usize) -> Option<ValueId> {
    let Instruction::Load { value, view, .. } = &expr.instructions[register.0 as usize].0 else { return None };
    varies_by_channel_alone(view, dims, axis).then_some(*value)
}

fn varies_by_channel_alone(view: &AffineView, dims: &[usize], axis: usize) -> bool {
    // The view can have extra leading dimensions of size 1.
    let skipped = view.strides.len() - dims.len();
    let mut steps = view.strides[skipped..].iter().zip(dims).enumerate();
    view.offset == 0
        && view.bounds.is_empty()
        && steps.all(|(at, (&stride, &size))| size == 1 || stride == i64::from(at == axis))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_empty_epilogue_preserves_every_bit() {
        let end = BoundBiasClamp::NONE.channel(0);
        for x in [0.0f32, -0.0, 1.5, -1.5, f32::INFINITY, f32::NEG_INFINITY, f32::MIN_POSITIVE / 2.0, f32::NAN] {
            assert_eq!(end.apply(x).to_bits(), x.to_bits(), "{x}");
        }
    }

    #[test]
    fn the_epilogue_clamp_matches_the_max_operator() {
        let end = ChannelBiasClamp { bias: 1.0, least: 0.0 };
        assert_eq!([-3.0, -1.0, 1.0].map(|x| end.apply(x).to_bits()), [0.0f32, 0.0, 2.0].map(f32::to_bits));
        assert!(end.apply(f32::NAN).is_nan());
    }
}

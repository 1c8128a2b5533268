//! A number for every primitive, so that a test can check which of them have cases.

use saggar_tensor::op::{
    BinaryOp, ContractOp, ConvolutionOp, IndexOp, MovementOp, Op, PoolKind, ReduceKind, ReduceOp, ScatterCombine,
    SourceOp, UnaryOp,
};

/// Number of primitives.
pub const OPS_COUNT: usize = INDEX + 7;

const UNARY: usize = 6;
const BINARY: usize = UNARY + 17;
const SELECT: usize = BINARY + 13;
const REDUCE: usize = SELECT + 1;
const MOVEMENT: usize = REDUCE + 6;
const CONTRACT: usize = MOVEMENT + 7;
const CONVOLUTION: usize = CONTRACT + 1;
const INDEX: usize = CONVOLUTION + 7;

/// Returns the primitive's number, below [`OPS_COUNT`]; attributes do not count. A new primitive gets a number here and
/// a case in the file of its family.
pub fn op_ordinal(op: &Op) -> usize {
    match op {
        Op::Source(SourceOp::Input(_)) => 0,
        Op::Source(SourceOp::Constant(_)) => 1,
        Op::Source(SourceOp::Fill(_)) => 2,
        Op::Source(SourceOp::Iota { .. }) => 3,
        Op::Source(SourceOp::Variable(_)) => 4,
        Op::Source(SourceOp::Random { .. }) => 5,
        Op::Unary(op) => UNARY + unary(*op),
        Op::Binary(op) => BINARY + binary(*op),
        Op::Select => SELECT,
        Op::Reduce(ReduceOp::Fold { kind: ReduceKind::Sum, .. }) => REDUCE,
        Op::Reduce(ReduceOp::Fold { kind: ReduceKind::Product, .. }) => REDUCE + 1,
        Op::Reduce(ReduceOp::Fold { kind: ReduceKind::Max, .. }) => REDUCE + 2,
        Op::Reduce(ReduceOp::Fold { kind: ReduceKind::Min, .. }) => REDUCE + 3,
        Op::Reduce(ReduceOp::ArgMax { .. }) => REDUCE + 4,
        Op::Reduce(ReduceOp::ArgMin { .. }) => REDUCE + 5,
        Op::Movement(MovementOp::Reshape(_)) => MOVEMENT,
        Op::Movement(MovementOp::Broadcast(_)) => MOVEMENT + 1,
        Op::Movement(MovementOp::Transpose(_)) => MOVEMENT + 2,
        Op::Movement(MovementOp::Slice { .. }) => MOVEMENT + 3,
        Op::Movement(MovementOp::Reverse(_)) => MOVEMENT + 4,
        Op::Movement(MovementOp::Pad { .. }) => MOVEMENT + 5,
        Op::Movement(MovementOp::Concat { .. }) => MOVEMENT + 6,
        Op::Contract(ContractOp::MatMul { .. }) => CONTRACT,
        Op::Convolution(ConvolutionOp::Conv2d(_)) => CONVOLUTION,
        Op::Convolution(ConvolutionOp::Conv2dInputGrad { .. }) => CONVOLUTION + 1,
        Op::Convolution(ConvolutionOp::Conv2dFilterGrad { .. }) => CONVOLUTION + 2,
        Op::Convolution(ConvolutionOp::Pool2d { kind: PoolKind::Max, .. }) => CONVOLUTION + 3,
        Op::Convolution(ConvolutionOp::Pool2d { kind: PoolKind::Sum, .. }) => CONVOLUTION + 4,
        Op::Convolution(ConvolutionOp::MaxPool2dGrad(_)) => CONVOLUTION + 5,
        Op::Convolution(ConvolutionOp::SumPool2dGrad { .. }) => CONVOLUTION + 6,
        Op::Index(IndexOp::Gather { .. }) => INDEX,
        Op::Index(IndexOp::ScatterAdd { .. }) => INDEX + 1,
        Op::Index(IndexOp::Scatter { combine, .. }) => match combine {
            ScatterCombine::Replace => INDEX + 2,
            ScatterCombine::Add => INDEX + 3,
            ScatterCombine::Mul => INDEX + 4,
            ScatterCombine::Min => INDEX + 5,
            ScatterCombine::Max => INDEX + 6,
        },
    }
}

fn unary(op: UnaryOp) -> usize {
    match op {
        UnaryOp::Neg => 0,
        UnaryOp::Abs => 1,
        UnaryOp::Sign => 2,
        UnaryOp::Exp => 3,
        UnaryOp::Log => 4,
        UnaryOp::Sqrt => 5,
        UnaryOp::Reciprocal => 6,
        UnaryOp::Sin => 7,
        UnaryOp::Cos => 8,
        UnaryOp::Tanh => 9,
        UnaryOp::Erf => 10,
        UnaryOp::Floor => 11,
        UnaryOp::Ceil => 12,
        UnaryOp::RoundEven => 13,
        UnaryOp::LogicalNot => 14,
        UnaryOp::StopGradient => 15,
        UnaryOp::Cast(_) => 16,
    }
}

fn binary(op: BinaryOp) -> usize {
    match op {
        BinaryOp::Add => 0,
        BinaryOp::Sub => 1,
        BinaryOp::Mul => 2,
        BinaryOp::Div => 3,
        BinaryOp::Pow => 4,
        BinaryOp::Max => 5,
        BinaryOp::Min => 6,
        BinaryOp::Equal => 7,
        BinaryOp::Less => 8,
        BinaryOp::LessOrEqual => 9,
        BinaryOp::LogicalAnd => 10,
        BinaryOp::LogicalOr => 11,
        BinaryOp::LogicalXor => 12,
    }
}

//! A number for every primitive, so that a test can see which of them have cases.

use crate::op::{Binary, Combine, Contract, Convolution, Index, Movement, Op, Pool, Reduce, ReduceKind, Source, Unary};

/// How many primitives there are.
pub const OPS: usize = INDEX + 7;

const UNARY: usize = 6;
const BINARY: usize = UNARY + 17;
const SELECT: usize = BINARY + 13;
const REDUCE: usize = SELECT + 1;
const MOVEMENT: usize = REDUCE + 6;
const CONTRACT: usize = MOVEMENT + 7;
const CONVOLUTION: usize = CONTRACT + 1;
const INDEX: usize = CONVOLUTION + 7;

/// The primitive's number, below [`OPS`]; attributes do not count. A new primitive is numbered here and gets a case in
/// the file of its family.
pub fn ordinal(op: &Op) -> usize {
    match op {
        Op::Source(Source::Input(_)) => 0,
        Op::Source(Source::Constant(_)) => 1,
        Op::Source(Source::Fill(_)) => 2,
        Op::Source(Source::Iota { .. }) => 3,
        Op::Source(Source::Variable(_)) => 4,
        Op::Source(Source::Random { .. }) => 5,
        Op::Unary(op) => UNARY + unary(*op),
        Op::Binary(op) => BINARY + binary(*op),
        Op::Select => SELECT,
        Op::Reduce(Reduce::Fold { kind: ReduceKind::Sum, .. }) => REDUCE,
        Op::Reduce(Reduce::Fold { kind: ReduceKind::Product, .. }) => REDUCE + 1,
        Op::Reduce(Reduce::Fold { kind: ReduceKind::Max, .. }) => REDUCE + 2,
        Op::Reduce(Reduce::Fold { kind: ReduceKind::Min, .. }) => REDUCE + 3,
        Op::Reduce(Reduce::ArgMax { .. }) => REDUCE + 4,
        Op::Reduce(Reduce::ArgMin { .. }) => REDUCE + 5,
        Op::Movement(Movement::Reshape(_)) => MOVEMENT,
        Op::Movement(Movement::Broadcast(_)) => MOVEMENT + 1,
        Op::Movement(Movement::Transpose(_)) => MOVEMENT + 2,
        Op::Movement(Movement::Slice { .. }) => MOVEMENT + 3,
        Op::Movement(Movement::Reverse(_)) => MOVEMENT + 4,
        Op::Movement(Movement::Pad { .. }) => MOVEMENT + 5,
        Op::Movement(Movement::Concat { .. }) => MOVEMENT + 6,
        Op::Contract(Contract::MatMul { .. }) => CONTRACT,
        Op::Convolution(Convolution::Conv2d(_)) => CONVOLUTION,
        Op::Convolution(Convolution::Conv2dInputGrad { .. }) => CONVOLUTION + 1,
        Op::Convolution(Convolution::Conv2dFilterGrad { .. }) => CONVOLUTION + 2,
        Op::Convolution(Convolution::Pool2d { kind: Pool::Max, .. }) => CONVOLUTION + 3,
        Op::Convolution(Convolution::Pool2d { kind: Pool::Sum, .. }) => CONVOLUTION + 4,
        Op::Convolution(Convolution::MaxPool2dGrad(_)) => CONVOLUTION + 5,
        Op::Convolution(Convolution::SumPool2dGrad { .. }) => CONVOLUTION + 6,
        Op::Index(Index::Gather { .. }) => INDEX,
        Op::Index(Index::ScatterAdd { .. }) => INDEX + 1,
        Op::Index(Index::Scatter { combine, .. }) => match combine {
            Combine::Replace => INDEX + 2,
            Combine::Add => INDEX + 3,
            Combine::Mul => INDEX + 4,
            Combine::Min => INDEX + 5,
            Combine::Max => INDEX + 6,
        },
    }
}

fn unary(op: Unary) -> usize {
    match op {
        Unary::Neg => 0,
        Unary::Abs => 1,
        Unary::Sign => 2,
        Unary::Exp => 3,
        Unary::Log => 4,
        Unary::Sqrt => 5,
        Unary::Reciprocal => 6,
        Unary::Sin => 7,
        Unary::Cos => 8,
        Unary::Tanh => 9,
        Unary::Erf => 10,
        Unary::Floor => 11,
        Unary::Ceil => 12,
        Unary::RoundEven => 13,
        Unary::LogicalNot => 14,
        Unary::StopGradient => 15,
        Unary::Cast(_) => 16,
    }
}

fn binary(op: Binary) -> usize {
    match op {
        Binary::Add => 0,
        Binary::Sub => 1,
        Binary::Mul => 2,
        Binary::Div => 3,
        Binary::Pow => 4,
        Binary::Max => 5,
        Binary::Min => 6,
        Binary::Equal => 7,
        Binary::Less => 8,
        Binary::LessOrEqual => 9,
        Binary::LogicalAnd => 10,
        Binary::LogicalOr => 11,
        Binary::LogicalXor => 12,
    }
}

//! Names of operators, as errors and the text form spell them: WebNN's words in kebab-case where WebNN has one.

use super::{Binary, Contract, Convolution, Index, Movement, Op, Pool, Reduce, ReduceKind, Source, Unary};

impl Op {
    /// The operator's stable name: lower-case, words joined by hyphens.
    pub const fn name(&self) -> &'static str {
        match self {
            Op::Source(source) => source.name(),
            Op::Unary(unary) => unary.name(),
            Op::Binary(binary) => binary.name(),
            Op::Select => "where",
            Op::Reduce(reduce) => reduce.name(),
            Op::Movement(movement) => movement.name(),
            Op::Contract(contract) => contract.name(),
            Op::Convolution(convolution) => convolution.name(),
            Op::Index(index) => index.name(),
        }
    }
}

impl Source {
    /// The operator's stable name.
    pub const fn name(&self) -> &'static str {
        match self {
            Source::Input(_) => "input",
            Source::Constant(_) => "constant",
            Source::Fill(_) => "fill",
            Source::Iota { .. } => "iota",
            Source::Variable(_) => "variable",
            Source::Random { .. } => "random",
        }
    }
}

impl Unary {
    /// The operator's stable name.
    pub const fn name(&self) -> &'static str {
        match self {
            Unary::Neg => "neg",
            Unary::Abs => "abs",
            Unary::Sign => "sign",
            Unary::Exp => "exp",
            Unary::Log => "log",
            Unary::Sqrt => "sqrt",
            Unary::Reciprocal => "reciprocal",
            Unary::Sin => "sin",
            Unary::Cos => "cos",
            Unary::Tanh => "tanh",
            Unary::Erf => "erf",
            Unary::Floor => "floor",
            Unary::Ceil => "ceil",
            Unary::RoundEven => "round-even",
            Unary::LogicalNot => "logical-not",
            Unary::StopGradient => "stop-gradient",
            Unary::Cast(_) => "cast",
        }
    }
}

impl Binary {
    /// The operator's stable name.
    pub const fn name(&self) -> &'static str {
        match self {
            Binary::Add => "add",
            Binary::Sub => "sub",
            Binary::Mul => "mul",
            Binary::Div => "div",
            Binary::Pow => "pow",
            Binary::Max => "max",
            Binary::Min => "min",
            Binary::Equal => "equal",
            Binary::Less => "lesser",
            Binary::LessOrEqual => "lesser-or-equal",
            Binary::LogicalAnd => "logical-and",
            Binary::LogicalOr => "logical-or",
            Binary::LogicalXor => "logical-xor",
        }
    }
}

impl Reduce {
    /// The operator's stable name.
    pub const fn name(&self) -> &'static str {
        match self {
            Reduce::Fold { kind: ReduceKind::Sum, .. } => "reduce-sum",
            Reduce::Fold { kind: ReduceKind::Product, .. } => "reduce-product",
            Reduce::Fold { kind: ReduceKind::Max, .. } => "reduce-max",
            Reduce::Fold { kind: ReduceKind::Min, .. } => "reduce-min",
            Reduce::ArgMax { .. } => "arg-max",
            Reduce::ArgMin { .. } => "arg-min",
        }
    }
}

impl Movement {
    /// The operator's stable name.
    pub const fn name(&self) -> &'static str {
        match self {
            Movement::Reshape(_) => "reshape",
            Movement::Broadcast(_) => "expand",
            Movement::Transpose(_) => "transpose",
            Movement::Slice { .. } => "slice",
            Movement::Reverse(_) => "reverse",
            Movement::Pad { .. } => "pad",
            Movement::Concat { .. } => "concat",
        }
    }
}

impl Contract {
    /// The operator's stable name.
    pub const fn name(&self) -> &'static str {
        match self {
            Contract::MatMul { .. } => "matmul",
        }
    }
}

impl Convolution {
    /// The operator's stable name.
    pub const fn name(&self) -> &'static str {
        match self {
            Convolution::Conv2d(_) => "conv2d",
            Convolution::Conv2dInputGrad { .. } => "conv2d-input-grad",
            Convolution::Conv2dFilterGrad { .. } => "conv2d-filter-grad",
            Convolution::Pool2d { kind: Pool::Max, .. } => "max-pool2d",
            Convolution::Pool2d { kind: Pool::Sum, .. } => "sum-pool2d",
            Convolution::MaxPool2dGrad(_) => "max-pool2d-grad",
            Convolution::SumPool2dGrad { .. } => "sum-pool2d-grad",
        }
    }
}

impl Index {
    /// The operator's stable name.
    pub const fn name(&self) -> &'static str {
        match self {
            Index::Gather { .. } => "gather",
            Index::ScatterAdd { .. } => "scatter-add",
            Index::Scatter { .. } => "scatter",
        }
    }
}

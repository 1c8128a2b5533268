//! Names of operators in error messages and in the text form: WebNN's names in kebab-case if WebNN has the operator.

use super::{
    BinaryOp, ContractOp, ConvolutionOp, IndexOp, MovementOp, Op, PoolKind, ReduceKind, ReduceOp, SourceOp, UnaryOp,
};

impl Op {
    /// Returns the operator's stable name: lower-case words joined by hyphens.
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

impl SourceOp {
    /// Returns the operator's stable name.
    pub const fn name(&self) -> &'static str {
        match self {
            SourceOp::Input(_) => "input",
            SourceOp::Constant(_) => "constant",
            SourceOp::Fill(_) => "fill",
            SourceOp::Iota { .. } => "iota",
            SourceOp::Variable(_) => "variable",
            SourceOp::Random { .. } => "random",
        }
    }
}

impl UnaryOp {
    /// Returns the operator's stable name.
    pub const fn name(&self) -> &'static str {
        match self {
            UnaryOp::Neg => "neg",
            UnaryOp::Abs => "abs",
            UnaryOp::Sign => "sign",
            UnaryOp::Exp => "exp",
            UnaryOp::Log => "log",
            UnaryOp::Sqrt => "sqrt",
            UnaryOp::Reciprocal => "reciprocal",
            UnaryOp::Sin => "sin",
            UnaryOp::Cos => "cos",
            UnaryOp::Tanh => "tanh",
            UnaryOp::Erf => "erf",
            UnaryOp::Floor => "floor",
            UnaryOp::Ceil => "ceil",
            UnaryOp::RoundEven => "round-even",
            UnaryOp::LogicalNot => "logical-not",
            UnaryOp::StopGradient => "stop-gradient",
            UnaryOp::Cast(_) => "cast",
        }
    }
}

impl BinaryOp {
    /// Returns the operator's stable name.
    pub const fn name(&self) -> &'static str {
        match self {
            BinaryOp::Add => "add",
            BinaryOp::Sub => "sub",
            BinaryOp::Mul => "mul",
            BinaryOp::Div => "div",
            BinaryOp::Pow => "pow",
            BinaryOp::Max => "max",
            BinaryOp::Min => "min",
            BinaryOp::Equal => "equal",
            BinaryOp::Less => "lesser",
            BinaryOp::LessOrEqual => "lesser-or-equal",
            BinaryOp::LogicalAnd => "logical-and",
            BinaryOp::LogicalOr => "logical-or",
            BinaryOp::LogicalXor => "logical-xor",
        }
    }
}

impl ReduceOp {
    /// Returns the operator's stable name.
    pub const fn name(&self) -> &'static str {
        match self {
            ReduceOp::Fold { kind: ReduceKind::Sum, .. } => "reduce-sum",
            ReduceOp::Fold { kind: ReduceKind::Product, .. } => "reduce-product",
            ReduceOp::Fold { kind: ReduceKind::Max, .. } => "reduce-max",
            ReduceOp::Fold { kind: ReduceKind::Min, .. } => "reduce-min",
            ReduceOp::ArgMax { .. } => "arg-max",
            ReduceOp::ArgMin { .. } => "arg-min",
        }
    }
}

impl MovementOp {
    /// Returns the operator's stable name.
    pub const fn name(&self) -> &'static str {
        match self {
            MovementOp::Reshape(_) => "reshape",
            MovementOp::Broadcast(_) => "expand",
            MovementOp::Transpose(_) => "transpose",
            MovementOp::Slice { .. } => "slice",
            MovementOp::Reverse(_) => "reverse",
            MovementOp::Pad { .. } => "pad",
            MovementOp::Concat { .. } => "concat",
        }
    }
}

impl ContractOp {
    /// Returns the operator's stable name.
    pub const fn name(&self) -> &'static str {
        match self {
            ContractOp::MatMul { .. } => "matmul",
        }
    }
}

impl ConvolutionOp {
    /// Returns the operator's stable name.
    pub const fn name(&self) -> &'static str {
        match self {
            ConvolutionOp::Conv2d(_) => "conv2d",
            ConvolutionOp::Conv2dInputGrad { .. } => "conv2d-input-grad",
            ConvolutionOp::Conv2dFilterGrad { .. } => "conv2d-filter-grad",
            ConvolutionOp::Pool2d { kind: PoolKind::Max, .. } => "max-pool2d",
            ConvolutionOp::Pool2d { kind: PoolKind::Sum, .. } => "sum-pool2d",
            ConvolutionOp::MaxPool2dGrad(_) => "max-pool2d-grad",
            ConvolutionOp::SumPool2dGrad { .. } => "sum-pool2d-grad",
        }
    }
}

impl IndexOp {
    /// Returns the operator's stable name.
    pub const fn name(&self) -> &'static str {
        match self {
            IndexOp::Gather { .. } => "gather",
            IndexOp::ScatterAdd { .. } => "scatter-add",
            IndexOp::Scatter { .. } => "scatter",
        }
    }
}

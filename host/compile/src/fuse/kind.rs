//! What fusion may do with a node, by operator.

use saggar_tensor::op::{Binary, Convolution, Index, Movement, Op, Reduce, Source, Unary};
use saggar_tensor::{Graph, NodeId};

/// What fusion may do with a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Its elements lie in memory before the program runs.
    Given,
    /// Computed where it is used, at this cost in additions per element.
    Elementwise(u32),
    /// Elements of its operands, elsewhere.
    Movement,
    /// A kernel of its own whose results element-wise work may follow.
    Anchor,
    /// A kernel of its own.
    Alone,
}

pub(super) fn kind(op: &Op) -> Kind {
    match op {
        Op::Source(source) => match source {
            Source::Input(_) | Source::Constant(_) | Source::Variable(_) => Kind::Given,
            Source::Fill(_) | Source::Iota { .. } => Kind::Elementwise(0),
            Source::Random { .. } => Kind::Elementwise(32),
        },
        Op::Unary(unary) => Kind::Elementwise(unary_cost(*unary)),
        Op::Binary(binary) => Kind::Elementwise(binary_cost(*binary)),
        Op::Select => Kind::Elementwise(1),
        Op::Movement(_) => Kind::Movement,
        Op::Reduce(Reduce::Fold { .. }) | Op::Contract(_) | Op::Convolution(Convolution::Conv2d(_)) => Kind::Anchor,
        Op::Reduce(Reduce::ArgMax { .. } | Reduce::ArgMin { .. })
        | Op::Convolution(
            Convolution::Conv2dInputGrad { .. }
            | Convolution::Conv2dFilterGrad { .. }
            | Convolution::Pool2d { .. }
            | Convolution::MaxPool2dGrad(_)
            | Convolution::SumPool2dGrad { .. },
        )
        | Op::Index(Index::Gather { .. } | Index::ScatterAdd { .. } | Index::Scatter { .. }) => Kind::Alone,
    }
}

fn unary_cost(unary: Unary) -> u32 {
    match unary {
        Unary::StopGradient => 0,
        Unary::Neg | Unary::Abs | Unary::Sign | Unary::Floor | Unary::Ceil | Unary::RoundEven => 1,
        Unary::LogicalNot | Unary::Cast(_) => 1,
        Unary::Sqrt | Unary::Reciprocal => 2,
        Unary::Exp | Unary::Log | Unary::Tanh => 4,
        Unary::Sin | Unary::Cos | Unary::Erf => 6,
    }
}

fn binary_cost(binary: Binary) -> u32 {
    match binary {
        Binary::Add | Binary::Sub | Binary::Mul | Binary::Max | Binary::Min => 1,
        Binary::Equal | Binary::Less | Binary::LessOrEqual => 1,
        Binary::LogicalAnd | Binary::LogicalOr | Binary::LogicalXor => 1,
        Binary::Div => 2,
        Binary::Pow => 8,
    }
}

/// The node whose dense elements are those of `node`: `node` without the reshapes on top.
pub(crate) fn base(graph: &Graph, mut node: NodeId) -> NodeId {
    while let Op::Movement(Movement::Reshape(_)) = &graph.node(node).op {
        node = graph.node(node).inputs[0];
    }
    node
}

/// Whether the node's elements lie in memory before the program runs.
pub(crate) fn is_given(graph: &Graph, node: NodeId) -> bool {
    kind(&graph.node(node).op) == Kind::Given
}

/// The variable whose old value the node is.
pub(crate) fn variable(graph: &Graph, node: NodeId) -> Option<u32> {
    match &graph.node(node).op {
        Op::Source(Source::Variable(variable)) => Some(*variable),
        Op::Source(_)
        | Op::Unary(_)
        | Op::Binary(_)
        | Op::Select
        | Op::Reduce(_)
        | Op::Movement(_)
        | Op::Contract(_)
        | Op::Convolution(_)
        | Op::Index(_) => None,
    }
}

//! What can be wrong with a graph: data, not prose. Messages name the operator and what it was given, for plugin
//! authors.

mod format;
mod micro_batches;

use format::{format_count_range, format_scalar};
pub use micro_batches::MicroBatchError;
use thiserror::Error;

use crate::interrupt::InterruptedError;
use crate::limits::{
    ELEMENTS_MAX, GRAPH_CONSTANT_BYTES_MAX, GRAPH_NODES_MAX, GRAPH_OPERANDS_MAX, GRAPH_OUTPUTS_MAX, NAME_BYTES_MAX,
    RANK_MAX,
};
use crate::op::Scalar;
use crate::{DType, Descriptor, Shape};

/// What a name in a graph names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NameKind {
    /// A tensor given to each dispatch.
    Input,
    /// State that outlives a dispatch.
    Variable,
    /// A tensor that a dispatch returns.
    Output,
    /// The plugin's name of a node.
    Label,
}

impl std::fmt::Display for NameKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            NameKind::Input => "input",
            NameKind::Variable => "variable",
            NameKind::Output => "output",
            NameKind::Label => "label",
        })
    }
}

/// Why a graph, or an addition to one, is refused.
///
/// `op` is [`crate::Op::name`]; `operand` is the operand's role (`filter`, `indices`, ...).
#[derive(Clone, Debug, Error, PartialEq)]
#[non_exhaustive]
pub enum GraphError {
    /// The caller asked to stop.
    #[error(transparent)]
    Interrupted(#[from] InterruptedError),
    /// More dimensions than a tensor may have.
    #[error("a tensor has at most {RANK_MAX} dimensions, not {rank}")]
    RankTooLarge {
        /// The number asked for.
        rank: usize,
    },
    /// More elements than a tensor may have.
    #[error("a tensor has at most {ELEMENTS_MAX} elements, and {dims:?} has more")]
    TooManyElements {
        /// The dimensions asked for.
        dims: Vec<usize>,
    },
    /// The operator takes another number of operands.
    #[error("{op}: takes {} operand(s), not {got}", format_count_range(*least, *most))]
    OperandCount {
        /// The operator.
        op: &'static str,
        /// The fewest it takes.
        least: usize,
        /// The most it takes.
        most: usize,
        /// How many it was given.
        got: usize,
    },
    /// An operand that does not exist, or does not come before the node that uses it.
    #[error("{op}: operand {position} is node {id}, which is not among the {nodes} nodes before it")]
    UnknownOperand {
        /// The operator.
        op: &'static str,
        /// The operand's position.
        position: usize,
        /// The node it names.
        id: u32,
        /// How many nodes there are to choose from.
        nodes: usize,
    },
    /// A data type the operator is not defined for.
    #[error("{op}: {operand} must be {expected}, not {got}")]
    DType {
        /// The operator.
        op: &'static str,
        /// The operand's role.
        operand: &'static str,
        /// The types that would do.
        expected: &'static str,
        /// The type it has.
        got: DType,
    },
    /// Two operands whose data types must be equal.
    #[error("{op}: operands differ in data type: {lhs} and {rhs}")]
    DTypesDiffer {
        /// The operator.
        op: &'static str,
        /// One operand.
        lhs: Descriptor,
        /// The other operand.
        rhs: Descriptor,
    },
    /// Two operands whose shapes must be equal.
    #[error("{op}: operands differ in shape: {lhs} and {rhs}")]
    ShapesDiffer {
        /// The operator.
        op: &'static str,
        /// One operand.
        lhs: Descriptor,
        /// The other operand.
        rhs: Descriptor,
    },
    /// A scale or zero point whose blocks do not cover the operand evenly.
    #[error("{op}: every dimension of {operand} must divide that of {whole}, which {got} does not")]
    Blocks {
        /// The operator.
        op: &'static str,
        /// Which operand has the blocks.
        operand: &'static str,
        /// What they are to cover.
        whole: Descriptor,
        /// The operand.
        got: Descriptor,
    },
    /// Two shapes that no common shape fits.
    #[error("{op}: cannot broadcast {lhs} with {rhs}")]
    Broadcast {
        /// The operator.
        op: &'static str,
        /// One operand.
        lhs: Descriptor,
        /// The other operand.
        rhs: Descriptor,
    },
    /// A shape that cannot be repeated to the target.
    #[error("{op}: cannot broadcast {from} to {to}")]
    BroadcastTo {
        /// The operator.
        op: &'static str,
        /// The operand.
        from: Descriptor,
        /// The target.
        to: Shape,
    },
    /// An operand with too few or too many dimensions.
    #[error("{op}: {operand} must have {} dimension(s), not {got}", format_count_range(*least, *most))]
    Rank {
        /// The operator.
        op: &'static str,
        /// The operand's role.
        operand: &'static str,
        /// The fewest dimensions.
        least: usize,
        /// The most dimensions.
        most: usize,
        /// The operand.
        got: Descriptor,
    },
    /// A dimension of an operand that does not agree with the others.
    #[error("{op}: dimension {axis} of {operand} must be {expected}, not {} as in {got}", got.shape[*axis])]
    Dimension {
        /// The operator.
        op: &'static str,
        /// The operand's role.
        operand: &'static str,
        /// The dimension.
        axis: usize,
        /// The size that would do.
        expected: usize,
        /// The operand.
        got: Descriptor,
    },
    /// An axis the operand does not have.
    #[error("{op}: axis {axis} is out of range for {got}")]
    AxisOutOfRange {
        /// The operator.
        op: &'static str,
        /// The axis.
        axis: usize,
        /// The operand.
        got: Descriptor,
    },
    /// Axes that are not sorted and distinct.
    #[error("{op}: axes {axes:?} must be sorted and distinct")]
    AxesUnsorted {
        /// The operator.
        op: &'static str,
        /// The axes.
        axes: Vec<usize>,
    },
    /// Nothing to choose from along an axis.
    #[error("{op}: axis {axis} of {got} has size 0")]
    AxisEmpty {
        /// The operator.
        op: &'static str,
        /// The axis.
        axis: usize,
        /// The operand.
        got: Descriptor,
    },
    /// An attribute with one entry an axis has another number of entries.
    #[error("{op}: {attribute} has {got} entries for {expected} axes")]
    AttributeCount {
        /// The operator.
        op: &'static str,
        /// The attribute.
        attribute: &'static str,
        /// The operand's rank.
        expected: usize,
        /// The number of entries.
        got: usize,
    },
    /// An attribute outside its range.
    #[error("{op}: {attribute} must be from {least} to {most}, not {got}")]
    AttributeRange {
        /// The operator.
        op: &'static str,
        /// The attribute.
        attribute: &'static str,
        /// The least allowed.
        least: usize,
        /// The most allowed.
        most: usize,
        /// The value.
        got: usize,
    },
    /// Not an order of all axes.
    #[error("{op}: {permutation:?} is not a permutation of the axes of {got}")]
    NotPermutation {
        /// The operator.
        op: &'static str,
        /// The attribute.
        permutation: Vec<usize>,
        /// The operand.
        got: Descriptor,
    },
    /// A reshape to another number of elements.
    #[error("{op}: {from} has {} elements and cannot become {to}, which has {}", from.shape.elements(), to.elements())]
    ElementCount {
        /// The operator.
        op: &'static str,
        /// The operand.
        from: Descriptor,
        /// The target.
        to: Shape,
    },
    /// A slice that leaves its operand.
    #[error("{op}: {size} element(s) from {start} by {stride} leave axis {axis} of {got}")]
    SliceOutOfRange {
        /// The operator.
        op: &'static str,
        /// The axis.
        axis: usize,
        /// The first index.
        start: usize,
        /// The number of elements.
        size: usize,
        /// The step.
        stride: usize,
        /// The operand.
        got: Descriptor,
    },
    /// A window that does not fit the padded input.
    #[error("{op}: a window of {window} with dilation {dilation} does not fit {padded} padded element(s)")]
    WindowTooLarge {
        /// The operator.
        op: &'static str,
        /// Taps along the axis.
        window: usize,
        /// Distance of the taps.
        dilation: usize,
        /// Input size plus padding along the axis.
        padded: usize,
    },
    /// Channel groups that do not divide a number of channels.
    #[error("{op}: {groups} groups do not divide {channels} {operand} channels")]
    Groups {
        /// The operator.
        op: &'static str,
        /// Whose channels.
        operand: &'static str,
        /// The groups.
        groups: usize,
        /// The channels.
        channels: usize,
    },
    /// A number that the data type cannot hold.
    #[error("{op}: {} is not a value of {dtype}", format_scalar(*value))]
    ScalarRange {
        /// The operator.
        op: &'static str,
        /// The number.
        value: Scalar,
        /// The data type.
        dtype: DType,
    },
    /// A source whose descriptor does not follow from the graph and was not declared.
    #[error("{op}: needs a declared data type and shape")]
    Undeclared {
        /// The operator.
        op: &'static str,
    },
    /// A node whose descriptor is not what its operator gives.
    #[error("{op}: declared as {declared}, but it is {inferred}")]
    Declared {
        /// The operator.
        op: &'static str,
        /// What the graph says.
        declared: Descriptor,
        /// What the operator gives.
        inferred: Descriptor,
    },
    /// A source that names an input, variable or constant the graph does not have.
    #[error("{op}: there is no {op} {number}, the graph has {count}")]
    UnknownPort {
        /// The source's kind: `input`, `variable` or `constant`.
        op: &'static str,
        /// The number it names.
        number: u32,
        /// How many there are.
        count: usize,
    },
    /// A constant whose bytes are not as many as its descriptor says.
    #[error("constant: {descriptor} takes {} bytes, not {got}", descriptor.bytes())]
    ConstantBytes {
        /// Data type and shape.
        descriptor: Descriptor,
        /// The number of bytes given.
        got: usize,
    },
    /// All constants together are too large.
    #[error("a graph has at most {GRAPH_CONSTANT_BYTES_MAX} bytes of constants, not {bytes}")]
    TooManyConstantBytes {
        /// The number of bytes asked for.
        bytes: usize,
    },
    /// Too many nodes.
    #[error("a graph has at most {GRAPH_NODES_MAX} nodes")]
    TooManyNodes,
    /// Too many operands of all nodes together.
    #[error("the nodes of a graph have at most {GRAPH_OPERANDS_MAX} operands together")]
    TooManyOperands,
    /// Too many inputs, variables or constants.
    #[error("a graph has at most {GRAPH_NODES_MAX} inputs, variables and constants of each kind")]
    TooManyPorts,
    /// Too many outputs.
    #[error("a graph has at most {GRAPH_OUTPUTS_MAX} outputs")]
    TooManyOutputs,
    /// A name that is empty or too long.
    #[error("{kind} names have 1 to {NAME_BYTES_MAX} bytes, not {bytes}")]
    NameLength {
        /// What is named.
        kind: NameKind,
        /// The name's length.
        bytes: usize,
    },
    /// A name given twice.
    #[error("{kind} {name:?} exists already")]
    NameTaken {
        /// What is named.
        kind: NameKind,
        /// The name.
        name: String,
    },
    /// One variable declared with two descriptors.
    #[error("variable {name:?} is {declared}, not {got}")]
    VariableRedeclared {
        /// The variable's name.
        name: String,
        /// As it was declared first.
        declared: Descriptor,
        /// As it is declared now.
        got: Descriptor,
    },
    /// A variable name the graph does not have.
    #[error("there is no variable {name:?}")]
    UnknownVariable {
        /// The name.
        name: String,
    },
    /// A node where a variable's node is needed.
    #[error("node {id} is no variable")]
    NotVariable {
        /// The node.
        id: u32,
    },
    /// Two assignments to one variable.
    #[error("variable {name:?} is assigned twice")]
    AssignedTwice {
        /// The variable's name.
        name: String,
    },
    /// A value whose data type or shape is not the variable's.
    #[error("variable {name:?} is {expected} and cannot hold {got}")]
    AssignMismatch {
        /// The variable's name.
        name: String,
        /// The variable.
        expected: Descriptor,
        /// The value.
        got: Descriptor,
    },
    /// An output, assignment or query that names a node the graph does not have.
    #[error("there is no node {id}, the graph has {nodes}")]
    UnknownNode {
        /// The node it names.
        id: u32,
        /// How many there are.
        nodes: usize,
    },
    /// An evaluation was given another number of inputs or variables than the graph has.
    #[error("{ports}: expected {expected} value(s), not {got}")]
    ValueCount {
        /// `inputs` or `variables`.
        ports: &'static str,
        /// How many the graph has.
        expected: usize,
        /// How many came.
        got: usize,
    },
    /// A value is not what its port is declared to be.
    #[error("{name:?} is {expected} and cannot take {got}")]
    ValueDescriptor {
        /// The port's name.
        name: String,
        /// What the graph declares.
        expected: Descriptor,
        /// What came.
        got: Descriptor,
    },
    /// A value's elements or bytes do not fill its descriptor, or are of the other kind (float, integer).
    #[error("{descriptor} does not hold {got} {unit}")]
    ValueLength {
        /// What was to be filled.
        descriptor: Descriptor,
        /// How many came.
        got: usize,
        /// `floats`, `integers` or `bytes`.
        unit: &'static str,
    },
    /// Gradients start at one float: the loss has another shape or data type.
    #[error("a loss is one float, not {got}")]
    LossNotScalar {
        /// What it is.
        got: Descriptor,
    },
    /// The loss depends on a wanted node through an operator that has no gradient.
    #[error("{op}: has no gradient")]
    NoGradient {
        /// The operator.
        op: &'static str,
    },
    /// The loss depends on a wanted node, but only through an operator that leaves the floats.
    #[error("{op}: has no gradient, and {wrt} reaches the loss through it alone; a stop-gradient there asks for zeros")]
    GradientCut {
        /// The operator.
        op: &'static str,
        /// The wanted node's label, or what it is.
        wrt: String,
    },
    /// Any of the others, with the place: labels of operands, or a node of the graph.
    #[error("{error} (at {place})")]
    At {
        /// Labels or a node.
        place: String,
        /// What is wrong there.
        error: Box<GraphError>,
    },
}

impl GraphError {
    /// The labels or the node at fault, where known.
    pub fn place(&self) -> Option<&str> {
        if let GraphError::At { place, .. } = self { Some(place) } else { None }
    }

    /// The error itself, without its place.
    pub fn kind(&self) -> &GraphError {
        if let GraphError::At { error, .. } = self { error.kind() } else { self }
    }

    /// The same error with a place.
    pub(crate) fn at(self, place: impl Into<String>) -> GraphError {
        GraphError::At { place: place.into(), error: Box::new(self) }
    }
}

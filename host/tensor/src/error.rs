//! Errors of graphs, as data instead of prose. Messages name the operator and its operands, for plugin authors.

mod format;
mod micro_batches;
mod name_kind;

use crate::graph::NodeId;
use format::{format_count_range, format_scalar};
pub use micro_batches::MicroBatchError;
pub use name_kind::NameKind;
use thiserror::Error;

use crate::interrupt::InterruptedError;
use crate::limits::{GRAPH_CONSTANT_BYTES_MAX, GRAPH_NODES_MAX, GRAPH_OPERANDS_MAX, GRAPH_OUTPUTS_MAX, NAME_BYTES_MAX};
use crate::op::Scalar;
use crate::shape::ShapeError;
use crate::{DType, Descriptor, Shape};

/// The node that a builder method added, or why it refused it.
pub type NodeResult = Result<NodeId, GraphError>;

/// The reason why a graph, or an addition to one, is refused.
///
/// `op` is [`crate::Op::name`]; `operand` is the operand's role (`filter`, `indices`, ...).
#[derive(Clone, Debug, Error, PartialEq)]
#[non_exhaustive]
pub enum GraphError {
    /// The caller requested to stop.
    #[error(transparent)]
    Interrupted(#[from] InterruptedError),
    /// More dimensions or elements than a tensor can have.
    #[error(transparent)]
    InvalidShape(#[from] ShapeError),
    /// The operator takes a different number of operands.
    #[error("{op}: takes {} operand(s), not {got}", format_count_range(*least, *most))]
    OperandCount {
        /// The operator.
        op: &'static str,
        /// The fewest operands that it takes.
        least: usize,
        /// The most operands that it takes.
        most: usize,
        /// The number of operands given.
        got: usize,
    },
    /// An operand that does not exist, or does not come before the node that uses it.
    #[error("{op}: operand {position} is node {id}, which is not among the {nodes} nodes before it")]
    UnknownOperand {
        /// The operator.
        op: &'static str,
        /// The operand's position.
        position: usize,
        /// The number of the node.
        id: u32,
        /// The number of earlier nodes.
        nodes: usize,
    },
    /// A data type the operator is not defined for.
    #[error("{op}: {operand} must be {expected}, not {got}")]
    DType {
        /// The operator.
        op: &'static str,
        /// The operand's role.
        operand: &'static str,
        /// The accepted types.
        expected: &'static str,
        /// The operand's type.
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
        /// The operand with the blocks.
        operand: &'static str,
        /// The operand that they must cover.
        whole: Descriptor,
        /// The operand.
        got: Descriptor,
    },
    /// Two shapes that cannot be broadcast to a common shape.
    #[error("{op}: cannot broadcast {lhs} with {rhs}")]
    Broadcast {
        /// The operator.
        op: &'static str,
        /// One operand.
        lhs: Descriptor,
        /// The other operand.
        rhs: Descriptor,
    },
    /// A shape that cannot be broadcast to the target.
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
        /// The required size.
        expected: usize,
        /// The operand.
        got: Descriptor,
    },
    /// Two factors of a matrix product whose common dimension differs.
    #[error("{op}: inner dimensions {lhs} and {rhs} differ")]
    InnerDimensions {
        /// The operator.
        op: &'static str,
        /// Columns of the first operand.
        lhs: usize,
        /// Rows of the second operand.
        rhs: usize,
    },
    /// An axis that the operand does not have.
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
    /// An axis of size 0 along which an element must be selected.
    #[error("{op}: axis {axis} of {got} has size 0")]
    AxisEmpty {
        /// The operator.
        op: &'static str,
        /// The axis.
        axis: usize,
        /// The operand.
        got: Descriptor,
    },
    /// An attribute with one entry per axis has the wrong number of entries.
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
        /// The smallest allowed value.
        least: usize,
        /// The largest allowed value.
        most: usize,
        /// The value.
        got: usize,
    },
    /// An attribute that is not a permutation of all axes.
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
    /// A slice that exceeds its operand.
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
        /// Distance between the taps.
        dilation: usize,
        /// Input size plus padding along the axis.
        padded: usize,
    },
    /// Channel groups that do not divide a number of channels.
    #[error("{op}: {groups} groups do not divide {channels} {operand} channels")]
    Groups {
        /// The operator.
        op: &'static str,
        /// The operand whose channels are counted.
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
    /// A source whose descriptor cannot be inferred and was not declared.
    #[error("{op}: needs a declared data type and shape")]
    Undeclared {
        /// The operator.
        op: &'static str,
    },
    /// A node whose declared descriptor differs from the inferred one.
    #[error("{op}: declared as {declared}, but it is {inferred}")]
    Declared {
        /// The operator.
        op: &'static str,
        /// The declared descriptor.
        declared: Descriptor,
        /// The inferred descriptor.
        inferred: Descriptor,
    },
    /// A source that refers to an input, variable or constant that the graph does not have.
    #[error("{op}: there is no {op} {number}, the graph has {count}")]
    UnknownPort {
        /// The source's kind: `input`, `variable` or `constant`.
        op: &'static str,
        /// The number of the port.
        number: u32,
        /// The number of such ports in the graph.
        count: usize,
    },
    /// A constant whose number of bytes does not match its descriptor.
    #[error("constant: {descriptor} takes {} bytes, not {got}", descriptor.bytes())]
    ConstantBytes {
        /// Data type and shape.
        descriptor: Descriptor,
        /// The number of bytes given.
        got: usize,
    },
    /// All constants together exceed the limit.
    #[error("a graph has at most {GRAPH_CONSTANT_BYTES_MAX} bytes of constants, not {bytes}")]
    TooManyConstantBytes {
        /// The requested number of bytes.
        bytes: usize,
    },
    /// More nodes than the limit.
    #[error("a graph has at most {GRAPH_NODES_MAX} nodes")]
    TooManyNodes,
    /// All nodes together have more operands than the limit.
    #[error("the nodes of a graph have at most {GRAPH_OPERANDS_MAX} operands together")]
    TooManyOperands,
    /// More inputs, variables or constants than the limit.
    #[error("a graph has at most {GRAPH_NODES_MAX} inputs, variables and constants of each kind")]
    TooManyPorts,
    /// More outputs than the limit.
    #[error("a graph has at most {GRAPH_OUTPUTS_MAX} outputs")]
    TooManyOutputs,
    /// A name that is empty or too long.
    #[error("{kind} names have 1 to {NAME_BYTES_MAX} bytes, not {bytes}")]
    NameLength {
        /// The kind of the name.
        kind: NameKind,
        /// The name's length in bytes.
        bytes: usize,
    },
    /// A name used twice.
    #[error("{kind} {name:?} exists already")]
    NameTaken {
        /// The kind of the name.
        kind: NameKind,
        /// The name.
        name: String,
    },
    /// One variable declared with two descriptors.
    #[error("variable {name:?} is {declared}, not {got}")]
    VariableRedeclared {
        /// The variable's name.
        name: String,
        /// The first descriptor.
        declared: Descriptor,
        /// The second descriptor.
        got: Descriptor,
    },
    /// A variable name that the graph does not have.
    #[error("there is no variable {name:?}")]
    UnknownVariable {
        /// The name.
        name: String,
    },
    /// A node that is not a variable, where a variable is required.
    #[error("node {id} is not a variable")]
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
    /// An assigned value whose data type or shape differs from the variable's.
    #[error("variable {name:?} is {expected} and cannot hold {got}")]
    AssignMismatch {
        /// The variable's name.
        name: String,
        /// The variable's descriptor.
        expected: Descriptor,
        /// The value's descriptor.
        got: Descriptor,
    },
    /// An output, assignment or query that refers to a node that the graph does not have.
    #[error("there is no node {id}, the graph has {nodes}")]
    UnknownNode {
        /// The number of the node.
        id: u32,
        /// The number of nodes in the graph.
        nodes: usize,
    },
    /// The number of values given to an evaluation differs from the graph's number of inputs or variables.
    #[error("{ports}: expected {expected} value(s), not {got}")]
    ValueCount {
        /// `inputs` or `variables`.
        ports: &'static str,
        /// The number that the graph has.
        expected: usize,
        /// The number given.
        got: usize,
    },
    /// A value whose descriptor differs from its port's.
    #[error("{name:?} is {expected} and cannot take {got}")]
    ValueDescriptor {
        /// The port's name.
        name: String,
        /// The descriptor that the graph declares.
        expected: Descriptor,
        /// The descriptor of the value.
        got: Descriptor,
    },
    /// The number of elements or bytes does not match the descriptor, or elements are of the wrong kind (float,
    /// integer).
    #[error("{descriptor} does not hold {got} {unit}")]
    ValueLength {
        /// The descriptor.
        descriptor: Descriptor,
        /// The number of elements or bytes given.
        got: usize,
        /// `floats`, `integers` or `bytes`.
        unit: &'static str,
    },
    /// The loss is not one float, which gradients require.
    #[error("the loss must be one float, not {got}")]
    LossNotScalar {
        /// The loss's descriptor.
        got: Descriptor,
    },
    /// The loss depends on a node of `wrt` through an operator that has no gradient rule.
    #[error("{op}: has no gradient")]
    NoGradient {
        /// The operator.
        op: &'static str,
    },
    /// The loss depends on a node of `wrt`, but only through an operator that leaves the floats.
    #[error(
        "{op}: has no gradient, and {wrt} reaches the loss only through it; add a stop-gradient there to get zeros"
    )]
    GradientCut {
        /// The operator.
        op: &'static str,
        /// The label of the node of `wrt`, or its description.
        wrt: String,
    },
    /// Another error with its location: labels of operands, or a node of the graph.
    #[error("{error} (at {place})")]
    At {
        /// Labels or a node.
        place: String,
        /// The error.
        error: Box<GraphError>,
    },
}

impl GraphError {
    /// Returns the labels or the node of the error, or `None` if unknown.
    pub fn place(&self) -> Option<&str> {
        if let GraphError::At { place, .. } = self { Some(place) } else { None }
    }

    /// Returns the error without its location.
    pub fn kind(&self) -> &GraphError {
        if let GraphError::At { error, .. } = self { error.kind() } else { self }
    }

    /// Returns the same error with a location.
    pub(crate) fn at(self, place: impl Into<String>) -> GraphError {
        GraphError::At { place: place.into(), error: Box::new(self) }
    }
}

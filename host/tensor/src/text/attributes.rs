//! Operators as a name with named attributes. One function lists the attributes of each operator, for both directions.

use std::fmt;

use super::TextFault;
use crate::op::{
    ContractOp, Conv2d, ConvolutionOp, IndexOp, MovementOp, Op, Pool2d, RandomDistribution, ReduceOp, Scalar,
    ScatterCombine, SourceOp, UnaryOp,
};
use crate::{DType, Shape};

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum AttributeValue {
    /// A number.
    Number(Scalar),
    /// A list of sizes.
    List(Vec<usize>),
    /// A word of a closed set.
    Word(String),
}

impl fmt::Display for AttributeValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AttributeValue::Number(Scalar::Int(value)) => write!(f, "{value}"),
            // Rust's shortest form that reads back as the same number. It always has a point, an exponent or letters.
            AttributeValue::Number(Scalar::Float(value)) => write!(f, "{value:?}"),
            AttributeValue::List(values) => write!(f, "{values:?}"),
            AttributeValue::Word(word) => f.write_str(word),
        }
    }
}

/// An operator's attributes by name, in writing order.
pub(super) type OpAttributes = Vec<(String, AttributeValue)>;

/// Returns the attributes of `op`, without a source's port.
pub(super) fn op_attributes(op: &Op) -> OpAttributes {
    let mut writer = AttributePass::Write(Vec::new());
    visit_attributes(&mut op.clone(), &mut writer).expect("writing never fails");
    let (AttributePass::Write(attributes) | AttributePass::Read { attributes, .. }) = writer;
    attributes
}

/// Returns the operator called `name`. It must use all of `attributes` and no others. `port` is the number of a
/// source's port.
///
/// # Errors
/// Returns `UnknownOperator`, `MissingAttribute` or `ExtraAttribute`; `Expected` for a value of the wrong kind; `Graph`
/// for a shape that exceeds the limits.
pub(super) fn parse_op(name: &str, attributes: OpAttributes, port: Option<u32>) -> Result<Op, TextFault> {
    let prototype = Op::prototypes().into_iter().find(|op| op.name() == name);
    let mut op = prototype.ok_or_else(|| TextFault::UnknownOperator { name: name.to_owned() })?;
    if let Op::Source(SourceOp::Input(number) | SourceOp::Constant(number) | SourceOp::Variable(number)) = &mut op {
        *number = port.ok_or(TextFault::Expected { expected: "a port", found: String::new() })?;
    }
    let mut reader = AttributePass::Read { op: name, attributes };
    visit_attributes(&mut op, &mut reader)?;
    let (AttributePass::Write(mut attributes) | AttributePass::Read { mut attributes, .. }) = reader;
    match attributes.pop() {
        Some((attribute, _)) => Err(TextFault::ExtraAttribute { op: name.to_owned(), attribute }),
        None => Ok(op),
    }
}

/// A pass over the attributes of an operator.
enum AttributePass<'a> {
    /// Appends each attribute.
    Write(OpAttributes),
    /// Replaces each attribute by the given one, which is removed from `attributes`.
    Read {
        /// The operator's name, for errors.
        op: &'a str,
        /// The given attributes.
        attributes: OpAttributes,
    },
}

impl AttributePass<'_> {
    fn visit<T: AttributeType>(&mut self, name: &'static str, value: &mut T) -> Result<(), TextFault> {
        match self {
            AttributePass::Write(attributes) => attributes.push((name.to_owned(), value.to_value())),
            AttributePass::Read { op, attributes } => {
                let position = attributes.iter().position(|(given, _)| given == name);
                let missing = || TextFault::MissingAttribute { op: (*op).to_owned(), attribute: name };
                *value = T::from_value(attributes.remove(position.ok_or_else(missing)?).1)?;
            }
        }
        Ok(())
    }

    fn visit_conv(&mut self, conv: &mut Conv2d) -> Result<(), TextFault> {
        self.visit("padding", &mut conv.padding)?;
        self.visit("strides", &mut conv.strides)?;
        self.visit("dilations", &mut conv.dilations)?;
        self.visit("groups", &mut conv.groups)
    }

    fn visit_pool(&mut self, pool: &mut Pool2d) -> Result<(), TextFault> {
        self.visit("window", &mut pool.window)?;
        self.visit("padding", &mut pool.padding)?;
        self.visit("strides", &mut pool.strides)?;
        self.visit("dilations", &mut pool.dilations)
    }
}

/// Passes over the attributes of `op`, in writing order, without a source's port.
fn visit_attributes(op: &mut Op, pass: &mut AttributePass<'_>) -> Result<(), TextFault> {
    match op {
        Op::Source(SourceOp::Input(_) | SourceOp::Constant(_) | SourceOp::Variable(_)) => Ok(()),
        Op::Source(SourceOp::Fill(value)) => pass.visit("value", value),
        Op::Source(SourceOp::Iota { axis }) => pass.visit("axis", axis),
        Op::Source(SourceOp::Random { stream, distribution }) => {
            pass.visit("stream", stream)?;
            pass.visit("distribution", distribution)
        }
        Op::Unary(UnaryOp::Cast(to)) => pass.visit("to", to),
        Op::Unary(_) | Op::Binary(_) | Op::Select => Ok(()),
        Op::Reduce(ReduceOp::Fold { kind: _, axes }) => pass.visit("axes", axes),
        Op::Reduce(ReduceOp::ArgMax { axis } | ReduceOp::ArgMin { axis }) => pass.visit("axis", axis),
        Op::Movement(movement) => visit_movement(movement, pass),
        Op::Contract(ContractOp::MatMul { transpose_a, transpose_b }) => {
            pass.visit("transpose-a", transpose_a)?;
            pass.visit("transpose-b", transpose_b)
        }
        Op::Convolution(convolution) => visit_convolution(convolution, pass),
        Op::Index(IndexOp::Gather { axis }) => pass.visit("axis", axis),
        Op::Index(IndexOp::ScatterAdd { axis, size }) => {
            pass.visit("axis", axis)?;
            pass.visit("size", size)
        }
        Op::Index(IndexOp::Scatter { axis, combine }) => {
            pass.visit("axis", axis)?;
            pass.visit("combine", combine)
        }
    }
}

fn visit_movement(movement: &mut MovementOp, pass: &mut AttributePass<'_>) -> Result<(), TextFault> {
    match movement {
        MovementOp::Reshape(shape) | MovementOp::Broadcast(shape) => pass.visit("shape", shape),
        MovementOp::Transpose(permutation) => pass.visit("permutation", permutation),
        MovementOp::Slice { starts, sizes, strides } => {
            pass.visit("starts", starts)?;
            pass.visit("sizes", sizes)?;
            pass.visit("strides", strides)
        }
        MovementOp::Reverse(axes) => pass.visit("axes", axes),
        MovementOp::Pad { low, high, value } => {
            pass.visit("low", low)?;
            pass.visit("high", high)?;
            pass.visit("value", value)
        }
        MovementOp::Concat { axis } => pass.visit("axis", axis),
    }
}

fn visit_convolution(convolution: &mut ConvolutionOp, pass: &mut AttributePass<'_>) -> Result<(), TextFault> {
    match convolution {
        ConvolutionOp::Conv2d(conv) => pass.visit_conv(conv),
        ConvolutionOp::Conv2dInputGrad { conv, size } => {
            pass.visit_conv(conv)?;
            pass.visit("size", size)
        }
        ConvolutionOp::Conv2dFilterGrad { conv, window } => {
            pass.visit_conv(conv)?;
            pass.visit("window", window)
        }
        ConvolutionOp::Pool2d { kind: _, pool } | ConvolutionOp::MaxPool2dGrad(pool) => pass.visit_pool(pool),
        ConvolutionOp::SumPool2dGrad { pool, size } => {
            pass.visit_pool(pool)?;
            pass.visit("size", size)
        }
    }
}

/// A type of attributes.
trait AttributeType: Sized {
    /// Returns the value as it is written.
    fn to_value(&self) -> AttributeValue;
    /// Reads a value.
    ///
    /// # Errors
    /// Returns `Expected` for a value of the wrong kind, and `Graph` for a shape that exceeds the limits.
    fn from_value(value: AttributeValue) -> Result<Self, TextFault>;
}

fn unexpected_value(expected: &'static str, found: &AttributeValue) -> TextFault {
    TextFault::Expected { expected, found: found.to_string() }
}

impl AttributeType for Scalar {
    fn to_value(&self) -> AttributeValue {
        AttributeValue::Number(*self)
    }
    fn from_value(value: AttributeValue) -> Result<Scalar, TextFault> {
        match value {
            AttributeValue::Number(value) => Ok(value),
            AttributeValue::List(_) | AttributeValue::Word(_) => Err(unexpected_value("a number", &value)),
        }
    }
}

impl AttributeType for usize {
    fn to_value(&self) -> AttributeValue {
        AttributeValue::Number(Scalar::Int(*self as i128))
    }
    fn from_value(value: AttributeValue) -> Result<usize, TextFault> {
        let number = Scalar::from_value(value)?;
        let size = if let Scalar::Int(size) = number { usize::try_from(size).ok() } else { None };
        size.ok_or_else(|| unexpected_value("a size", &AttributeValue::Number(number)))
    }
}

/// The number of a random stream.
impl AttributeType for u32 {
    fn to_value(&self) -> AttributeValue {
        AttributeValue::Number(Scalar::Int((*self).into()))
    }
    fn from_value(value: AttributeValue) -> Result<u32, TextFault> {
        let stream = usize::from_value(value)?;
        u32::try_from(stream)
            .map_err(|_| TextFault::Expected { expected: "a stream of 32 bits", found: stream.to_string() })
    }
}

impl AttributeType for Vec<usize> {
    fn to_value(&self) -> AttributeValue {
        AttributeValue::List(self.clone())
    }
    fn from_value(value: AttributeValue) -> Result<Vec<usize>, TextFault> {
        match value {
            AttributeValue::List(values) => Ok(values),
            AttributeValue::Number(_) | AttributeValue::Word(_) => Err(unexpected_value("a list of sizes", &value)),
        }
    }
}

impl<const N: usize> AttributeType for [usize; N] {
    fn to_value(&self) -> AttributeValue {
        AttributeValue::List(self.to_vec())
    }
    fn from_value(value: AttributeValue) -> Result<[usize; N], TextFault> {
        Vec::from_value(value)?.try_into().map_err(|list| {
            unexpected_value(if N == 2 { "two sizes" } else { "four sizes" }, &AttributeValue::List(list))
        })
    }
}

impl AttributeType for Shape {
    fn to_value(&self) -> AttributeValue {
        AttributeValue::List(self.to_vec())
    }
    fn from_value(value: AttributeValue) -> Result<Shape, TextFault> {
        Ok(Shape::new(Vec::from_value(value)?)?)
    }
}

/// Implements [`AttributeType`] for a closed set: its values, the word of each, and the words in messages.
macro_rules! word_attribute {
    ($($type:ty: $all:expr, $name:expr, $expected:literal;)*) => {$(
        impl AttributeType for $type {
            fn to_value(&self) -> AttributeValue {
                AttributeValue::Word($name(*self).to_owned())
            }
            fn from_value(value: AttributeValue) -> Result<$type, TextFault> {
                let word = if let AttributeValue::Word(word) = &value { Some(word) } else { None };
                let found = word.and_then(|word| $all.into_iter().find(|&it| $name(it) == word));
                found.ok_or_else(|| unexpected_value($expected, &value))
            }
        }
    )*};
}

const fn bool_name(value: bool) -> &'static str {
    if value { "true" } else { "false" }
}

word_attribute! {
    bool: [false, true], bool_name, "true or false";
    DType: DType::ALL, DType::name, "a data type";
    RandomDistribution: RandomDistribution::ALL, RandomDistribution::name, "bits or uniform";
    ScatterCombine: ScatterCombine::ALL, ScatterCombine::name, "replace, add, mul, min or max";
}

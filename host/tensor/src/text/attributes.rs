//! Operators as a name with named attributes. Both directions are in this file, so that they agree.

use std::fmt;

use super::TextFault;
use crate::op::{
    BinaryOp, ContractOp, Conv2d, ConvolutionOp, IndexOp, MovementOp, Op, Pool2d, PoolKind, RandomDistribution,
    ReduceKind, ReduceOp, Scalar, ScatterCombine, SourceOp, UnaryOp,
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

fn unexpected_value(expected: &'static str, found: &AttributeValue) -> TextFault {
    TextFault::Expected { expected, found: found.to_string() }
}

/// An operator's attributes by name, in writing order.
pub(super) type OpAttributes = Vec<(String, AttributeValue)>;

/// Returns the attributes of `op`, without a source's port.
pub(super) fn op_attributes(op: &Op) -> OpAttributes {
    let mut out = AttributeWriter(Vec::new());
    match op {
        Op::Source(source) => match source {
            SourceOp::Input(_) | SourceOp::Constant(_) | SourceOp::Variable(_) => {}
            SourceOp::Fill(value) => out.number("value", *value),
            SourceOp::Iota { axis } => out.size("axis", *axis),
            SourceOp::Random { stream, distribution } => {
                out.size("stream", *stream as usize);
                out.word("distribution", distribution_name(*distribution));
            }
        },
        Op::Unary(UnaryOp::Cast(dtype)) => out.word("to", dtype.name()),
        Op::Unary(_) | Op::Binary(_) | Op::Select => {}
        Op::Reduce(ReduceOp::Fold { kind: _, axes }) => out.list("axes", axes),
        Op::Reduce(ReduceOp::ArgMax { axis } | ReduceOp::ArgMin { axis }) => out.size("axis", *axis),
        Op::Movement(movement) => out.movement(movement),
        Op::Contract(ContractOp::MatMul { transpose_a, transpose_b }) => {
            out.word("transpose-a", if *transpose_a { "true" } else { "false" });
            out.word("transpose-b", if *transpose_b { "true" } else { "false" });
        }
        Op::Convolution(convolution) => out.convolution(convolution),
        Op::Index(IndexOp::Gather { axis }) => out.size("axis", *axis),
        Op::Index(IndexOp::ScatterAdd { axis, size }) => {
            out.size("axis", *axis);
            out.size("size", *size);
        }
        Op::Index(IndexOp::Scatter { axis, combine }) => {
            out.size("axis", *axis);
            out.word("combine", combine_name(*combine));
        }
    }
    out.0
}

struct AttributeWriter(OpAttributes);

impl AttributeWriter {
    fn push(&mut self, name: &str, value: AttributeValue) {
        self.0.push((name.to_owned(), value));
    }

    fn number(&mut self, name: &str, value: Scalar) {
        self.push(name, AttributeValue::Number(value));
    }

    fn size(&mut self, name: &str, value: usize) {
        self.number(name, Scalar::Int(value as i128));
    }

    fn list(&mut self, name: &str, values: &[usize]) {
        self.push(name, AttributeValue::List(values.to_vec()));
    }

    fn word(&mut self, name: &str, word: &str) {
        self.push(name, AttributeValue::Word(word.to_owned()));
    }

    fn movement(&mut self, movement: &MovementOp) {
        match movement {
            MovementOp::Reshape(shape) | MovementOp::Broadcast(shape) => self.list("shape", shape),
            MovementOp::Transpose(permutation) => self.list("permutation", permutation),
            MovementOp::Slice { starts, sizes, strides } => {
                self.list("starts", starts);
                self.list("sizes", sizes);
                self.list("strides", strides);
            }
            MovementOp::Reverse(axes) => self.list("axes", axes),
            MovementOp::Pad { low, high, value } => {
                self.list("low", low);
                self.list("high", high);
                self.number("value", *value);
            }
            MovementOp::Concat { axis } => self.size("axis", *axis),
        }
    }

    fn convolution(&mut self, convolution: &ConvolutionOp) {
        match convolution {
            ConvolutionOp::Conv2d(conv) => self.conv(conv),
            ConvolutionOp::Conv2dInputGrad { conv, size } => {
                self.conv(conv);
                self.list("size", size);
            }
            ConvolutionOp::Conv2dFilterGrad { conv, window } => {
                self.conv(conv);
                self.list("window", window);
            }
            ConvolutionOp::Pool2d { kind: _, pool } | ConvolutionOp::MaxPool2dGrad(pool) => self.pool(pool),
            ConvolutionOp::SumPool2dGrad { pool, size } => {
                self.pool(pool);
                self.list("size", size);
            }
        }
    }

    fn conv(&mut self, conv: &Conv2d) {
        self.list("padding", &conv.padding);
        self.list("strides", &conv.strides);
        self.list("dilations", &conv.dilations);
        self.size("groups", conv.groups);
    }

    fn pool(&mut self, pool: &Pool2d) {
        self.list("window", &pool.window);
        self.list("padding", &pool.padding);
        self.list("strides", &pool.strides);
        self.list("dilations", &pool.dilations);
    }
}

/// Returns the operator called `name`. It must use all of `attributes` and no others. `port` is the number of a
/// source's port.
///
/// # Errors
/// Returns `UnknownOperator`, `MissingAttribute` or `ExtraAttribute`; `Expected` for a value of the wrong kind; `Graph`
/// for a shape that exceeds the limits.
pub(super) fn parse_op(name: &str, attributes: OpAttributes, port: Option<u32>) -> Result<Op, TextFault> {
    let mut reader = AttributeReader { op: name, attributes, port };
    let op = match reader.source()? {
        Some(source) => Op::Source(source),
        None => reader.computation()?,
    };
    match reader.attributes.pop() {
        Some((attribute, _)) => Err(TextFault::ExtraAttribute { op: name.to_owned(), attribute }),
        None => Ok(op),
    }
}

struct AttributeReader<'a> {
    op: &'a str,
    attributes: OpAttributes,
    port: Option<u32>,
}

impl AttributeReader<'_> {
    fn source(&mut self) -> Result<Option<SourceOp>, TextFault> {
        Ok(Some(match self.op {
            "input" => SourceOp::Input(self.port()?),
            "constant" => SourceOp::Constant(self.port()?),
            "variable" => SourceOp::Variable(self.port()?),
            "fill" => SourceOp::Fill(self.number("value")?),
            "iota" => SourceOp::Iota { axis: self.size("axis")? },
            "random" => {
                let stream = self.size("stream")?;
                let found = stream.to_string();
                let stream = u32::try_from(stream)
                    .map_err(|_| TextFault::Expected { expected: "a stream of 32 bits", found })?;
                let distribution = self.word("distribution", "bits or uniform", |word| {
                    [RandomDistribution::Bits, RandomDistribution::Uniform]
                        .into_iter()
                        .find(|&d| distribution_name(d) == word)
                })?;
                SourceOp::Random { stream, distribution }
            }
            _ => return Ok(None),
        }))
    }

    fn computation(&mut self) -> Result<Op, TextFault> {
        if let Some(unary) = UNARY.into_iter().find(|unary| unary.name() == self.op) {
            return Ok(Op::Unary(unary));
        }
        if let Some(binary) = BINARY.into_iter().find(|binary| binary.name() == self.op) {
            return Ok(Op::Binary(binary));
        }
        Ok(match self.op {
            "cast" => Op::Unary(UnaryOp::Cast(self.word("to", "a data type", DType::from_name)?)),
            "where" => Op::Select,
            "reduce-sum" => self.fold(ReduceKind::Sum)?,
            "reduce-product" => self.fold(ReduceKind::Product)?,
            "reduce-max" => self.fold(ReduceKind::Max)?,
            "reduce-min" => self.fold(ReduceKind::Min)?,
            "arg-max" => Op::Reduce(ReduceOp::ArgMax { axis: self.size("axis")? }),
            "arg-min" => Op::Reduce(ReduceOp::ArgMin { axis: self.size("axis")? }),
            "matmul" => Op::Contract(ContractOp::MatMul {
                transpose_a: self.word("transpose-a", "true or false", |word| word.parse().ok())?,
                transpose_b: self.word("transpose-b", "true or false", |word| word.parse().ok())?,
            }),
            "gather" => Op::Index(IndexOp::Gather { axis: self.size("axis")? }),
            "scatter-add" => Op::Index(IndexOp::ScatterAdd { axis: self.size("axis")?, size: self.size("size")? }),
            "scatter" => Op::Index(IndexOp::Scatter {
                axis: self.size("axis")?,
                combine: self.word("combine", "replace, add, mul, min or max", combine_from_name)?,
            }),
            _ => match self.movement()? {
                Some(movement) => Op::Movement(movement),
                None => Op::Convolution(self.convolution()?),
            },
        })
    }

    fn fold(&mut self, kind: ReduceKind) -> Result<Op, TextFault> {
        Ok(Op::Reduce(ReduceOp::Fold { kind, axes: self.list("axes")? }))
    }

    fn movement(&mut self) -> Result<Option<MovementOp>, TextFault> {
        Ok(Some(match self.op {
            "reshape" => MovementOp::Reshape(Shape::new(self.list("shape")?)?),
            "expand" => MovementOp::Broadcast(Shape::new(self.list("shape")?)?),
            "transpose" => MovementOp::Transpose(self.list("permutation")?),
            "slice" => MovementOp::Slice {
                starts: self.list("starts")?,
                sizes: self.list("sizes")?,
                strides: self.list("strides")?,
            },
            "reverse" => MovementOp::Reverse(self.list("axes")?),
            "pad" => MovementOp::Pad { low: self.list("low")?, high: self.list("high")?, value: self.number("value")? },
            "concat" => MovementOp::Concat { axis: self.size("axis")? },
            _ => return Ok(None),
        }))
    }

    fn convolution(&mut self) -> Result<ConvolutionOp, TextFault> {
        Ok(match self.op {
            "conv2d" => ConvolutionOp::Conv2d(self.conv()?),
            "conv2d-input-grad" => ConvolutionOp::Conv2dInputGrad { conv: self.conv()?, size: self.array("size")? },
            "conv2d-filter-grad" => {
                ConvolutionOp::Conv2dFilterGrad { conv: self.conv()?, window: self.array("window")? }
            }
            "max-pool2d" => ConvolutionOp::Pool2d { kind: PoolKind::Max, pool: self.pool()? },
            "sum-pool2d" => ConvolutionOp::Pool2d { kind: PoolKind::Sum, pool: self.pool()? },
            "max-pool2d-grad" => ConvolutionOp::MaxPool2dGrad(self.pool()?),
            "sum-pool2d-grad" => ConvolutionOp::SumPool2dGrad { pool: self.pool()?, size: self.array("size")? },
            _ => return Err(TextFault::UnknownOperator { name: self.op.to_owned() }),
        })
    }

    fn conv(&mut self) -> Result<Conv2d, TextFault> {
        Ok(Conv2d {
            padding: self.array("padding")?,
            strides: self.array("strides")?,
            dilations: self.array("dilations")?,
            groups: self.size("groups")?,
        })
    }

    fn pool(&mut self) -> Result<Pool2d, TextFault> {
        Ok(Pool2d {
            window: self.array("window")?,
            padding: self.array("padding")?,
            strides: self.array("strides")?,
            dilations: self.array("dilations")?,
        })
    }

    fn port(&mut self) -> Result<u32, TextFault> {
        self.port.take().ok_or(TextFault::Expected { expected: "a port", found: String::new() })
    }

    fn take(&mut self, attribute: &'static str) -> Result<AttributeValue, TextFault> {
        match self.attributes.iter().position(|(name, _)| name == attribute) {
            Some(index) => Ok(self.attributes.remove(index).1),
            None => Err(TextFault::MissingAttribute { op: self.op.to_owned(), attribute }),
        }
    }

    fn number(&mut self, attribute: &'static str) -> Result<Scalar, TextFault> {
        match self.take(attribute)? {
            AttributeValue::Number(value) => Ok(value),
            other @ (AttributeValue::List(_) | AttributeValue::Word(_)) => Err(unexpected_value("a number", &other)),
        }
    }

    fn size(&mut self, attribute: &'static str) -> Result<usize, TextFault> {
        let value = self.number(attribute)?;
        let size = if let Scalar::Int(size) = value { usize::try_from(size).ok() } else { None };
        size.ok_or_else(|| unexpected_value("a size", &AttributeValue::Number(value)))
    }

    fn list(&mut self, attribute: &'static str) -> Result<Vec<usize>, TextFault> {
        match self.take(attribute)? {
            AttributeValue::List(values) => Ok(values),
            other @ (AttributeValue::Number(_) | AttributeValue::Word(_)) => {
                Err(unexpected_value("a list of sizes", &other))
            }
        }
    }

    fn array<const N: usize>(&mut self, attribute: &'static str) -> Result<[usize; N], TextFault> {
        let list = self.list(attribute)?;
        list.try_into().map_err(|list| {
            unexpected_value(if N == 2 { "two sizes" } else { "four sizes" }, &AttributeValue::List(list))
        })
    }

    fn word<T>(
        &mut self,
        attribute: &'static str,
        expected: &'static str,
        read: impl Fn(&str) -> Option<T>,
    ) -> Result<T, TextFault> {
        let value = self.take(attribute)?;
        let read = if let AttributeValue::Word(word) = &value { read(word) } else { None };
        read.ok_or(TextFault::Expected { expected, found: value.to_string() })
    }
}

const fn distribution_name(distribution: RandomDistribution) -> &'static str {
    match distribution {
        RandomDistribution::Bits => "bits",
        RandomDistribution::Uniform => "uniform",
    }
}

const fn combine_name(combine: ScatterCombine) -> &'static str {
    match combine {
        ScatterCombine::Replace => "replace",
        ScatterCombine::Add => "add",
        ScatterCombine::Mul => "mul",
        ScatterCombine::Min => "min",
        ScatterCombine::Max => "max",
    }
}

fn combine_from_name(word: &str) -> Option<ScatterCombine> {
    let all =
        [ScatterCombine::Replace, ScatterCombine::Add, ScatterCombine::Mul, ScatterCombine::Min, ScatterCombine::Max];
    all.into_iter().find(|&combine| combine_name(combine) == word)
}

/// Unary operators without attributes.
pub(super) const UNARY: [UnaryOp; 16] = [
    UnaryOp::Neg,
    UnaryOp::Abs,
    UnaryOp::Sign,
    UnaryOp::Exp,
    UnaryOp::Log,
    UnaryOp::Sqrt,
    UnaryOp::Reciprocal,
    UnaryOp::Sin,
    UnaryOp::Cos,
    UnaryOp::Tanh,
    UnaryOp::Erf,
    UnaryOp::Floor,
    UnaryOp::Ceil,
    UnaryOp::RoundEven,
    UnaryOp::LogicalNot,
    UnaryOp::StopGradient,
];

/// Every binary operator.
pub(super) const BINARY: [BinaryOp; 13] = [
    BinaryOp::Add,
    BinaryOp::Sub,
    BinaryOp::Mul,
    BinaryOp::Div,
    BinaryOp::Pow,
    BinaryOp::Max,
    BinaryOp::Min,
    BinaryOp::Equal,
    BinaryOp::Less,
    BinaryOp::LessOrEqual,
    BinaryOp::LogicalAnd,
    BinaryOp::LogicalOr,
    BinaryOp::LogicalXor,
];

//! Operators as a name with named attributes, and back. Both directions stand here, so that they agree.

use std::fmt;

use super::TextFault;
use crate::op::{
    Binary, Combine, Contract, Conv2d, Convolution, Distribution, Index, Movement, Op, Pool, Pool2d, Reduce,
    ReduceKind, Scalar, Source, Unary,
};
use crate::{DType, Shape};

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    /// A number.
    Number(Scalar),
    /// Several sizes.
    List(Vec<usize>),
    /// A word of a closed set.
    Word(String),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Number(Scalar::Int(value)) => write!(f, "{value}"),
            // Rust's shortest form that reads back as the same number; it always has a point, an exponent or letters.
            Value::Number(Scalar::Float(value)) => write!(f, "{value:?}"),
            Value::List(values) => write!(f, "{values:?}"),
            Value::Word(word) => f.write_str(word),
        }
    }
}

fn expected(expected: &'static str, found: &Value) -> TextFault {
    TextFault::Expected { expected, found: found.to_string() }
}

/// An operator's attributes by name, in the order they are written.
pub(super) type Attributes = Vec<(String, Value)>;

/// The attributes of `op`; a source's port is not among them.
pub(super) fn attributes(op: &Op) -> Attributes {
    let mut out = Writer(Vec::new());
    match op {
        Op::Source(source) => match source {
            Source::Input(_) | Source::Constant(_) | Source::Variable(_) => {}
            Source::Fill(value) => out.number("value", *value),
            Source::Iota { axis } => out.size("axis", *axis),
            Source::Random { stream, distribution } => {
                out.size("stream", *stream as usize);
                out.word("distribution", distribution_name(*distribution));
            }
        },
        Op::Unary(Unary::Cast(dtype)) => out.word("to", dtype.name()),
        Op::Unary(_) | Op::Binary(_) | Op::Select => {}
        Op::Reduce(Reduce::Fold { kind: _, axes }) => out.list("axes", axes),
        Op::Reduce(Reduce::ArgMax { axis } | Reduce::ArgMin { axis }) => out.size("axis", *axis),
        Op::Movement(movement) => out.movement(movement),
        Op::Contract(Contract::MatMul { transpose_a, transpose_b }) => {
            out.word("transpose-a", if *transpose_a { "true" } else { "false" });
            out.word("transpose-b", if *transpose_b { "true" } else { "false" });
        }
        Op::Convolution(convolution) => out.convolution(convolution),
        Op::Index(Index::Gather { axis }) => out.size("axis", *axis),
        Op::Index(Index::ScatterAdd { axis, size }) => {
            out.size("axis", *axis);
            out.size("size", *size);
        }
        Op::Index(Index::Scatter { axis, combine }) => {
            out.size("axis", *axis);
            out.word("combine", combine_name(*combine));
        }
    }
    out.0
}

struct Writer(Attributes);

impl Writer {
    fn push(&mut self, name: &str, value: Value) {
        self.0.push((name.to_owned(), value));
    }

    fn number(&mut self, name: &str, value: Scalar) {
        self.push(name, Value::Number(value));
    }

    fn size(&mut self, name: &str, value: usize) {
        self.number(name, Scalar::Int(value as i128));
    }

    fn list(&mut self, name: &str, values: &[usize]) {
        self.push(name, Value::List(values.to_vec()));
    }

    fn word(&mut self, name: &str, word: &str) {
        self.push(name, Value::Word(word.to_owned()));
    }

    fn movement(&mut self, movement: &Movement) {
        match movement {
            Movement::Reshape(shape) | Movement::Broadcast(shape) => self.list("shape", shape),
            Movement::Transpose(permutation) => self.list("permutation", permutation),
            Movement::Slice { starts, sizes, strides } => {
                self.list("starts", starts);
                self.list("sizes", sizes);
                self.list("strides", strides);
            }
            Movement::Reverse(axes) => self.list("axes", axes),
            Movement::Pad { low, high, value } => {
                self.list("low", low);
                self.list("high", high);
                self.number("value", *value);
            }
            Movement::Concat { axis } => self.size("axis", *axis),
        }
    }

    fn convolution(&mut self, convolution: &Convolution) {
        match convolution {
            Convolution::Conv2d(conv) => self.conv(conv),
            Convolution::Conv2dInputGrad { conv, size } => {
                self.conv(conv);
                self.list("size", size);
            }
            Convolution::Conv2dFilterGrad { conv, window } => {
                self.conv(conv);
                self.list("window", window);
            }
            Convolution::Pool2d { kind: _, pool } | Convolution::MaxPool2dGrad(pool) => self.pool(pool),
            Convolution::SumPool2dGrad { pool, size } => {
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

/// The operator called `name`, with all of `attributes` and no others. `port` is the number a port source names.
///
/// # Errors
/// `UnknownOperator`; `MissingAttribute`; `ExtraAttribute`; `Expected` for a value of the wrong kind; `Graph` for a
/// shape past the limits.
pub(super) fn operator(name: &str, attributes: Attributes, port: Option<u32>) -> Result<Op, TextFault> {
    let mut reader = Reader { op: name, attributes, port };
    let op = match reader.source()? {
        Some(source) => Op::Source(source),
        None => reader.computation()?,
    };
    match reader.attributes.pop() {
        Some((attribute, _)) => Err(TextFault::ExtraAttribute { op: name.to_owned(), attribute }),
        None => Ok(op),
    }
}

struct Reader<'a> {
    op: &'a str,
    attributes: Attributes,
    port: Option<u32>,
}

impl Reader<'_> {
    fn source(&mut self) -> Result<Option<Source>, TextFault> {
        Ok(Some(match self.op {
            "input" => Source::Input(self.port()?),
            "constant" => Source::Constant(self.port()?),
            "variable" => Source::Variable(self.port()?),
            "fill" => Source::Fill(self.number("value")?),
            "iota" => Source::Iota { axis: self.size("axis")? },
            "random" => {
                let stream = self.size("stream")?;
                let found = stream.to_string();
                let stream = u32::try_from(stream)
                    .map_err(|_| TextFault::Expected { expected: "a stream of 32 bits", found })?;
                let distribution = self.word("distribution", "bits or uniform", |word| {
                    [Distribution::Bits, Distribution::Uniform].into_iter().find(|&d| distribution_name(d) == word)
                })?;
                Source::Random { stream, distribution }
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
            "cast" => Op::Unary(Unary::Cast(self.word("to", "a data type", DType::from_name)?)),
            "where" => Op::Select,
            "reduce-sum" => self.fold(ReduceKind::Sum)?,
            "reduce-product" => self.fold(ReduceKind::Product)?,
            "reduce-max" => self.fold(ReduceKind::Max)?,
            "reduce-min" => self.fold(ReduceKind::Min)?,
            "arg-max" => Op::Reduce(Reduce::ArgMax { axis: self.size("axis")? }),
            "arg-min" => Op::Reduce(Reduce::ArgMin { axis: self.size("axis")? }),
            "matmul" => Op::Contract(Contract::MatMul {
                transpose_a: self.word("transpose-a", "true or false", |word| word.parse().ok())?,
                transpose_b: self.word("transpose-b", "true or false", |word| word.parse().ok())?,
            }),
            "gather" => Op::Index(Index::Gather { axis: self.size("axis")? }),
            "scatter-add" => Op::Index(Index::ScatterAdd { axis: self.size("axis")?, size: self.size("size")? }),
            "scatter" => Op::Index(Index::Scatter {
                axis: self.size("axis")?,
                combine: self.word("combine", "replace, add, mul, min or max", combine_of)?,
            }),
            _ => match self.movement()? {
                Some(movement) => Op::Movement(movement),
                None => Op::Convolution(self.convolution()?),
            },
        })
    }

    fn fold(&mut self, kind: ReduceKind) -> Result<Op, TextFault> {
        Ok(Op::Reduce(Reduce::Fold { kind, axes: self.list("axes")? }))
    }

    fn movement(&mut self) -> Result<Option<Movement>, TextFault> {
        Ok(Some(match self.op {
            "reshape" => Movement::Reshape(Shape::new(self.list("shape")?)?),
            "expand" => Movement::Broadcast(Shape::new(self.list("shape")?)?),
            "transpose" => Movement::Transpose(self.list("permutation")?),
            "slice" => Movement::Slice {
                starts: self.list("starts")?,
                sizes: self.list("sizes")?,
                strides: self.list("strides")?,
            },
            "reverse" => Movement::Reverse(self.list("axes")?),
            "pad" => Movement::Pad { low: self.list("low")?, high: self.list("high")?, value: self.number("value")? },
            "concat" => Movement::Concat { axis: self.size("axis")? },
            _ => return Ok(None),
        }))
    }

    fn convolution(&mut self) -> Result<Convolution, TextFault> {
        Ok(match self.op {
            "conv2d" => Convolution::Conv2d(self.conv()?),
            "conv2d-input-grad" => Convolution::Conv2dInputGrad { conv: self.conv()?, size: self.array("size")? },
            "conv2d-filter-grad" => Convolution::Conv2dFilterGrad { conv: self.conv()?, window: self.array("window")? },
            "max-pool2d" => Convolution::Pool2d { kind: Pool::Max, pool: self.pool()? },
            "sum-pool2d" => Convolution::Pool2d { kind: Pool::Sum, pool: self.pool()? },
            "max-pool2d-grad" => Convolution::MaxPool2dGrad(self.pool()?),
            "sum-pool2d-grad" => Convolution::SumPool2dGrad { pool: self.pool()?, size: self.array("size")? },
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

    fn take(&mut self, attribute: &'static str) -> Result<Value, TextFault> {
        match self.attributes.iter().position(|(name, _)| name == attribute) {
            Some(index) => Ok(self.attributes.remove(index).1),
            None => Err(TextFault::MissingAttribute { op: self.op.to_owned(), attribute }),
        }
    }

    fn number(&mut self, attribute: &'static str) -> Result<Scalar, TextFault> {
        match self.take(attribute)? {
            Value::Number(value) => Ok(value),
            other @ (Value::List(_) | Value::Word(_)) => Err(expected("a number", &other)),
        }
    }

    fn size(&mut self, attribute: &'static str) -> Result<usize, TextFault> {
        let value = self.number(attribute)?;
        let size = if let Scalar::Int(size) = value { usize::try_from(size).ok() } else { None };
        size.ok_or_else(|| expected("a size", &Value::Number(value)))
    }

    fn list(&mut self, attribute: &'static str) -> Result<Vec<usize>, TextFault> {
        match self.take(attribute)? {
            Value::List(values) => Ok(values),
            other @ (Value::Number(_) | Value::Word(_)) => Err(expected("a list of sizes", &other)),
        }
    }

    fn array<const N: usize>(&mut self, attribute: &'static str) -> Result<[usize; N], TextFault> {
        let list = self.list(attribute)?;
        list.try_into().map_err(|list| expected(if N == 2 { "two sizes" } else { "four sizes" }, &Value::List(list)))
    }

    fn word<T>(
        &mut self,
        attribute: &'static str,
        expected: &'static str,
        read: impl Fn(&str) -> Option<T>,
    ) -> Result<T, TextFault> {
        let value = self.take(attribute)?;
        let read = if let Value::Word(word) = &value { read(word) } else { None };
        read.ok_or(TextFault::Expected { expected, found: value.to_string() })
    }
}

const fn distribution_name(distribution: Distribution) -> &'static str {
    match distribution {
        Distribution::Bits => "bits",
        Distribution::Uniform => "uniform",
    }
}

const fn combine_name(combine: Combine) -> &'static str {
    match combine {
        Combine::Replace => "replace",
        Combine::Add => "add",
        Combine::Mul => "mul",
        Combine::Min => "min",
        Combine::Max => "max",
    }
}

fn combine_of(word: &str) -> Option<Combine> {
    let all = [Combine::Replace, Combine::Add, Combine::Mul, Combine::Min, Combine::Max];
    all.into_iter().find(|&combine| combine_name(combine) == word)
}

/// Unary operators without attributes.
pub(super) const UNARY: [Unary; 16] = [
    Unary::Neg,
    Unary::Abs,
    Unary::Sign,
    Unary::Exp,
    Unary::Log,
    Unary::Sqrt,
    Unary::Reciprocal,
    Unary::Sin,
    Unary::Cos,
    Unary::Tanh,
    Unary::Erf,
    Unary::Floor,
    Unary::Ceil,
    Unary::RoundEven,
    Unary::LogicalNot,
    Unary::StopGradient,
];

/// Every binary operator.
pub(super) const BINARY: [Binary; 13] = [
    Binary::Add,
    Binary::Sub,
    Binary::Mul,
    Binary::Div,
    Binary::Pow,
    Binary::Max,
    Binary::Min,
    Binary::Equal,
    Binary::Less,
    Binary::LessOrEqual,
    Binary::LogicalAnd,
    Binary::LogicalOr,
    Binary::LogicalXor,
];

//! A backend without a host: graphs of the tensor crate, run by the interpreter that defines its operators.

use std::collections::BTreeMap;

use onnx::backend::{Backend, Binary, Made, Pooling, Reduction, Scatter, Unary, Windows};
use onnx::elem::Elem;
use onnx::error::{Error, Fault, Result};
use onnx::import::Store;
use onnx::value::Operand;
use saggar_plugin::{DataType, ErrorCode};
use saggar_tensor::error::GraphError;
use saggar_tensor::interp::{self, Value};
use saggar_tensor::nn;
use saggar_tensor::op::{Convolution, Op, Pool, Pool2d, ReduceKind, Scalar};
use saggar_tensor::{DType, Descriptor, GraphBuilder, NodeId, Shape, verify};

/// Builds with the tensor crate's builder.
#[derive(Debug, Default)]
pub(crate) struct Interpreter {
    builder: GraphBuilder,
}

fn dtype(data_type: DataType) -> DType {
    match data_type {
        DataType::Float32 => DType::F32,
        DataType::Float16 => DType::F16,
        DataType::Int64 => DType::I64,
        DataType::Uint64 => DType::U64,
        DataType::Int32 => DType::I32,
        DataType::Uint32 => DType::U32,
        DataType::Int8 => DType::I8,
        DataType::Uint8 => DType::U8,
    }
}

fn data_type(dtype: DType) -> DataType {
    match dtype {
        DType::F32 => DataType::Float32,
        DType::F16 => DataType::Float16,
        DType::I64 => DataType::Int64,
        DType::U64 => DataType::Uint64,
        DType::I32 => DataType::Int32,
        DType::U32 => DataType::Uint32,
        DType::I8 => DataType::Int8,
        DType::U8 => DataType::Uint8,
    }
}

fn refused(error: GraphError) -> Error {
    let message = error.to_string();
    Fault::Host(saggar_plugin::Error::Host { code: ErrorCode::InvalidArgument, message, place: None }).into()
}

fn described(of: DataType, shape: &[usize]) -> Result<Descriptor> {
    Ok(Descriptor::new(dtype(of), Shape::new(shape).map_err(refused)?))
}

fn node(x: &Operand) -> NodeId {
    NodeId(x.id)
}

fn scalar(dtype: DType, value: f64) -> Scalar {
    if dtype.is_float() { Scalar::Float(value) } else { Scalar::Int(value as i128) }
}

type Built = std::result::Result<NodeId, GraphError>;

impl Interpreter {
    /// The outputs for these inputs, by name; `variables` are what an import made.
    pub(crate) fn run(
        mut self,
        outputs: &[(String, Operand)],
        inputs: &BTreeMap<String, Value>,
        variables: &BTreeMap<String, Value>,
    ) -> Result<Vec<Value>> {
        for (name, operand) in outputs {
            self.builder.output(name, node(operand)).map_err(refused)?;
        }
        let graph = verify(self.builder.finish()).map_err(refused)?;
        let inputs: Vec<Value> = graph.graph().inputs.iter().map(|port| inputs[&port.name].clone()).collect();
        let mut state: Vec<Value> = graph.graph().variables.iter().map(|port| variables[&port.name].clone()).collect();
        interp::evaluate(&graph, &inputs, &mut state).map_err(refused)
    }

    fn keep(&mut self, built: Built) -> Made {
        let id = built.map_err(refused)?;
        let of = self.builder.descriptor(id);
        Ok(Operand { id: id.0, elem: Elem::of(data_type(of.dtype)), shape: of.shape.dims().into() })
    }

    fn shape(&self, x: &Operand) -> Vec<usize> {
        self.builder.descriptor(node(x)).shape.dims().to_vec()
    }
}

fn pool(window: [usize; 2], windows: Windows) -> Pool2d {
    Pool2d { window, padding: windows.padding, strides: windows.strides, dilations: windows.dilations }
}

fn conv(windows: Windows, groups: usize) -> saggar_tensor::op::Conv2d {
    saggar_tensor::op::Conv2d {
        padding: windows.padding,
        strides: windows.strides,
        dilations: windows.dilations,
        groups,
    }
}

impl Backend for Interpreter {
    fn input(&mut self, name: &str, of: DataType, shape: &[usize]) -> Made {
        let built = self.builder.input(name, described(of, shape)?);
        self.keep(built)
    }

    fn variable(&mut self, name: &str, of: DataType, shape: &[usize]) -> Made {
        let built = self.builder.variable(name, described(of, shape)?);
        self.keep(built)
    }

    fn constant(&mut self, of: DataType, shape: &[usize], bytes: &[u8]) -> Made {
        let built = self.builder.constant(described(of, shape)?, bytes);
        self.keep(built)
    }

    fn fill(&mut self, of: DataType, shape: &[usize], value: f64) -> Made {
        let built = self.builder.fill(described(of, shape)?, scalar(dtype(of), value));
        self.keep(built)
    }

    fn iota(&mut self, of: DataType, shape: &[usize], axis: usize) -> Made {
        let built = self.builder.iota(described(of, shape)?, axis);
        self.keep(built)
    }

    fn unary(&mut self, op: Unary, x: &Operand) -> Made {
        let (g, x) = (&mut self.builder, node(x));
        let built = match op {
            Unary::Abs => g.abs(x),
            Unary::Neg => g.neg(x),
            Unary::Sign => g.sign(x),
            Unary::Ceil => g.ceil(x),
            Unary::Floor => g.floor(x),
            Unary::RoundEven => g.round_even(x),
            Unary::Exp => g.exp(x),
            Unary::Log => g.log(x),
            Unary::Sqrt => g.sqrt(x),
            Unary::Reciprocal => g.reciprocal(x),
            Unary::Sin => g.sin(x),
            Unary::Cos => g.cos(x),
            Unary::Tan => nn::tan(g, x),
            Unary::Tanh => g.tanh(x),
            Unary::Erf => g.erf(x),
            Unary::LogicalNot => g.logical_not(x),
            Unary::Relu => nn::relu(g, x),
            Unary::Sigmoid => nn::sigmoid(g, x),
            Unary::Gelu => nn::gelu(g, x),
            Unary::Softplus => nn::softplus(g, x),
            Unary::Softsign => nn::softsign(g, x),
        };
        self.keep(built)
    }

    fn binary(&mut self, op: Binary, a: &Operand, b: &Operand) -> Made {
        let (g, a, b) = (&mut self.builder, node(a), node(b));
        let built = match op {
            Binary::Add => g.add(a, b),
            Binary::Sub => g.sub(a, b),
            Binary::Mul => g.mul(a, b),
            Binary::Div => g.div(a, b),
            Binary::Pow => g.pow(a, b),
            Binary::Max => g.max(a, b),
            Binary::Min => g.min(a, b),
            Binary::Equal => g.equal(a, b),
            Binary::Greater => g.greater(a, b),
            Binary::GreaterOrEqual => g.greater_or_equal(a, b),
            Binary::Lesser => g.less(a, b),
            Binary::LesserOrEqual => g.less_or_equal(a, b),
            Binary::And => g.logical_and(a, b),
            Binary::Or => g.logical_or(a, b),
            Binary::Xor => g.logical_xor(a, b),
        };
        self.keep(built)
    }

    fn select(&mut self, condition: &Operand, yes: &Operand, no: &Operand) -> Made {
        let built = self.builder.select(node(condition), node(yes), node(no));
        self.keep(built)
    }

    fn cast(&mut self, x: &Operand, to: DataType) -> Made {
        let built = self.builder.cast(node(x), dtype(to));
        self.keep(built)
    }

    fn clamp(&mut self, x: &Operand, min: Option<f64>, max: Option<f64>) -> Made {
        let built = nn::clamp(&mut self.builder, node(x), min, max);
        self.keep(built)
    }

    fn softmax(&mut self, x: &Operand, axis: usize) -> Made {
        let built = nn::softmax(&mut self.builder, node(x), axis);
        self.keep(built)
    }

    fn reduce(&mut self, op: Reduction, x: &Operand, axes: &[usize]) -> Made {
        let (g, x) = (&mut self.builder, node(x));
        let built = match op {
            Reduction::Sum => g.reduce(ReduceKind::Sum, x, axes, true),
            Reduction::Product => g.reduce(ReduceKind::Product, x, axes, true),
            Reduction::Max => g.reduce(ReduceKind::Max, x, axes, true),
            Reduction::Min => g.reduce(ReduceKind::Min, x, axes, true),
            Reduction::Mean => nn::reduce_mean(g, x, axes, true),
            Reduction::LogSumExp => nn::reduce_log_sum_exp(g, x, axes, true),
        };
        self.keep(built)
    }

    fn arg(&mut self, largest: bool, x: &Operand, axis: usize) -> Made {
        let (g, x) = (&mut self.builder, node(x));
        let built = if largest { g.arg_max(x, axis, true) } else { g.arg_min(x, axis, true) };
        self.keep(built)
    }

    fn cumulative_sum(&mut self, x: &Operand, axis: usize, exclusive: bool, reversed: bool) -> Made {
        let built = running_sum(&mut self.builder, node(x), axis, exclusive, reversed);
        self.keep(built)
    }

    fn reshape(&mut self, x: &Operand, shape: &[usize]) -> Made {
        let built = self.builder.reshape(node(x), shape);
        self.keep(built)
    }

    fn transpose(&mut self, x: &Operand, permutation: &[usize]) -> Made {
        let built = self.builder.transpose(node(x), permutation);
        self.keep(built)
    }

    fn expand(&mut self, x: &Operand, shape: &[usize]) -> Made {
        let shape = Shape::new(shape).map_err(refused)?;
        let built = self.builder.broadcast_to(node(x), shape);
        self.keep(built)
    }

    fn slice(&mut self, x: &Operand, starts: &[usize], sizes: &[usize], strides: &[usize]) -> Made {
        let built = self.builder.slice(node(x), starts, sizes, strides);
        self.keep(built)
    }

    fn concat(&mut self, xs: &[Operand], axis: usize) -> Made {
        let nodes: Vec<NodeId> = xs.iter().map(node).collect();
        let built = self.builder.concat(&nodes, axis);
        self.keep(built)
    }

    fn pad(&mut self, x: &Operand, low: &[usize], high: &[usize], value: f64) -> Made {
        let of = self.builder.descriptor(node(x)).dtype;
        let built = self.builder.pad(node(x), low, high, scalar(of, value));
        self.keep(built)
    }

    fn reverse(&mut self, x: &Operand, axes: &[usize]) -> Made {
        let built = self.builder.reverse(node(x), axes);
        self.keep(built)
    }

    fn gather(&mut self, x: &Operand, indices: &Operand, axis: usize) -> Made {
        let built = self.builder.gather(node(x), node(indices), axis);
        self.keep(built)
    }

    fn gather_elements(&mut self, x: &Operand, indices: &Operand, axis: usize) -> Made {
        let shape = self.shape(x);
        let g = &mut self.builder;
        let built = elements_places(g, &shape, node(indices), axis).and_then(|places| {
            let flat = g.reshape(node(x), &[shape.iter().product()])?;
            g.gather(flat, places, 0)
        });
        self.keep(built)
    }

    fn gather_nd(&mut self, x: &Operand, indices: &Operand) -> Made {
        let shape = self.shape(x);
        let g = &mut self.builder;
        let built = nd_places(g, &shape, node(indices)).and_then(|(places, k)| {
            let rows = [&[shape[..k].iter().product()], &shape[k..]].concat();
            let flat = g.reshape(node(x), &rows)?;
            g.gather(flat, places, 0)
        });
        self.keep(built)
    }

    fn scatter_elements(
        &mut self,
        x: &Operand,
        indices: &Operand,
        updates: &Operand,
        axis: usize,
        how: Scatter,
    ) -> Made {
        let shape = self.shape(x);
        let g = &mut self.builder;
        let built = elements_places(g, &shape, node(indices), axis).and_then(|places| {
            let total: usize = shape.iter().product();
            let count = g.descriptor(places).shape.elements();
            let places = g.reshape(places, &[count])?;
            let updates = g.reshape(node(updates), &[count])?;
            let flat = g.reshape(node(x), &[total])?;
            let scattered = scattered(g, flat, places, updates, total, how)?;
            g.reshape(scattered, &shape)
        });
        self.keep(built)
    }

    fn scatter_nd(&mut self, x: &Operand, indices: &Operand, updates: &Operand, how: Scatter) -> Made {
        let shape = self.shape(x);
        let g = &mut self.builder;
        let built = nd_places(g, &shape, node(indices)).and_then(|(places, k)| {
            let rows: usize = shape[..k].iter().product();
            let count = g.descriptor(places).shape.elements();
            let places = g.reshape(places, &[count])?;
            let updates = g.reshape(node(updates), &[&[count], &shape[k..]].concat())?;
            let flat = g.reshape(node(x), &[&[rows], &shape[k..]].concat())?;
            let scattered = scattered(g, flat, places, updates, rows, how)?;
            g.reshape(scattered, &shape)
        });
        self.keep(built)
    }

    fn matmul(&mut self, a: &Operand, b: &Operand) -> Made {
        let built = self.builder.matmul(node(a), node(b));
        self.keep(built)
    }

    fn conv2d(
        &mut self,
        x: &Operand,
        filter: &Operand,
        bias: Option<&Operand>,
        windows: Windows,
        groups: usize,
    ) -> Made {
        let options = nn::Conv2dOptions { conv: conv(windows, groups), ..nn::Conv2dOptions::default() };
        let built = nn::conv2d(&mut self.builder, node(x), node(filter), bias.map(node), options);
        self.keep(built)
    }

    fn conv_transpose2d(
        &mut self,
        x: &Operand,
        filter: &Operand,
        bias: Option<&Operand>,
        windows: Windows,
        groups: usize,
        size: [usize; 2],
    ) -> Made {
        let op = Op::Convolution(Convolution::Conv2dInputGrad { conv: conv(windows, groups), size });
        let g = &mut self.builder;
        let built = g.add_node(op, &[node(x), node(filter)]).and_then(|y| match bias {
            Some(bias) => {
                let channels = g.descriptor(y).shape[1];
                let bias = g.reshape(node(bias), &[1, channels, 1, 1])?;
                g.add(y, bias)
            }
            None => Ok(y),
        });
        self.keep(built)
    }

    fn pool2d(&mut self, how: Pooling, x: &Operand, window: [usize; 2], windows: Windows) -> Made {
        let built = match how {
            Pooling::Max => self.builder.pool2d(node(x), Pool::Max, pool(window, windows)),
            Pooling::Average => {
                let options = nn::Pool2dOptions {
                    window: Some(window),
                    padding: windows.padding,
                    strides: windows.strides,
                    dilations: windows.dilations,
                    ..nn::Pool2dOptions::default()
                };
                nn::average_pool2d(&mut self.builder, node(x), options)
            }
        };
        self.keep(built)
    }
}

/// By slices: each place is the sum of those before it.
fn running_sum(g: &mut GraphBuilder, x: NodeId, axis: usize, exclusive: bool, reversed: bool) -> Built {
    let x = if reversed { g.reverse(x, &[axis])? } else { x };
    let of = g.descriptor(x).clone();
    let mut sum = None;
    let mut parts = Vec::new();
    for i in 0..of.shape[axis] {
        let part = g.narrow(x, axis, i, 1)?;
        let like = g.descriptor(part).clone();
        let before = match sum {
            Some(sum) => sum,
            None => g.fill(like, Scalar::Int(0))?,
        };
        let after = g.add(before, part)?;
        parts.push(if exclusive { before } else { after });
        sum = Some(after);
    }
    let y = g.concat(&parts, axis)?;
    if reversed { g.reverse(y, &[axis]) } else { Ok(y) }
}

/// Flat places in a tensor of `shape` that the indices mean, along `axis`.
fn elements_places(g: &mut GraphBuilder, shape: &[usize], indices: NodeId, axis: usize) -> Built {
    let of = Descriptor::new(DType::I64, g.descriptor(indices).shape.clone());
    let indices = g.cast(indices, DType::I64)?;
    let mut sum = g.fill(of.clone(), Scalar::Int(0))?;
    for (other, &stride) in Shape::new(shape)?.strides().iter().enumerate() {
        let stride = g.scalar(DType::I64, Scalar::Int(stride as i128))?;
        let coordinate = if other == axis { indices } else { g.iota(of.clone(), other)? };
        let part = g.mul(coordinate, stride)?;
        sum = g.add(sum, part)?;
    }
    Ok(sum)
}

/// Rows that the last dimension of the indices names, and how many axes it does.
fn nd_places(
    g: &mut GraphBuilder,
    shape: &[usize],
    indices: NodeId,
) -> std::result::Result<(NodeId, usize), GraphError> {
    let of = g.descriptor(indices).clone();
    let last = of.shape.rank() - 1;
    let k = of.shape[last];
    let indices = g.cast(indices, DType::I64)?;
    let strides = Shape::new(&shape[..k])?.strides();
    let factors: Vec<u8> = strides.iter().flat_map(|&stride| (stride as i64).to_le_bytes()).collect();
    let factors = g.constant(Descriptor::new(DType::I64, Shape::new([k])?), factors)?;
    let products = g.mul(indices, factors)?;
    Ok((g.reduce(ReduceKind::Sum, products, &[last], false)?, k))
}

/// Rows of `x` combined with updates; the last of several counts only where all are equal or none.
fn scattered(g: &mut GraphBuilder, x: NodeId, places: NodeId, updates: NodeId, rows: usize, how: Scatter) -> Built {
    let sum = g.scatter_add(places, updates, 0, rows)?;
    match how {
        Scatter::Add => g.add(x, sum),
        Scatter::Replace => {
            let of = g.descriptor(updates).clone();
            let ones = g.fill(of, Scalar::Int(1))?;
            let count = g.scatter_add(places, ones, 0, rows)?;
            let zero = g.scalar(g.descriptor(count).dtype, Scalar::Int(0))?;
            let written = g.greater(count, zero)?;
            g.select(written, sum, x)
        }
        Scatter::Mul | Scatter::Min | Scatter::Max => Err(GraphError::RankTooLarge { rank: 99 }),
    }
}

/// Variables that an import made.
#[derive(Debug, Default)]
pub(crate) struct Variables(pub(crate) BTreeMap<String, Value>);

impl Store for Variables {
    fn parameter(&mut self, name: &str, of: DataType, shape: &[usize], bytes: Vec<u8>) -> Result<()> {
        let value = Value::from_bytes(described(of, shape)?, &bytes).map_err(refused)?;
        assert!(self.0.insert(name.to_owned(), value).is_none(), "variable `{name}` is made twice");
        Ok(())
    }

    fn backend(&mut self) -> Box<dyn Backend + '_> {
        Box::<Interpreter>::default()
    }
}

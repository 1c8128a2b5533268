//! A backend without a host: graphs of the tensor crate, run by the interpreter that defines its operators.

use std::collections::BTreeMap;

use onnx::backend::{Backend, Binary, Made, Pooling, Reduction, Scatter, Unary, Windows};
use onnx::elem::Elem;
use onnx::error::{Error, Fault, Result};
use onnx::import::Store;
use onnx::value::Operand;
use saggar_plugin::{DataType, ErrorCode};
use saggar_tensor::error::GraphError;
use saggar_tensor::interp::{self, InterpTensor};
use saggar_tensor::nn;
use saggar_tensor::op::{Pool2d, PoolKind, ReduceKind, Scalar, ScatterCombine};
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
        inputs: &BTreeMap<String, InterpTensor>,
        variables: &BTreeMap<String, InterpTensor>,
    ) -> Result<Vec<InterpTensor>> {
        for (name, operand) in outputs {
            self.builder.output(name, node(operand)).map_err(refused)?;
        }
        let graph = verify(self.builder.finish()).map_err(refused)?;
        let inputs: Vec<InterpTensor> = graph.graph().inputs.iter().map(|port| inputs[&port.name].clone()).collect();
        let mut state: Vec<InterpTensor> =
            graph.graph().variables.iter().map(|port| variables[&port.name].clone()).collect();
        interp::evaluate(&graph, &inputs, &mut state).map_err(refused)
    }

    fn keep(&mut self, built: Built) -> Made {
        let id = built.map_err(refused)?;
        let of = self.builder.descriptor(id);
        Ok(Operand { id: id.0, elem: Elem::of(data_type(of.dtype)), shape: of.shape.dims().into() })
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
        let built = nn::cumulative_sum(&mut self.builder, node(x), axis, exclusive, reversed);
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
        let built = nn::gather_elements(&mut self.builder, node(x), node(indices), axis);
        self.keep(built)
    }

    fn gather_nd(&mut self, x: &Operand, indices: &Operand) -> Made {
        let built = nn::gather_nd(&mut self.builder, node(x), node(indices));
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
        let (x, indices, updates) = (node(x), node(indices), node(updates));
        let built = nn::scatter_elements(&mut self.builder, x, indices, updates, axis, combine(how));
        self.keep(built)
    }

    fn scatter_nd(&mut self, x: &Operand, indices: &Operand, updates: &Operand, how: Scatter) -> Made {
        let built = nn::scatter_nd(&mut self.builder, node(x), node(indices), node(updates), combine(how));
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
        let options = nn::ConvTranspose2dOptions {
            conv: conv(windows, groups),
            output_sizes: Some(size),
            ..nn::ConvTranspose2dOptions::default()
        };
        let built = nn::conv_transpose2d(&mut self.builder, node(x), node(filter), bias.map(node), options);
        self.keep(built)
    }

    fn pool2d(&mut self, how: Pooling, x: &Operand, window: [usize; 2], windows: Windows) -> Made {
        let built = match how {
            Pooling::Max => self.builder.pool2d(node(x), PoolKind::Max, pool(window, windows)),
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

fn combine(how: Scatter) -> ScatterCombine {
    match how {
        Scatter::Replace => ScatterCombine::Replace,
        Scatter::Add => ScatterCombine::Add,
        Scatter::Mul => ScatterCombine::Mul,
        Scatter::Min => ScatterCombine::Min,
        Scatter::Max => ScatterCombine::Max,
    }
}

/// Variables that an import made.
#[derive(Debug, Default)]
pub(crate) struct Variables(pub(crate) BTreeMap<String, InterpTensor>);

impl Store for Variables {
    fn parameter(&mut self, name: &str, of: DataType, shape: &[usize], bytes: Vec<u8>) -> Result<()> {
        let value = InterpTensor::from_bytes(described(of, shape)?, &bytes).map_err(refused)?;
        assert!(self.0.insert(name.to_owned(), value).is_none(), "variable `{name}` is made twice");
        Ok(())
    }

    fn backend(&mut self) -> Box<dyn Backend + '_> {
        Box::<Interpreter>::default()
    }
}

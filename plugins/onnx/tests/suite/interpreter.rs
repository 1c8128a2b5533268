//! A backend without a host: builds graphs of the tensor crate and runs them with the interpreter that defines its
//! operators.

use std::collections::BTreeMap;

use onnx::backend::{
    BackendResult, ElementwiseBinary, ElementwiseUnary, GraphBackend, PlaneWindows, PoolingMode, ReductionOperator,
    ScatterMode,
};
use onnx::elem::ElementType;
use onnx::error::{Error, OnnxErrorKind, Result};
use onnx::import::WeightStore;
use onnx::value::BackendOperand;
use saggar_plugin::{DataType, ErrorCode};
use saggar_tensor::error::GraphError;
use saggar_tensor::interp::{self, InterpTensor};
use saggar_tensor::nn;
use saggar_tensor::op::{Pool2d, PoolKind, ReduceKind, Scalar, ScatterCombine};
use saggar_tensor::{DType, Descriptor, GraphBuilder, NodeId, Shape, verify};

/// A backend over the tensor crate's graph builder.
#[derive(Debug, Default)]
pub(crate) struct InterpreterBackend {
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

fn graph_error(error: impl std::fmt::Display) -> Error {
    let message = error.to_string();
    OnnxErrorKind::Host(saggar_plugin::Error::Host { code: ErrorCode::InvalidArgument, message, place: None }).into()
}

fn tensor_descriptor(of: DataType, shape: &[usize]) -> Result<Descriptor> {
    Ok(Descriptor::new(dtype(of), Shape::new(shape).map_err(graph_error)?))
}

fn node(x: &BackendOperand) -> NodeId {
    NodeId(x.id)
}

fn scalar(dtype: DType, value: f64) -> Scalar {
    if dtype.is_float() { Scalar::Float(value) } else { Scalar::Int(value as i128) }
}

type InterpreterResult = std::result::Result<NodeId, GraphError>;

impl InterpreterBackend {
    /// Runs the graph and returns the outputs by name. `variables` are those of an import.
    pub(crate) fn run(
        mut self,
        outputs: &[(String, BackendOperand)],
        inputs: &BTreeMap<String, InterpTensor>,
        variables: &BTreeMap<String, InterpTensor>,
    ) -> Result<Vec<InterpTensor>> {
        for (name, operand) in outputs {
            self.builder.output(name, node(operand)).map_err(graph_error)?;
        }
        let graph = verify(self.builder.finish()).map_err(graph_error)?;
        let inputs: Vec<InterpTensor> = graph.graph().inputs.iter().map(|port| inputs[&port.name].clone()).collect();
        let mut state: Vec<InterpTensor> =
            graph.graph().variables.iter().map(|port| variables[&port.name].clone()).collect();
        interp::evaluate(&graph, &inputs, &mut state).map_err(graph_error)
    }

    fn push_node(&mut self, built: InterpreterResult) -> BackendResult {
        let id = built.map_err(graph_error)?;
        let of = self.builder.descriptor(id);
        Ok(BackendOperand {
            id: id.0,
            elem: ElementType::from_data_type(data_type(of.dtype)),
            shape: of.shape.dims().into(),
        })
    }
}

fn pool2d_op(window: [usize; 2], windows: PlaneWindows) -> Pool2d {
    Pool2d { window, padding: windows.padding, strides: windows.strides, dilations: windows.dilations }
}

fn conv2d_op(windows: PlaneWindows, groups: usize) -> saggar_tensor::op::Conv2d {
    saggar_tensor::op::Conv2d {
        padding: windows.padding,
        strides: windows.strides,
        dilations: windows.dilations,
        groups,
    }
}

impl GraphBackend for InterpreterBackend {
    fn input(&mut self, name: &str, of: DataType, shape: &[usize]) -> BackendResult {
        let built = self.builder.input(name, tensor_descriptor(of, shape)?);
        self.push_node(built)
    }

    fn variable(&mut self, name: &str, of: DataType, shape: &[usize]) -> BackendResult {
        let built = self.builder.variable(name, tensor_descriptor(of, shape)?);
        self.push_node(built)
    }

    fn constant(&mut self, of: DataType, shape: &[usize], bytes: &[u8]) -> BackendResult {
        let built = self.builder.constant(tensor_descriptor(of, shape)?, bytes);
        self.push_node(built)
    }

    fn fill(&mut self, of: DataType, shape: &[usize], value: f64) -> BackendResult {
        let built = self.builder.fill(tensor_descriptor(of, shape)?, scalar(dtype(of), value));
        self.push_node(built)
    }

    fn iota(&mut self, of: DataType, shape: &[usize], axis: usize) -> BackendResult {
        let built = self.builder.iota(tensor_descriptor(of, shape)?, axis);
        self.push_node(built)
    }

    fn unary(&mut self, op: ElementwiseUnary, x: &BackendOperand) -> BackendResult {
        let (g, x) = (&mut self.builder, node(x));
        let built = match op {
            ElementwiseUnary::Abs => g.abs(x),
            ElementwiseUnary::Neg => g.neg(x),
            ElementwiseUnary::Sign => g.sign(x),
            ElementwiseUnary::Ceil => g.ceil(x),
            ElementwiseUnary::Floor => g.floor(x),
            ElementwiseUnary::RoundEven => g.round_even(x),
            ElementwiseUnary::Exp => g.exp(x),
            ElementwiseUnary::Log => g.log(x),
            ElementwiseUnary::Sqrt => g.sqrt(x),
            ElementwiseUnary::Reciprocal => g.reciprocal(x),
            ElementwiseUnary::Sin => g.sin(x),
            ElementwiseUnary::Cos => g.cos(x),
            ElementwiseUnary::Tan => nn::tan(g, x),
            ElementwiseUnary::Tanh => g.tanh(x),
            ElementwiseUnary::Erf => g.erf(x),
            ElementwiseUnary::LogicalNot => g.logical_not(x),
            ElementwiseUnary::Relu => nn::relu(g, x),
            ElementwiseUnary::Sigmoid => nn::sigmoid(g, x),
            ElementwiseUnary::Gelu => nn::gelu(g, x),
            ElementwiseUnary::Softplus => nn::softplus(g, x),
            ElementwiseUnary::Softsign => nn::softsign(g, x),
        };
        self.push_node(built)
    }

    fn binary(&mut self, op: ElementwiseBinary, a: &BackendOperand, b: &BackendOperand) -> BackendResult {
        let (g, a, b) = (&mut self.builder, node(a), node(b));
        let built = match op {
            ElementwiseBinary::Add => g.add(a, b),
            ElementwiseBinary::Sub => g.sub(a, b),
            ElementwiseBinary::Mul => g.mul(a, b),
            ElementwiseBinary::Div => g.div(a, b),
            ElementwiseBinary::Pow => g.pow(a, b),
            ElementwiseBinary::Max => g.max(a, b),
            ElementwiseBinary::Min => g.min(a, b),
            ElementwiseBinary::Equal => g.equal(a, b),
            ElementwiseBinary::Greater => g.greater(a, b),
            ElementwiseBinary::GreaterOrEqual => g.greater_or_equal(a, b),
            ElementwiseBinary::Lesser => g.less(a, b),
            ElementwiseBinary::LesserOrEqual => g.less_or_equal(a, b),
            ElementwiseBinary::And => g.logical_and(a, b),
            ElementwiseBinary::Or => g.logical_or(a, b),
            ElementwiseBinary::Xor => g.logical_xor(a, b),
        };
        self.push_node(built)
    }

    fn select(&mut self, condition: &BackendOperand, yes: &BackendOperand, no: &BackendOperand) -> BackendResult {
        let built = self.builder.select(node(condition), node(yes), node(no));
        self.push_node(built)
    }

    fn cast(&mut self, x: &BackendOperand, to: DataType) -> BackendResult {
        let built = self.builder.cast(node(x), dtype(to));
        self.push_node(built)
    }

    fn clamp(&mut self, x: &BackendOperand, min: Option<f64>, max: Option<f64>) -> BackendResult {
        let built = nn::clamp(&mut self.builder, node(x), min, max);
        self.push_node(built)
    }

    fn softmax(&mut self, x: &BackendOperand, axis: usize) -> BackendResult {
        let built = nn::softmax(&mut self.builder, node(x), axis);
        self.push_node(built)
    }

    fn reduce(&mut self, op: ReductionOperator, x: &BackendOperand, axes: &[usize]) -> BackendResult {
        let (g, x) = (&mut self.builder, node(x));
        let built = match op {
            ReductionOperator::Sum => g.reduce(ReduceKind::Sum, x, axes, true),
            ReductionOperator::Product => g.reduce(ReduceKind::Product, x, axes, true),
            ReductionOperator::Max => g.reduce(ReduceKind::Max, x, axes, true),
            ReductionOperator::Min => g.reduce(ReduceKind::Min, x, axes, true),
            ReductionOperator::Mean => nn::reduce_mean(g, x, axes, true),
            ReductionOperator::LogSumExp => nn::reduce_log_sum_exp(g, x, axes, true),
        };
        self.push_node(built)
    }

    fn arg_extremum(&mut self, largest: bool, x: &BackendOperand, axis: usize) -> BackendResult {
        let (g, x) = (&mut self.builder, node(x));
        let built = if largest { g.arg_max(x, axis, true) } else { g.arg_min(x, axis, true) };
        self.push_node(built)
    }

    fn cumulative_sum(&mut self, x: &BackendOperand, axis: usize, exclusive: bool, reversed: bool) -> BackendResult {
        let built = nn::cumulative_sum(&mut self.builder, node(x), axis, exclusive, reversed);
        self.push_node(built)
    }

    fn reshape(&mut self, x: &BackendOperand, shape: &[usize]) -> BackendResult {
        let built = self.builder.reshape(node(x), shape);
        self.push_node(built)
    }

    fn transpose(&mut self, x: &BackendOperand, permutation: &[usize]) -> BackendResult {
        let built = self.builder.transpose(node(x), permutation);
        self.push_node(built)
    }

    fn expand(&mut self, x: &BackendOperand, shape: &[usize]) -> BackendResult {
        let shape = Shape::new(shape).map_err(graph_error)?;
        let built = self.builder.broadcast_to(node(x), shape);
        self.push_node(built)
    }

    fn slice(&mut self, x: &BackendOperand, starts: &[usize], sizes: &[usize], strides: &[usize]) -> BackendResult {
        let built = self.builder.slice(node(x), starts, sizes, strides);
        self.push_node(built)
    }

    fn concat(&mut self, xs: &[BackendOperand], axis: usize) -> BackendResult {
        let nodes: Vec<NodeId> = xs.iter().map(node).collect();
        let built = self.builder.concat(&nodes, axis);
        self.push_node(built)
    }

    fn pad(&mut self, x: &BackendOperand, low: &[usize], high: &[usize], value: f64) -> BackendResult {
        let of = self.builder.descriptor(node(x)).dtype;
        let built = self.builder.pad(node(x), low, high, scalar(of, value));
        self.push_node(built)
    }

    fn reverse(&mut self, x: &BackendOperand, axes: &[usize]) -> BackendResult {
        let built = self.builder.reverse(node(x), axes);
        self.push_node(built)
    }

    fn gather(&mut self, x: &BackendOperand, indices: &BackendOperand, axis: usize) -> BackendResult {
        let built = self.builder.gather(node(x), node(indices), axis);
        self.push_node(built)
    }

    fn gather_elements(&mut self, x: &BackendOperand, indices: &BackendOperand, axis: usize) -> BackendResult {
        let built = nn::gather_elements(&mut self.builder, node(x), node(indices), axis);
        self.push_node(built)
    }

    fn gather_nd(&mut self, x: &BackendOperand, indices: &BackendOperand) -> BackendResult {
        let built = nn::gather_nd(&mut self.builder, node(x), node(indices));
        self.push_node(built)
    }

    fn scatter_elements(
        &mut self,
        x: &BackendOperand,
        indices: &BackendOperand,
        updates: &BackendOperand,
        axis: usize,
        how: ScatterMode,
    ) -> BackendResult {
        let (x, indices, updates) = (node(x), node(indices), node(updates));
        let built = nn::scatter_elements(&mut self.builder, x, indices, updates, axis, combine_of(how));
        self.push_node(built)
    }

    fn scatter_nd(
        &mut self,
        x: &BackendOperand,
        indices: &BackendOperand,
        updates: &BackendOperand,
        how: ScatterMode,
    ) -> BackendResult {
        let built = nn::scatter_nd(&mut self.builder, node(x), node(indices), node(updates), combine_of(how));
        self.push_node(built)
    }

    fn matmul(&mut self, a: &BackendOperand, b: &BackendOperand) -> BackendResult {
        let built = self.builder.matmul(node(a), node(b));
        self.push_node(built)
    }

    fn conv2d(
        &mut self,
        x: &BackendOperand,
        filter: &BackendOperand,
        bias: Option<&BackendOperand>,
        windows: PlaneWindows,
        groups: usize,
    ) -> BackendResult {
        let options = nn::Conv2dOptions { conv: conv2d_op(windows, groups), ..nn::Conv2dOptions::default() };
        let built = nn::conv2d(&mut self.builder, node(x), node(filter), bias.map(node), options);
        self.push_node(built)
    }

    fn conv_transpose2d(
        &mut self,
        x: &BackendOperand,
        filter: &BackendOperand,
        bias: Option<&BackendOperand>,
        windows: PlaneWindows,
        groups: usize,
        size: [usize; 2],
    ) -> BackendResult {
        let options = nn::ConvTranspose2dOptions {
            conv: conv2d_op(windows, groups),
            output_sizes: Some(size),
            ..nn::ConvTranspose2dOptions::default()
        };
        let built = nn::conv_transpose2d(&mut self.builder, node(x), node(filter), bias.map(node), options);
        self.push_node(built)
    }

    fn pool2d(
        &mut self,
        how: PoolingMode,
        x: &BackendOperand,
        window: [usize; 2],
        windows: PlaneWindows,
    ) -> BackendResult {
        let built = match how {
            PoolingMode::Max => self.builder.pool2d(node(x), PoolKind::Max, pool2d_op(window, windows)),
            PoolingMode::Average => {
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
        self.push_node(built)
    }
}

fn combine_of(how: ScatterMode) -> ScatterCombine {
    match how {
        ScatterMode::Replace => ScatterCombine::Replace,
        ScatterMode::Add => ScatterCombine::Add,
        ScatterMode::Mul => ScatterCombine::Mul,
        ScatterMode::Min => ScatterCombine::Min,
        ScatterMode::Max => ScatterCombine::Max,
    }
}

/// The variables that an import created.
#[derive(Debug, Default)]
pub(crate) struct TestWeightStore(pub(crate) BTreeMap<String, InterpTensor>);

impl WeightStore for TestWeightStore {
    fn parameter(&mut self, name: &str, of: DataType, shape: &[usize], bytes: Vec<u8>) -> Result<()> {
        let value = InterpTensor::from_bytes(tensor_descriptor(of, shape)?, &bytes).map_err(graph_error)?;
        assert!(self.0.insert(name.to_owned(), value).is_none(), "variable `{name}` is made twice");
        Ok(())
    }

    fn backend(&mut self) -> Box<dyn GraphBackend + '_> {
        Box::<InterpreterBackend>::default()
    }
}

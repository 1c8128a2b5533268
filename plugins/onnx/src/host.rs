//! The backend that builds with the host's graph builder, through the guest library.

use saggar_plugin::bindings::graphs as raw;
use saggar_plugin::{
    Conv2dOptions, DataType, Descriptor, Graph, Initializer, Operand as Handle, PaddingMode, Pool2dOptions,
    VariableKind, Variables, concat, descriptor,
};

use crate::backend::{
    BackendResult, ElementwiseBinary, ElementwiseUnary, GraphBackend, PlaneWindows, PoolingMode, ReductionOperator,
    ScatterMode,
};
use crate::elem::ElementType;
use crate::error::{Error, Result};
use crate::value::BackendOperand;

/// A graph on the host with the variables of one model.
#[derive(Debug)]
pub struct HostBackend {
    graph: Graph,
    /// `None` in a dry run: variables are then graph inputs, and the graph is never compiled.
    variables: Option<Variables>,
    handles: Vec<Handle>,
}

impl HostBackend {
    /// Creates an empty graph over these variables.
    pub fn with_variables(variables: &Variables) -> Self {
        Self { graph: Graph::new(), variables: Some(variables.clone()), handles: Vec::new() }
    }

    /// Creates an empty graph that only checks whether a model can be built.
    pub fn dry_run() -> Self {
        Self { graph: Graph::new(), variables: None, handles: Vec::new() }
    }

    /// Returns the graph.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// Returns the host's handle of an operand.
    pub fn handle(&self, operand: &BackendOperand) -> &Handle {
        &self.handles[operand.id as usize]
    }

    fn push_handle(&mut self, handle: Handle) -> BackendResult {
        let Descriptor { data_type, shape } = handle.descriptor();
        let id = self.handles.len() as u32;
        self.handles.push(handle);
        Ok(BackendOperand {
            id,
            elem: ElementType::from_data_type(data_type),
            shape: shape.iter().map(|&dim| dim as usize).collect(),
        })
    }
}

/// Converts sizes to 32 bits, the host's integer width. A larger number exceeds the host's limits.
fn to_u32_sizes(numbers: &[usize]) -> Result<Vec<u32>> {
    let narrowed = numbers.iter().map(|&number| u32::try_from(number));
    narrowed.collect::<std::result::Result<_, _>>().map_err(|_| Error::unsupported(format!("sizes {numbers:?}")))
}

fn host_descriptor(data_type: DataType, shape: &[usize]) -> Result<Descriptor> {
    Ok(descriptor(data_type, to_u32_sizes(shape)?))
}

fn to_u32_pair([a, b]: [usize; 2]) -> Result<Option<(u32, u32)>> {
    match to_u32_sizes(&[a, b])?[..] {
        [a, b] => Ok(Some((a, b))),
        _ => Ok(None),
    }
}

fn to_u32_sides(padding: [usize; 4]) -> Result<Option<(u32, u32, u32, u32)>> {
    match to_u32_sizes(&padding)?[..] {
        [top, bottom, left, right] => Ok(Some((top, bottom, left, right))),
        _ => Ok(None),
    }
}

fn scatter_reduction(how: ScatterMode) -> raw::ScatterReduction {
    match how {
        ScatterMode::Replace => raw::ScatterReduction::None,
        ScatterMode::Add => raw::ScatterReduction::Add,
        ScatterMode::Mul => raw::ScatterReduction::Mul,
        ScatterMode::Min => raw::ScatterReduction::Min,
        ScatterMode::Max => raw::ScatterReduction::Max,
    }
}

impl GraphBackend for HostBackend {
    fn input(&mut self, name: &str, data_type: DataType, shape: &[usize]) -> BackendResult {
        let operand = self.graph.input(name, &host_descriptor(data_type, shape)?)?;
        self.push_handle(operand)
    }

    fn variable(&mut self, name: &str, data_type: DataType, shape: &[usize]) -> BackendResult {
        let of = host_descriptor(data_type, shape)?;
        let Some(variables) = &self.variables else {
            // A variable can be used several times, but an input is created only once, so the name includes a counter.
            let operand = self.graph.input(&format!("variable {} {name}", self.handles.len()), &of)?;
            return self.push_handle(operand);
        };
        let variable = variables.get(name, of, &Initializer::Zeros, VariableKind::Parameter)?;
        let operand = self.graph.variable(&variable)?;
        self.push_handle(operand)
    }

    fn constant(&mut self, data_type: DataType, shape: &[usize], bytes: &[u8]) -> BackendResult {
        let operand = self.graph.constant(&host_descriptor(data_type, shape)?, bytes)?;
        self.push_handle(operand)
    }

    fn fill(&mut self, data_type: DataType, shape: &[usize], value: f64) -> BackendResult {
        let operand = self.graph.fill(&host_descriptor(data_type, shape)?, value)?;
        self.push_handle(operand)
    }

    fn iota(&mut self, data_type: DataType, shape: &[usize], axis: usize) -> BackendResult {
        let operand = self.graph.iota(&host_descriptor(data_type, shape)?, axis as u32)?;
        self.push_handle(operand)
    }

    fn unary(&mut self, op: ElementwiseUnary, x: &BackendOperand) -> BackendResult {
        let x = self.handle(x);
        let operand = match op {
            ElementwiseUnary::Abs => x.abs(),
            ElementwiseUnary::Neg => x.neg(),
            ElementwiseUnary::Sign => x.sign(),
            ElementwiseUnary::Ceil => x.ceil(),
            ElementwiseUnary::Floor => x.floor(),
            ElementwiseUnary::RoundEven => x.round_even(),
            ElementwiseUnary::Exp => x.exp(),
            ElementwiseUnary::Log => x.log(),
            ElementwiseUnary::Sqrt => x.sqrt(),
            ElementwiseUnary::Reciprocal => x.reciprocal(),
            ElementwiseUnary::Sin => x.sin(),
            ElementwiseUnary::Cos => x.cos(),
            ElementwiseUnary::Tan => x.tan(),
            ElementwiseUnary::Tanh => x.tanh(),
            ElementwiseUnary::Erf => x.erf(),
            ElementwiseUnary::LogicalNot => x.logical_not(),
            ElementwiseUnary::Relu => x.relu(),
            ElementwiseUnary::Sigmoid => x.sigmoid(),
            ElementwiseUnary::Gelu => x.gelu(),
            ElementwiseUnary::Softplus => x.softplus(),
            ElementwiseUnary::Softsign => x.softsign(),
        }?;
        self.push_handle(operand)
    }

    fn binary(&mut self, op: ElementwiseBinary, a: &BackendOperand, b: &BackendOperand) -> BackendResult {
        let (a, b) = (self.handle(a), self.handle(b));
        let operand = match op {
            ElementwiseBinary::Add => a.add(b),
            ElementwiseBinary::Sub => a.sub(b),
            ElementwiseBinary::Mul => a.mul(b),
            ElementwiseBinary::Div => a.div(b),
            ElementwiseBinary::Pow => a.pow(b),
            ElementwiseBinary::Max => a.max(b),
            ElementwiseBinary::Min => a.min(b),
            ElementwiseBinary::Equal => a.equal(b),
            ElementwiseBinary::Greater => a.greater(b),
            ElementwiseBinary::GreaterOrEqual => a.greater_or_equal(b),
            ElementwiseBinary::Lesser => a.lesser(b),
            ElementwiseBinary::LesserOrEqual => a.lesser_or_equal(b),
            ElementwiseBinary::And => a.logical_and(b),
            ElementwiseBinary::Or => a.logical_or(b),
            ElementwiseBinary::Xor => a.logical_xor(b),
        }?;
        self.push_handle(operand)
    }

    fn select(&mut self, condition: &BackendOperand, yes: &BackendOperand, no: &BackendOperand) -> BackendResult {
        let operand = self.handle(condition).where_cond(self.handle(yes), self.handle(no))?;
        self.push_handle(operand)
    }

    fn cast(&mut self, x: &BackendOperand, data_type: DataType) -> BackendResult {
        let operand = self.handle(x).cast(data_type)?;
        self.push_handle(operand)
    }

    fn clamp(&mut self, x: &BackendOperand, min: Option<f64>, max: Option<f64>) -> BackendResult {
        let operand = self.handle(x).clamp(min, max)?;
        self.push_handle(operand)
    }

    fn softmax(&mut self, x: &BackendOperand, axis: usize) -> BackendResult {
        let operand = self.handle(x).softmax(axis as u32)?;
        self.push_handle(operand)
    }

    fn reduce(&mut self, op: ReductionOperator, x: &BackendOperand, axes: &[usize]) -> BackendResult {
        let (x, axes) = (self.handle(x), to_u32_sizes(axes)?);
        let operand = match op {
            ReductionOperator::Sum => x.reduce_sum(&axes, true),
            ReductionOperator::Mean => x.reduce_mean(&axes, true),
            ReductionOperator::Max => x.reduce_max(&axes, true),
            ReductionOperator::Min => x.reduce_min(&axes, true),
            ReductionOperator::Product => x.reduce_product(&axes, true),
            ReductionOperator::LogSumExp => x.reduce_log_sum_exp(&axes, true),
        }?;
        self.push_handle(operand)
    }

    fn arg_extremum(&mut self, largest: bool, x: &BackendOperand, axis: usize) -> BackendResult {
        let x = self.handle(x);
        let operand = if largest { x.arg_max(axis as u32, true) } else { x.arg_min(axis as u32, true) }?;
        self.push_handle(operand)
    }

    fn cumulative_sum(&mut self, x: &BackendOperand, axis: usize, exclusive: bool, reversed: bool) -> BackendResult {
        let operand = self.handle(x).cumulative_sum(axis as u32, exclusive, reversed)?;
        self.push_handle(operand)
    }

    fn reshape(&mut self, x: &BackendOperand, shape: &[usize]) -> BackendResult {
        let operand = self.handle(x).reshape(&to_u32_sizes(shape)?)?;
        self.push_handle(operand)
    }

    fn transpose(&mut self, x: &BackendOperand, permutation: &[usize]) -> BackendResult {
        let operand = self.handle(x).transpose(&to_u32_sizes(permutation)?)?;
        self.push_handle(operand)
    }

    fn expand(&mut self, x: &BackendOperand, shape: &[usize]) -> BackendResult {
        let operand = self.handle(x).expand(&to_u32_sizes(shape)?)?;
        self.push_handle(operand)
    }

    fn slice(&mut self, x: &BackendOperand, starts: &[usize], sizes: &[usize], strides: &[usize]) -> BackendResult {
        // WebNN's sizes are the extents of the windows that the strides step through.
        let windows: Vec<usize> = sizes
            .iter()
            .zip(strides)
            .map(|(&size, &stride)| if size == 0 { 0 } else { (size - 1) * stride + 1 })
            .collect();
        let operand =
            self.handle(x).slice_strided(&to_u32_sizes(starts)?, &to_u32_sizes(&windows)?, &to_u32_sizes(strides)?)?;
        self.push_handle(operand)
    }

    fn concat(&mut self, xs: &[BackendOperand], axis: usize) -> BackendResult {
        let handles: Vec<&Handle> = xs.iter().map(|x| self.handle(x)).collect();
        let operand = concat(&handles, axis as u32)?;
        self.push_handle(operand)
    }

    fn pad(&mut self, x: &BackendOperand, low: &[usize], high: &[usize], value: f64) -> BackendResult {
        let operand = self.handle(x).pad(&to_u32_sizes(low)?, &to_u32_sizes(high)?, PaddingMode::Constant(value))?;
        self.push_handle(operand)
    }

    fn reverse(&mut self, x: &BackendOperand, axes: &[usize]) -> BackendResult {
        let operand = self.handle(x).reverse(&to_u32_sizes(axes)?)?;
        self.push_handle(operand)
    }

    fn gather(&mut self, x: &BackendOperand, indices: &BackendOperand, axis: usize) -> BackendResult {
        let operand = self.handle(x).gather(self.handle(indices), axis as u32)?;
        self.push_handle(operand)
    }

    fn gather_elements(&mut self, x: &BackendOperand, indices: &BackendOperand, axis: usize) -> BackendResult {
        let operand = self.handle(x).gather_elements(self.handle(indices), axis as u32)?;
        self.push_handle(operand)
    }

    fn gather_nd(&mut self, x: &BackendOperand, indices: &BackendOperand) -> BackendResult {
        let operand = self.handle(x).gather_nd(self.handle(indices))?;
        self.push_handle(operand)
    }

    fn scatter_elements(
        &mut self,
        x: &BackendOperand,
        indices: &BackendOperand,
        updates: &BackendOperand,
        axis: usize,
        how: ScatterMode,
    ) -> BackendResult {
        let (indices, updates) = (self.handle(indices), self.handle(updates));
        let operand = self.handle(x).scatter_elements(indices, updates, axis as u32, scatter_reduction(how))?;
        self.push_handle(operand)
    }

    fn scatter_nd(
        &mut self,
        x: &BackendOperand,
        indices: &BackendOperand,
        updates: &BackendOperand,
        how: ScatterMode,
    ) -> BackendResult {
        let operand = self.handle(x).scatter_nd(self.handle(indices), self.handle(updates), scatter_reduction(how))?;
        self.push_handle(operand)
    }

    fn matmul(&mut self, a: &BackendOperand, b: &BackendOperand) -> BackendResult {
        let operand = self.handle(a).matmul(self.handle(b))?;
        self.push_handle(operand)
    }

    fn conv2d(
        &mut self,
        x: &BackendOperand,
        filter: &BackendOperand,
        bias: Option<&BackendOperand>,
        windows: PlaneWindows,
        groups: usize,
    ) -> BackendResult {
        let options = Conv2dOptions {
            padding: to_u32_sides(windows.padding)?,
            strides: to_u32_pair(windows.strides)?,
            dilations: to_u32_pair(windows.dilations)?,
            groups: Some(groups as u32),
            ..Conv2dOptions::default()
        };
        let bias = bias.map(|bias| self.handle(bias));
        let operand = self.handle(x).conv2d(self.handle(filter), bias, options)?;
        self.push_handle(operand)
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
        let options = raw::ConvTranspose2dOptions {
            padding: to_u32_sides(windows.padding)?,
            strides: to_u32_pair(windows.strides)?,
            dilations: to_u32_pair(windows.dilations)?,
            output_sizes: to_u32_pair(size)?,
            groups: Some(groups as u32),
            ..raw::ConvTranspose2dOptions::default()
        };
        let bias = bias.map(|bias| self.handle(bias));
        let operand = self.handle(x).conv_transpose2d(self.handle(filter), bias, options)?;
        self.push_handle(operand)
    }

    fn pool2d(
        &mut self,
        how: PoolingMode,
        x: &BackendOperand,
        window: [usize; 2],
        windows: PlaneWindows,
    ) -> BackendResult {
        let options = Pool2dOptions {
            window_dimensions: to_u32_pair(window)?,
            padding: to_u32_sides(windows.padding)?,
            strides: to_u32_pair(windows.strides)?,
            dilations: to_u32_pair(windows.dilations)?,
            ..Pool2dOptions::default()
        };
        let x = self.handle(x);
        let operand = match how {
            PoolingMode::Max => x.max_pool2d_with(options),
            PoolingMode::Average => x.average_pool2d_with(options),
        }?;
        self.push_handle(operand)
    }
}

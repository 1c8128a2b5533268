//! Building over the host, by the guest library.

use saggar_plugin::bindings::graphs as raw;
use saggar_plugin::{
    Conv2dOptions, DataType, Descriptor, Graph, Initializer, Operand as Handle, PaddingMode, Pool2dOptions,
    VariableKind, Variables, concat, descriptor,
};

use crate::backend::{Backend, Binary, Made, Pooling, Reduction, Scatter, Unary, Windows};
use crate::elem::Elem;
use crate::error::{Error, Result};
use crate::value::Operand;

/// A graph of the host's, with the variables of one model.
#[derive(Debug)]
pub struct Host {
    graph: Graph,
    /// None in a trial, where variables are inputs: such a graph is never built.
    variables: Option<Variables>,
    handles: Vec<Handle>,
}

impl Host {
    /// An empty graph over these variables.
    pub fn over(variables: &Variables) -> Self {
        Self { graph: Graph::new(), variables: Some(variables.clone()), handles: Vec::new() }
    }

    /// An empty graph that only tells whether a model can be built.
    pub fn trial() -> Self {
        Self { graph: Graph::new(), variables: None, handles: Vec::new() }
    }

    /// The graph.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The host's handle of an operand.
    pub fn handle(&self, operand: &Operand) -> &Handle {
        &self.handles[operand.id as usize]
    }

    fn keep(&mut self, handle: Handle) -> Made {
        let Descriptor { data_type, shape } = handle.descriptor();
        let id = self.handles.len() as u32;
        self.handles.push(handle);
        Ok(Operand { id, elem: Elem::of(data_type), shape: shape.iter().map(|&dim| dim as usize).collect() })
    }
}

/// The host counts in 32 bits; what does not fit is beyond its limits anyway.
fn narrow(numbers: &[usize]) -> Result<Vec<u32>> {
    let narrowed = numbers.iter().map(|&number| u32::try_from(number));
    narrowed.collect::<std::result::Result<_, _>>().map_err(|_| Error::unsupported(format!("sizes {numbers:?}")))
}

fn described(data_type: DataType, shape: &[usize]) -> Result<Descriptor> {
    Ok(descriptor(data_type, narrow(shape)?))
}

fn pair([a, b]: [usize; 2]) -> Result<Option<(u32, u32)>> {
    match narrow(&[a, b])?[..] {
        [a, b] => Ok(Some((a, b))),
        _ => Ok(None),
    }
}

fn sides(padding: [usize; 4]) -> Result<Option<(u32, u32, u32, u32)>> {
    match narrow(&padding)?[..] {
        [top, bottom, left, right] => Ok(Some((top, bottom, left, right))),
        _ => Ok(None),
    }
}

fn reduction(how: Scatter) -> raw::ScatterReduction {
    match how {
        Scatter::Replace => raw::ScatterReduction::None,
        Scatter::Add => raw::ScatterReduction::Add,
        Scatter::Mul => raw::ScatterReduction::Mul,
        Scatter::Min => raw::ScatterReduction::Min,
        Scatter::Max => raw::ScatterReduction::Max,
    }
}

impl Backend for Host {
    fn input(&mut self, name: &str, data_type: DataType, shape: &[usize]) -> Made {
        let made = self.graph.input(name, &described(data_type, shape)?)?;
        self.keep(made)
    }

    fn variable(&mut self, name: &str, data_type: DataType, shape: &[usize]) -> Made {
        let of = described(data_type, shape)?;
        let Some(variables) = &self.variables else {
            // A variable may be used more than once, an input is made once.
            let made = self.graph.input(&format!("variable {} {name}", self.handles.len()), &of)?;
            return self.keep(made);
        };
        let variable = variables.get(name, of, &Initializer::Zeros, VariableKind::Parameter)?;
        let made = self.graph.variable(&variable)?;
        self.keep(made)
    }

    fn constant(&mut self, data_type: DataType, shape: &[usize], bytes: &[u8]) -> Made {
        let made = self.graph.constant(&described(data_type, shape)?, bytes)?;
        self.keep(made)
    }

    fn fill(&mut self, data_type: DataType, shape: &[usize], value: f64) -> Made {
        let made = self.graph.fill(&described(data_type, shape)?, value)?;
        self.keep(made)
    }

    fn iota(&mut self, data_type: DataType, shape: &[usize], axis: usize) -> Made {
        let made = self.graph.iota(&described(data_type, shape)?, axis as u32)?;
        self.keep(made)
    }

    fn unary(&mut self, op: Unary, x: &Operand) -> Made {
        let x = self.handle(x);
        let made = match op {
            Unary::Abs => x.abs(),
            Unary::Neg => x.neg(),
            Unary::Sign => x.sign(),
            Unary::Ceil => x.ceil(),
            Unary::Floor => x.floor(),
            Unary::RoundEven => x.round_even(),
            Unary::Exp => x.exp(),
            Unary::Log => x.log(),
            Unary::Sqrt => x.sqrt(),
            Unary::Reciprocal => x.reciprocal(),
            Unary::Sin => x.sin(),
            Unary::Cos => x.cos(),
            Unary::Tan => x.tan(),
            Unary::Tanh => x.tanh(),
            Unary::Erf => x.erf(),
            Unary::LogicalNot => x.logical_not(),
            Unary::Relu => x.relu(),
            Unary::Sigmoid => x.sigmoid(),
            Unary::Gelu => x.gelu(),
            Unary::Softplus => x.softplus(),
            Unary::Softsign => x.softsign(),
        }?;
        self.keep(made)
    }

    fn binary(&mut self, op: Binary, a: &Operand, b: &Operand) -> Made {
        let (a, b) = (self.handle(a), self.handle(b));
        let made = match op {
            Binary::Add => a.add(b),
            Binary::Sub => a.sub(b),
            Binary::Mul => a.mul(b),
            Binary::Div => a.div(b),
            Binary::Pow => a.pow(b),
            Binary::Max => a.max(b),
            Binary::Min => a.min(b),
            Binary::Equal => a.equal(b),
            Binary::Greater => a.greater(b),
            Binary::GreaterOrEqual => a.greater_or_equal(b),
            Binary::Lesser => a.lesser(b),
            Binary::LesserOrEqual => a.lesser_or_equal(b),
            Binary::And => a.logical_and(b),
            Binary::Or => a.logical_or(b),
            Binary::Xor => a.logical_xor(b),
        }?;
        self.keep(made)
    }

    fn select(&mut self, condition: &Operand, yes: &Operand, no: &Operand) -> Made {
        let made = self.handle(condition).choose(self.handle(yes), self.handle(no))?;
        self.keep(made)
    }

    fn cast(&mut self, x: &Operand, data_type: DataType) -> Made {
        let made = self.handle(x).cast(data_type)?;
        self.keep(made)
    }

    fn clamp(&mut self, x: &Operand, min: Option<f64>, max: Option<f64>) -> Made {
        let made = self.handle(x).clamp(min, max)?;
        self.keep(made)
    }

    fn softmax(&mut self, x: &Operand, axis: usize) -> Made {
        let made = self.handle(x).softmax(axis as u32)?;
        self.keep(made)
    }

    fn reduce(&mut self, op: Reduction, x: &Operand, axes: &[usize]) -> Made {
        let (x, axes) = (self.handle(x), narrow(axes)?);
        let made = match op {
            Reduction::Sum => x.reduce_sum(&axes, true),
            Reduction::Mean => x.reduce_mean(&axes, true),
            Reduction::Max => x.reduce_max(&axes, true),
            Reduction::Min => x.reduce_min(&axes, true),
            Reduction::Product => x.reduce_product(&axes, true),
            Reduction::LogSumExp => x.reduce_log_sum_exp(&axes, true),
        }?;
        self.keep(made)
    }

    fn arg(&mut self, largest: bool, x: &Operand, axis: usize) -> Made {
        let x = self.handle(x);
        let made = if largest { x.arg_max(axis as u32, true) } else { x.arg_min(axis as u32, true) }?;
        self.keep(made)
    }

    fn cumulative_sum(&mut self, x: &Operand, axis: usize, exclusive: bool, reversed: bool) -> Made {
        let made = self.handle(x).cumulative_sum(axis as u32, exclusive, reversed)?;
        self.keep(made)
    }

    fn reshape(&mut self, x: &Operand, shape: &[usize]) -> Made {
        let made = self.handle(x).reshape(&narrow(shape)?)?;
        self.keep(made)
    }

    fn transpose(&mut self, x: &Operand, permutation: &[usize]) -> Made {
        let made = self.handle(x).transpose(&narrow(permutation)?)?;
        self.keep(made)
    }

    fn expand(&mut self, x: &Operand, shape: &[usize]) -> Made {
        let made = self.handle(x).expand(&narrow(shape)?)?;
        self.keep(made)
    }

    fn slice(&mut self, x: &Operand, starts: &[usize], sizes: &[usize], strides: &[usize]) -> Made {
        // WebNN's sizes are those of the window that the steps go through.
        let windows: Vec<usize> = sizes
            .iter()
            .zip(strides)
            .map(|(&size, &stride)| if size == 0 { 0 } else { (size - 1) * stride + 1 })
            .collect();
        let made = self.handle(x).slice_strided(&narrow(starts)?, &narrow(&windows)?, &narrow(strides)?)?;
        self.keep(made)
    }

    fn concat(&mut self, xs: &[Operand], axis: usize) -> Made {
        let handles: Vec<&Handle> = xs.iter().map(|x| self.handle(x)).collect();
        let made = concat(&handles, axis as u32)?;
        self.keep(made)
    }

    fn pad(&mut self, x: &Operand, low: &[usize], high: &[usize], value: f64) -> Made {
        let made = self.handle(x).pad(&narrow(low)?, &narrow(high)?, PaddingMode::Constant(value))?;
        self.keep(made)
    }

    fn reverse(&mut self, x: &Operand, axes: &[usize]) -> Made {
        let made = self.handle(x).reverse(&narrow(axes)?)?;
        self.keep(made)
    }

    fn gather(&mut self, x: &Operand, indices: &Operand, axis: usize) -> Made {
        let made = self.handle(x).gather(self.handle(indices), axis as u32)?;
        self.keep(made)
    }

    fn gather_elements(&mut self, x: &Operand, indices: &Operand, axis: usize) -> Made {
        let made = self.handle(x).gather_elements(self.handle(indices), axis as u32)?;
        self.keep(made)
    }

    fn gather_nd(&mut self, x: &Operand, indices: &Operand) -> Made {
        let made = self.handle(x).gather_nd(self.handle(indices))?;
        self.keep(made)
    }

    fn scatter_elements(
        &mut self,
        x: &Operand,
        indices: &Operand,
        updates: &Operand,
        axis: usize,
        how: Scatter,
    ) -> Made {
        let (indices, updates) = (self.handle(indices), self.handle(updates));
        let made = self.handle(x).scatter_elements(indices, updates, axis as u32, reduction(how))?;
        self.keep(made)
    }

    fn scatter_nd(&mut self, x: &Operand, indices: &Operand, updates: &Operand, how: Scatter) -> Made {
        let made = self.handle(x).scatter_nd(self.handle(indices), self.handle(updates), reduction(how))?;
        self.keep(made)
    }

    fn matmul(&mut self, a: &Operand, b: &Operand) -> Made {
        let made = self.handle(a).matmul(self.handle(b))?;
        self.keep(made)
    }

    fn conv2d(
        &mut self,
        x: &Operand,
        filter: &Operand,
        bias: Option<&Operand>,
        windows: Windows,
        groups: usize,
    ) -> Made {
        let options = Conv2dOptions {
            padding: sides(windows.padding)?,
            strides: pair(windows.strides)?,
            dilations: pair(windows.dilations)?,
            groups: Some(groups as u32),
            ..Conv2dOptions::default()
        };
        let bias = bias.map(|bias| self.handle(bias));
        let made = self.handle(x).conv2d(self.handle(filter), bias, options)?;
        self.keep(made)
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
        let options = raw::ConvTranspose2dOptions {
            padding: sides(windows.padding)?,
            strides: pair(windows.strides)?,
            dilations: pair(windows.dilations)?,
            output_sizes: pair(size)?,
            groups: Some(groups as u32),
            ..raw::ConvTranspose2dOptions::default()
        };
        let bias = bias.map(|bias| self.handle(bias));
        let made = self.handle(x).conv_transpose2d(self.handle(filter), bias, options)?;
        self.keep(made)
    }

    fn pool2d(&mut self, how: Pooling, x: &Operand, window: [usize; 2], windows: Windows) -> Made {
        let options = Pool2dOptions {
            window_dimensions: pair(window)?,
            padding: sides(windows.padding)?,
            strides: pair(windows.strides)?,
            dilations: pair(windows.dilations)?,
            ..Pool2dOptions::default()
        };
        let x = self.handle(x);
        let made = match how {
            Pooling::Max => x.max_pool2d_with(options),
            Pooling::Average => x.average_pool2d_with(options),
        }?;
        self.keep(made)
    }
}

//! `graph-builder`'s methods: each is the tensor crate's builder method or composite of the same meaning.

use saggar_tensor::op::Distribution;
use saggar_tensor::{Descriptor, grad, nn};
use wasmtime::component::Resource;

use super::{Builder, BuilderHandle, CompiledGraph, Operand, options};
use crate::bindings::graphs::{
    Conv2dOptions, GemmOptions, HostGraphBuilder, PaddingMode, Pool2dOptions, ReduceOptions,
};
use crate::bindings::tensors::{DataType, Descriptor as WitDescriptor};
use crate::convert::{self, sizes};
use crate::fault::Fault;
use crate::state::State;
use crate::variables::{Variable, sealed};

type Graph = Resource<BuilderHandle>;
type In = Resource<Operand>;
type Out = Result<Resource<Operand>, Fault>;

/// Operators of one operand without options.
macro_rules! unary {
    ($($method:ident => $build:expr;)*) => {
        $(fn $method(&mut self, graph: Graph, input: In) -> Out {
            self.add_operator(&graph, [&input], |g, [x]| Ok($build(g, x)?))
        })*
    };
}

/// Operators of two operands without options.
macro_rules! binary {
    ($($method:ident => $build:expr;)*) => {
        $(fn $method(&mut self, graph: Graph, a: In, b: In) -> Out {
            self.add_operator(&graph, [&a, &b], |g, [a, b]| Ok($build(g, a, b)?))
        })*
    };
}

/// Reductions over axes that may be dropped.
macro_rules! reduce {
    ($($method:ident => $build:expr;)*) => {
        $(fn $method(&mut self, graph: Graph, input: In, options: ReduceOptions) -> Out {
            self.add_operator(&graph, [&input], |g, [x]| {
                let (axes, keep) = options::reduce(&options, g.descriptor_of(x)?.shape.rank());
                Ok($build(g, x, &axes, keep)?)
            })
        })*
    };
}

use saggar_tensor::GraphBuilder as G;

impl HostGraphBuilder for State {
    fn new(&mut self) -> wasmtime::Result<Graph> {
        let number = self.builders_made;
        self.builders_made += 1;
        match self.push(BuilderHandle(number)) {
            Ok(handle) => {
                self.builders.insert(number, Builder::default());
                Ok(handle)
            }
            // A constructor has no error to answer: past the limit of handles it traps.
            Err(fault) => Err(wasmtime::Error::msg(self.answer(fault)?.message)),
        }
    }

    fn input(&mut self, graph: Graph, name: String, descriptor: WitDescriptor) -> Out {
        let descriptor = convert::descriptor(&descriptor)?;
        self.add_operator(&graph, [], |g, []| Ok(g.input(&name, descriptor)?))
    }

    fn constant(&mut self, graph: Graph, descriptor: WitDescriptor, data: Vec<u8>) -> Out {
        let descriptor = convert::descriptor(&descriptor)?;
        let bytes = data.len() as u64;
        let node = self.edit(&graph, |builder| {
            let node = builder.graph.constant(descriptor, data)?;
            builder.constant_bytes += bytes;
            Ok(node)
        })?;
        self.operand(&graph, node)
    }

    fn scalar(&mut self, graph: Graph, data_type: DataType, value: f64) -> Out {
        let dtype = convert::dtype(data_type);
        let value = convert::scalar(dtype, value)?;
        self.add_operator(&graph, [], |g, []| Ok(g.scalar(dtype, value)?))
    }

    fn fill(&mut self, graph: Graph, descriptor: WitDescriptor, value: f64) -> Out {
        let descriptor = convert::descriptor(&descriptor)?;
        let value = convert::scalar(descriptor.dtype, value)?;
        self.add_operator(&graph, [], |g, []| Ok(g.fill(descriptor, value)?))
    }

    fn iota(&mut self, graph: Graph, descriptor: WitDescriptor, axis: u32) -> Out {
        let descriptor = convert::descriptor(&descriptor)?;
        self.add_operator(&graph, [], |g, []| Ok(g.iota(descriptor, axis as usize)?))
    }

    fn variable(&mut self, graph: Graph, variable: Resource<Variable>) -> Out {
        let variable = self.table.get(&variable)?.clone();
        let node = self.edit(&graph, |builder| Ok(builder.variable(&variable)?))?;
        self.operand(&graph, node)
    }

    binary! {
        add => G::add;
        sub => G::sub;
        mul => G::mul;
        div => G::div;
        pow => G::pow;
        max => G::max;
        min => G::min;
        equal => G::equal;
        not_equal => G::not_equal;
        greater => G::greater;
        greater_or_equal => G::greater_or_equal;
        lesser => G::less;
        lesser_or_equal => G::less_or_equal;
        logical_and => G::logical_and;
        logical_or => G::logical_or;
        logical_xor => G::logical_xor;
        matmul => G::matmul;
        softmax_cross_entropy => nn::cross_entropy;
    }

    fn where_(&mut self, graph: Graph, condition: In, true_value: In, false_value: In) -> Out {
        let operands = [&condition, &true_value, &false_value];
        self.add_operator(&graph, operands, |g, [condition, a, b]| Ok(g.select(condition, a, b)?))
    }

    unary! {
        abs => G::abs;
        neg => G::neg;
        sign => G::sign;
        ceil => G::ceil;
        floor => G::floor;
        round_even => G::round_even;
        exp => G::exp;
        log => G::log;
        sqrt => G::sqrt;
        reciprocal => G::reciprocal;
        sin => G::sin;
        cos => G::cos;
        tan => nn::tan;
        tanh => G::tanh;
        erf => G::erf;
        logical_not => G::logical_not;
        relu => nn::relu;
        sigmoid => nn::sigmoid;
        gelu => nn::gelu;
        hard_swish => nn::hard_swish;
        softplus => nn::softplus;
        softsign => nn::softsign;
        stop_gradient => G::stop_gradient;
    }

    fn identity(&mut self, graph: Graph, input: In) -> Out {
        self.add_operator(&graph, [&input], |_, [x]| Ok(x))
    }

    fn cast(&mut self, graph: Graph, input: In, data_type: DataType) -> Out {
        self.add_operator(&graph, [&input], |g, [x]| Ok(g.cast(x, convert::dtype(data_type))?))
    }

    fn clamp(&mut self, graph: Graph, input: In, min_value: Option<f64>, max_value: Option<f64>) -> Out {
        self.add_operator(&graph, [&input], |g, [x]| Ok(nn::clamp(g, x, min_value, max_value)?))
    }

    fn elu(&mut self, graph: Graph, input: In, alpha: f32) -> Out {
        self.add_operator(&graph, [&input], |g, [x]| Ok(nn::elu(g, x, f64::from(alpha))?))
    }

    fn leaky_relu(&mut self, graph: Graph, input: In, alpha: f32) -> Out {
        self.add_operator(&graph, [&input], |g, [x]| Ok(nn::leaky_relu(g, x, f64::from(alpha))?))
    }

    fn hard_sigmoid(&mut self, graph: Graph, input: In, alpha: f32, beta: f32) -> Out {
        let (alpha, beta) = (f64::from(alpha), f64::from(beta));
        self.add_operator(&graph, [&input], |g, [x]| Ok(nn::hard_sigmoid(g, x, alpha, beta)?))
    }

    fn softmax(&mut self, graph: Graph, input: In, axis: u32) -> Out {
        self.add_operator(&graph, [&input], |g, [x]| Ok(nn::softmax(g, x, axis as usize)?))
    }

    reduce! {
        reduce_sum => G::reduce_sum;
        reduce_mean => nn::reduce_mean;
        reduce_max => G::reduce_max;
        reduce_min => G::reduce_min;
        reduce_product => G::reduce_product;
        reduce_l1 => nn::reduce_l1;
        reduce_l2 => nn::reduce_l2;
        reduce_log_sum => nn::reduce_log_sum;
        reduce_log_sum_exp => nn::reduce_log_sum_exp;
        reduce_sum_square => nn::reduce_sum_square;
    }

    fn arg_max(&mut self, graph: Graph, input: In, axis: u32, keep_dimensions: bool) -> Out {
        self.add_operator(&graph, [&input], |g, [x]| Ok(g.arg_max(x, axis as usize, keep_dimensions)?))
    }

    fn arg_min(&mut self, graph: Graph, input: In, axis: u32, keep_dimensions: bool) -> Out {
        self.add_operator(&graph, [&input], |g, [x]| Ok(g.arg_min(x, axis as usize, keep_dimensions)?))
    }

    fn reshape(&mut self, graph: Graph, input: In, new_shape: Vec<u32>) -> Out {
        self.add_operator(&graph, [&input], |g, [x]| Ok(g.reshape(x, &sizes(&new_shape))?))
    }

    fn transpose(&mut self, graph: Graph, input: In, permutation: Option<Vec<u32>>) -> Out {
        self.add_operator(&graph, [&input], |g, [x]| {
            let rank = g.descriptor_of(x)?.shape.rank();
            let permutation = permutation.as_deref().map_or_else(|| (0..rank).rev().collect(), sizes);
            Ok(g.transpose(x, &permutation)?)
        })
    }

    fn expand(&mut self, graph: Graph, input: In, new_shape: Vec<u32>) -> Out {
        let shape = convert::shape(&new_shape)?;
        self.add_operator(&graph, [&input], |g, [x]| Ok(g.broadcast_to(x, shape)?))
    }

    fn slice(
        &mut self,
        graph: Graph,
        input: In,
        starts: Vec<u32>,
        windows: Vec<u32>,
        strides: Option<Vec<u32>>,
    ) -> Out {
        self.add_operator(&graph, [&input], |g, [x]| {
            let descriptor = g.descriptor_of(x)?.clone();
            let strides = strides.as_deref().map_or_else(|| vec![1; windows.len()], sizes);
            let (starts, counts) = windows_of(&descriptor, &starts, &windows, &strides)?;
            Ok(g.slice(x, &starts, &counts, &strides)?)
        })
    }

    fn concat(&mut self, graph: Graph, inputs: Vec<In>, axis: u32) -> Out {
        let nodes = self.nodes(&graph, &inputs)?;
        self.add_operator(&graph, [], |g, []| Ok(g.concat(&nodes, axis as usize)?))
    }

    fn split(&mut self, graph: Graph, input: In, splits: Vec<u32>, axis: u32) -> Result<Vec<In>, Fault> {
        let x = self.node(&graph, &input)?;
        let parts =
            self.edit(&graph, |builder| Ok(nn::split(&mut builder.graph, x, &sizes(&splits), axis as usize)?))?;
        parts.into_iter().map(|node| self.operand(&graph, node)).collect()
    }

    fn pad(&mut self, graph: Graph, input: In, low: Vec<u32>, high: Vec<u32>, mode: PaddingMode) -> Out {
        let (low, high) = (sizes(&low), sizes(&high));
        self.add_operator(&graph, [&input], |g, [x]| match mode {
            PaddingMode::Constant(value) => {
                let value = convert::scalar(g.descriptor_of(x)?.dtype, value)?;
                Ok(g.pad(x, &low, &high, value)?)
            }
            PaddingMode::Edge => Ok(nn::pad_edge(g, x, &low, &high)?),
            PaddingMode::Reflection => Ok(nn::pad_reflection(g, x, &low, &high)?),
        })
    }

    fn reverse(&mut self, graph: Graph, input: In, axes: Option<Vec<u32>>) -> Out {
        self.add_operator(&graph, [&input], |g, [x]| {
            let rank = g.descriptor_of(x)?.shape.rank();
            let axes = axes.as_deref().map_or_else(|| (0..rank).collect(), sizes);
            Ok(g.reverse(x, &axes)?)
        })
    }

    fn gather(&mut self, graph: Graph, input: In, indices: In, axis: u32) -> Out {
        self.add_operator(&graph, [&input, &indices], |g, [x, indices]| Ok(g.gather(x, indices, axis as usize)?))
    }

    fn gemm(&mut self, graph: Graph, a: In, b: In, c: Option<In>, options: GemmOptions) -> Out {
        let c = self.optional(&graph, c.as_ref())?;
        self.add_operator(&graph, [&a, &b], |g, [a, b]| Ok(nn::gemm(g, a, b, c, options::gemm(&options))?))
    }

    fn conv2d(&mut self, graph: Graph, input: In, filter: In, bias: Option<In>, options: Conv2dOptions) -> Out {
        let bias = self.optional(&graph, bias.as_ref())?;
        self.add_operator(&graph, [&input, &filter], |g, [x, filter]| {
            Ok(nn::conv2d(g, x, filter, bias, options::conv2d(&options))?)
        })
    }

    fn max_pool2d(&mut self, graph: Graph, input: In, options: Pool2dOptions) -> Out {
        self.add_operator(&graph, [&input], |g, [x]| Ok(nn::max_pool2d(g, x, options::pool2d(&options))?))
    }

    fn average_pool2d(&mut self, graph: Graph, input: In, options: Pool2dOptions) -> Out {
        self.add_operator(&graph, [&input], |g, [x]| Ok(nn::average_pool2d(g, x, options::pool2d(&options))?))
    }

    fn layer_normalization(
        &mut self,
        graph: Graph,
        input: In,
        scale: Option<In>,
        bias: Option<In>,
        axes: Option<Vec<u32>>,
        epsilon: f32,
    ) -> Out {
        let (scale, bias) = (self.optional(&graph, scale.as_ref())?, self.optional(&graph, bias.as_ref())?);
        self.add_operator(&graph, [&input], |g, [x]| {
            let rank = g.descriptor_of(x)?.shape.rank();
            let axes = axes.as_deref().map_or_else(|| (1..rank).collect(), sizes);
            Ok(nn::layer_normalization(g, x, scale, bias, &axes, f64::from(epsilon))?)
        })
    }

    fn one_hot(&mut self, graph: Graph, indices: In, depth: u32, data_type: DataType) -> Out {
        let dtype = convert::dtype(data_type);
        self.add_operator(&graph, [&indices], |g, [x]| Ok(nn::one_hot(g, x, depth as usize, dtype)?))
    }

    fn random_uniform(&mut self, graph: Graph, shape: Vec<u32>, key: In, stream: u32) -> Out {
        let shape = convert::shape(&shape)?;
        self.add_operator(&graph, [&key], |g, [key]| Ok(g.random(shape, key, stream, Distribution::Uniform)?))
    }

    fn random_normal(&mut self, graph: Graph, shape: Vec<u32>, key: In, stream: u32) -> Out {
        let shape = convert::shape(&shape)?;
        self.add_operator(&graph, [&key], |g, [key]| Ok(nn::normal(g, shape, key, stream)?))
    }

    fn gradients(&mut self, graph: Graph, loss: In, wrt: Vec<In>) -> Result<Vec<In>, Fault> {
        let (loss, wrt) = (self.node(&graph, &loss)?, self.nodes(&graph, &wrt)?);
        let gradients = self.edit(&graph, |builder| Ok(grad::gradients(&mut builder.graph, loss, &wrt)?))?;
        gradients.into_iter().map(|node| self.operand(&graph, node)).collect()
    }

    fn assign(&mut self, graph: Graph, variable: Resource<Variable>, value: In) -> Result<(), Fault> {
        let variable = self.table.get(&variable)?.clone();
        if variable.sealed() {
            return Err(sealed(variable.name()));
        }
        let value = self.node(&graph, &value)?;
        self.edit(&graph, |builder| {
            let target = builder.variable(&variable)?;
            Ok(builder.graph.assign_to(target, value)?)
        })
    }

    fn build(&mut self, graph: Graph, outputs: Vec<(String, In)>) -> Result<Resource<CompiledGraph>, Fault> {
        let outputs: Vec<_> = outputs
            .into_iter()
            .map(|(name, operand)| Ok((name, self.node(&graph, &operand)?)))
            .collect::<Result<_, Fault>>()?;
        self.compile(graph, outputs)
    }

    fn drop(&mut self, graph: Graph) -> wasmtime::Result<()> {
        let BuilderHandle(number) = self.table.delete(graph)?;
        self.builders.remove(&number);
        Ok(())
    }
}

/// Starts, and the number of elements in each window of a slice: WebNN counts the window, the tensor crate the result.
fn windows_of(
    descriptor: &Descriptor,
    starts: &[u32],
    windows: &[u32],
    strides: &[usize],
) -> Result<(Vec<usize>, Vec<usize>), Fault> {
    let rank = descriptor.shape.rank();
    if [starts.len(), windows.len(), strides.len()] != [rank; 3] {
        return Err(Fault::invalid(format!("slice: {descriptor} takes {rank} starts, sizes and strides")));
    }
    let (starts, windows) = (sizes(starts), sizes(windows));
    for (axis, &dim) in descriptor.shape.iter().enumerate() {
        // No overflow: both came from 32 bits.
        if starts[axis] + windows[axis] > dim {
            let (start, size) = (starts[axis], windows[axis]);
            let message = format!("slice: {size} elements from {start} along axis {axis} are not within {descriptor}");
            return Err(Fault::invalid(message));
        }
    }
    // A stride of 0 is refused by the builder.
    let counts = windows.iter().zip(strides).map(|(&window, &stride)| window.div_ceil(stride.max(1))).collect();
    Ok((starts, counts))
}

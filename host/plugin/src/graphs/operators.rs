//! `graph-builder`'s methods: each is the tensor crate's builder method or composite of the same meaning.

use saggar_tensor::nn;
use saggar_tensor::op::RandomDistribution;
use wasmtime::component::Resource;

use super::{Builder, BuilderHandle, CompiledGraph, Operand, options};
use crate::bindings::graphs::{
    Conv2dOptions, ConvTranspose2dOptions, GemmOptions, GruOptions, HostGraphBuilder, InputOperandLayout, LstmOptions,
    PaddingMode, Pool2dOptions, ReduceOptions, Resample2dOptions, ScatterReduction,
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

/// Operators of one operand with options.
macro_rules! unary_with {
    ($($method:ident($($name:ident: $type:ty),*) => |$g:ident, $x:ident| $build:expr;)*) => {
        $(fn $method(&mut self, graph: Graph, input: In, $($name: $type),*) -> Out {
            self.add_operator(&graph, [&input], |$g, [$x]| Ok($build?))
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
        prelu => nn::prelu;
        gather_nd => nn::gather_nd;
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

    unary_with! {
        one_hot(depth: u32, data_type: DataType) => |g, x| nn::one_hot(g, x, depth as usize, convert::dtype(data_type));
        cast(data_type: DataType) => |g, x| g.cast(x, convert::dtype(data_type));
        clamp(min_value: Option<f64>, max_value: Option<f64>) => |g, x| nn::clamp(g, x, min_value, max_value);
        elu(alpha: f32) => |g, x| nn::elu(g, x, f64::from(alpha));
        leaky_relu(alpha: f32) => |g, x| nn::leaky_relu(g, x, f64::from(alpha));
        softmax(axis: u32) => |g, x| nn::softmax(g, x, axis as usize);
        cumulative_sum(axis: u32, exclusive: bool, reversed: bool) => |g, x| nn::cumulative_sum(g, x, axis as usize, exclusive, reversed);
        arg_max(axis: u32, keep_dimensions: bool) => |g, x| g.arg_max(x, axis as usize, keep_dimensions);
        arg_min(axis: u32, keep_dimensions: bool) => |g, x| g.arg_min(x, axis as usize, keep_dimensions);
        reshape(new_shape: Vec<u32>) => |g, x| g.reshape(x, &sizes(&new_shape));
        tile(repetitions: Vec<u32>) => |g, x| nn::tile(g, x, &sizes(&repetitions));
        triangular(upper: bool, diagonal: i32) => |g, x| nn::triangular(g, x, upper, diagonal.into());
        resample2d(options: Resample2dOptions) => |g, x| nn::resample2d(g, x, &options::resample2d(&options));
        l2_pool2d(options: Pool2dOptions) => |g, x| nn::l2_pool2d(g, x, options::pool2d(&options));
        max_pool2d(options: Pool2dOptions) => |g, x| nn::max_pool2d(g, x, options::pool2d(&options));
        average_pool2d(options: Pool2dOptions) => |g, x| nn::average_pool2d(g, x, options::pool2d(&options));
        hard_sigmoid(alpha: f32, beta: f32) => |g, x| nn::hard_sigmoid(g, x, f64::from(alpha), f64::from(beta));
        linear(alpha: f32, beta: f32) => |g, x| nn::linear_function(g, x, f64::from(alpha), f64::from(beta));
    }

    fn identity(&mut self, graph: Graph, input: In) -> Out {
        self.add_operator(&graph, [&input], |_, [x]| Ok(x))
    }

    fn dequantize_linear(&mut self, graph: Graph, input: In, scale: In, zero: In) -> Out {
        self.add_operator(&graph, [&input, &scale, &zero], |g, [x, scale, zero]| {
            Ok(nn::dequantize_linear(g, x, scale, zero)?)
        })
    }

    fn quantize_linear(&mut self, graph: Graph, input: In, scale: In, zero: In) -> Out {
        self.add_operator(&graph, [&input, &scale, &zero], |g, [x, scale, zero]| {
            Ok(nn::quantize_linear(g, x, scale, zero)?)
        })
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
            let (starts, counts) = options::windows(&descriptor, &starts, &windows, &strides)?;
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
            PaddingMode::Symmetric => Ok(nn::pad_symmetric(g, x, &low, &high)?),
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

    fn gather_elements(&mut self, graph: Graph, input: In, indices: In, axis: u32) -> Out {
        self.add_operator(&graph, [&input, &indices], |g, [x, indices]| {
            Ok(nn::gather_elements(g, x, indices, axis as usize)?)
        })
    }

    fn scatter_elements(
        &mut self,
        graph: Graph,
        input: In,
        indices: In,
        updates: In,
        axis: u32,
        reduction: ScatterReduction,
    ) -> Out {
        self.add_operator(&graph, [&input, &indices, &updates], |g, [x, indices, updates]| {
            let combine = options::combine(reduction);
            Ok(nn::scatter_elements(g, x, indices, updates, axis as usize, combine)?)
        })
    }

    fn scatter_nd(&mut self, graph: Graph, input: In, indices: In, updates: In, reduction: ScatterReduction) -> Out {
        self.add_operator(&graph, [&input, &indices, &updates], |g, [x, indices, updates]| {
            Ok(nn::scatter_nd(g, x, indices, updates, options::combine(reduction))?)
        })
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

    fn conv_transpose2d(
        &mut self,
        graph: Graph,
        input: In,
        filter: In,
        bias: Option<In>,
        options: ConvTranspose2dOptions,
    ) -> Out {
        let bias = self.optional(&graph, bias.as_ref())?;
        self.add_operator(&graph, [&input, &filter], |g, [x, filter]| {
            Ok(nn::conv_transpose2d(g, x, filter, bias, options::conv_transpose2d(&options))?)
        })
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

    fn batch_normalization(
        &mut self,
        graph: Graph,
        input: In,
        mean: In,
        variance: In,
        scale: Option<In>,
        bias: Option<In>,
        axis: u32,
        epsilon: f32,
    ) -> Out {
        let (scale, bias) = (self.optional(&graph, scale.as_ref())?, self.optional(&graph, bias.as_ref())?);
        let (axis, epsilon) = (axis as usize, f64::from(epsilon));
        self.add_operator(&graph, [&input, &mean, &variance], |g, [x, mean, variance]| {
            Ok(nn::batch_normalization(g, x, [mean, variance], scale, bias, axis, epsilon)?)
        })
    }

    fn instance_normalization(
        &mut self,
        graph: Graph,
        input: In,
        scale: Option<In>,
        bias: Option<In>,
        epsilon: f32,
        layout: InputOperandLayout,
    ) -> Out {
        let (scale, bias) = (self.optional(&graph, scale.as_ref())?, self.optional(&graph, bias.as_ref())?);
        let layout = options::input_layout(Some(layout));
        self.add_operator(&graph, [&input], |g, [x]| {
            Ok(nn::instance_normalization(g, x, scale, bias, f64::from(epsilon), layout)?)
        })
    }

    fn gru(
        &mut self,
        graph: Graph,
        input: In,
        weight: In,
        recurrent: In,
        steps: u32,
        hidden: u32,
        options: GruOptions,
    ) -> Result<Vec<In>, Fault> {
        self.add_gru(&graph, [&input, &weight, &recurrent], (steps, hidden), &options)
    }

    fn gru_cell(
        &mut self,
        graph: Graph,
        input: In,
        weight: In,
        recurrent: In,
        state: In,
        hidden: u32,
        options: GruOptions,
    ) -> Out {
        self.add_gru_cell(&graph, [&input, &weight, &recurrent, &state], hidden, &options)
    }

    fn lstm(
        &mut self,
        graph: Graph,
        input: In,
        weight: In,
        recurrent: In,
        steps: u32,
        hidden: u32,
        options: LstmOptions,
    ) -> Result<Vec<In>, Fault> {
        self.add_lstm(&graph, [&input, &weight, &recurrent], (steps, hidden), &options)
    }

    fn lstm_cell(
        &mut self,
        graph: Graph,
        input: In,
        weight: In,
        recurrent: In,
        state: In,
        memory: In,
        hidden: u32,
        options: LstmOptions,
    ) -> Result<Vec<In>, Fault> {
        self.add_lstm_cell(&graph, [&input, &weight, &recurrent, &state, &memory], hidden, &options)
    }

    fn random_uniform(&mut self, graph: Graph, shape: Vec<u32>, key: In, stream: u32) -> Out {
        let shape = convert::shape(&shape)?;
        self.add_operator(&graph, [&key], |g, [key]| Ok(g.random(shape, key, stream, RandomDistribution::Uniform)?))
    }

    fn random_normal(&mut self, graph: Graph, shape: Vec<u32>, key: In, stream: u32) -> Out {
        let shape = convert::shape(&shape)?;
        self.add_operator(&graph, [&key], |g, [key]| Ok(nn::normal(g, shape, key, stream)?))
    }

    fn gradients(&mut self, graph: Graph, loss: In, wrt: Vec<In>) -> Result<Vec<In>, Fault> {
        let (loss, wrt) = (self.node(&graph, &loss)?, self.nodes(&graph, &wrt)?);
        let gradients = self.gradients_of(&graph, loss, &wrt)?;
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

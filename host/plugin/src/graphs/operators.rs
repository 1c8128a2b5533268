//! The methods of `graph-builder`: each calls the tensor crate's builder method or composite with the same semantics.

use saggar_tensor::nn;
use saggar_tensor::op::RandomDistribution;
use wasmtime::component::Resource;

use super::compiled_graph::CompiledGraph;
use super::operator_macros::{Builder, NewOperand, Operand, binary, reduce, unary, unary_with};
use super::options;
use super::pending_graph::BuilderHandle;
use crate::bindings::graphs::{
    Conv2dOptions, ConvTranspose2dOptions, GemmOptions, GruOptions, HostGraphBuilder, InputOperandLayout, LstmOptions,
    PaddingMode, Pool2dOptions, ReduceOptions, Resample2dOptions, ScatterReduction,
};
use crate::bindings::tensors::{DataType, Descriptor as WitDescriptor};
use crate::convert::{self, to_usizes};
use crate::host_error::HostError;
use crate::instance_state::InstanceState;
use crate::variables::device_variable::DeviceVariable;
use crate::variables::sealed_error;
use saggar_tensor::GraphBuilder as G;

impl HostGraphBuilder for InstanceState {
    fn new(&mut self) -> wasmtime::Result<Builder> {
        let number = self.graphs.next_id();
        match self.push(BuilderHandle(number)) {
            Ok(handle) => {
                self.graphs.begin(number);
                Ok(handle)
            }
            // A constructor cannot return an error: past the limit of handles it traps.
            Err(fault) => Err(wasmtime::Error::msg(self.wit_error(fault)?.message)),
        }
    }

    fn input(&mut self, graph: Builder, name: String, descriptor: WitDescriptor) -> NewOperand {
        let descriptor = convert::descriptor(&descriptor)?;
        self.add_operator(&graph, [], |g, []| Ok(g.input(&name, descriptor)?))
    }

    fn constant(&mut self, graph: Builder, descriptor: WitDescriptor, data: Vec<u8>) -> NewOperand {
        let descriptor = convert::descriptor(&descriptor)?;
        let bytes = data.len() as u64;
        let node = self.edit_graph(&graph, |builder| {
            let node = builder.graph.constant(descriptor, data)?;
            builder.constant_bytes += bytes;
            Ok(node)
        })?;
        self.push_operand(&graph, node)
    }

    fn scalar(&mut self, graph: Builder, data_type: DataType, value: f64) -> NewOperand {
        let dtype = convert::dtype(data_type);
        let value = convert::scalar(dtype, value)?;
        self.add_operator(&graph, [], |g, []| Ok(g.scalar(dtype, value)?))
    }

    fn fill(&mut self, graph: Builder, descriptor: WitDescriptor, value: f64) -> NewOperand {
        let descriptor = convert::descriptor(&descriptor)?;
        let value = convert::scalar(descriptor.dtype, value)?;
        self.add_operator(&graph, [], |g, []| Ok(g.fill(descriptor, value)?))
    }

    fn iota(&mut self, graph: Builder, descriptor: WitDescriptor, axis: u32) -> NewOperand {
        let descriptor = convert::descriptor(&descriptor)?;
        self.add_operator(&graph, [], |g, []| Ok(g.iota(descriptor, axis as usize)?))
    }

    fn variable(&mut self, graph: Builder, variable: Resource<DeviceVariable>) -> NewOperand {
        let variable = self.table.get(&variable)?.clone();
        let node = self.edit_graph(&graph, |builder| Ok(builder.variable(&variable)?))?;
        self.push_operand(&graph, node)
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

    fn where_(&mut self, graph: Builder, condition: Operand, true_value: Operand, false_value: Operand) -> NewOperand {
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
        per_image_standardization => nn::per_image_standardization;
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
        reshape(new_shape: Vec<u32>) => |g, x| g.reshape(x, &to_usizes(&new_shape));
        tile(repetitions: Vec<u32>) => |g, x| nn::tile(g, x, &to_usizes(&repetitions));
        triangular(upper: bool, diagonal: i32) => |g, x| nn::triangular(g, x, upper, diagonal.into());
        resample2d(options: Resample2dOptions) => |g, x| nn::resample2d(g, x, &options::resample2d(&options));
        l2_pool2d(options: Pool2dOptions) => |g, x| nn::l2_pool2d(g, x, options::pool2d(&options));
        max_pool2d(options: Pool2dOptions) => |g, x| nn::max_pool2d(g, x, options::pool2d(&options));
        average_pool2d(options: Pool2dOptions) => |g, x| nn::average_pool2d(g, x, options::pool2d(&options));
        hard_sigmoid(alpha: f32, beta: f32) => |g, x| nn::hard_sigmoid(g, x, f64::from(alpha), f64::from(beta));
        linear(alpha: f32, beta: f32) => |g, x| nn::linear_function(g, x, f64::from(alpha), f64::from(beta));
    }

    fn identity(&mut self, graph: Builder, input: Operand) -> NewOperand {
        self.add_operator(&graph, [&input], |_, [x]| Ok(x))
    }

    fn dequantize_linear(&mut self, graph: Builder, input: Operand, scale: Operand, zero: Operand) -> NewOperand {
        self.add_operator(&graph, [&input, &scale, &zero], |g, [x, scale, zero]| {
            Ok(nn::dequantize_linear(g, x, scale, zero)?)
        })
    }

    fn quantize_linear(&mut self, graph: Builder, input: Operand, scale: Operand, zero: Operand) -> NewOperand {
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

    fn transpose(&mut self, graph: Builder, input: Operand, permutation: Option<Vec<u32>>) -> NewOperand {
        self.add_operator(&graph, [&input], |g, [x]| {
            let rank = g.descriptor_of(x)?.shape.rank();
            let permutation = permutation.as_deref().map_or_else(|| (0..rank).rev().collect(), to_usizes);
            Ok(g.transpose(x, &permutation)?)
        })
    }

    fn expand(&mut self, graph: Builder, input: Operand, new_shape: Vec<u32>) -> NewOperand {
        let shape = convert::shape(&new_shape)?;
        self.add_operator(&graph, [&input], |g, [x]| Ok(g.broadcast_to(x, shape)?))
    }

    fn slice(
        &mut self,
        graph: Builder,
        input: Operand,
        starts: Vec<u32>,
        windows: Vec<u32>,
        strides: Option<Vec<u32>>,
    ) -> NewOperand {
        self.add_operator(&graph, [&input], |g, [x]| {
            let descriptor = g.descriptor_of(x)?.clone();
            let strides = strides.as_deref().map_or_else(|| vec![1; windows.len()], to_usizes);
            let (starts, counts) = options::slice_windows(&descriptor, &starts, &windows, &strides)?;
            Ok(g.slice(x, &starts, &counts, &strides)?)
        })
    }

    fn concat(&mut self, graph: Builder, inputs: Vec<Operand>, axis: u32) -> NewOperand {
        let nodes = self.nodes(&graph, &inputs)?;
        let node = self.edit_graph_of(&graph, &nodes, |builder| Ok(builder.graph.concat(&nodes, axis as usize)?))?;
        self.push_operand(&graph, node)
    }

    fn split(
        &mut self,
        graph: Builder,
        input: Operand,
        splits: Vec<u32>,
        axis: u32,
    ) -> Result<Vec<Operand>, HostError> {
        let x = self.node(&graph, &input)?;
        let parts = self.edit_graph_of(&graph, &[x], |builder| {
            Ok(nn::split(&mut builder.graph, x, &to_usizes(&splits), axis as usize)?)
        })?;
        parts.into_iter().map(|node| self.push_operand(&graph, node)).collect()
    }

    fn pad(&mut self, graph: Builder, input: Operand, low: Vec<u32>, high: Vec<u32>, mode: PaddingMode) -> NewOperand {
        let (low, high) = (to_usizes(&low), to_usizes(&high));
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

    fn reverse(&mut self, graph: Builder, input: Operand, axes: Option<Vec<u32>>) -> NewOperand {
        self.add_operator(&graph, [&input], |g, [x]| {
            let rank = g.descriptor_of(x)?.shape.rank();
            let axes = axes.as_deref().map_or_else(|| (0..rank).collect(), to_usizes);
            Ok(g.reverse(x, &axes)?)
        })
    }

    fn gather(&mut self, graph: Builder, input: Operand, indices: Operand, axis: u32) -> NewOperand {
        self.add_operator(&graph, [&input, &indices], |g, [x, indices]| Ok(g.gather(x, indices, axis as usize)?))
    }

    fn gather_elements(&mut self, graph: Builder, input: Operand, indices: Operand, axis: u32) -> NewOperand {
        self.add_operator(&graph, [&input, &indices], |g, [x, indices]| {
            Ok(nn::gather_elements(g, x, indices, axis as usize)?)
        })
    }

    fn scatter_elements(
        &mut self,
        graph: Builder,
        input: Operand,
        indices: Operand,
        updates: Operand,
        axis: u32,
        reduction: ScatterReduction,
    ) -> NewOperand {
        self.add_operator(&graph, [&input, &indices, &updates], |g, [x, indices, updates]| {
            let combine = options::scatter_combine(reduction);
            Ok(nn::scatter_elements(g, x, indices, updates, axis as usize, combine)?)
        })
    }

    fn scatter_nd(
        &mut self,
        graph: Builder,
        input: Operand,
        indices: Operand,
        updates: Operand,
        reduction: ScatterReduction,
    ) -> NewOperand {
        self.add_operator(&graph, [&input, &indices, &updates], |g, [x, indices, updates]| {
            Ok(nn::scatter_nd(g, x, indices, updates, options::scatter_combine(reduction))?)
        })
    }

    fn gemm(&mut self, graph: Builder, a: Operand, b: Operand, c: Option<Operand>, options: GemmOptions) -> NewOperand {
        let c = self.optional_node(&graph, c.as_ref())?;
        self.add_operator_with(&graph, [&a, &b], &[c], |g, [a, b]| Ok(nn::gemm(g, a, b, c, options::gemm(&options))?))
    }

    fn conv2d(
        &mut self,
        graph: Builder,
        input: Operand,
        filter: Operand,
        bias: Option<Operand>,
        options: Conv2dOptions,
    ) -> NewOperand {
        let bias = self.optional_node(&graph, bias.as_ref())?;
        self.add_operator_with(&graph, [&input, &filter], &[bias], |g, [x, filter]| {
            Ok(nn::conv2d(g, x, filter, bias, options::conv2d(&options))?)
        })
    }

    fn conv_transpose2d(
        &mut self,
        graph: Builder,
        input: Operand,
        filter: Operand,
        bias: Option<Operand>,
        options: ConvTranspose2dOptions,
    ) -> NewOperand {
        let bias = self.optional_node(&graph, bias.as_ref())?;
        self.add_operator_with(&graph, [&input, &filter], &[bias], |g, [x, filter]| {
            Ok(nn::conv_transpose2d(g, x, filter, bias, options::conv_transpose2d(&options))?)
        })
    }

    fn layer_normalization(
        &mut self,
        graph: Builder,
        input: Operand,
        scale: Option<Operand>,
        bias: Option<Operand>,
        axes: Option<Vec<u32>>,
        epsilon: f32,
    ) -> NewOperand {
        let (scale, bias) = (self.optional_node(&graph, scale.as_ref())?, self.optional_node(&graph, bias.as_ref())?);
        self.add_operator_with(&graph, [&input], &[scale, bias], |g, [x]| {
            let rank = g.descriptor_of(x)?.shape.rank();
            let axes = axes.as_deref().map_or_else(|| (1..rank).collect(), to_usizes);
            Ok(nn::layer_normalization(g, x, scale, bias, &axes, f64::from(epsilon))?)
        })
    }

    fn batch_normalization(
        &mut self,
        graph: Builder,
        input: Operand,
        mean: Operand,
        variance: Operand,
        scale: Option<Operand>,
        bias: Option<Operand>,
        axis: u32,
        epsilon: f32,
    ) -> NewOperand {
        let (scale, bias) = (self.optional_node(&graph, scale.as_ref())?, self.optional_node(&graph, bias.as_ref())?);
        let (axis, epsilon) = (axis as usize, f64::from(epsilon));
        self.add_operator_with(&graph, [&input, &mean, &variance], &[scale, bias], |g, [x, mean, variance]| {
            Ok(nn::batch_normalization(g, x, [mean, variance], scale, bias, axis, epsilon)?)
        })
    }

    fn instance_normalization(
        &mut self,
        graph: Builder,
        input: Operand,
        scale: Option<Operand>,
        bias: Option<Operand>,
        epsilon: f32,
        layout: InputOperandLayout,
    ) -> NewOperand {
        let (scale, bias) = (self.optional_node(&graph, scale.as_ref())?, self.optional_node(&graph, bias.as_ref())?);
        let layout = options::input_layout(Some(layout));
        self.add_operator_with(&graph, [&input], &[scale, bias], |g, [x]| {
            Ok(nn::instance_normalization(g, x, scale, bias, f64::from(epsilon), layout)?)
        })
    }

    fn gru(
        &mut self,
        graph: Builder,
        input: Operand,
        weight: Operand,
        recurrent: Operand,
        steps: u32,
        hidden: u32,
        options: GruOptions,
    ) -> Result<Vec<Operand>, HostError> {
        self.add_gru(&graph, [&input, &weight, &recurrent], (steps, hidden), &options)
    }

    fn gru_cell(
        &mut self,
        graph: Builder,
        input: Operand,
        weight: Operand,
        recurrent: Operand,
        state: Operand,
        hidden: u32,
        options: GruOptions,
    ) -> NewOperand {
        self.add_gru_cell(&graph, [&input, &weight, &recurrent, &state], hidden, &options)
    }

    fn lstm(
        &mut self,
        graph: Builder,
        input: Operand,
        weight: Operand,
        recurrent: Operand,
        steps: u32,
        hidden: u32,
        options: LstmOptions,
    ) -> Result<Vec<Operand>, HostError> {
        self.add_lstm(&graph, [&input, &weight, &recurrent], (steps, hidden), &options)
    }

    fn lstm_cell(
        &mut self,
        graph: Builder,
        input: Operand,
        weight: Operand,
        recurrent: Operand,
        state: Operand,
        memory: Operand,
        hidden: u32,
        options: LstmOptions,
    ) -> Result<Vec<Operand>, HostError> {
        self.add_lstm_cell(&graph, [&input, &weight, &recurrent, &state, &memory], hidden, &options)
    }

    fn random_uniform(&mut self, graph: Builder, shape: Vec<u32>, key: Operand, stream: u32) -> NewOperand {
        let shape = convert::shape(&shape)?;
        self.add_operator(&graph, [&key], |g, [key]| Ok(g.random(shape, key, stream, RandomDistribution::Uniform)?))
    }

    fn random_normal(&mut self, graph: Builder, shape: Vec<u32>, key: Operand, stream: u32) -> NewOperand {
        let shape = convert::shape(&shape)?;
        self.add_operator(&graph, [&key], |g, [key]| Ok(nn::normal(g, shape, key, stream)?))
    }

    fn gradients(&mut self, graph: Builder, loss: Operand, wrt: Vec<Operand>) -> Result<Vec<Operand>, HostError> {
        let (loss, wrt) = (self.node(&graph, &loss)?, self.nodes(&graph, &wrt)?);
        let gradients = self.gradients_of(&graph, loss, &wrt)?;
        gradients.into_iter().map(|node| self.push_operand(&graph, node)).collect()
    }

    fn assign(&mut self, graph: Builder, variable: Resource<DeviceVariable>, value: Operand) -> Result<(), HostError> {
        let variable = self.table.get(&variable)?.clone();
        if variable.is_sealed() {
            return Err(sealed_error(variable.name()));
        }
        let value = self.node(&graph, &value)?;
        self.edit_graph_of(&graph, &[value], |builder| {
            let target = builder.variable(&variable)?;
            Ok(builder.graph.assign_to(target, value)?)
        })
    }

    fn build(&mut self, graph: Builder, outputs: Vec<(String, Operand)>) -> Result<Resource<CompiledGraph>, HostError> {
        let outputs: Vec<_> = outputs
            .into_iter()
            .map(|(name, operand)| Ok((name, self.node(&graph, &operand)?)))
            .collect::<Result<_, HostError>>()?;
        self.compile_pending_graph(graph, outputs)
    }

    fn drop(&mut self, graph: Builder) -> wasmtime::Result<()> {
        let BuilderHandle(number) = self.table.delete(graph)?;
        self.graphs.discard(number);
        Ok(())
    }
}

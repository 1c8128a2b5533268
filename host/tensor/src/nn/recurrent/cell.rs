//! One step of a recurrent network.

use super::{GruLayout, GruOptions, LstmLayout, LstmOptions, RecurrentActivation, check_dims};
use crate::builder::GraphBuilder;
use crate::error::GraphError;
use crate::error::NodeResult;
use crate::graph::NodeId;
use crate::nn::activation::{relu, sigmoid};
use crate::nn::f32_compute::{operands_to_f32, to_f32};
use crate::nn::{check_float, check_rank, fill_like};
use crate::op::{ContractOp, Op};

/// Computes one step of a gated recurrent unit. Returns the new state `[batch, hidden]`.
///
/// Shape: `x [batch, features]`, weight `[3 * hidden, features]`, recurrent weight `[3 * hidden, hidden]`, state
/// `[batch, hidden]`. Source: WebNN `gruCell`; Cho et al., arXiv:1406.1078.
///
/// # Errors
/// Returns `DType`, `DTypesDiffer`, `Rank`, `Dimension`, `UnknownNode` or `TooManyNodes`.
pub fn gru_cell(
    g: &mut GraphBuilder,
    x: NodeId,
    [weight, recurrent_weight]: [NodeId; 2],
    state: NodeId,
    options: &GruOptions,
) -> NodeResult {
    let dtype = g.descriptor_of(x)?.dtype;
    let cell =
        RecurrentCell::new(g, "gru-cell", 3, x, [weight, recurrent_weight], [options.bias, options.recurrent_bias])?;
    let [Some(state)] = operands_to_f32(g, "gru-cell", x, [Some(state)])? else { return Ok(state) };
    cell.check_state(g, state)?;
    let [update, reset, new] = match options.layout {
        GruLayout::Zrn => [0, 1, 2],
        GruLayout::Rzn => [1, 0, 2],
    };
    let (of_input, of_state) = (cell.input_products(g)?, cell.state_products(g, state)?);
    let gate = |g: &mut GraphBuilder, gate: usize| {
        let sum = cell.gate_sum(g, [of_input, of_state], gate)?;
        activate(g, options.activations[0], sum)
    };
    let (z, r) = (gate(g, update)?, gate(g, reset)?);
    let sum = if options.reset_after {
        let from_state = cell.biased_gate(g, of_state, 1, new)?;
        let from_reset = g.mul(r, from_state)?;
        let from_input = cell.biased_gate(g, of_input, 0, new)?;
        g.add(from_input, from_reset)?
    } else {
        let reset_state = g.mul(r, state)?;
        let of_reset_state = cell.state_products(g, reset_state)?;
        cell.gate_sum(g, [of_input, of_reset_state], new)?
    };
    let candidate = activate(g, options.activations[1], sum)?;
    // (1 - z) * candidate + z * state
    let one = fill_like(g, z, 1.0)?;
    let share = g.sub(one, z)?;
    let (from_candidate, from_state) = (g.mul(share, candidate)?, g.mul(z, state)?);
    let next = g.add(from_candidate, from_state)?;
    g.cast(next, dtype)
}

/// Computes one step of a long short-term memory. Returns the new hidden state and the new cell state, `[batch,
/// hidden]` each.
///
/// Shape: `x [batch, features]`, weight `[4 * hidden, features]`, recurrent weight `[4 * hidden, hidden]`, states
/// `[hidden, cell]` of `[batch, hidden]`. Source: WebNN `lstmCell`; Hochreiter and Schmidhuber, 1997.
///
/// # Errors
/// Returns `DType`, `DTypesDiffer`, `Rank`, `Dimension`, `UnknownNode` or `TooManyNodes`.
pub fn lstm_cell(
    g: &mut GraphBuilder,
    x: NodeId,
    [weight, recurrent_weight]: [NodeId; 2],
    [hidden, memory]: [NodeId; 2],
    options: &LstmOptions,
) -> Result<[NodeId; 2], GraphError> {
    let op = "lstm-cell";
    let dtype = g.descriptor_of(x)?.dtype;
    let cell = RecurrentCell::new(g, op, 4, x, [weight, recurrent_weight], [options.bias, options.recurrent_bias])?;
    let wide = operands_to_f32(g, op, x, [Some(hidden), Some(memory), options.peephole])?;
    let [Some(hidden), Some(memory), peephole] = wide else { return Ok([hidden, memory]) };
    cell.check_state(g, hidden)?;
    cell.check_state(g, memory)?;
    if let Some(peephole) = peephole {
        check_dims(g, op, "peephole-weight", peephole, &[3 * cell.hidden])?;
    }
    let [input, output, forget, new] = match options.layout {
        LstmLayout::Iofg => [0, 1, 2, 3],
        LstmLayout::Ifgo => [0, 3, 1, 2],
    };
    let (of_input, of_state) = (cell.input_products(g)?, cell.state_products(g, hidden)?);
    // Peepholes have the order input, output, forget in every layout.
    let gate = |g: &mut GraphBuilder, gate: usize, peep: Option<(usize, NodeId)>, activation: RecurrentActivation| {
        let mut sum = cell.gate_sum(g, [of_input, of_state], gate)?;
        if let (Some((position, memory)), Some(peephole)) = (peep, peephole) {
            let weight = g.narrow(peephole, 0, position * cell.hidden, cell.hidden)?;
            let seen = g.mul(memory, weight)?;
            sum = g.add(sum, seen)?;
        }
        activate(g, activation, sum)
    };
    let [of_gates, of_new, of_memory] = options.activations;
    let i = gate(g, input, Some((0, memory)), of_gates)?;
    let f = gate(g, forget, Some((2, memory)), of_gates)?;
    let candidate = gate(g, new, None, of_new)?;
    let (from_memory, from_candidate) = (g.mul(f, memory)?, g.mul(i, candidate)?);
    let next_memory = g.add(from_memory, from_candidate)?;
    let o = gate(g, output, Some((1, memory)), of_gates)?;
    let activated_memory = activate(g, of_memory, next_memory)?;
    let next_hidden = g.mul(o, activated_memory)?;
    Ok([g.cast(next_hidden, dtype)?, g.cast(next_memory, dtype)?])
}

/// The operands that the gates of a step share.
struct RecurrentCell {
    op: &'static str,
    gates: usize,
    batch: usize,
    hidden: usize,
    x: NodeId,
    weights: [NodeId; 2],
    biases: [Option<NodeId>; 2],
}

impl RecurrentCell {
    fn new(
        g: &mut GraphBuilder,
        op: &'static str,
        gates: usize,
        x: NodeId,
        weights: [NodeId; 2],
        biases: [Option<NodeId>; 2],
    ) -> Result<RecurrentCell, GraphError> {
        check_float(g, op, "input", x)?;
        check_rank(g, op, "input", x, 2)?;
        check_rank(g, op, "recurrent-weight", weights[1], 2)?;
        let (batch, features) = (g.descriptor(x).shape[0], g.descriptor(x).shape[1]);
        let hidden = g.descriptor(weights[1]).shape[1];
        let rows = hidden.saturating_mul(gates);
        check_dims(g, op, "weight", weights[0], &[rows, features])?;
        check_dims(g, op, "recurrent-weight", weights[1], &[rows, hidden])?;
        for (operand, bias) in [("bias", biases[0]), ("recurrent-bias", biases[1])] {
            if let Some(bias) = bias {
                check_dims(g, op, operand, bias, &[rows])?;
            }
        }
        let [Some(weight), Some(recurrent), bias, recurrent_bias] =
            operands_to_f32(g, op, x, [Some(weights[0]), Some(weights[1]), biases[0], biases[1]])?
        else {
            unreachable!("a given operand stays given");
        };
        let x = to_f32(g, x)?;
        Ok(RecurrentCell { op, gates, batch, hidden, x, weights: [weight, recurrent], biases: [bias, recurrent_bias] })
    }

    fn check_state(&self, g: &GraphBuilder, state: NodeId) -> Result<(), GraphError> {
        check_dims(g, self.op, "state", state, &[self.batch, self.hidden])
    }

    /// Returns all gates' products with the input, `[batch, gates * hidden]`.
    fn input_products(&self, g: &mut GraphBuilder) -> NodeResult {
        product(g, self.x, self.weights[0])
    }

    /// Returns all gates' products with the state, `[batch, gates * hidden]`.
    fn state_products(&self, g: &mut GraphBuilder, state: NodeId) -> NodeResult {
        product(g, state, self.weights[1])
    }

    /// Returns the columns of one gate.
    fn gate_columns(&self, g: &mut GraphBuilder, x: NodeId, axis: usize, gate: usize) -> NodeResult {
        debug_assert!(gate < self.gates, "a layout names the gates that there are");
        g.narrow(x, axis, gate * self.hidden, self.hidden)
    }

    /// Returns one gate of one product, plus the bias of that product.
    fn biased_gate(&self, g: &mut GraphBuilder, product: NodeId, which: usize, gate: usize) -> NodeResult {
        let part = self.gate_columns(g, product, 1, gate)?;
        let Some(bias) = self.biases[which] else { return Ok(part) };
        let bias = self.gate_columns(g, bias, 0, gate)?;
        g.add(part, bias)
    }

    /// Returns one gate's sum of both products and both biases. The biases are added to each other first: they tend to
    /// be smaller than the products, so fewer digits are lost.
    fn gate_sum(&self, g: &mut GraphBuilder, products: [NodeId; 2], gate: usize) -> NodeResult {
        let [from_input, from_state] = products;
        let (from_input, from_state) =
            (self.gate_columns(g, from_input, 1, gate)?, self.gate_columns(g, from_state, 1, gate)?);
        let mut sum = g.add(from_input, from_state)?;
        let bias = match self.biases {
            [Some(bias), Some(recurrent)] => Some(g.add(bias, recurrent)?),
            [bias, recurrent] => bias.or(recurrent),
        };
        if let Some(bias) = bias {
            let bias = self.gate_columns(g, bias, 0, gate)?;
            sum = g.add(sum, bias)?;
        }
        Ok(sum)
    }
}

fn product(g: &mut GraphBuilder, x: NodeId, weight: NodeId) -> NodeResult {
    let matmul = ContractOp::MatMul { transpose_a: false, transpose_b: true };
    g.add_node(Op::Contract(matmul), &[x, weight])
}

fn activate(g: &mut GraphBuilder, activation: RecurrentActivation, x: NodeId) -> NodeResult {
    match activation {
        RecurrentActivation::Relu => relu(g, x),
        RecurrentActivation::Sigmoid => sigmoid(g, x),
        RecurrentActivation::Tanh => g.tanh(x),
    }
}

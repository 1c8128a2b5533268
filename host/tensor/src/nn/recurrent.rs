//! Recurrent networks, unrolled: a step is a few products, and a network is its steps one after another.
//!
//! Weights hold their gates one below the other in the order that the layout names. Float; `float16` is computed in
//! `float32`.

use super::activation::{relu, sigmoid};
use super::wide::{widen, widened};
use super::{check_float, check_rank, like};
use crate::builder::GraphBuilder;
use crate::error::GraphError;
use crate::graph::NodeId;
use crate::limits::OPERANDS_MAX;
use crate::op::{Contract, Op};
use crate::{Descriptor, Shape};

type Built = Result<NodeId, GraphError>;

/// Activations of gates and states: WebNN's `MLRecurrentNetworkActivation`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// `max(x, 0)`.
    Relu,
    /// `1 / (1 + e^-x)`.
    Sigmoid,
    /// Hyperbolic tangent.
    Tanh,
}

/// Which way a network reads its sequence: WebNN's `MLRecurrentNetworkDirection`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    /// From the first step to the last.
    #[default]
    Forward,
    /// From the last step to the first.
    Backward,
    /// Both, as two directions.
    Both,
}

/// Order of a GRU's gates: update `z`, reset `r`, new `n`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GruLayout {
    /// Update, reset, new.
    #[default]
    Zrn,
    /// Reset, update, new.
    Rzn,
}

/// Order of an LSTM's gates: input `i`, output `o`, forget `f`, cell `g`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LstmLayout {
    /// Input, output, forget, cell.
    #[default]
    Iofg,
    /// Input, forget, cell, output.
    Ifgo,
}

/// What a GRU may have besides its weights. Sizes in [`gru`]; of a cell without the directions.
#[derive(Clone, Copy, Debug)]
pub struct GruOptions {
    /// `[directions, 3 * hidden]`, added to the input's product.
    pub bias: Option<NodeId>,
    /// `[directions, 3 * hidden]`, added to the state's product.
    pub recurrent_bias: Option<NodeId>,
    /// Whether the reset gate comes after the state's product instead of before.
    pub reset_after: bool,
    /// Order of the gates.
    pub layout: GruLayout,
    /// Of the gates, and of the new state.
    pub activations: [Activation; 2],
}

impl Default for GruOptions {
    fn default() -> GruOptions {
        GruOptions {
            bias: None,
            recurrent_bias: None,
            reset_after: true,
            layout: GruLayout::Zrn,
            activations: [Activation::Sigmoid, Activation::Tanh],
        }
    }
}

/// What an LSTM may have besides its weights. Sizes in [`lstm`]; of a cell without the directions.
#[derive(Clone, Copy, Debug)]
pub struct LstmOptions {
    /// `[directions, 4 * hidden]`, added to the input's product.
    pub bias: Option<NodeId>,
    /// `[directions, 4 * hidden]`, added to the state's product.
    pub recurrent_bias: Option<NodeId>,
    /// `[directions, 3 * hidden]`: how much of the cell state the gates input, output and forget see.
    pub peephole: Option<NodeId>,
    /// Order of the gates.
    pub layout: LstmLayout,
    /// Of the gates, of the cell gate, and of the cell state.
    pub activations: [Activation; 3],
}

impl Default for LstmOptions {
    fn default() -> LstmOptions {
        LstmOptions {
            bias: None,
            recurrent_bias: None,
            peephole: None,
            layout: LstmLayout::Iofg,
            activations: [Activation::Sigmoid, Activation::Tanh, Activation::Tanh],
        }
    }
}

/// One step of a gated recurrent unit: the new state `[batch, hidden]`.
///
/// Shape: `x [batch, features]`, weight `[3 * hidden, features]`, recurrent weight `[3 * hidden, hidden]`, state
/// `[batch, hidden]`. Source: WebNN `gruCell`; Cho et al., arXiv:1406.1078.
///
/// # Errors
/// `DType`; `DTypesDiffer`; `Rank`; `Dimension`; `UnknownNode`; `TooManyNodes`.
pub fn gru_cell(
    g: &mut GraphBuilder,
    x: NodeId,
    [weight, recurrent_weight]: [NodeId; 2],
    state: NodeId,
    options: &GruOptions,
) -> Built {
    let dtype = g.descriptor_of(x)?.dtype;
    let cell = Cell::new(g, "gru-cell", 3, x, [weight, recurrent_weight], [options.bias, options.recurrent_bias])?;
    let [Some(state)] = widened(g, "gru-cell", x, [Some(state)])? else { return Ok(state) };
    cell.check_state(g, state)?;
    let [update, reset, new] = match options.layout {
        GruLayout::Zrn => [0, 1, 2],
        GruLayout::Rzn => [1, 0, 2],
    };
    let (of_input, of_state) = (cell.input(g)?, cell.state(g, state)?);
    let gate = |g: &mut GraphBuilder, gate: usize| {
        let sum = cell.gate(g, [of_input, of_state], gate)?;
        activate(g, options.activations[0], sum)
    };
    let (z, r) = (gate(g, update)?, gate(g, reset)?);
    let sum = if options.reset_after {
        let from_state = cell.part(g, of_state, 1, new)?;
        let kept = g.mul(r, from_state)?;
        let from_input = cell.part(g, of_input, 0, new)?;
        g.add(from_input, kept)?
    } else {
        let kept = g.mul(r, state)?;
        let of_kept = cell.state(g, kept)?;
        cell.gate(g, [of_input, of_kept], new)?
    };
    let candidate = activate(g, options.activations[1], sum)?;
    // (1 - z) * candidate + z * state
    let one = like(g, z, 1.0)?;
    let share = g.sub(one, z)?;
    let (added, kept) = (g.mul(share, candidate)?, g.mul(z, state)?);
    let next = g.add(added, kept)?;
    g.cast(next, dtype)
}

/// One step of a long short-term memory: the new hidden and the new cell state, `[batch, hidden]` each.
///
/// Shape: `x [batch, features]`, weight `[4 * hidden, features]`, recurrent weight `[4 * hidden, hidden]`, states
/// `[hidden, cell]` of `[batch, hidden]`. Source: WebNN `lstmCell`; Hochreiter and Schmidhuber, 1997.
///
/// # Errors
/// `DType`; `DTypesDiffer`; `Rank`; `Dimension`; `UnknownNode`; `TooManyNodes`.
pub fn lstm_cell(
    g: &mut GraphBuilder,
    x: NodeId,
    [weight, recurrent_weight]: [NodeId; 2],
    [hidden, memory]: [NodeId; 2],
    options: &LstmOptions,
) -> Result<[NodeId; 2], GraphError> {
    let op = "lstm-cell";
    let dtype = g.descriptor_of(x)?.dtype;
    let cell = Cell::new(g, op, 4, x, [weight, recurrent_weight], [options.bias, options.recurrent_bias])?;
    let wide = widened(g, op, x, [Some(hidden), Some(memory), options.peephole])?;
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
    let (of_input, of_state) = (cell.input(g)?, cell.state(g, hidden)?);
    // Peepholes stand in the order input, output, forget, whatever the layout.
    let gate = |g: &mut GraphBuilder, gate: usize, peep: Option<(usize, NodeId)>, activation: Activation| {
        let mut sum = cell.gate(g, [of_input, of_state], gate)?;
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
    let (kept, added) = (g.mul(f, memory)?, g.mul(i, candidate)?);
    let next_memory = g.add(kept, added)?;
    let o = gate(g, output, Some((1, memory)), of_gates)?;
    let shown = activate(g, of_memory, next_memory)?;
    let next_hidden = g.mul(o, shown)?;
    Ok([g.cast(next_hidden, dtype)?, g.cast(next_memory, dtype)?])
}

/// A gated recurrent unit over a sequence: the last states `[directions, batch, hidden]`, and those of all steps
/// `[steps, directions, batch, hidden]`, each at its own step whatever the direction.
///
/// Shape: `x [steps, batch, features]`, weight `[directions, 3 * hidden, features]`, recurrent weight
/// `[directions, 3 * hidden, hidden]`, initial state `[directions, batch, hidden]` (none: zeros).
/// Source: WebNN `gru`.
///
/// # Errors
/// As [`gru_cell`]; `AxisEmpty` without a step.
pub fn gru(
    g: &mut GraphBuilder,
    x: NodeId,
    weights: [NodeId; 2],
    initial: Option<NodeId>,
    direction: Direction,
    options: &GruOptions,
) -> Result<[NodeId; 2], GraphError> {
    let sizes = Sizes::of(g, "gru", x, weights[1], direction)?;
    let mut runs = Vec::new();
    for (number, reversed) in directions(direction).into_iter().enumerate() {
        let weights = [pick(g, "gru", weights[0], number, 3)?, pick(g, "gru", weights[1], number, 3)?];
        let cell = GruOptions {
            bias: optional(g, "gru", options.bias, number, 2)?,
            recurrent_bias: optional(g, "gru", options.recurrent_bias, number, 2)?,
            ..*options
        };
        let mut state = sizes.initial(g, "gru", x, initial, number)?;
        runs.push(sizes.run(g, x, reversed, |g, x| {
            state = gru_cell(g, x, weights, state, &cell)?;
            Ok(state)
        })?);
    }
    sizes.joined(g, &runs)
}

/// A long short-term memory over a sequence: the last hidden states and the last cell states `[directions, batch, hidden]`,
/// and the hidden states of all steps `[steps, directions, batch, hidden]`, each at its own step whatever the direction.
///
/// Shape: as [`gru`], with 4 gates; initial states `[hidden, cell]`. Source: WebNN `lstm`.
///
/// # Errors
/// As [`lstm_cell`]; `AxisEmpty` without a step.
pub fn lstm(
    g: &mut GraphBuilder,
    x: NodeId,
    weights: [NodeId; 2],
    [hidden, memory]: [Option<NodeId>; 2],
    direction: Direction,
    options: &LstmOptions,
) -> Result<[NodeId; 3], GraphError> {
    let sizes = Sizes::of(g, "lstm", x, weights[1], direction)?;
    let (mut runs, mut memories) = (Vec::new(), Vec::new());
    for (number, reversed) in directions(direction).into_iter().enumerate() {
        let weights = [pick(g, "lstm", weights[0], number, 3)?, pick(g, "lstm", weights[1], number, 3)?];
        let cell = LstmOptions {
            bias: optional(g, "lstm", options.bias, number, 2)?,
            recurrent_bias: optional(g, "lstm", options.recurrent_bias, number, 2)?,
            peephole: optional(g, "lstm", options.peephole, number, 2)?,
            ..*options
        };
        let hidden = sizes.initial(g, "lstm", x, hidden, number)?;
        let mut states = [hidden, sizes.initial(g, "lstm", x, memory, number)?];
        runs.push(sizes.run(g, x, reversed, |g, x| {
            states = lstm_cell(g, x, weights, states, &cell)?;
            Ok(states[0])
        })?);
        memories.push(g.reshape(states[1], &[1, sizes.batch, sizes.hidden])?);
    }
    let [last, all] = sizes.joined(g, &runs)?;
    Ok([last, joined(g, &memories, 0)?, all])
}

/// The products that the gates of a step share.
struct Cell {
    op: &'static str,
    gates: usize,
    batch: usize,
    hidden: usize,
    x: NodeId,
    weights: [NodeId; 2],
    biases: [Option<NodeId>; 2],
}

impl Cell {
    fn new(
        g: &mut GraphBuilder,
        op: &'static str,
        gates: usize,
        x: NodeId,
        weights: [NodeId; 2],
        biases: [Option<NodeId>; 2],
    ) -> Result<Cell, GraphError> {
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
            widened(g, op, x, [Some(weights[0]), Some(weights[1]), biases[0], biases[1]])?
        else {
            unreachable!("what is given stays given");
        };
        let x = widen(g, x)?;
        Ok(Cell { op, gates, batch, hidden, x, weights: [weight, recurrent], biases: [bias, recurrent_bias] })
    }

    fn check_state(&self, g: &GraphBuilder, state: NodeId) -> Result<(), GraphError> {
        check_dims(g, self.op, "state", state, &[self.batch, self.hidden])
    }

    /// All gates' products with the input, `[batch, gates * hidden]`.
    fn input(&self, g: &mut GraphBuilder) -> Built {
        product(g, self.x, self.weights[0])
    }

    /// All gates' products with the state, `[batch, gates * hidden]`.
    fn state(&self, g: &mut GraphBuilder, state: NodeId) -> Built {
        product(g, state, self.weights[1])
    }

    /// One gate's columns.
    fn columns(&self, g: &mut GraphBuilder, x: NodeId, axis: usize, gate: usize) -> Built {
        debug_assert!(gate < self.gates, "a layout names the gates that there are");
        g.narrow(x, axis, gate * self.hidden, self.hidden)
    }

    /// One gate of one product, with the bias of that product.
    fn part(&self, g: &mut GraphBuilder, product: NodeId, which: usize, gate: usize) -> Built {
        let part = self.columns(g, product, 1, gate)?;
        let Some(bias) = self.biases[which] else { return Ok(part) };
        let bias = self.columns(g, bias, 0, gate)?;
        g.add(part, bias)
    }

    /// One gate's sum of both products and both biases. The biases are added to each other first: they tend to be smaller
    /// than the products, and fewer digits are lost.
    fn gate(&self, g: &mut GraphBuilder, products: [NodeId; 2], gate: usize) -> Built {
        let [from_input, from_state] = products;
        let (from_input, from_state) = (self.columns(g, from_input, 1, gate)?, self.columns(g, from_state, 1, gate)?);
        let mut sum = g.add(from_input, from_state)?;
        let bias = match self.biases {
            [Some(bias), Some(recurrent)] => Some(g.add(bias, recurrent)?),
            [bias, recurrent] => bias.or(recurrent),
        };
        if let Some(bias) = bias {
            let bias = self.columns(g, bias, 0, gate)?;
            sum = g.add(sum, bias)?;
        }
        Ok(sum)
    }
}

fn product(g: &mut GraphBuilder, x: NodeId, weight: NodeId) -> Built {
    let matmul = Contract::MatMul { transpose_a: false, transpose_b: true };
    g.add_node(Op::Contract(matmul), &[x, weight])
}

fn activate(g: &mut GraphBuilder, activation: Activation, x: NodeId) -> Built {
    match activation {
        Activation::Relu => relu(g, x),
        Activation::Sigmoid => sigmoid(g, x),
        Activation::Tanh => g.tanh(x),
    }
}

/// Sizes of a network over a sequence.
struct Sizes {
    steps: usize,
    directions: usize,
    batch: usize,
    hidden: usize,
}

impl Sizes {
    fn of(
        g: &GraphBuilder,
        op: &'static str,
        x: NodeId,
        recurrent_weight: NodeId,
        direction: Direction,
    ) -> Result<Sizes, GraphError> {
        check_rank(g, op, "input", x, 3)?;
        check_rank(g, op, "recurrent-weight", recurrent_weight, 3)?;
        let (x, weight) = (g.descriptor(x), g.descriptor(recurrent_weight));
        let directions = directions(direction).len();
        if weight.shape[0] != directions {
            let (operand, got) = ("recurrent-weight", weight.clone());
            return Err(GraphError::Dimension { op, operand, axis: 0, expected: directions, got });
        }
        if x.shape[0] == 0 {
            return Err(GraphError::AxisEmpty { op, axis: 0, got: x.clone() });
        }
        Ok(Sizes { steps: x.shape[0], directions, batch: x.shape[1], hidden: weight.shape[2] })
    }

    /// The state that direction `number` begins with.
    fn initial(
        &self,
        g: &mut GraphBuilder,
        op: &'static str,
        x: NodeId,
        initial: Option<NodeId>,
        number: usize,
    ) -> Built {
        if let Some(initial) = initial {
            check_dims(g, op, "initial-state", initial, &[self.directions, self.batch, self.hidden])?;
            return pick(g, op, initial, number, 3);
        }
        let dtype = g.descriptor_of(x)?.dtype;
        g.fill(Descriptor::new(dtype, Shape::new([self.batch, self.hidden])?), crate::op::Scalar::Float(0.0))
    }

    /// The states of all steps, each at its own place.
    fn run(
        &self,
        g: &mut GraphBuilder,
        x: NodeId,
        reversed: bool,
        mut step: impl FnMut(&mut GraphBuilder, NodeId) -> Built,
    ) -> Result<Run, GraphError> {
        let mut states = Vec::with_capacity(self.steps);
        for count in 0..self.steps {
            let at = if reversed { self.steps - 1 - count } else { count };
            let x = pick(g, "recurrent", x, at, 3)?;
            states.push(step(g, x)?);
        }
        let last = states[self.steps - 1];
        if reversed {
            states.reverse();
        }
        Ok(Run { last, states })
    }

    /// Last states, and all states, of every direction's run.
    fn joined(&self, g: &mut GraphBuilder, runs: &[Run]) -> Result<[NodeId; 2], GraphError> {
        let (batch, hidden) = (self.batch, self.hidden);
        let (mut last, mut all) = (Vec::new(), Vec::new());
        for run in runs {
            last.push(g.reshape(run.last, &[1, batch, hidden])?);
            let states: Result<Vec<NodeId>, GraphError> =
                run.states.iter().map(|&state| g.reshape(state, &[1, 1, batch, hidden])).collect();
            all.push(joined(g, &states?, 0)?);
        }
        Ok([joined(g, &last, 0)?, joined(g, &all, 1)?])
    }
}

/// One direction's states.
struct Run {
    /// What was computed last: in a backward run the first step's.
    last: NodeId,
    /// By step.
    states: Vec<NodeId>,
}

/// A concatenation of however many parts, in groups that one operator takes.
fn joined(g: &mut GraphBuilder, parts: &[NodeId], axis: usize) -> Built {
    let mut parts = parts.to_vec();
    while parts.len() > 1 {
        parts = parts.chunks(OPERANDS_MAX).map(|group| g.concat(group, axis)).collect::<Result<_, _>>()?;
    }
    Ok(parts[0])
}

/// Whether each direction reads backward.
fn directions(direction: Direction) -> Vec<bool> {
    match direction {
        Direction::Forward => vec![false],
        Direction::Backward => vec![true],
        Direction::Both => vec![false, true],
    }
}

/// The part of `x` at `place` of its first axis, which goes; `x` has `rank` dimensions.
fn pick(g: &mut GraphBuilder, op: &'static str, x: NodeId, place: usize, rank: usize) -> Built {
    check_rank(g, op, "operand", x, rank)?;
    let part = g.narrow(x, 0, place, 1)?;
    let dims = g.descriptor(part).shape[1..].to_vec();
    g.reshape(part, &dims)
}

fn optional(
    g: &mut GraphBuilder,
    op: &'static str,
    x: Option<NodeId>,
    place: usize,
    rank: usize,
) -> Result<Option<NodeId>, GraphError> {
    x.map(|x| pick(g, op, x, place, rank)).transpose()
}

/// `Rank` or `Dimension` unless the node has exactly these dimensions.
fn check_dims(
    g: &GraphBuilder,
    op: &'static str,
    operand: &'static str,
    node: NodeId,
    dims: &[usize],
) -> Result<(), GraphError> {
    let got = g.descriptor_of(node)?;
    if got.shape.rank() != dims.len() {
        return Err(GraphError::Rank { op, operand, least: dims.len(), most: dims.len(), got: got.clone() });
    }
    for (axis, &expected) in dims.iter().enumerate() {
        if got.shape[axis] != expected {
            return Err(GraphError::Dimension { op, operand, axis, expected, got: got.clone() });
        }
    }
    Ok(())
}

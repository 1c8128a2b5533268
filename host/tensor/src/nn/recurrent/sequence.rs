//! Recurrent networks over a sequence: applies a cell step by step.

use super::{GruOptions, LstmOptions, RecurrentDirection, check_dims, gru_cell, lstm_cell};
use crate::builder::GraphBuilder;
use crate::error::GraphError;
use crate::error::NodeResult;
use crate::graph::NodeId;
use crate::limits::{GRAPH_NODES_MAX, OPERANDS_MAX};
use crate::nn::check_rank;
use crate::op::Scalar;
use crate::{Descriptor, Shape};

/// Applies a gated recurrent unit to a sequence. Returns the last states `[directions, batch, hidden]`, and the states
/// of all steps `[steps, directions, batch, hidden]`, in the order of the sequence for every direction.
///
/// Shape: `x [steps, batch, features]`, weight `[directions, 3 * hidden, features]`, recurrent weight `[directions, 3 *
/// hidden, hidden]`, initial state `[directions, batch, hidden]` (none: zeros). Source: WebNN `gru`.
///
/// # Errors
/// As [`gru_cell`], and `AxisEmpty` without a step.
pub fn gru(
    g: &mut GraphBuilder,
    x: NodeId,
    weights: [NodeId; 2],
    initial: Option<NodeId>,
    direction: RecurrentDirection,
    options: &GruOptions,
) -> Result<[NodeId; 2], GraphError> {
    let sizes = SequenceSizes::new(g, "gru", x, weights[1], direction)?;
    let mut runs = Vec::new();
    for (number, reversed) in reversed_directions(direction).into_iter().enumerate() {
        let weights =
            [pick_direction(g, "gru", weights[0], number, 3)?, pick_direction(g, "gru", weights[1], number, 3)?];
        let cell = GruOptions {
            bias: pick_optional(g, "gru", options.bias, number, 2)?,
            recurrent_bias: pick_optional(g, "gru", options.recurrent_bias, number, 2)?,
            ..*options
        };
        let mut state = sizes.initial_state(g, "gru", x, initial, number)?;
        runs.push(sizes.run_direction(g, x, reversed, |g, x| {
            state = gru_cell(g, x, weights, state, &cell)?;
            Ok(state)
        })?);
    }
    sizes.join_directions(g, &runs)
}

/// Applies a long short-term memory to a sequence. Returns the last hidden states and the last cell states
/// `[directions, batch, hidden]`, and the hidden states of all steps `[steps, directions, batch, hidden]`, in the order
/// of the sequence for every direction.
///
/// Shape: as [`gru`], with 4 gates; initial states `[hidden, cell]`. Source: WebNN `lstm`.
///
/// # Errors
/// As [`lstm_cell`], and `AxisEmpty` without a step.
pub fn lstm(
    g: &mut GraphBuilder,
    x: NodeId,
    weights: [NodeId; 2],
    [hidden, memory]: [Option<NodeId>; 2],
    direction: RecurrentDirection,
    options: &LstmOptions,
) -> Result<[NodeId; 3], GraphError> {
    let sizes = SequenceSizes::new(g, "lstm", x, weights[1], direction)?;
    let (mut runs, mut memories) = (Vec::new(), Vec::new());
    for (number, reversed) in reversed_directions(direction).into_iter().enumerate() {
        let weights =
            [pick_direction(g, "lstm", weights[0], number, 3)?, pick_direction(g, "lstm", weights[1], number, 3)?];
        let cell = LstmOptions {
            bias: pick_optional(g, "lstm", options.bias, number, 2)?,
            recurrent_bias: pick_optional(g, "lstm", options.recurrent_bias, number, 2)?,
            peephole: pick_optional(g, "lstm", options.peephole, number, 2)?,
            ..*options
        };
        let hidden = sizes.initial_state(g, "lstm", x, hidden, number)?;
        let mut states = [hidden, sizes.initial_state(g, "lstm", x, memory, number)?];
        runs.push(sizes.run_direction(g, x, reversed, |g, x| {
            states = lstm_cell(g, x, weights, states, &cell)?;
            Ok(states[0])
        })?);
        memories.push(g.reshape(states[1], &[1, sizes.batch, sizes.hidden])?);
    }
    let [last, all] = sizes.join_directions(g, &runs)?;
    Ok([last, concat_all(g, &memories, 0)?, all])
}

/// Sizes of a network over a sequence.
struct SequenceSizes {
    steps: usize,
    directions: usize,
    batch: usize,
    hidden: usize,
}

impl SequenceSizes {
    fn new(
        g: &GraphBuilder,
        op: &'static str,
        x: NodeId,
        recurrent_weight: NodeId,
        direction: RecurrentDirection,
    ) -> Result<SequenceSizes, GraphError> {
        check_rank(g, op, "input", x, 3)?;
        check_rank(g, op, "recurrent-weight", recurrent_weight, 3)?;
        let (x, weight) = (g.descriptor(x), g.descriptor(recurrent_weight));
        let directions = reversed_directions(direction).len();
        if weight.shape[0] != directions {
            let (operand, got) = ("recurrent-weight", weight.clone());
            return Err(GraphError::Dimension { op, operand, axis: 0, expected: directions, got });
        }
        if x.shape[0] == 0 {
            return Err(GraphError::AxisEmpty { op, axis: 0, got: x.clone() });
        }
        // A step takes several nodes, so a sequence longer than the node limit cannot fit.
        if x.shape[0] > GRAPH_NODES_MAX {
            return Err(GraphError::TooManyNodes);
        }
        Ok(SequenceSizes { steps: x.shape[0], directions, batch: x.shape[1], hidden: weight.shape[2] })
    }

    /// Returns the initial state of direction `number`.
    fn initial_state(
        &self,
        g: &mut GraphBuilder,
        op: &'static str,
        x: NodeId,
        initial: Option<NodeId>,
        number: usize,
    ) -> NodeResult {
        if let Some(initial) = initial {
            check_dims(g, op, "initial-state", initial, &[self.directions, self.batch, self.hidden])?;
            return pick_direction(g, op, initial, number, 3);
        }
        let dtype = g.descriptor_of(x)?.dtype;
        g.fill(Descriptor::new(dtype, Shape::new([self.batch, self.hidden])?), Scalar::Float(0.0))
    }

    /// Returns the states of all steps, in the order of the sequence.
    fn run_direction(
        &self,
        g: &mut GraphBuilder,
        x: NodeId,
        reversed: bool,
        mut step: impl FnMut(&mut GraphBuilder, NodeId) -> NodeResult,
    ) -> Result<DirectionRun, GraphError> {
        let mut states = Vec::with_capacity(self.steps);
        for count in 0..self.steps {
            let at = if reversed { self.steps - 1 - count } else { count };
            let x = pick_direction(g, "recurrent", x, at, 3)?;
            states.push(step(g, x)?);
        }
        let last = states[self.steps - 1];
        if reversed {
            states.reverse();
        }
        Ok(DirectionRun { last, states })
    }

    /// Returns the last states and all states of every direction's run.
    fn join_directions(&self, g: &mut GraphBuilder, runs: &[DirectionRun]) -> Result<[NodeId; 2], GraphError> {
        let (batch, hidden) = (self.batch, self.hidden);
        let (mut last, mut all) = (Vec::new(), Vec::new());
        for run in runs {
            last.push(g.reshape(run.last, &[1, batch, hidden])?);
            let states: Result<Vec<NodeId>, GraphError> =
                run.states.iter().map(|&state| g.reshape(state, &[1, 1, batch, hidden])).collect();
            all.push(concat_all(g, &states?, 0)?);
        }
        Ok([concat_all(g, &last, 0)?, concat_all(g, &all, 1)?])
    }
}

/// The states of one direction.
struct DirectionRun {
    /// The state computed last; in a backward run, that of the first step of the sequence.
    last: NodeId,
    /// States by step.
    states: Vec<NodeId>,
}

/// Concatenates any number of parts, in groups that one operator accepts.
fn concat_all(g: &mut GraphBuilder, parts: &[NodeId], axis: usize) -> NodeResult {
    let mut parts = parts.to_vec();
    while parts.len() > 1 {
        parts = parts.chunks(OPERANDS_MAX).map(|group| g.concat(group, axis)).collect::<Result<_, _>>()?;
    }
    Ok(parts[0])
}

/// Returns, for each direction, whether it reads backward.
fn reversed_directions(direction: RecurrentDirection) -> Vec<bool> {
    match direction {
        RecurrentDirection::Forward => vec![false],
        RecurrentDirection::Backward => vec![true],
        RecurrentDirection::Both => vec![false, true],
    }
}

/// Returns the part of `x` at `place` of its first axis, without that axis; `x` has `rank` dimensions.
fn pick_direction(g: &mut GraphBuilder, op: &'static str, x: NodeId, place: usize, rank: usize) -> NodeResult {
    check_rank(g, op, "operand", x, rank)?;
    let part = g.narrow(x, 0, place, 1)?;
    let dims = g.descriptor(part).shape[1..].to_vec();
    g.reshape(part, &dims)
}

fn pick_optional(
    g: &mut GraphBuilder,
    op: &'static str,
    x: Option<NodeId>,
    place: usize,
    rank: usize,
) -> Result<Option<NodeId>, GraphError> {
    x.map(|x| pick_direction(g, op, x, place, rank)).transpose()
}

//! Recurrent networks: sequences read step by step, with a state that goes along.

use super::Operand;
use crate::bindings::graphs as raw;
use crate::bindings::graphs::{
    GruWeightLayout, LstmWeightLayout, RecurrentNetworkActivation, RecurrentNetworkDirection,
};
use crate::error::{Error, Result};

/// What a gated recurrent network may be given; WebNN's `MLGruOptions`. A cell takes neither an initial state nor a
/// direction nor a sequence, and its operands have no dimension of directions.
#[derive(Debug, Clone, Copy, Default)]
pub struct GruOptions<'a> {
    /// `[directions, 3 * hidden]`.
    pub bias: Option<&'a Operand>,
    /// `[directions, 3 * hidden]`.
    pub recurrent_bias: Option<&'a Operand>,
    /// `[directions, batch, hidden]`. Default: zeros.
    pub initial_hidden_state: Option<&'a Operand>,
    /// Whether the reset gate comes after the product with the recurrent weight. Default: true.
    pub reset_after: Option<bool>,
    /// Whether [`GruStates::sequence`] is wanted. Default: false.
    pub return_sequence: Option<bool>,
    /// Default: forward.
    pub direction: Option<RecurrentNetworkDirection>,
    /// The order of the gates. Default: update, reset, new.
    pub layout: Option<GruWeightLayout>,
    /// Of the gates, and of the new state. Default: sigmoid, tanh.
    pub activations: Option<(RecurrentNetworkActivation, RecurrentNetworkActivation)>,
}

impl GruOptions<'_> {
    fn raw(&self) -> raw::GruOptions<'_> {
        raw::GruOptions {
            bias: self.bias.map(Operand::raw),
            recurrent_bias: self.recurrent_bias.map(Operand::raw),
            initial_hidden_state: self.initial_hidden_state.map(Operand::raw),
            reset_after: self.reset_after,
            return_sequence: self.return_sequence,
            direction: self.direction,
            layout: self.layout,
            activations: self.activations,
        }
    }
}

/// What a long short-term memory may be given; WebNN's `MLLstmOptions`. A cell takes neither initial states nor a
/// direction nor a sequence, and its operands have no dimension of directions.
#[derive(Debug, Clone, Copy, Default)]
pub struct LstmOptions<'a> {
    /// `[directions, 4 * hidden]`.
    pub bias: Option<&'a Operand>,
    /// `[directions, 4 * hidden]`.
    pub recurrent_bias: Option<&'a Operand>,
    /// `[directions, 3 * hidden]`, for the gates input, output, forget.
    pub peephole_weight: Option<&'a Operand>,
    /// `[directions, batch, hidden]`. Default: zeros.
    pub initial_hidden_state: Option<&'a Operand>,
    /// `[directions, batch, hidden]`. Default: zeros.
    pub initial_cell_state: Option<&'a Operand>,
    /// Whether [`LstmStates::sequence`] is wanted. Default: false.
    pub return_sequence: Option<bool>,
    /// Default: forward.
    pub direction: Option<RecurrentNetworkDirection>,
    /// The order of the gates. Default: input, output, forget, cell.
    pub layout: Option<LstmWeightLayout>,
    /// Of the gates, of the cell gate, and of the cell state. Default: sigmoid, tanh, tanh.
    pub activations: Option<(RecurrentNetworkActivation, RecurrentNetworkActivation, RecurrentNetworkActivation)>,
}

impl LstmOptions<'_> {
    fn raw(&self) -> raw::LstmOptions<'_> {
        raw::LstmOptions {
            bias: self.bias.map(Operand::raw),
            recurrent_bias: self.recurrent_bias.map(Operand::raw),
            peephole_weight: self.peephole_weight.map(Operand::raw),
            initial_hidden_state: self.initial_hidden_state.map(Operand::raw),
            initial_cell_state: self.initial_cell_state.map(Operand::raw),
            return_sequence: self.return_sequence,
            direction: self.direction,
            layout: self.layout,
            activations: self.activations,
        }
    }
}

/// What [`gru`] gives.
#[derive(Debug, Clone)]
pub struct GruStates {
    /// The last hidden state, `[directions, batch, hidden]`.
    pub hidden: Operand,
    /// The hidden states of all steps, `[steps, directions, batch, hidden]`, where they were asked for.
    pub sequence: Option<Operand>,
}

/// What [`lstm`] and [`lstm_cell`] give.
#[derive(Debug, Clone)]
pub struct LstmStates {
    /// The last hidden state, `[directions, batch, hidden]`; of a cell `[batch, hidden]`.
    pub hidden: Operand,
    /// The last cell state, of the same shape.
    pub cell: Operand,
    /// The hidden states of all steps, `[steps, directions, batch, hidden]`, where they were asked for.
    pub sequence: Option<Operand>,
}

/// A gated recurrent network over a sequence. Steps and hidden size are those of the operands.
///
/// Shape: `input` `[steps, batch, features]`, `weight` `[directions, 3 * hidden, features]`, `recurrent_weight`
/// `[directions, 3 * hidden, hidden]`. Source: Cho et al., arXiv:1406.1078; WebNN `gru`.
///
/// # Errors
/// `Shape` if the operands do not have three dimensions; `Host`; `Built`.
pub fn gru(
    input: &Operand,
    weight: &Operand,
    recurrent_weight: &Operand,
    options: &GruOptions<'_>,
) -> Result<GruStates> {
    let (steps, hidden) = (dimension(input, 3, 0)?, dimension(recurrent_weight, 3, 2)?);
    let mut results = input
        .graph
        .add_operands(|builder| {
            builder.gru(&input.raw, &weight.raw, &recurrent_weight.raw, steps, hidden, &options.raw())
        })?
        .into_iter();
    let hidden = results.next().ok_or_else(|| missing_output("gru"))?;
    Ok(GruStates { hidden, sequence: results.next() })
}

/// One step of [`gru`], without directions: the new hidden state `[batch, hidden]`.
///
/// # Errors
/// `Shape` if the state does not have two dimensions; `Host`; `Built`.
pub fn gru_cell(
    input: &Operand,
    weight: &Operand,
    recurrent_weight: &Operand,
    hidden_state: &Operand,
    options: &GruOptions<'_>,
) -> Result<Operand> {
    let hidden = dimension(hidden_state, 2, 1)?;
    input.graph.add_operand(|builder| {
        builder.gru_cell(&input.raw, &weight.raw, &recurrent_weight.raw, &hidden_state.raw, hidden, &options.raw())
    })
}

/// A long short-term memory over a sequence. Steps and hidden size are those of the operands.
///
/// Shape: `input` `[steps, batch, features]`, `weight` `[directions, 4 * hidden, features]`, `recurrent_weight`
/// `[directions, 4 * hidden, hidden]`. Source: Hochreiter and Schmidhuber 1997; WebNN `lstm`.
///
/// # Errors
/// `Shape` if the operands do not have three dimensions; `Host`; `Built`.
pub fn lstm(
    input: &Operand,
    weight: &Operand,
    recurrent_weight: &Operand,
    options: &LstmOptions<'_>,
) -> Result<LstmStates> {
    let (steps, hidden) = (dimension(input, 3, 0)?, dimension(recurrent_weight, 3, 2)?);
    let results = input.graph.add_operands(|builder| {
        builder.lstm(&input.raw, &weight.raw, &recurrent_weight.raw, steps, hidden, &options.raw())
    })?;
    lstm_states(results, "lstm")
}

/// One step of [`lstm`], without directions, from the states `[batch, hidden]` hidden and cell to the next ones.
///
/// # Errors
/// `Shape` if the states do not have two dimensions; `Host`; `Built`.
pub fn lstm_cell(
    input: &Operand,
    weight: &Operand,
    recurrent_weight: &Operand,
    states: [&Operand; 2],
    options: &LstmOptions<'_>,
) -> Result<LstmStates> {
    let hidden = dimension(states[0], 2, 1)?;
    let [before, cell] = states.map(Operand::raw);
    let results = input.graph.add_operands(|builder| {
        builder.lstm_cell(&input.raw, &weight.raw, &recurrent_weight.raw, before, cell, hidden, &options.raw())
    })?;
    lstm_states(results, "lstm-cell")
}

fn lstm_states(results: Vec<Operand>, operator: &'static str) -> Result<LstmStates> {
    let mut results = results.into_iter();
    let (Some(hidden), Some(cell)) = (results.next(), results.next()) else { return Err(missing_output(operator)) };
    Ok(LstmStates { hidden, cell, sequence: results.next() })
}

/// The size of an operand of that rank along `axis`.
fn dimension(operand: &Operand, rank: usize, axis: usize) -> Result<u32> {
    let shape = operand.shape();
    if shape.len() == rank {
        return Ok(shape[axis]);
    }
    let expected = if rank == 3 { "of three dimensions" } else { "of two dimensions" };
    Err(Error::Shape { what: "an operand of a recurrent network".to_owned(), expected, given: shape })
}

fn missing_output(operator: &'static str) -> Error {
    Error::NoSuch { what: "result", name: operator.to_owned(), known: Vec::new() }
}

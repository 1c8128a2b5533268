//! Recurrent networks: GRU and LSTM over a sequence, and their cells.

use super::Operand;
use crate::bindings::graphs as raw;
use crate::bindings::graphs::{
    GruWeightLayout, LstmWeightLayout, RecurrentNetworkActivation, RecurrentNetworkDirection,
};
use crate::call_site::AtCallSite;
use crate::error::{Error, Result};

/// Options of [`gru`] and [`gru_cell`]: WebNN's `MLGruOptions`. For a cell, the initial state, direction and sequence
/// must not be given, and the operands have no dimension for directions.
#[derive(Debug, Clone, Copy, Default)]
pub struct GruOptions<'a> {
    /// Bias of the input, `[directions, 3 * hidden]`.
    pub bias: Option<&'a Operand>,
    /// Bias of the hidden state, `[directions, 3 * hidden]`.
    pub recurrent_bias: Option<&'a Operand>,
    /// Initial hidden state, `[directions, batch, hidden]`. Default: zeros.
    pub initial_hidden_state: Option<&'a Operand>,
    /// Whether the reset gate is applied after the product with the recurrent weight. Default: true.
    pub reset_after: Option<bool>,
    /// Whether to return [`GruStates::sequence`]. Default: false.
    pub return_sequence: Option<bool>,
    /// Direction in which the sequence is read. Default: forward.
    pub direction: Option<RecurrentNetworkDirection>,
    /// Order of the gates. Default: update, reset, new.
    pub layout: Option<GruWeightLayout>,
    /// Activations of the gates, and of the new state. Default: sigmoid, tanh.
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

/// Options of [`lstm`] and [`lstm_cell`]: WebNN's `MLLstmOptions`. For a cell, initial states, direction and sequence
/// must not be given, and the operands have no dimension for directions.
#[derive(Debug, Clone, Copy, Default)]
pub struct LstmOptions<'a> {
    /// Bias of the input, `[directions, 4 * hidden]`.
    pub bias: Option<&'a Operand>,
    /// Bias of the hidden state, `[directions, 4 * hidden]`.
    pub recurrent_bias: Option<&'a Operand>,
    /// Peephole weights of the gates input, output, forget: `[directions, 3 * hidden]`.
    pub peephole_weight: Option<&'a Operand>,
    /// Initial hidden state, `[directions, batch, hidden]`. Default: zeros.
    pub initial_hidden_state: Option<&'a Operand>,
    /// Initial cell state, `[directions, batch, hidden]`. Default: zeros.
    pub initial_cell_state: Option<&'a Operand>,
    /// Whether to return [`LstmStates::sequence`]. Default: false.
    pub return_sequence: Option<bool>,
    /// Direction in which the sequence is read. Default: forward.
    pub direction: Option<RecurrentNetworkDirection>,
    /// Order of the gates. Default: input, output, forget, cell.
    pub layout: Option<LstmWeightLayout>,
    /// Activations of the gates, of the cell gate, and of the cell state. Default: sigmoid, tanh, tanh.
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

/// The results of [`gru`].
#[derive(Debug, Clone)]
pub struct GruStates {
    /// The last hidden state, `[directions, batch, hidden]`.
    pub hidden: Operand,
    /// The hidden states of all steps, `[steps, directions, batch, hidden]`, or `None` if they were not requested.
    pub sequence: Option<Operand>,
}

/// The results of [`lstm`] and [`lstm_cell`].
#[derive(Debug, Clone)]
pub struct LstmStates {
    /// The last hidden state, `[directions, batch, hidden]`; for a cell `[batch, hidden]`.
    pub hidden: Operand,
    /// The last cell state, of the same shape.
    pub cell: Operand,
    /// The hidden states of all steps, `[steps, directions, batch, hidden]`, or `None` if they were not requested.
    pub sequence: Option<Operand>,
}

/// Applies a gated recurrent unit network to a sequence. The number of steps and the hidden size are those of the
/// operands. Float.
///
/// Shape: `input` `[steps, batch, features]`, `weight` `[directions, 3 * hidden, features]`, `recurrent_weight`
/// `[directions, 3 * hidden, hidden]`. Source: Cho et al., arXiv:1406.1078; WebNN `gru`.
///
/// ```no_run
/// # use saggar_plugin::*;
/// # fn f(v: &Variables, x: &Operand) -> Result<()> {
/// // `x` [steps, batch, 8], hidden size 16, one direction.
/// let uniform = Initializer::Uniform((-0.25, 0.25));
/// let weight = x.graph().variable(&v.parameter("weight", &[1, 48, 8], &uniform)?)?;
/// let recurrent = x.graph().variable(&v.parameter("recurrent", &[1, 48, 16], &uniform)?)?;
/// let states = gru(x, &weight, &recurrent, &GruOptions::default())?;
/// let last = states.hidden; // [1, batch, 16]
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// Returns `Shape` if `input` or `recurrent_weight` does not have three dimensions, `Host` if the host refuses the
/// operands, and `Built` after the graph was built.
#[track_caller]
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

/// Applies one step of [`gru`], without directions. Returns the new hidden state `[batch, hidden]`.
///
/// # Errors
/// Returns `Shape` if the state does not have two dimensions, `Host` if the host refuses the operands, and `Built`
/// after the graph was built.
#[track_caller]
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

/// Applies a long short-term memory network to a sequence. The number of steps and the hidden size are those of the
/// operands. Float.
///
/// Shape: `input` `[steps, batch, features]`, `weight` `[directions, 4 * hidden, features]`, `recurrent_weight`
/// `[directions, 4 * hidden, hidden]`. Source: Hochreiter and Schmidhuber 1997; WebNN `lstm`.
///
/// ```no_run
/// # use saggar_plugin::*;
/// # fn f(v: &Variables, x: &Operand) -> Result<()> {
/// // `x` [steps, batch, 8], hidden size 16, one direction.
/// let uniform = Initializer::Uniform((-0.25, 0.25));
/// let weight = x.graph().variable(&v.parameter("weight", &[1, 64, 8], &uniform)?)?;
/// let recurrent = x.graph().variable(&v.parameter("recurrent", &[1, 64, 16], &uniform)?)?;
/// let options = LstmOptions { return_sequence: Some(true), ..LstmOptions::default() };
/// let states = lstm(x, &weight, &recurrent, &options)?;
/// let all = states.sequence; // [steps, 1, batch, 16]
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// Returns `Shape` if `input` or `recurrent_weight` does not have three dimensions, `Host` if the host refuses the
/// operands, and `Built` after the graph was built.
#[track_caller]
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

/// Applies one step of [`lstm`], without directions. `states` are the hidden state and the cell state,
/// `[batch, hidden]`. Returns the new states.
///
/// # Errors
/// Returns `Shape` if the states do not have two dimensions, `Host` if the host refuses the operands, and `Built` after
/// the graph was built.
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

#[track_caller]
fn lstm_states(results: Vec<Operand>, operator: &'static str) -> Result<LstmStates> {
    let mut results = results.into_iter();
    let (Some(hidden), Some(cell)) = (results.next(), results.next()) else { return Err(missing_output(operator)) };
    Ok(LstmStates { hidden, cell, sequence: results.next() })
}

/// Returns the size along `axis` of an operand that must have this rank.
#[track_caller]
fn dimension(operand: &Operand, rank: usize, axis: usize) -> Result<u32> {
    let shape = operand.shape();
    if shape.len() == rank {
        return Ok(shape[axis]);
    }
    let expected = if rank == 3 { "of three dimensions" } else { "of two dimensions" };
    Err(Error::Shape { what: "an operand of a recurrent network".to_owned(), expected, given: shape }).at_caller()
}

fn missing_output(operator: &'static str) -> Error {
    Error::NoSuch { what: "result", name: operator.to_owned(), known: Vec::new() }
}

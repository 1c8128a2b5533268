//! Recurrent networks: every direction, layout and activation, and their cells.

use saggar_tensor::nn::{
    self, GruLayout, GruOptions, LstmLayout, LstmOptions, RecurrentActivation, RecurrentDirection,
};
use saggar_tensor::{GraphBuilder, NodeId};

use super::{NodeResult, OperatorEntry, concat_flat};
use RecurrentActivation::{Relu, Sigmoid, Tanh};

// 3 steps, a batch of 2, 2 features and 2 hidden units. Input, weight, recurrent weight, biases, initial states,
// peepholes.
const GRU: &[&[usize]] = &[&[3, 2, 2], &[1, 6, 2], &[1, 6, 2], &[1, 6], &[1, 6], &[1, 2, 2]];
const GRU_BOTH: &[&[usize]] = &[&[3, 2, 2], &[2, 6, 2], &[2, 6, 2], &[2, 6], &[2, 6], &[2, 2, 2]];
const GRU_CELL: &[&[usize]] = &[&[2, 3], &[6, 3], &[6, 2], &[6], &[6], &[2, 2]];
const LSTM: &[&[usize]] = &[&[3, 2, 2], &[1, 8, 2], &[1, 8, 2], &[1, 8], &[1, 8], &[1, 2, 2], &[1, 2, 2], &[1, 6]];
const LSTM_BOTH: &[&[usize]] = &[&[3, 2, 2], &[2, 8, 2], &[2, 8, 2], &[2, 8], &[2, 8], &[2, 2, 2], &[2, 2, 2], &[2, 6]];
const LSTM_CELL: &[&[usize]] = &[&[2, 3], &[8, 3], &[8, 2], &[8], &[8], &[2, 2], &[2, 2], &[6]];

pub(super) const ENTRIES: &[OperatorEntry] = &[
    ("gru", GRU, |g, x| gru(g, x, RecurrentDirection::Forward, GruLayout::Zrn, true, [Sigmoid, Tanh])),
    ("gru, backward", GRU, |g, x| gru(g, x, RecurrentDirection::Backward, GruLayout::Rzn, false, [Tanh, Sigmoid])),
    ("gru, both ways", GRU_BOTH, |g, x| gru(g, x, RecurrentDirection::Both, GruLayout::Zrn, false, [Sigmoid, Relu])),
    ("gru, from zeros", &[&[2, 1, 2], &[1, 6, 2], &[1, 6, 2]], |g, x| {
        let [last, all] = nn::gru(g, x[0], [x[1], x[2]], None, RecurrentDirection::Forward, &GruOptions::default())?;
        concat_flat(g, &[last, all])
    }),
    ("gru-cell", GRU_CELL, |g, x| gru_cell(g, x, true, [Sigmoid, Tanh])),
    ("gru-cell, reset before", GRU_CELL, |g, x| gru_cell(g, x, false, [Sigmoid, Tanh])),
    ("gru-cell, tanh and relu", GRU_CELL, |g, x| gru_cell(g, x, true, [Tanh, Relu])),
    ("gru-cell, relu and sigmoid", GRU_CELL, |g, x| gru_cell(g, x, false, [Relu, Sigmoid])),
    ("lstm", LSTM, |g, x| lstm(g, x, RecurrentDirection::Forward, LstmLayout::Iofg, [Sigmoid, Tanh, Tanh])),
    ("lstm, backward", LSTM, |g, x| {
        lstm(g, x, RecurrentDirection::Backward, LstmLayout::Ifgo, [Sigmoid, Sigmoid, Relu])
    }),
    ("lstm, both ways", LSTM_BOTH, |g, x| {
        lstm(g, x, RecurrentDirection::Both, LstmLayout::Iofg, [Tanh, Relu, Sigmoid])
    }),
    ("lstm, from zeros", &[&[2, 1, 2], &[1, 8, 2], &[1, 8, 2]], |g, x| {
        let (weights, options) = ([x[1], x[2]], LstmOptions::default());
        let results = nn::lstm(g, x[0], weights, [None, None], RecurrentDirection::Forward, &options)?;
        concat_flat(g, &results)
    }),
    ("lstm-cell", LSTM_CELL, |g, x| lstm_cell(g, x, LstmLayout::Iofg, [Sigmoid, Tanh, Tanh])),
    ("lstm-cell, ifgo", LSTM_CELL, |g, x| lstm_cell(g, x, LstmLayout::Ifgo, [Tanh, Sigmoid, Sigmoid])),
    ("lstm-cell, relu", LSTM_CELL, |g, x| lstm_cell(g, x, LstmLayout::Iofg, [Relu, Relu, Relu])),
];

fn gru(
    g: &mut GraphBuilder,
    x: &[NodeId],
    direction: RecurrentDirection,
    layout: GruLayout,
    reset_after: bool,
    activations: [RecurrentActivation; 2],
) -> NodeResult {
    let options = GruOptions { bias: Some(x[3]), recurrent_bias: Some(x[4]), reset_after, layout, activations };
    let [last, all] = nn::gru(g, x[0], [x[1], x[2]], Some(x[5]), direction, &options)?;
    concat_flat(g, &[last, all])
}

fn gru_cell(
    g: &mut GraphBuilder,
    x: &[NodeId],
    reset_after: bool,
    activations: [RecurrentActivation; 2],
) -> NodeResult {
    let (bias, recurrent_bias) = (Some(x[3]), Some(x[4]));
    let options = GruOptions { bias, recurrent_bias, reset_after, activations, ..GruOptions::default() };
    nn::gru_cell(g, x[0], [x[1], x[2]], x[5], &options)
}

fn lstm(
    g: &mut GraphBuilder,
    x: &[NodeId],
    direction: RecurrentDirection,
    layout: LstmLayout,
    activations: [RecurrentActivation; 3],
) -> NodeResult {
    let states = [Some(x[5]), Some(x[6])];
    let results = nn::lstm(g, x[0], [x[1], x[2]], states, direction, &lstm_options(x, layout, activations))?;
    concat_flat(g, &results)
}

fn lstm_cell(
    g: &mut GraphBuilder,
    x: &[NodeId],
    layout: LstmLayout,
    activations: [RecurrentActivation; 3],
) -> NodeResult {
    let states = nn::lstm_cell(g, x[0], [x[1], x[2]], [x[5], x[6]], &lstm_options(x, layout, activations))?;
    concat_flat(g, &states)
}

fn lstm_options(x: &[NodeId], layout: LstmLayout, activations: [RecurrentActivation; 3]) -> LstmOptions {
    let (bias, recurrent_bias, peephole) = (Some(x[3]), Some(x[4]), Some(x[7]));
    LstmOptions { bias, recurrent_bias, peephole, layout, activations }
}

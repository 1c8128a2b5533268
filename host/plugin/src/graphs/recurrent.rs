//! Recurrent networks of a graph being built: options with operands in them, and operators with several results.

use saggar_tensor::{GraphBuilder, NodeId, nn};
use wasmtime::component::Resource;

use super::{BuilderHandle, Operand, options};
use crate::bindings::graphs::{GruOptions, LstmOptions};
use crate::fault::Fault;
use crate::state::State;

type Graph = Resource<BuilderHandle>;
type In = Resource<Operand>;

impl State {
    /// `gru`; `sizes` are the steps and the hidden size that the plugin expects.
    pub(super) fn add_gru(
        &mut self,
        graph: &Graph,
        operands: [&In; 3],
        sizes: (u32, u32),
        given: &GruOptions,
    ) -> Result<Vec<In>, Fault> {
        let options = self.gru_options(graph, given)?;
        let initial = self.optional(graph, given.initial_hidden_state.as_ref())?;
        let (direction, sequence) = (options::direction(given.direction), given.return_sequence.unwrap_or(false));
        self.add_operators(graph, operands, |g, [x, weight, recurrent]| {
            check_sizes(g, "gru", (x, recurrent), Some(sizes.0), sizes.1)?;
            let [last, all] = nn::gru(g, x, [weight, recurrent], initial, direction, &options)?;
            Ok(if sequence { vec![last, all] } else { vec![last] })
        })
    }

    /// `gru-cell`.
    pub(super) fn add_gru_cell(
        &mut self,
        graph: &Graph,
        operands: [&In; 4],
        hidden: u32,
        given: &GruOptions,
    ) -> Result<In, Fault> {
        let options = self.gru_options(graph, given)?;
        self.add_operator(graph, operands, |g, [x, weight, recurrent, state]| {
            check_sizes(g, "gru-cell", (x, recurrent), None, hidden)?;
            Ok(nn::gru_cell(g, x, [weight, recurrent], state, &options)?)
        })
    }

    /// `lstm`; `sizes` are the steps and the hidden size that the plugin expects.
    pub(super) fn add_lstm(
        &mut self,
        graph: &Graph,
        operands: [&In; 3],
        sizes: (u32, u32),
        given: &LstmOptions,
    ) -> Result<Vec<In>, Fault> {
        let options = self.lstm_options(graph, given)?;
        let hidden = self.optional(graph, given.initial_hidden_state.as_ref())?;
        let memory = self.optional(graph, given.initial_cell_state.as_ref())?;
        let (direction, sequence) = (options::direction(given.direction), given.return_sequence.unwrap_or(false));
        self.add_operators(graph, operands, |g, [x, weight, recurrent]| {
            check_sizes(g, "lstm", (x, recurrent), Some(sizes.0), sizes.1)?;
            let [last, cell, all] = nn::lstm(g, x, [weight, recurrent], [hidden, memory], direction, &options)?;
            Ok(if sequence { vec![last, cell, all] } else { vec![last, cell] })
        })
    }

    /// `lstm-cell`.
    pub(super) fn add_lstm_cell(
        &mut self,
        graph: &Graph,
        operands: [&In; 5],
        hidden: u32,
        given: &LstmOptions,
    ) -> Result<Vec<In>, Fault> {
        let options = self.lstm_options(graph, given)?;
        self.add_operators(graph, operands, |g, [x, weight, recurrent, state, memory]| {
            check_sizes(g, "lstm-cell", (x, recurrent), None, hidden)?;
            Ok(nn::lstm_cell(g, x, [weight, recurrent], [state, memory], &options)?.into())
        })
    }

    fn gru_options(&self, graph: &Graph, given: &GruOptions) -> Result<nn::GruOptions, Fault> {
        let default = nn::GruOptions::default();
        let activations = given.activations.map(|(gates, new)| [gates, new].map(options::activation));
        Ok(nn::GruOptions {
            bias: self.optional(graph, given.bias.as_ref())?,
            recurrent_bias: self.optional(graph, given.recurrent_bias.as_ref())?,
            reset_after: given.reset_after.unwrap_or(default.reset_after),
            layout: options::gru_layout(given.layout),
            activations: activations.unwrap_or(default.activations),
        })
    }

    fn lstm_options(&self, graph: &Graph, given: &LstmOptions) -> Result<nn::LstmOptions, Fault> {
        let default = nn::LstmOptions::default();
        let activations = given.activations.map(|(gates, new, cell)| [gates, new, cell].map(options::activation));
        Ok(nn::LstmOptions {
            bias: self.optional(graph, given.bias.as_ref())?,
            recurrent_bias: self.optional(graph, given.recurrent_bias.as_ref())?,
            peephole: self.optional(graph, given.peephole_weight.as_ref())?,
            layout: options::lstm_layout(given.layout),
            activations: activations.unwrap_or(default.activations),
        })
    }

    /// Adds an operator with several results.
    fn add_operators<const N: usize>(
        &mut self,
        graph: &Graph,
        operands: [&In; N],
        build: impl FnOnce(&mut GraphBuilder, [NodeId; N]) -> Result<Vec<NodeId>, Fault>,
    ) -> Result<Vec<In>, Fault> {
        let mut nodes = [NodeId(0); N];
        for (node, operand) in nodes.iter_mut().zip(operands) {
            *node = self.node(graph, operand)?;
        }
        let made = self.edit(graph, |builder| build(&mut builder.graph, nodes))?;
        made.into_iter().map(|node| self.operand(graph, node)).collect()
    }
}

/// WebNN names sizes that the operands have already: they must agree.
fn check_sizes(
    g: &GraphBuilder,
    op: &str,
    (x, recurrent): (NodeId, NodeId),
    steps: Option<u32>,
    hidden: u32,
) -> Result<(), Fault> {
    let (input, weight) = (g.descriptor_of(x)?, g.descriptor_of(recurrent)?);
    if let Some(steps) = steps
        && input.shape.first() != Some(&(steps as usize))
    {
        return Err(Fault::invalid(format!("{op}: {steps} steps were named, but the input is {input}")));
    }
    if weight.shape.last() != Some(&(hidden as usize)) {
        return Err(Fault::invalid(format!(
            "{op}: a hidden size of {hidden} was named, but the recurrent weight is {weight}"
        )));
    }
    Ok(())
}

//! Recurrent networks in a graph being built: options that contain operands, and operators with several results.

use saggar_tensor::{GraphBuilder, NodeId, nn};
use wasmtime::component::Resource;

use super::options;
use super::pending_graph::{BuilderHandle, GraphOperand};
use crate::bindings::graphs::{GruOptions, LstmOptions};
use crate::host_error::HostError;
use crate::instance_state::InstanceState;

type BuilderResource = Resource<BuilderHandle>;
type OperandResource = Resource<GraphOperand>;

impl InstanceState {
    /// Adds `gru`; `sizes` are the number of steps and the hidden size that the plugin expects.
    pub(super) fn add_gru(
        &mut self,
        graph: &BuilderResource,
        operands: [&OperandResource; 3],
        sizes: (u32, u32),
        given: &GruOptions,
    ) -> Result<Vec<OperandResource>, HostError> {
        let options = self.gru_options(graph, given)?;
        let initial = self.optional_node(graph, given.initial_hidden_state.as_ref())?;
        let (direction, sequence) = (options::direction(given.direction), given.return_sequence.unwrap_or(false));
        self.add_multi_output_operator(graph, operands, |g, [x, weight, recurrent]| {
            check_recurrent_sizes(g, "gru", (x, recurrent), Some(sizes.0), sizes.1)?;
            let [last, all] = nn::gru(g, x, [weight, recurrent], initial, direction, &options)?;
            Ok(if sequence { vec![last, all] } else { vec![last] })
        })
    }

    /// Adds `gru-cell`.
    pub(super) fn add_gru_cell(
        &mut self,
        graph: &BuilderResource,
        operands: [&OperandResource; 4],
        hidden: u32,
        given: &GruOptions,
    ) -> Result<OperandResource, HostError> {
        let options = self.gru_options(graph, given)?;
        self.add_operator(graph, operands, |g, [x, weight, recurrent, state]| {
            check_recurrent_sizes(g, "gru-cell", (x, recurrent), None, hidden)?;
            Ok(nn::gru_cell(g, x, [weight, recurrent], state, &options)?)
        })
    }

    /// Adds `lstm`; `sizes` are the number of steps and the hidden size that the plugin expects.
    pub(super) fn add_lstm(
        &mut self,
        graph: &BuilderResource,
        operands: [&OperandResource; 3],
        sizes: (u32, u32),
        given: &LstmOptions,
    ) -> Result<Vec<OperandResource>, HostError> {
        let options = self.lstm_options(graph, given)?;
        let hidden = self.optional_node(graph, given.initial_hidden_state.as_ref())?;
        let memory = self.optional_node(graph, given.initial_cell_state.as_ref())?;
        let (direction, sequence) = (options::direction(given.direction), given.return_sequence.unwrap_or(false));
        self.add_multi_output_operator(graph, operands, |g, [x, weight, recurrent]| {
            check_recurrent_sizes(g, "lstm", (x, recurrent), Some(sizes.0), sizes.1)?;
            let [last, cell, all] = nn::lstm(g, x, [weight, recurrent], [hidden, memory], direction, &options)?;
            Ok(if sequence { vec![last, cell, all] } else { vec![last, cell] })
        })
    }

    /// Adds `lstm-cell`.
    pub(super) fn add_lstm_cell(
        &mut self,
        graph: &BuilderResource,
        operands: [&OperandResource; 5],
        hidden: u32,
        given: &LstmOptions,
    ) -> Result<Vec<OperandResource>, HostError> {
        let options = self.lstm_options(graph, given)?;
        self.add_multi_output_operator(graph, operands, |g, [x, weight, recurrent, state, memory]| {
            check_recurrent_sizes(g, "lstm-cell", (x, recurrent), None, hidden)?;
            Ok(nn::lstm_cell(g, x, [weight, recurrent], [state, memory], &options)?.into())
        })
    }

    fn gru_options(&self, graph: &BuilderResource, given: &GruOptions) -> Result<nn::GruOptions, HostError> {
        let default = nn::GruOptions::default();
        let activations = given.activations.map(|(gates, new)| [gates, new].map(options::activation));
        Ok(nn::GruOptions {
            bias: self.optional_node(graph, given.bias.as_ref())?,
            recurrent_bias: self.optional_node(graph, given.recurrent_bias.as_ref())?,
            reset_after: given.reset_after.unwrap_or(default.reset_after),
            layout: options::gru_layout(given.layout),
            activations: activations.unwrap_or(default.activations),
        })
    }

    fn lstm_options(&self, graph: &BuilderResource, given: &LstmOptions) -> Result<nn::LstmOptions, HostError> {
        let default = nn::LstmOptions::default();
        let activations = given.activations.map(|(gates, new, cell)| [gates, new, cell].map(options::activation));
        Ok(nn::LstmOptions {
            bias: self.optional_node(graph, given.bias.as_ref())?,
            recurrent_bias: self.optional_node(graph, given.recurrent_bias.as_ref())?,
            peephole: self.optional_node(graph, given.peephole_weight.as_ref())?,
            layout: options::lstm_layout(given.layout),
            activations: activations.unwrap_or(default.activations),
        })
    }

    /// Adds an operator with several results.
    fn add_multi_output_operator<const N: usize>(
        &mut self,
        graph: &BuilderResource,
        operands: [&OperandResource; N],
        build: impl FnOnce(&mut GraphBuilder, [NodeId; N]) -> Result<Vec<NodeId>, HostError>,
    ) -> Result<Vec<OperandResource>, HostError> {
        let nodes = self.node_array(graph, operands)?;
        let results = self.edit_graph_of(graph, &nodes, |builder| build(&mut builder.graph, nodes))?;
        results.into_iter().map(|node| self.push_operand(graph, node)).collect()
    }
}

/// Checks the sizes that WebNN takes as arguments against those of the operands.
fn check_recurrent_sizes(
    g: &GraphBuilder,
    op: &str,
    (x, recurrent): (NodeId, NodeId),
    steps: Option<u32>,
    hidden: u32,
) -> Result<(), HostError> {
    let (input, weight) = (g.descriptor_of(x)?, g.descriptor_of(recurrent)?);
    if let Some(steps) = steps
        && input.shape.first() != Some(&(steps as usize))
    {
        return Err(HostError::invalid(format!("{op}: {steps} steps were named, but the input is {input}")));
    }
    if weight.shape.last() != Some(&(hidden as usize)) {
        return Err(HostError::invalid(format!(
            "{op}: a hidden size of {hidden} was named, but the recurrent weight is {weight}"
        )));
    }
    Ok(())
}

//! Graphs of jobs in mixed precision: the loss is scaled before gradients are taken, and the finished graph computes
//! the matrix products and convolutions that the loss depends on in `float16`. See `saggar_tensor::mixed_precision`.

use saggar_tensor::mixed_precision::{self, ScaledGradients};
use saggar_tensor::{Graph, GraphBuilder, InterruptCheck, NodeId, grad, micro_batches};
use wasmtime::component::Resource;

use super::{BuilderHandle, PluginGraphBuilder};
use crate::host_error::HostError;
use crate::instance_state::InstanceState;
use crate::loss_scale::LossScaleVariables;

/// The mixed-precision state of a graph being built.
#[derive(Debug)]
pub(super) struct MixedPrecisionState {
    taken: ScaledGradients,
    scale: mixed_precision::LossScaleNodes,
}

impl PluginGraphBuilder {
    /// Returns the gradients of the loss. They are multiplied by the loss scale during the backward pass and divided by
    /// it at its end.
    fn scaled_gradients(
        &mut self,
        by: &LossScaleVariables,
        loss: NodeId,
        wrt: &[NodeId],
        interrupt: &InterruptCheck<'_>,
    ) -> Result<Vec<NodeId>, HostError> {
        let scale = mixed_precision::LossScaleNodes {
            scale: self.variable(&by.scale)?,
            sound_steps: self.variable(&by.finite_steps)?,
            skipped_steps: self.variable(&by.skipped_steps)?,
        };
        let scaled = self
            .mixed_precision
            .get_or_insert_with(|| MixedPrecisionState { taken: ScaledGradients::default(), scale });
        Ok(mixed_precision::scaled_loss_gradients(
            &mut self.graph,
            &mut scaled.taken,
            scaled.scale.scale,
            loss,
            wrt,
            interrupt,
        )?)
    }
}

impl InstanceState {
    /// Returns the gradients of `loss` with respect to `wrt`, as the plugin gets them: unscaled and averaged over
    /// shards.
    pub(super) fn gradients_of(
        &mut self,
        graph: &Resource<BuilderHandle>,
        loss: NodeId,
        wrt: &[NodeId],
    ) -> Result<Vec<NodeId>, HostError> {
        let scale = self.loss_scale()?;
        let cancel = self.cancel_token().clone();
        let is_cancelled = || cancel.is_cancelled();
        let interrupt = InterruptCheck::from_condition(&is_cancelled);
        let gradients = self.edit_graph(graph, |builder| match &scale {
            Some(scale) => builder.scaled_gradients(scale, loss, wrt, &interrupt),
            None => Ok(grad::scaled_gradients(&mut builder.graph, loss, None, wrt, &interrupt)?),
        })?;
        let gradients = self.average_gradients(graph, loss, wrt, gradients)?;
        self.edit_graph(graph, |builder| {
            if let Some(scaled) = &mut builder.mixed_precision {
                scaled.taken.add_checked_gradients(&gradients);
            }
            Ok(gradients)
        })
    }
}

impl MixedPrecisionState {
    /// Makes steps whose gradients are not finite skip their assignments. Returns the node that holds whether the
    /// gradients are finite, for [`MixedPrecisionState::finish`]; `None` if no gradients were taken.
    ///
    /// # Errors
    /// The graph's limits.
    pub(super) fn skip_nonfinite_steps(
        &self,
        graph: &mut GraphBuilder,
        means: &[NodeId],
    ) -> Result<Option<NodeId>, HostError> {
        if self.taken.is_empty() {
            return Ok(None);
        }
        let mut gradients = self.taken.checked_gradients().to_vec();
        if !means.is_empty() {
            // Only values that are equal in all shards can decide: all shards must do the same.
            gradients = micro_batches::replicated_nodes(graph.graph(), means, &gradients);
        }
        Ok(Some(mixed_precision::skip_nonfinite_step(graph, &gradients)?))
    }

    /// Assigns the next loss scale and casts contractions to `float16`. `means` are mapped to the nodes of the new
    /// graph.
    ///
    /// # Errors
    /// The graph's limits.
    pub(super) fn finish(
        &self,
        mut graph: GraphBuilder,
        sound: Option<NodeId>,
        means: &mut [NodeId],
    ) -> Result<Graph, HostError> {
        if let Some(sound) = sound {
            mixed_precision::update_loss_scale(&mut graph, sound, &self.scale)?;
        }
        let (halved, places) = mixed_precision::autocast_to_f16(graph.graph(), self.taken.contractions());
        means.iter_mut().for_each(|mean| *mean = places[mean.index()]);
        Ok(halved)
    }
}

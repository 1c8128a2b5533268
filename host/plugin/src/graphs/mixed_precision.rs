//! Graphs of jobs in mixed precision: the loss is scaled before gradients are taken, and the finished graph computes
//! the matrix products and convolutions that the loss depends on in `float16`. See `saggar_tensor::mixed_precision`.

use saggar_tensor::mixed_precision::{self, ScaledGradients};
use saggar_tensor::{Graph, GraphBuilder, NodeId, micro_batches};

use crate::host_error::HostError;

/// The mixed-precision state of a graph being built.
#[derive(Debug)]
pub(super) struct MixedPrecisionState {
    pub(super) scaled_gradients: ScaledGradients,
    pub(super) scale: mixed_precision::LossScaleNodes,
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
        if self.scaled_gradients.is_empty() {
            return Ok(None);
        }
        let mut gradients = self.scaled_gradients.checked_gradients().to_vec();
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
        let (halved, places) = mixed_precision::autocast_to_f16(graph.graph(), self.scaled_gradients.contractions());
        means.iter_mut().for_each(|mean| *mean = places[mean.index()]);
        Ok(halved)
    }
}

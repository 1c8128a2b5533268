//! Gradients as a plugin gets them: unscaled in mixed precision, and averaged over shards.

use saggar_tensor::{InterruptCheck, NodeId, grad, micro_batches};
use wasmtime::component::Resource;

use super::pending_graph::BuilderHandle;
use crate::host_error::HostError;
use crate::instance_state::InstanceState;

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
            if let Some(state) = &mut builder.mixed_precision {
                state.scaled_gradients.add_checked_gradients(&gradients);
            }
            Ok(gradients)
        })
    }

    /// Returns the gradients of `loss` with respect to `wrt`. In a job with shards, returns nodes that represent their
    /// means.
    fn average_gradients(
        &mut self,
        graph: &Resource<BuilderHandle>,
        loss: NodeId,
        wrt: &[NodeId],
        mut gradients: Vec<NodeId>,
    ) -> Result<Vec<NodeId>, HostError> {
        if self.shards().count > 1 {
            self.edit_graph(graph, |builder| {
                let (graph, means) = (&mut builder.graph, &mut builder.means);
                Ok(micro_batches::average_gradients(graph, means, loss, wrt, &mut gradients)?)
            })?;
        }
        Ok(gradients)
    }
}

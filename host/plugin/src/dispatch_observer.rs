//! Observers of the graphs that a training runs.

use std::fmt::Debug;
use std::sync::Arc;

use saggar_device::{CancelToken, DeviceBuffer, DeviceError, Executable};
use saggar_tensor::Graph;

/// Observes the graphs of a training, as [`crate::JobContext::dispatch_observer`] gives it.
pub trait DispatchObserver: Debug + Send + Sync {
    /// Begins to observe a graph that was loaded. Called once for each.
    fn observe(&self, graph: &Graph) -> Arc<dyn ObservedGraph>;
}

/// A graph whose dispatches are observed.
pub trait ObservedGraph: Debug + Send + Sync {
    /// Runs the graph once, as [`Executable::dispatch_cancellable`] does, and looks at its tensors.
    ///
    /// # Errors
    /// The device's errors; `Cancelled` to end the training.
    fn dispatch(
        &self,
        executable: &dyn Executable,
        inputs: &[DeviceBuffer],
        variables: &[DeviceBuffer],
        cancel: &CancelToken,
    ) -> Result<Vec<DeviceBuffer>, DeviceError>;
}

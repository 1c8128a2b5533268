//! Records the dispatches of a training: the digests of the inputs and the outputs of each.

use std::collections::BTreeMap;
use std::sync::Arc;

use saggar_device::{Backend, CancelToken, DeviceBuffer, DeviceError, Executable};
use saggar_plugin::{DispatchObserver, ObservedGraph};
use saggar_store::Sha256Hasher;
use saggar_tensor::{Graph, GraphPort};

use crate::host_call::{HostCall, digest_of};
use crate::recorder::CallRecorder;

/// Records every dispatch.
#[derive(Debug)]
pub(crate) struct RecordingObserver {
    recorder: Arc<CallRecorder>,
    device: Arc<dyn Backend>,
}

impl RecordingObserver {
    pub(crate) fn new(recorder: Arc<CallRecorder>, device: Arc<dyn Backend>) -> RecordingObserver {
        RecordingObserver { recorder, device }
    }
}

impl DispatchObserver for RecordingObserver {
    fn observe(&self, graph: &Graph) -> Arc<dyn ObservedGraph> {
        Arc::new(RecordedGraph {
            recorder: Arc::clone(&self.recorder),
            device: Arc::clone(&self.device),
            digest: graph_digest(graph),
        })
    }
}

/// A graph whose dispatches are recorded.
#[derive(Debug)]
struct RecordedGraph {
    recorder: Arc<CallRecorder>,
    device: Arc<dyn Backend>,
    digest: String,
}

impl ObservedGraph for RecordedGraph {
    fn dispatch(
        &self,
        executable: &dyn Executable,
        inputs: &[DeviceBuffer],
        variables: &[DeviceBuffer],
        cancel: &CancelToken,
    ) -> Result<Vec<DeviceBuffer>, DeviceError> {
        let outputs = executable.dispatch_cancellable(inputs, variables, cancel)?;
        // Reading tensors makes the device wait, so it ends with the recording.
        if !self.recorder.is_recording() {
            return Ok(outputs);
        }
        let program = executable.program();
        self.recorder.record(HostCall::Dispatch {
            graph: self.digest.clone(),
            inputs: tensor_digests(&*self.device, &program.inputs, inputs, cancel)?,
            outputs: tensor_digests(&*self.device, &program.outputs, &outputs, cancel)?,
        });
        Ok(outputs)
    }
}

/// Returns the digests of tensors, by the names of their ports.
pub(crate) fn tensor_digests(
    device: &dyn Backend,
    ports: &[GraphPort],
    buffers: &[DeviceBuffer],
    cancel: &CancelToken,
) -> Result<BTreeMap<String, String>, DeviceError> {
    let digest = |(port, buffer): (&GraphPort, &DeviceBuffer)| {
        Ok((port.name.clone(), digest_of(&device.read_cancellable(buffer, cancel)?)))
    };
    ports.iter().zip(buffers).map(digest).collect()
}

/// Returns the digest of a graph with its constants. Equal graphs have equal digests.
pub(crate) fn graph_digest(graph: &Graph) -> String {
    let mut hasher = Sha256Hasher::new();
    // Serialization into memory fails for no graph; a failure would only make graphs of equal constants look equal.
    hasher.update_field(&postcard::to_allocvec(graph).unwrap_or_default());
    for constant in &graph.constants {
        hasher.update_field(constant);
    }
    hasher.finish().hex()
}

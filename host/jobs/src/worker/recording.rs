//! The recording of an attempt's host calls.

use std::sync::Arc;

use saggar_device::Backend;
use saggar_plugin::JobContext;
use saggar_replay::{CallRecorder, RecordingContext, RecordingHeader};
use saggar_store::StateDir;

use super::{AttemptFailure, WorkerAttempt};

impl WorkerAttempt<'_> {
    /// Returns a context that also records the calls, if the job asks for it. Of an attempt in several processes, the
    /// first one is recorded.
    ///
    /// # Errors
    /// `Permanent` if the recording cannot be created.
    pub(super) fn recorded(
        &self,
        context: Box<dyn JobContext>,
        home: &StateDir,
        device: &Arc<dyn Backend>,
    ) -> Result<Box<dyn JobContext>, AttemptFailure> {
        if !self.start.spec.record || self.start.rank > 0 {
            return Ok(context);
        }
        let info = device.info();
        let name = format!("{} {} {}", info.name, info.adapter, info.driver);
        let header = RecordingHeader::new(self.start.attempt, name);
        let log = home.job_files().create_recording(&self.start.job, self.start.attempt);
        let recorder = log.and_then(|log| CallRecorder::new(log, &header));
        let recorder = recorder.map_err(|error| AttemptFailure::permanent("BAD_HOME", error))?;
        Ok(Box::new(RecordingContext::new(context, recorder, Arc::clone(device))))
    }
}

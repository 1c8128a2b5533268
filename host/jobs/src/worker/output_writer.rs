//! Writes the outputs of a job: each only while the attempt owns the job.

use std::sync::Arc;

use saggar_plugin::PluginError;
use saggar_store::{JobFiles, StateDir, StoreError};

use super::channel::{EventChannel, WorkerControl};
use super::lost_worker::storage_error;
use super::store_outage::OutageRetry;
use super::write_fence::WriteFence;
use crate::protocol::{AttemptConfig, WorkerEvent};
use crate::storage_guard::StorageGuard;

/// Writes the outputs of one job.
#[derive(Clone, Debug)]
pub(super) struct OutputWriter {
    files: Arc<dyn JobFiles>,
    job: String,
    fence: WriteFence,
    retry: OutageRetry,
    channel: EventChannel,
}

impl OutputWriter {
    /// Returns the writer of an attempt's outputs.
    pub(super) fn new(
        start: &AttemptConfig,
        home: &StateDir,
        channel: &EventChannel,
        control: &Arc<WorkerControl>,
    ) -> OutputWriter {
        OutputWriter {
            files: home.job_files(),
            job: start.job.clone(),
            fence: WriteFence::new(start, channel, control),
            retry: OutageRetry::new(channel, control),
            channel: channel.clone(),
        }
    }

    /// Reserves room for an output.
    ///
    /// # Errors
    /// `PluginError` naming the output: there is no room for it, or that is not known.
    pub(super) fn reserve(&self, path: &str, data: &[u8], room: &mut StorageGuard) -> Result<(), PluginError> {
        room.reserve(data.len() as u64).map_err(|error| output_error(path, &error))
    }

    /// Writes an output that has room, replacing one of the same path. While the store does not answer, the write is repeated,
    /// with `check` before each try.
    ///
    /// # Errors
    /// `PluginError` naming the output if it could not be stored; the errors of `check`.
    pub(super) fn write(
        &self,
        path: &str,
        data: &[u8],
        check: impl Fn() -> Result<(), PluginError>,
    ) -> Result<(), PluginError> {
        self.retry.run(|| {
            check()?;
            self.write_once(path, data).map_err(|error| output_error(path, &error))
        })
    }

    /// Reports an output in the attempt's log.
    pub(super) fn log(&self, path: &str, data: &[u8]) {
        let line = format!("wrote output/{path} ({} bytes)", data.len());
        self.channel.send(&WorkerEvent::Log { level: "info".to_owned(), line });
    }

    /// Writes an output without a repetition.
    ///
    /// # Errors
    /// `StoreError` if it could not be stored.
    pub(super) fn write_once(&self, path: &str, data: &[u8]) -> Result<(), StoreError> {
        self.fence.wait();
        self.files.write_output(&self.job, path, data)
    }
}

fn output_error(path: &str, error: &StoreError) -> PluginError {
    storage_error(error, format!("output `{path}`: {error}"))
}

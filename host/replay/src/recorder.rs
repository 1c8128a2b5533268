//! Writes the host calls of an attempt, one JSON document a line.

use std::io;

use parking_lot::Mutex;
use saggar_store::job_files::AttemptLog;
use serde::{Deserialize, Serialize};

use crate::host_call::HostCall;

/// The version of the format.
pub(crate) const FORMAT_VERSION: u32 = 1;
/// Maximum bytes of a recording. At this size it ends, and the training continues.
pub const RECORDING_BYTES_MAX: u64 = 512 << 20;

/// The first line of a recording.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordingHeader {
    /// The version of the format.
    pub recording: u32,
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// The device that computed: name, adapter and driver.
    pub device: String,
    /// The version of saggar.
    pub version: String,
}

impl RecordingHeader {
    /// Returns the header of an attempt that is recorded now.
    pub fn new(attempt: u32, device: String) -> RecordingHeader {
        RecordingHeader { recording: FORMAT_VERSION, attempt, device, version: env!("CARGO_PKG_VERSION").to_owned() }
    }
}

/// A call, and the step boundary that it follows: the step of the last boundary, or of the state that the training
/// started from; `None` before that.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RecordedCall {
    pub(crate) after_step: Option<u64>,
    #[serde(flatten)]
    pub(crate) call: HostCall,
}

/// Writes the calls of one attempt. Shared by the parts that see them.
#[derive(Debug)]
pub struct CallRecorder(Mutex<RecorderState>);

#[derive(Debug)]
struct RecorderState {
    /// `None` once the recording has ended.
    log: Option<Box<dyn AttemptLog>>,
    after_step: Option<u64>,
    /// Why the recording ended, until it was reported.
    problem: Option<String>,
}

impl CallRecorder {
    /// Creates a recorder that writes to `log`, with `header` as the first line.
    ///
    /// # Errors
    /// Returns any error of the log.
    pub fn new(mut log: Box<dyn AttemptLog>, header: &RecordingHeader) -> io::Result<CallRecorder> {
        log.append(&line_of(header)?)?;
        Ok(CallRecorder(Mutex::new(RecorderState { log: Some(log), after_step: None, problem: None })))
    }

    /// Sets the step of the boundary that further calls follow.
    pub(crate) fn set_step(&self, step: u64) {
        self.0.lock().after_step = Some(step);
    }

    /// Writes a call. If that is not possible, the recording ends, and [`CallRecorder::take_problem`] says why.
    pub(crate) fn record(&self, call: HostCall) {
        let mut state = self.0.lock();
        let after_step = state.after_step;
        let Some(log) = &mut state.log else { return };
        let written = if log.bytes() >= RECORDING_BYTES_MAX {
            Err(format!("it has {RECORDING_BYTES_MAX} bytes, which is the maximum"))
        } else {
            let line = line_of(&RecordedCall { after_step, call });
            line.and_then(|line| log.append(&line)).map_err(|error| error.to_string())
        };
        if let Err(reason) = written {
            state.log = None;
            state.problem = Some(format!("the recording ends here: {reason}"));
        }
    }

    /// Returns whether calls are still written.
    pub(crate) fn is_recording(&self) -> bool {
        self.0.lock().log.is_some()
    }

    /// Returns why the recording ended, once.
    pub(crate) fn take_problem(&self) -> Option<String> {
        self.0.lock().problem.take()
    }
}

fn line_of(document: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(document)?;
    line.push(b'\n');
    Ok(line)
}

//! Recordings of trainings, and their replay.
//!
//! A training is a deterministic function of its parameters, its data and the state that it starts from. A recording
//! contains what it asked of the host and what it was given, with digests in place of data, so that a replay can show
//! that it computes the same bits, or name the first call that differs. A replay watches every dispatch: it prints
//! operands, and ends at the first number that is not finite, with the operand, its layer and what it was computed
//! from.
//!
//! Both are job contexts around another one ([`RecordingContext`], [`ReplayContext`]), so a plugin notices neither.

mod comparison;
mod dispatch_watch;
mod host_call;
mod non_finite;
mod operand_probe;
mod recorded_calls;
mod recorder;
mod recording_context;
mod recording_observer;
mod replay_context;
mod report;
mod tensor_summary;

pub use comparison::ReplayRange;
pub use host_call::{CallDifference, HostCall};
pub use non_finite::{NonFiniteOperand, OperandFinding};
pub use recorded_calls::{RecordedCalls, RecordingError};
pub use recorder::{CallRecorder, RECORDING_BYTES_MAX, RecordingHeader};
pub use recording_context::RecordingContext;
pub use replay_context::{ReplayContext, ReplayProgress, ReplayRequest};
pub use report::{PrintedOperand, ReplayDifference, ReplayReport};
pub use tensor_summary::TensorSummary;

//! The outcomes of predictions and the phases that are timed, as metric labels.

use saggar_plugin::{GuestErrorCode, PluginError};

use crate::error::ServingError;

/// A phase of a prediction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PredictionPhase {
    Decode,
    Queue,
    Compute,
    Encode,
}

/// The names of the phases, in their order.
pub(crate) const PHASES: [&str; 4] = ["decode", "queue", "compute", "encode"];

/// The outcome of a prediction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PredictionOutcome {
    /// It was answered.
    Success,
    /// The input was refused, by the server or the plugin.
    Rejected,
    /// The client no longer waits.
    Cancelled,
    /// The deadline passed.
    Timeout,
    /// The plugin failed, or gave an output that does not match its signature.
    PluginError,
    /// The device or the server failed.
    HostError,
}

impl PredictionOutcome {
    pub(crate) const ALL: [PredictionOutcome; 6] = [
        PredictionOutcome::Success,
        PredictionOutcome::Rejected,
        PredictionOutcome::Cancelled,
        PredictionOutcome::Timeout,
        PredictionOutcome::PluginError,
        PredictionOutcome::HostError,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            PredictionOutcome::Success => "success",
            PredictionOutcome::Rejected => "rejected",
            PredictionOutcome::Cancelled => "cancelled",
            PredictionOutcome::Timeout => "timeout",
            PredictionOutcome::PluginError => "plugin_error",
            PredictionOutcome::HostError => "host_error",
        }
    }

    /// Returns whether the model or the server failed. An input that is refused and a client that leaves are no errors.
    pub(crate) const fn is_error(self) -> bool {
        match self {
            PredictionOutcome::Timeout | PredictionOutcome::PluginError | PredictionOutcome::HostError => true,
            PredictionOutcome::Success | PredictionOutcome::Rejected | PredictionOutcome::Cancelled => false,
        }
    }
}

/// An error that ends a prediction: [`ServingError`], or an error of a protocol that contains it.
pub trait PredictionFailure {
    /// Returns the outcome that the prediction is counted under.
    fn outcome(&self) -> PredictionOutcome;

    /// Returns the plugin's error, if it is one.
    fn plugin_error(&self) -> Option<&PluginError>;
}

impl PredictionFailure for ServingError {
    fn outcome(&self) -> PredictionOutcome {
        match self {
            ServingError::DeadlineQueued { .. }
            | ServingError::Plugin(PluginError::Deadline { .. } | PluginError::Busy { .. }) => {
                PredictionOutcome::Timeout
            }
            ServingError::Plugin(PluginError::Cancelled { .. }) => PredictionOutcome::Cancelled,
            ServingError::Plugin(PluginError::Device(_) | PluginError::Engine { .. })
            | ServingError::Internal { .. } => PredictionOutcome::HostError,
            ServingError::Plugin(
                PluginError::BadInput { .. } | PluginError::Guest { code: GuestErrorCode::InvalidArgument, .. },
            ) => PredictionOutcome::Rejected,
            ServingError::Plugin(_) => PredictionOutcome::PluginError,
            _ => PredictionOutcome::Rejected,
        }
    }

    fn plugin_error(&self) -> Option<&PluginError> {
        if let ServingError::Plugin(error) = self { Some(error) } else { None }
    }
}

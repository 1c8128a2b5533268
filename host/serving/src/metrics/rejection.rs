//! The reasons for which requests are refused before they reach their model.

use saggar_metrics::MetricsRegistry;

use crate::error::ServingError;

/// A reason of `saggar_requests_rejected_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RejectionReason {
    /// The model's queue is full, or too long for the deadline.
    QueueFull,
    /// The deadline passed in the queue.
    Deadline,
    /// The model or version is not loaded.
    NotReady,
    /// The body is too large.
    TooLarge,
    /// The memory for requests is in use.
    Memory,
}

impl RejectionReason {
    /// Every reason.
    pub const ALL: [RejectionReason; 5] = [
        RejectionReason::QueueFull,
        RejectionReason::Deadline,
        RejectionReason::NotReady,
        RejectionReason::TooLarge,
        RejectionReason::Memory,
    ];

    /// Returns the reason as a metric label.
    pub const fn name(self) -> &'static str {
        match self {
            RejectionReason::QueueFull => "queue_full",
            RejectionReason::Deadline => "deadline",
            RejectionReason::NotReady => "not_ready",
            RejectionReason::TooLarge => "too_large",
            RejectionReason::Memory => "memory",
        }
    }

    /// Returns the reason of an error, or `None` for errors that are not counted as rejections.
    pub fn from_error(error: &ServingError) -> Option<RejectionReason> {
        match error {
            ServingError::QueueFull { .. } | ServingError::NoTimeLeft { .. } => Some(RejectionReason::QueueFull),
            ServingError::DeadlineQueued { .. } => Some(RejectionReason::Deadline),
            ServingError::NotReady { .. } | ServingError::NothingReady | ServingError::VersionNotServing { .. } => {
                Some(RejectionReason::NotReady)
            }
            ServingError::MemoryFull | ServingError::MemoryShare { .. } => Some(RejectionReason::Memory),
            _ => None,
        }
    }

    /// Counts a request that was refused for this reason.
    pub fn count(self, metrics: &MetricsRegistry) {
        metrics.families.requests_rejected.with_label_values(&[self.name()]).inc();
    }
}

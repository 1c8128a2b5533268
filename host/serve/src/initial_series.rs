//! Counter series with labels known in advance. They start at 0 with the server: a counter that appears at its first
//! event hides that event from `rate()` and `increase()`.

use saggar_metrics::MetricHandles;
use saggar_serving::{EVICTION_REASONS, RejectionReason};

use crate::access::AccessError;

/// Creates the series.
pub(crate) fn create_initial_series(families: &MetricHandles) {
    for reason in RejectionReason::ALL.into_iter().map(RejectionReason::name).chain(AccessError::REJECTION_REASONS) {
        families.requests_rejected.with_label_values(&[reason]);
    }
    for reason in AccessError::FAILURE_REASONS {
        families.auth_failures.with_label_values(&[reason]);
    }
    for reason in EVICTION_REASONS {
        families.model_evictions.with_label_values(&[reason]);
    }
    families.trace_spans_exported.with_label_values::<&str>(&[]);
    families.watch_rescans.with_label_values::<&str>(&[]);
    families.instance_start.with_label_values::<&str>(&[]);
}

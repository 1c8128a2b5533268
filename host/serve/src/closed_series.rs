//! Series of counters whose labels are known beforehand. They begin at 0 with the server: a counter that appears at its
//! first event hides that event from `rate()` and `increase()`.

use saggar_metrics::Families;

use crate::access::AccessError;
use crate::models::EVICTION_REASONS;
use crate::predict::call;

/// Creates the series.
pub(crate) fn begin(families: &Families) {
    for reason in call::REJECTIONS.into_iter().chain(AccessError::REJECTIONS) {
        families.requests_rejected.with_label_values(&[reason]);
    }
    for reason in AccessError::FAILURES {
        families.auth_failures.with_label_values(&[reason]);
    }
    for reason in EVICTION_REASONS {
        families.model_evictions.with_label_values(&[reason]);
    }
    families.watch_rescans.with_label_values::<&str>(&[]);
    families.instance_start.with_label_values::<&str>(&[]);
}

//! Labels of hosts, which jobs and pools can require.

use std::collections::BTreeMap;

/// Labels of a host, or those that a job or a pool requires of it: `gpu=a100`.
pub type HostLabels = BTreeMap<String, String>;

/// Returns labels for people: `gpu=a100, zone=1`.
pub fn format_labels(labels: &HostLabels) -> String {
    labels.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(", ")
}

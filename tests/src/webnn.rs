//! Runs the W3C WebNN conformance cases on the reference interpreter, the CPU device and every GPU adapter.
//!
//! A folder contains JSON files, each `{"op", "cases": [...]}`. A case has inputs, steps (operators with their
//! arguments and options, in WebNN's terms), expected outputs and a tolerance. A case passes if every output of every
//! device is within the tolerance.

mod build;
mod case;
mod compare;
mod options;
mod run;
mod unsupported;

use std::collections::BTreeSet;
use std::path::Path;

pub use case::{WebnnCase, read_cases};
pub use run::WebnnDevices;

/// The results of a folder of cases.
#[derive(Clone, Debug, Default)]
pub struct WebnnReport {
    /// Cases that every device passed.
    pub passed: usize,
    /// Cases that some device failed, each with its reason.
    pub failed: Vec<String>,
    /// Cases that were not run, each with its reason.
    pub skipped: Vec<String>,
    /// Entries of the list of unsupported cases that matched no case.
    pub dead_entries: Vec<&'static str>,
}

/// Runs every case of every `.json` file in `folder`.
///
/// # Errors
/// Returns the name of an invalid file or case, and what is wrong with it.
pub fn check(folder: &Path, devices: &WebnnDevices) -> Result<WebnnReport, String> {
    let mut report = WebnnReport::default();
    let mut matched = BTreeSet::new();
    for case in read_cases(folder)? {
        if let Some((entry, reason)) = unsupported::unsupported_entry(&case) {
            matched.insert(entry);
            report.skipped.push(format!("{}: {reason}", case.id));
            continue;
        }
        match devices.check(&case) {
            Ok(()) => report.passed += 1,
            Err(reason) => report.failed.push(format!("{} ({}): {reason}", case.id, case.name)),
        }
    }
    report.dead_entries = unsupported::dead_entries(&matched);
    Ok(report)
}

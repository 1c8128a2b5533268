//! Checks the store of objects: that it answers, decides races, has the same time as this machine, and how fast it is.

use std::time::Duration;

use saggar_clock::{Clock, SystemClock};
use saggar_store::objects::{ClockSkew, StoreProbe};
use saggar_store::{ObjectStorage, StoreError};

use super::{DoctorFinding, FindingState};
use crate::exit;

/// The difference of the clocks above which it is reported. Stores refuse requests from 15 minutes.
const CLOCK_SKEW_MAX: Duration = Duration::from_secs(60);
/// The time of a request above which it is reported: a save makes some requests one after the other.
const LATENCY_MAX: Duration = Duration::from_millis(500);

/// Checks the store at an address.
pub(super) fn check_object_storage(address: &str) -> Vec<DoctorFinding> {
    let objects = match ObjectStorage::open(address) {
        Ok(objects) => objects,
        Err(error) => return vec![failed("objects", &error)],
    };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return vec![DoctorFinding::new("objects", FindingState::Failed, error.to_string())],
    };
    let probed = runtime.block_on(objects.probe(|| SystemClock.now_ms()));
    let skew = objects.clock_skew(SystemClock.now_ms());
    let store = objects.address();
    match probed {
        Ok(probe) => vec![
            DoctorFinding::new("objects", FindingState::Ok, format!("{store} can be read, written and listed")),
            DoctorFinding::new(
                "objects/race",
                FindingState::Ok,
                "of requests that create one object at the same time, exactly one succeeds",
            ),
            latency_finding(&probe),
        ]
        .into_iter()
        .chain(skew.map(clock_finding))
        .collect(),
        Err(error) => {
            let name = if matches!(error, StoreError::UnsafeStore { .. }) { "objects/race" } else { "objects" };
            std::iter::once(failed(name, &error)).chain(skew.map(clock_finding)).collect()
        }
    }
}

/// Returns the finding of an error, whose message says how to fix it.
fn failed(name: &str, error: &StoreError) -> DoctorFinding {
    let (exit, text) = match error {
        StoreError::BadStoreAddress { .. } => (exit::INVALID, error.to_string()),
        StoreError::UnsafeStore { .. } => (exit::CONFLICT, error.to_string()),
        StoreError::Remote { store, name, reason, fix, .. } => {
            let finding =
                DoctorFinding::new("objects", FindingState::Failed, format!("{store}: object {name}: {reason}"));
            return finding.with_hint(*fix).with_exit_code(exit::UNREACHABLE);
        }
        error => (exit::UNEXPECTED, error.to_string()),
    };
    DoctorFinding::new(name, FindingState::Failed, text).with_exit_code(exit)
}

fn latency_finding(probe: &StoreProbe) -> DoctorFinding {
    let millis = probe.latency.as_millis();
    let finding = |state| DoctorFinding::new("objects/time", state, format!("a read takes {millis} ms"));
    if probe.latency <= LATENCY_MAX {
        return finding(FindingState::Ok);
    }
    // Work can continue, so the exit code is 0.
    finding(FindingState::Failed)
        .with_hint("use a bucket in the region of this machine: every checkpoint waits for some requests")
        .with_exit_code(0)
}

fn clock_finding(skew: ClockSkew) -> DoctorFinding {
    let what = match (skew.distance().as_secs(), skew.is_store_ahead()) {
        (0, _) => "the clocks of the store and of this machine agree to a second".to_owned(),
        (seconds, true) => format!("the store's clock is {seconds} s ahead of this machine's"),
        (seconds, false) => format!("the store's clock is {seconds} s behind this machine's"),
    };
    if skew.distance() <= CLOCK_SKEW_MAX {
        return DoctorFinding::new("objects/clock", FindingState::Ok, what);
    }
    DoctorFinding::new("objects/clock", FindingState::Failed, what)
        .with_hint("set this machine's clock, for example with `timedatectl set-ntp true`: stores refuse requests from 15 minutes")
        .with_exit_code(exit::UNREACHABLE)
}

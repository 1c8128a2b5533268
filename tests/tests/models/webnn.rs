//! The WebNN conformance cases: the interpreter, the CPU device and the GPU path give the outputs that the
//! specification's own tests expect.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests fail by panic, and say SKIP")]

use saggar_tests::shared;
use saggar_tests::webnn::{WebnnDevices, check};

#[test]
fn every_webnn_case_passes_on_every_device() {
    let Some(folder) = shared("conformance/webnn") else { return };
    let devices = match WebnnDevices::open() {
        Ok(devices) => devices,
        Err(reason) => {
            assert!(std::env::var_os("REQUIRE_GPU").is_none_or(|value| value != "1"), "{reason}");
            println!("SKIP: {reason}");
            return;
        }
    };
    let report = check(&folder, &devices).unwrap();
    assert!(report.failed.is_empty(), "{} failed:\n{}", report.failed.len(), report.failed.join("\n"));
    // An entry that matches nothing would hide a future case of that name.
    assert!(report.dead_entries.is_empty(), "remove from tests/src/webnn/unsupported.rs: {:?}", report.dead_entries);
    assert!(report.passed >= 1380, "{} passed, {} skipped", report.passed, report.skipped.len());
}

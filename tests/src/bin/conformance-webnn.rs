//! `conformance-webnn FOLDER`: runs a folder of WebNN conformance cases on the interpreter, the CPU device and every
//! GPU adapter. Prints the failed and the skipped cases, and at the end `N passed, N failed, N skipped`.
#![allow(clippy::print_stdout, reason = "this is what the command is for")]

use std::path::PathBuf;
use std::process::ExitCode;

use saggar_tests::webnn::{WebnnDevices, check};

fn main() -> ExitCode {
    let Some(folder) = std::env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("usage: conformance-webnn FOLDER");
        return ExitCode::from(2);
    };
    let report = WebnnDevices::open().and_then(|devices| {
        println!("on {}", devices.names().join(", "));
        check(&folder, &devices)
    });
    let report = match report {
        Ok(report) => report,
        Err(reason) => {
            eprintln!("conformance-webnn: {reason}");
            return ExitCode::from(2);
        }
    };
    report.skipped.iter().for_each(|line| println!("skipped {line}"));
    report.failed.iter().for_each(|line| println!("FAILED {line}"));
    println!("{} passed, {} failed, {} skipped", report.passed, report.failed.len(), report.skipped.len());
    if report.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

//! `conformance-onnx FOLDER[:FOLDER] [NAME]`: imports, loads and runs the ONNX project's cases whose path contains
//! NAME, on the CPU device and on every GPU adapter. Prints the wrong cases, and for each device `N passed, N
//! unsupported, N wrong`. With a NAME, or with `ONNX_VERBOSE` set, each unsupported case is listed.
#![allow(clippy::print_stdout, reason = "this is what the command is for")]

use std::path::PathBuf;
use std::process::ExitCode;

use saggar_tests::onnx::{ConformanceImporter, count_reasons};
use saggar_tests::plugin;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let Some(folders) = arguments.next() else {
        eprintln!("usage: conformance-onnx FOLDER[:FOLDER] [NAME]");
        return ExitCode::from(2);
    };
    let only = arguments.next().map(|only| only.to_string_lossy().into_owned()).unwrap_or_default();
    let folders: Vec<PathBuf> = std::env::split_paths(&folders).collect();
    match check(&folders, &only) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(reason) => {
            eprintln!("conformance-onnx: {reason}");
            ExitCode::from(2)
        }
    }
}

/// Returns the number of wrong cases on all devices.
fn check(folders: &[PathBuf], only: &str) -> Result<usize, String> {
    let path = plugin("onnx");
    let component = std::fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let importer = ConformanceImporter::new(&component)?;
    let mut devices = vec![saggar_cpu::open(None).map_err(|error| error.to_string())?];
    for index in 0..saggar_gpu::adapters().len() {
        devices.push(saggar_gpu::open(index).map_err(|error| error.to_string())?);
    }
    if devices.len() == 1 {
        println!("no GPU adapter; the CPU alone is tried");
    }
    let verbose = !only.is_empty() || std::env::var_os("ONNX_VERBOSE").is_some();
    let mut wrong = 0;
    for (device, folder) in devices.iter().flat_map(|device| folders.iter().map(move |folder| (device, folder))) {
        let name = format!("{} ({})", device.info().name, device.info().adapter);
        let report = importer.check(folder, only, device, |done, of| {
            if done.is_multiple_of(200) {
                eprintln!("{name}: {done} of {of}");
            }
        })?;
        report.wrong.iter().for_each(|line| println!("WRONG {line}"));
        if verbose {
            report.unsupported.iter().for_each(|line| println!("unsupported {line}"));
        } else {
            count_reasons(&report.unsupported).iter().for_each(|(reason, count)| println!("{count:5} {reason}"));
        }
        println!(
            "{name}: {} passed, {} unsupported, {} wrong of {}",
            report.passed,
            report.unsupported.len(),
            report.wrong.len(),
            folder.display()
        );
        wrong += report.wrong.len();
    }
    Ok(wrong)
}

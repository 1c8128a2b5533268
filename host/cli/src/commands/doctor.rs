//! `saggar doctor`: what this machine has, what is missing, and how to mend it.

use saggar_device::choose;
use serde_json::{Value, json};

use crate::args::Doctor;
use crate::exit;
use crate::exit::Failure;
use crate::output::Output;

/// One thing that was looked at.
struct Finding {
    name: String,
    state: &'static str,
    what: String,
    hint: Option<String>,
}

pub(crate) fn doctor(args: &Doctor, output: Output) -> Result<i32, Failure> {
    let mut findings = devices();
    findings.push(chosen("auto"));
    findings.push(guest_toolchain());
    let mut code = 0;
    if let Some(device) = &args.device {
        let asked = chosen(device);
        if asked.state != "OK" {
            code = exit::NO_DEVICE;
        }
        findings.push(asked);
    }
    if output.json {
        let list: Vec<Value> = findings
            .iter()
            .map(|f| json!({ "name": f.name, "state": f.state, "what": f.what, "hint": f.hint }))
            .collect();
        output.json(&Value::Array(list));
        return Ok(code);
    }
    for finding in &findings {
        output.line(&format!("{:<5} {:<12} {}", output.state(finding.state), finding.name, finding.what));
        if let Some(hint) = &finding.hint {
            output.line(&format!("      {:<12} {hint}", ""));
        }
    }
    Ok(code)
}

fn devices() -> Vec<Finding> {
    let devices = choose::list();
    let gpu = devices.iter().any(|device| device.backend != "cpu");
    let mut findings: Vec<Finding> = devices
        .into_iter()
        .map(|device| {
            let kind = if device.software { ", software: correct, but slower than cpu" } else { "" };
            let what = format!("{} ({}, {}){kind}", device.adapter, device.vendor, device.driver);
            Finding { name: device.name, state: "OK", what, hint: None }
        })
        .collect();
    if !gpu {
        let hint = "install the GPU's Vulkan driver; without a GPU, mesa-vulkan-drivers runs that path in software";
        let what = "no Vulkan adapter was found".to_owned();
        findings.push(Finding { name: "vulkan".to_owned(), state: "none", what, hint: Some(hint.to_owned()) });
    }
    findings
}

fn chosen(device: &str) -> Finding {
    match choose::open(device) {
        Ok(choice) => {
            let what = format!("takes {}: {}", choice.backend.info().name, choice.reason);
            Finding { name: device.to_owned(), state: "OK", what, hint: None }
        }
        Err(error) => Finding { name: device.to_owned(), state: "FAILED", what: error.to_string(), hint: None },
    }
}

fn guest_toolchain() -> Finding {
    match saggar_plugin::build::find_toolchain() {
        Ok(toolchain) => {
            Finding { name: "plugins".to_owned(), state: "OK", what: format!("are built by {toolchain}"), hint: None }
        }
        Err(error) => Finding {
            name: "plugins".to_owned(),
            state: "none",
            what: "cannot be built here (running them needs no compiler)".to_owned(),
            hint: Some(error.to_string()),
        },
    }
}

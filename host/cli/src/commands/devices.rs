//! The devices of this machine, looked for in a process of their own: looking loads every driver there is, which would
//! stay in a server's memory, and slow its start, for the sake of a list.

use std::path::Path;
use std::process::{Command, Stdio};

use saggar_device::{DeviceInfo, choose};
use serde_json::{Value, json};

use crate::exit::Failure;
use crate::output::Output;

/// `saggar devices`: one line of JSON for each.
pub(crate) fn devices(output: Output) -> Result<(), Failure> {
    for info in choose::list() {
        let DeviceInfo { name, adapter, vendor, driver, backend, software, exact_seconds, limits } = info;
        let device = json!([name, adapter, vendor, driver, backend, software, exact_seconds, limits]);
        output.line(&device.to_string());
    }
    Ok(())
}

/// What that command of `program` says; nothing where it cannot be run or dies, as a driver may make it.
pub(crate) fn ask(program: &Path) -> Vec<DeviceInfo> {
    let mut command = Command::new(program);
    let printed = command.arg("devices").stdin(Stdio::null()).stderr(Stdio::null()).output();
    let printed = printed.map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&printed).lines().filter_map(|line| device(&serde_json::from_str(line).ok()?)).collect()
}

/// A limit's name and value.
fn limit(pair: &Value) -> Option<(String, u64)> {
    Some((pair.get(0)?.as_str()?.to_owned(), pair.get(1)?.as_u64()?))
}

fn device(line: &Value) -> Option<DeviceInfo> {
    let text = |at: usize| Some(line.get(at)?.as_str()?.to_owned());
    Some(DeviceInfo {
        name: text(0)?,
        adapter: text(1)?,
        vendor: text(2)?,
        driver: text(3)?,
        backend: text(4)?,
        software: line.get(5)?.as_bool()?,
        exact_seconds: line.get(6)?.as_bool()?,
        limits: line.get(7)?.as_array()?.iter().map(limit).collect::<Option<_>>()?,
    })
}

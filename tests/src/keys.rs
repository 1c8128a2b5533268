//! API keys of a state directory.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::binary;

/// Creates a key in a state directory, with these arguments of `saggar key create`, and returns it.
///
/// # Panics
/// If the command fails.
pub fn create_key(home: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new(binary());
    command.args(["--json", "key", "create"]).args(arguments).env("SAGGAR_HOME", home);
    let created = command.output().expect("the binary starts");
    assert!(created.status.success(), "{}", String::from_utf8_lossy(&created.stderr));
    let created: Value = serde_json::from_slice(&created.stdout).expect("JSON with the key");
    created["key"].as_str().expect("JSON with the key").to_owned()
}

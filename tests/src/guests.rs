//! Paths of the components that tests run, as built by `make guests`.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{binary, root};

/// Returns the reference plugin that most tests train.
pub fn lenet() -> PathBuf {
    plugin("lenet")
}

/// Returns one of the reference plugins.
pub fn plugin(name: &str) -> PathBuf {
    require_built(root().join("plugins/target/saggar").join(format!("{name}.wasm")))
}

/// Returns one of the plugins under `tests/guests`.
pub fn guest(name: &str) -> PathBuf {
    require_built(root().join("tests/guests/target/saggar").join(format!("{name}.wasm")))
}

/// Builds the plugin in `directory` with `saggar build` and returns its component. Prints SKIP and returns `None` if a tool of
/// the plugin's language is missing and cannot be installed.
///
/// # Panics
/// The build fails for another reason.
pub fn build_plugin(directory: &Path) -> Option<PathBuf> {
    let built = Command::new(binary()).args(["build", "--json"]).arg(directory).output().expect("the binary starts");
    let messages = String::from_utf8_lossy(&built.stderr).into_owned();
    if !built.status.success() && messages.contains("is needed to build this plugin") {
        #[expect(clippy::print_stdout, reason = "a skipped test says so")]
        {
            println!("SKIP: {messages}");
        }
        return None;
    }
    assert!(built.status.success(), "{messages}");
    let answer: serde_json::Value = serde_json::from_slice(&built.stdout).expect("`--json` prints JSON");
    Some(answer["component"].as_str().expect("the answer names the component").into())
}

fn require_built(path: PathBuf) -> PathBuf {
    assert!(path.is_file(), "{} is missing: `make guests` builds it", path.display());
    path
}

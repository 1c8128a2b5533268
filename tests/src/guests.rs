//! Paths of the components that tests run, as built by `make guests`.

use std::path::PathBuf;

use crate::root;

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

fn require_built(path: PathBuf) -> PathBuf {
    assert!(path.is_file(), "{} is missing: `make guests` builds it", path.display());
    path
}

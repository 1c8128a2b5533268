//! Components that tests run, as `make guests` builds them.

use std::path::PathBuf;

use crate::root;

/// The reference plugin that most tests train.
pub fn lenet() -> PathBuf {
    plugin("lenet")
}

/// One of the reference plugins.
pub fn plugin(name: &str) -> PathBuf {
    require_built(root().join("plugins/target/saggar").join(format!("{name}.wasm")))
}

/// One of the plugins under `tests/guests`.
pub fn guest(name: &str) -> PathBuf {
    require_built(root().join("tests/guests/target/saggar").join(format!("{name}.wasm")))
}

fn require_built(path: PathBuf) -> PathBuf {
    assert!(path.is_file(), "{} is missing: `make guests` builds it", path.display());
    path
}

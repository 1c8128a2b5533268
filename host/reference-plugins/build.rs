//! Compiles the reference plugins and writes a table of them: for each, its name, its core module and the tables of its
//! manifest.
//!
//! The modules are not encoded as components here, because a build script would need the encoder a second time.

use std::error::Error;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

use saggar_wasm_build::PluginPackage;

/// The plugins that the program contains, in the order in which they are listed.
const REFERENCE_PLUGINS: [&str; 7] = ["lenet", "mlp", "tabular", "char-lm", "transformer", "input-opt", "onnx"];

fn main() -> Result<(), Box<dyn Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?);
    for source in ["wit", "plugins/Cargo.toml", "plugins/Cargo.lock", "plugins/sdk/src", "plugins/sdk/Cargo.toml"] {
        println!("cargo::rerun-if-changed={}", root.join(source).display());
    }
    let mut table = "&[\n".to_owned();
    for name in REFERENCE_PLUGINS {
        let directory = root.join("plugins").join(name);
        println!("cargo::rerun-if-changed={}", directory.join("src").display());
        println!("cargo::rerun-if-changed={}", directory.join("Cargo.toml").display());
        let package = PluginPackage::read(&directory)?;
        fs::copy(package.compile(true)?, out.join(format!("{name}.wasm")))?;
        fs::write(out.join(format!("{name}.json")), package.metadata.to_string())?;
        writeln!(table, "    ({name:?}, include_bytes!(\"{name}.wasm\"), include_str!(\"{name}.json\")),")?;
    }
    table.push_str("]\n");
    Ok(fs::write(out.join("plugins.rs"), table)?)
}

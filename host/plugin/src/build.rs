//! Builds a plugin written in Rust: cargo to a core module, `wit-component` to a component.
//!
//! Two toolchains can do it. One whose `wasm32-unknown-unknown` standard library is installed, as rustup does, builds as
//! any crate is built. Where rustup is not wanted, Debian's `rustc-web` and `rust-web-src` build the standard library
//! along with the plugin. Everything here blocks, for seconds to minutes.

mod command;
mod error;
mod toolchain;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Deserialize;
use wit_component::ComponentEncoder;

pub use error::BuildError;
pub use toolchain::{TOOLCHAIN_VARIABLE, Toolchain, ToolchainChoice};

/// The target that guests are compiled for: no operating system, so nothing but our imports.
const TARGET: &str = "wasm32-unknown-unknown";
/// Settings of the release profile that a plugin gets whatever its own manifest says: one module, in
/// which a panic is a trap. Small before fast, because guests describe work and the host compiles them when it loads them.
const PROFILE: [&str; 6] = [
    "profile.release.opt-level=\"s\"",
    "profile.release.lto=\"fat\"",
    "profile.release.codegen-units=1",
    "profile.release.panic=\"abort\"",
    "profile.release.debug=false",
    "profile.release.strip=true",
];

/// How to build a plugin.
#[derive(Debug, Clone, Default)]
pub struct BuildOptions {
    /// Which toolchain to use; none leaves it to [`TOOLCHAIN_VARIABLE`], and without that to what is there.
    pub toolchain: Option<ToolchainChoice>,
    /// Whether cargo's messages are kept for the error instead of being shown.
    pub quiet: bool,
}

/// A plugin that was built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Built {
    /// The component: `target/saggar/<crate>.wasm` of the plugin's workspace.
    pub component_path: PathBuf,
    /// Its size.
    pub bytes: u64,
    /// What built it.
    pub toolchain: Toolchain,
}

/// Builds the plugin whose `Cargo.toml` is in `manifest_dir`.
///
/// # Errors
/// `NotACrate`, `Metadata`: there is no package; `NoToolchain`: what to install; `Cargo`: it does not compile;
/// `NotAComponent`: it compiles but does not export what a plugin must; `Spawn`, `Io`.
pub fn build(manifest_dir: &Path, options: &BuildOptions) -> Result<Built, BuildError> {
    let manifest = manifest_dir.join("Cargo.toml");
    let manifest = manifest.canonicalize().map_err(|_| BuildError::NotACrate { path: manifest_dir.to_owned() })?;
    let choice = match options.toolchain {
        Some(choice) => choice,
        None => ToolchainChoice::from_environment()?,
    };
    let toolchain = toolchain::find(choice, manifest_dir)?;
    let package = package(&manifest, &toolchain)?;
    let module = compile(&manifest, &package, &toolchain, options.quiet)?;
    let module = fs::read(&module).map_err(|source| BuildError::Io { path: module, source })?;
    let component = encode(&module)?;
    let directory = package.target_directory.join("saggar");
    let component_path = directory.join(format!("{}.wasm", package.name));
    replace(&directory, &component_path, &component)?;
    Ok(Built { component_path, bytes: component.len() as u64, toolchain })
}

/// The component that a core module built with our interfaces is.
///
/// # Errors
/// `NotAComponent` if the module imports something else than the host offers, or lacks an export.
pub fn encode(module: &[u8]) -> Result<Vec<u8>, BuildError> {
    let component = ComponentEncoder::default().validate(true).module(module).and_then(|encoder| encoder.encode());
    component.map_err(|error| BuildError::NotAComponent { reason: format!("{error:#}") })
}

/// What cargo knows about the package.
#[derive(Debug)]
struct Package {
    name: String,
    target_directory: PathBuf,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<MetadataPackage>,
    target_directory: PathBuf,
}

#[derive(Deserialize)]
struct MetadataPackage {
    name: String,
    manifest_path: PathBuf,
}

fn package(manifest: &Path, toolchain: &Toolchain) -> Result<Package, BuildError> {
    let mut cargo = cargo(toolchain, manifest);
    cargo.args(["metadata", "--no-deps", "--format-version=1", "--manifest-path"]).arg(manifest);
    let output = command::output(&mut cargo)?;
    if !output.status.success() {
        let messages = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(BuildError::Metadata { path: manifest.to_owned(), messages });
    }
    let metadata: Metadata = serde_json::from_slice(&output.stdout)
        .map_err(|error| BuildError::Metadata { path: manifest.to_owned(), messages: error.to_string() })?;
    let found = metadata.packages.into_iter().find(|package| package.manifest_path == manifest);
    let package = found.ok_or_else(|| BuildError::NotACrate { path: manifest.to_owned() })?;
    Ok(Package { name: package.name, target_directory: metadata.target_directory })
}

#[derive(Deserialize)]
struct Message {
    manifest_path: Option<PathBuf>,
    #[serde(default)]
    filenames: Vec<PathBuf>,
}

/// Compiles the package and returns the path of its core module.
fn compile(manifest: &Path, package: &Package, toolchain: &Toolchain, quiet: bool) -> Result<PathBuf, BuildError> {
    let mut cargo = cargo(toolchain, manifest);
    // `rustc --crate-type` instead of `build`: a plugin's crate may be an ordinary library too, for its tests.
    cargo.args(["rustc", "--lib", "--crate-type=cdylib", "--release", "--target", TARGET]);
    cargo.args(["--message-format=json-render-diagnostics", "--manifest-path"]).arg(manifest);
    for setting in PROFILE {
        cargo.args(["--config", setting]);
    }
    toolchain.configure(&mut cargo);
    cargo.env("CARGO_ENCODED_RUSTFLAGS", "-Ctarget-feature=+simd128");
    cargo.stderr(if quiet { Stdio::piped() } else { Stdio::inherit() });
    let output = command::output(&mut cargo)?;
    if !output.status.success() {
        let messages = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(BuildError::Cargo { package: package.name.clone(), status: output.status, messages });
    }
    let messages = output.stdout.split(|byte| *byte == b'\n');
    let artifacts = messages.filter_map(|line| serde_json::from_slice::<Message>(line).ok());
    let ours = artifacts.filter(|message| message.manifest_path.as_deref() == Some(manifest));
    let mut modules = ours.flat_map(|message| message.filenames);
    modules
        .find(|path| path.extension().is_some_and(|extension| extension == "wasm"))
        .ok_or_else(|| BuildError::NoModule { package: package.name.clone() })
}

/// Cargo for the plugin: in its directory, and without the settings that a cargo around us has left in the environment.
fn cargo(toolchain: &Toolchain, manifest: &Path) -> Command {
    let mut cargo = Command::new(toolchain.cargo());
    if let Some(directory) = manifest.parent() {
        cargo.current_dir(directory);
    }
    for name in ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "CARGO_BUILD_TARGET", "CARGO_TARGET_DIR", "RUSTC"] {
        cargo.env_remove(name);
    }
    cargo.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    cargo
}

/// Puts the component in place by a rename, so that a server that watches the file never sees half of it.
fn replace(directory: &Path, path: &Path, bytes: &[u8]) -> Result<(), BuildError> {
    let mut part = OsString::from(path);
    part.push(format!(".{}.part", std::process::id()));
    let part = PathBuf::from(part);
    let written =
        fs::create_dir_all(directory).and_then(|()| fs::write(&part, bytes)).and_then(|()| fs::rename(&part, path));
    written.map_err(|source| BuildError::Io { path: path.to_owned(), source })
}

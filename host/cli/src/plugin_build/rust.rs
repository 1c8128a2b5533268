//! Builds a plugin written in Rust: cargo compiles it to a core module, `wit-component` encodes that as a component.
//!
//! There are two kinds of toolchain. One with an installed `wasm32-unknown-unknown` standard library, as rustup
//! provides, builds the plugin like any crate. Without rustup, Debian's `rustc-web` and `rust-web-src` build the
//! standard library along with the plugin.

pub(super) mod toolchain;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use saggar_plugin::PluginDeclarations;
use serde::Deserialize;
use wit_component::ComponentEncoder;

use super::error::BuildError;
use super::{BuiltComponent, PluginLanguage, command};
use toolchain::{ToolchainChoice, WasmToolchain};

/// The target that plugins are compiled for. It has no operating system, so a plugin imports only our interfaces.
const WASM_TARGET: &str = "wasm32-unknown-unknown";
/// Settings of the release profile that override the plugin's own manifest: one module, in which a panic is a trap. It
/// is optimized for size, because plugins only describe work and the host compiles them at each first load.
const RELEASE_PROFILE: [&str; 6] = [
    "profile.release.opt-level=\"s\"",
    "profile.release.lto=\"fat\"",
    "profile.release.codegen-units=1",
    "profile.release.panic=\"abort\"",
    "profile.release.debug=false",
    "profile.release.strip=true",
];

/// Rust: a package of cargo.
pub(super) struct RustLanguage;

impl PluginLanguage for RustLanguage {
    fn name(&self) -> &'static str {
        "Rust"
    }

    fn manifest(&self) -> &'static str {
        "Cargo.toml"
    }

    fn build(&self, directory: &Path, quiet: bool) -> Result<BuiltComponent, BuildError> {
        let (toolchain, metadata, manifest) = resolve_build(directory)?;
        let package = metadata.into_package(&manifest)?;
        let declarations = package.declarations()?;
        let module = compile_module(&package, &toolchain, quiet)?;
        let module = fs::read(&module).map_err(|source| BuildError::Io { path: module, source })?;
        let bytes = declarations.append_to(encode_component(&module)?);
        let directory = package.target_directory.join("saggar");
        Ok(BuiltComponent { name: package.name, directory, bytes })
    }

    fn declarations(&self, directory: &Path) -> Result<PluginDeclarations, BuildError> {
        let (_, metadata, manifest) = resolve_build(directory)?;
        metadata.into_package(&manifest)?.declarations()
    }
}

fn resolve_build(manifest_dir: &Path) -> Result<(WasmToolchain, CargoMetadata, PathBuf), BuildError> {
    let manifest = manifest_dir.join("Cargo.toml");
    let manifest = manifest.canonicalize().map_err(|_| BuildError::NotACrate { path: manifest_dir.to_owned() })?;
    let toolchain = toolchain::find_toolchain_in(ToolchainChoice::from_environment()?, manifest_dir)?;
    let metadata = cargo_metadata(&manifest, &toolchain)?;
    Ok((toolchain, metadata, manifest))
}

/// Returns the toolchain that a build would use in the current directory, for reports.
///
/// # Errors
/// `NoToolchain`, with what to install; `UnknownToolchain`.
pub(super) fn find_toolchain() -> Result<WasmToolchain, BuildError> {
    toolchain::find_toolchain_in(ToolchainChoice::from_environment()?, Path::new("."))
}

/// Encodes a core module that was built with our interfaces as a component.
///
/// # Errors
/// `NotAComponent` if the module imports something that the host does not offer, or lacks an export.
fn encode_component(module: &[u8]) -> Result<Vec<u8>, BuildError> {
    let component = ComponentEncoder::default().validate(true).module(module).and_then(|encoder| encoder.encode());
    component.map_err(|error| BuildError::NotAComponent { reason: format!("{error:#}") })
}

/// The workspace as `cargo metadata` describes it.
#[derive(Deserialize)]
struct CargoMetadata {
    packages: Vec<CargoPackage>,
    target_directory: PathBuf,
}

#[derive(Deserialize)]
struct CargoPackage {
    name: String,
    manifest_path: PathBuf,
    #[serde(default)]
    metadata: serde_json::Value,
    /// The target directory of its workspace.
    #[serde(skip)]
    target_directory: PathBuf,
}

impl CargoMetadata {
    fn into_package(self, manifest: &Path) -> Result<CargoPackage, BuildError> {
        let package = self.packages.into_iter().find(|package| package.manifest_path == manifest);
        let package = package.ok_or_else(|| BuildError::NotACrate { path: manifest.to_owned() })?;
        Ok(CargoPackage { target_directory: self.target_directory, ..package })
    }
}

impl CargoPackage {
    fn declarations(&self) -> Result<PluginDeclarations, BuildError> {
        PluginDeclarations::from_package(&self.name, &self.metadata)
            .map_err(|messages| BuildError::Metadata { path: self.manifest_path.clone(), messages })
    }
}

fn cargo_metadata(manifest: &Path, toolchain: &WasmToolchain) -> Result<CargoMetadata, BuildError> {
    let mut cargo = cargo_command(toolchain, manifest);
    cargo.args(["metadata", "--no-deps", "--format-version=1", "--manifest-path"]).arg(manifest);
    let output = command::run_to_completion(&mut cargo)?;
    let failed = |messages| BuildError::Metadata { path: manifest.to_owned(), messages };
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| failed(error.to_string()))
}

#[derive(Deserialize)]
struct CargoMessage {
    manifest_path: Option<PathBuf>,
    #[serde(default)]
    filenames: Vec<PathBuf>,
}

/// Compiles the package and returns the path of its core module.
fn compile_module(package: &CargoPackage, toolchain: &WasmToolchain, quiet: bool) -> Result<PathBuf, BuildError> {
    let manifest = package.manifest_path.as_path();
    let mut cargo = cargo_command(toolchain, manifest);
    // `rustc --crate-type` instead of `build`: a plugin's crate can also be an ordinary library, for its tests.
    cargo.args(["rustc", "--lib", "--crate-type=cdylib", "--release", "--target", WASM_TARGET]);
    cargo.args(["--message-format=json-render-diagnostics", "--manifest-path"]).arg(manifest);
    for setting in RELEASE_PROFILE {
        cargo.args(["--config", setting]);
    }
    toolchain.configure(&mut cargo);
    cargo.env("CARGO_ENCODED_RUSTFLAGS", "-Ctarget-feature=+simd128");
    cargo.stderr(if quiet { Stdio::piped() } else { Stdio::inherit() });
    let output = command::run_to_completion(&mut cargo)?;
    if !output.status.success() {
        let messages = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(BuildError::Cargo { package: package.name.clone(), status: output.status, messages });
    }
    let messages = output.stdout.split(|byte| *byte == b'\n');
    let artifacts = messages.filter_map(|line| serde_json::from_slice::<CargoMessage>(line).ok());
    let ours = artifacts.filter(|message| message.manifest_path.as_deref() == Some(manifest));
    let mut modules = ours.flat_map(|message| message.filenames);
    modules
        .find(|path| path.extension().is_some_and(|extension| extension == "wasm"))
        .ok_or_else(|| BuildError::NoModule { package: package.name.clone() })
}

/// Returns a cargo command for the plugin: in its directory, and without the environment variables of a cargo process
/// around this one.
fn cargo_command(toolchain: &WasmToolchain, manifest: &Path) -> Command {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_without_plugin_exports_is_refused() {
        let empty = b"\0asm\x01\0\0\0";
        assert!(encode_component(empty).is_ok(), "an empty component");
        let error = encode_component(b"\0asm").unwrap_err();
        assert!(matches!(error, BuildError::NotAComponent { .. }), "{error}");
        // `(module (import "env" "read" (func)))`: an import that is in none of our interfaces.
        let foreign = b"\0asm\x01\0\0\0\x01\x04\x01\x60\0\0\x02\x0c\x01\x03env\x04read\0\0";
        let error = encode_component(foreign).unwrap_err();
        assert!(matches!(&error, BuildError::NotAComponent { reason } if reason.contains("env")), "{error}");
    }
}

//! A plugin's package, and its compilation to a core module.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Deserialize;
use serde_json::Value;

use crate::command;
use crate::error::WasmBuildError;
use crate::toolchain::{WASM_TARGET, WasmToolchain};

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

/// Environment variables of a cargo process around this one, which would change what the plugin is compiled with.
const OUTER_CARGO_VARIABLES: [&str; 7] = [
    "RUSTFLAGS",
    "CARGO_ENCODED_RUSTFLAGS",
    "CARGO_BUILD_TARGET",
    "CARGO_TARGET_DIR",
    "RUSTC",
    "RUSTC_WRAPPER",
    "RUSTC_WORKSPACE_WRAPPER",
];

/// The package of a plugin, as `cargo metadata` describes it.
#[derive(Clone, Debug)]
pub struct PluginPackage {
    /// Its name, which is the plugin's.
    pub name: String,
    /// Its manifest.
    pub manifest_path: PathBuf,
    /// The tables below `[package.metadata]`, or null.
    pub metadata: Value,
    /// The target directory of its workspace.
    pub target_directory: PathBuf,
    toolchain: WasmToolchain,
}

impl PluginPackage {
    /// Reads the package in `directory`, and finds the toolchain to compile it with.
    ///
    /// # Errors
    /// `NotACrate`; `NoToolchain`; `UnknownToolchain`; `Spawn`; `Metadata` if cargo refuses the manifest.
    pub fn read(directory: &Path) -> Result<PluginPackage, WasmBuildError> {
        let manifest_path = directory.join("Cargo.toml");
        let not_a_crate = |path: &Path| WasmBuildError::NotACrate { path: path.to_owned() };
        let manifest_path = manifest_path.canonicalize().map_err(|_| not_a_crate(directory))?;
        let toolchain = WasmToolchain::find(directory)?;
        let CargoMetadata { packages, target_directory } = cargo_metadata(&manifest_path, &toolchain)?;
        let package = packages.into_iter().find(|package| package.manifest_path == manifest_path);
        let CargoPackage { name, metadata, .. } = package.ok_or_else(|| not_a_crate(&manifest_path))?;
        Ok(PluginPackage { name, manifest_path, metadata, target_directory, toolchain })
    }

    /// Compiles the package and returns the path of its core module. With `quiet`, messages of cargo are collected for
    /// the error instead of shown.
    ///
    /// # Errors
    /// `Spawn`; `Cargo` if it does not compile; `NoModule` if it is not a library.
    pub fn compile(&self, quiet: bool) -> Result<PathBuf, WasmBuildError> {
        let manifest = self.manifest_path.as_path();
        let mut cargo = cargo_command(&self.toolchain, manifest);
        // `rustc --crate-type` instead of `build`: a plugin's crate can also be an ordinary library, for its tests.
        cargo.args(["rustc", "--lib", "--crate-type=cdylib", "--release", "--target", WASM_TARGET]);
        cargo.args(["--message-format=json-render-diagnostics", "--manifest-path"]).arg(manifest);
        for setting in RELEASE_PROFILE {
            cargo.args(["--config", setting]);
        }
        self.toolchain.configure(&mut cargo);
        cargo.env("CARGO_ENCODED_RUSTFLAGS", "-Ctarget-feature=+simd128");
        cargo.stderr(if quiet { Stdio::piped() } else { Stdio::inherit() });
        let output = command::run_to_completion(&mut cargo)?;
        let package = self.name.clone();
        if !output.status.success() {
            let messages = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Err(WasmBuildError::Cargo { package, status: output.status, messages });
        }
        let messages = output.stdout.split(|byte| *byte == b'\n');
        let artifacts = messages.filter_map(|line| serde_json::from_slice::<CargoMessage>(line).ok());
        let ours = artifacts.filter(|message| message.manifest_path.as_deref() == Some(manifest));
        let mut modules = ours.flat_map(|message| message.filenames);
        modules
            .find(|path| path.extension().is_some_and(|extension| extension == "wasm"))
            .ok_or(WasmBuildError::NoModule { package })
    }
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
    metadata: Value,
}

#[derive(Deserialize)]
struct CargoMessage {
    manifest_path: Option<PathBuf>,
    #[serde(default)]
    filenames: Vec<PathBuf>,
}

fn cargo_metadata(manifest: &Path, toolchain: &WasmToolchain) -> Result<CargoMetadata, WasmBuildError> {
    let mut cargo = cargo_command(toolchain, manifest);
    cargo.args(["metadata", "--no-deps", "--format-version=1", "--manifest-path"]).arg(manifest);
    let output = command::run_to_completion(&mut cargo)?;
    let failed = |messages| WasmBuildError::Metadata { path: manifest.to_owned(), messages };
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| failed(error.to_string()))
}

/// Returns a cargo command for the plugin: in its directory, and without the environment variables of a cargo process
/// around this one.
fn cargo_command(toolchain: &WasmToolchain, manifest: &Path) -> Command {
    let mut cargo = Command::new(toolchain.cargo());
    if let Some(directory) = manifest.parent() {
        cargo.current_dir(directory);
    }
    for name in OUTER_CARGO_VARIABLES {
        cargo.env_remove(name);
    }
    cargo.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    cargo
}

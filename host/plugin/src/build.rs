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

use crate::declarations::Declarations;
use crate::inspect::{Face, inspect};

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
/// `NotAComponent`, `Refused`: it compiles but does not export what a plugin must, or needs what this host has not;
/// `Spawn`, `Io`.
pub fn build(manifest_dir: &Path, options: &BuildOptions) -> Result<Built, BuildError> {
    let (toolchain, metadata, manifest) = look(manifest_dir, options)?;
    let mut packages = metadata.packages.iter();
    let package = packages.find(|package| package.manifest_path == manifest);
    let package = package.ok_or(BuildError::NotACrate { path: manifest })?;
    build_package(package, &metadata.target_directory, &toolchain, options)
}

/// Builds the plugin in `manifest_dir`, or where that is a workspace without a package of its own, every member that
/// compiles to a `cdylib`, in the workspace's order.
///
/// # Errors
/// As [`build`], for the first that fails.
pub fn build_all(manifest_dir: &Path, options: &BuildOptions) -> Result<Vec<Built>, BuildError> {
    let (toolchain, metadata, manifest) = look(manifest_dir, options)?;
    let single = metadata.packages.iter().any(|package| package.manifest_path == manifest);
    let wanted = metadata
        .packages
        .iter()
        .filter(|package| if single { package.manifest_path == manifest } else { package.is_plugin() });
    let built = wanted.map(|package| build_package(package, &metadata.target_directory, &toolchain, options));
    let built = built.collect::<Result<Vec<_>, _>>()?;
    if built.is_empty() { Err(BuildError::NotACrate { path: manifest }) } else { Ok(built) }
}

fn look(manifest_dir: &Path, options: &BuildOptions) -> Result<(Toolchain, Metadata, PathBuf), BuildError> {
    let manifest = manifest_dir.join("Cargo.toml");
    let manifest = manifest.canonicalize().map_err(|_| BuildError::NotACrate { path: manifest_dir.to_owned() })?;
    let choice = match options.toolchain {
        Some(choice) => choice,
        None => ToolchainChoice::from_environment()?,
    };
    let toolchain = toolchain::find(choice, manifest_dir)?;
    let metadata = metadata(&manifest, &toolchain)?;
    Ok((toolchain, metadata, manifest))
}

fn build_package(
    package: &Package,
    target_directory: &Path,
    toolchain: &Toolchain,
    options: &BuildOptions,
) -> Result<Built, BuildError> {
    let declarations = Declarations::of_package(&package.name, &package.metadata)
        .map_err(|messages| BuildError::Metadata { path: package.manifest_path.clone(), messages })?;
    let module = compile(package, toolchain, options.quiet)?;
    let module = fs::read(&module).map_err(|source| BuildError::Io { path: module, source })?;
    let component = declarations.append_to(encode(&module)?);
    check(&component)?;
    let directory = target_directory.join("saggar");
    let component_path = directory.join(format!("{}.wasm", package.name));
    replace(&directory, &component_path, &component)?;
    Ok(Built { component_path, bytes: component.len() as u64, toolchain: toolchain.clone() })
}

/// What the plugin whose `Cargo.toml` is in `manifest_dir` declares, without building it.
///
/// # Errors
/// `NotACrate`; `Metadata`; `NoToolchain`.
pub fn declarations(manifest_dir: &Path) -> Result<Declarations, BuildError> {
    let (_, metadata, manifest) = look(manifest_dir, &BuildOptions::default())?;
    let package = metadata.packages.iter().find(|package| package.manifest_path == manifest);
    let package = package.ok_or_else(|| BuildError::NotACrate { path: manifest.clone() })?;
    Declarations::of_package(&package.name, &package.metadata)
        .map_err(|messages| BuildError::Metadata { path: manifest, messages })
}

/// The toolchain that [`build`] would take here, for reports.
///
/// # Errors
/// `NoToolchain`: what to install; `UnknownToolchain`.
pub fn find_toolchain() -> Result<Toolchain, BuildError> {
    toolchain::find(ToolchainChoice::from_environment()?, Path::new("."))
}

/// The component that a core module built with our interfaces is.
///
/// # Errors
/// `NotAComponent` if the module imports something else than the host offers, or lacks an export.
pub fn encode(module: &[u8]) -> Result<Vec<u8>, BuildError> {
    let component = ComponentEncoder::default().validate(true).module(module).and_then(|encoder| encoder.encode());
    component.map_err(|error| BuildError::NotAComponent { reason: format!("{error:#}") })
}

/// Checks that this host takes a component: that it is of a world of this version, and of no newer one.
///
/// # Errors
/// `NotAComponent`; `Refused`, as the server would refuse it when it is uploaded.
fn check(component: &[u8]) -> Result<(), BuildError> {
    let face = Face::of_bytes(component);
    let face =
        face.ok_or_else(|| BuildError::NotAComponent { reason: "it does not read as a component".to_owned() })?;
    inspect(&face)?;
    Ok(())
}

/// What cargo knows about a workspace.
#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    target_directory: PathBuf,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    manifest_path: PathBuf,
    targets: Vec<Target>,
    #[serde(default)]
    metadata: serde_json::Value,
}

#[derive(Deserialize)]
struct Target {
    crate_types: Vec<String>,
}

impl Package {
    fn is_plugin(&self) -> bool {
        self.targets.iter().any(|target| target.crate_types.iter().any(|kind| kind == "cdylib"))
    }
}

fn metadata(manifest: &Path, toolchain: &Toolchain) -> Result<Metadata, BuildError> {
    let mut cargo = cargo(toolchain, manifest);
    cargo.args(["metadata", "--no-deps", "--format-version=1", "--manifest-path"]).arg(manifest);
    let output = command::output(&mut cargo)?;
    let failed = |messages| BuildError::Metadata { path: manifest.to_owned(), messages };
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| failed(error.to_string()))
}

#[derive(Deserialize)]
struct Message {
    manifest_path: Option<PathBuf>,
    #[serde(default)]
    filenames: Vec<PathBuf>,
}

/// Compiles the package and returns the path of its core module.
fn compile(package: &Package, toolchain: &Toolchain, quiet: bool) -> Result<PathBuf, BuildError> {
    let manifest = package.manifest_path.as_path();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_without_a_package_is_refused() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let error = build(&root.join("src"), &BuildOptions::default()).unwrap_err();
        assert!(matches!(&error, BuildError::NotACrate { path } if path.ends_with("src")), "{error}");
    }

    #[test]
    fn fh_10_a_component_of_a_newer_world_is_refused_when_it_is_built() {
        let component = |import: &str| {
            let text = format!(
                r#"(component (import "saggar:plugin/{import}" (instance)) (instance $i)
                    (export "saggar:plugin/trainer@0.1.0" (instance $i)))"#
            );
            wat::parse_str(text).unwrap()
        };
        check(&component("tensors@0.1.0")).unwrap();
        let message = check(&component("tensors@99.0.0")).unwrap_err().to_string();
        assert_eq!(
            message,
            "the plugin was built, and this saggar would refuse it: saggar:plugin/tensors has version 99.0.0, and this \
             host speaks 0.1.0: take a newer saggar, or build the plugin against saggar:plugin@0.1.0, whose worlds \
             `saggar env ls` lists"
        );
        let older = check(&component("tensors@0.0.9")).unwrap_err().to_string();
        assert!(older.contains("this host speaks 0.1.0: build the plugin against saggar:plugin@0.1.0"), "{older}");
        assert!(matches!(check(b"\0asm"), Err(BuildError::NotAComponent { .. })));
    }

    #[test]
    fn a_module_that_is_no_plugin_is_refused() {
        let empty = b"\0asm\x01\0\0\0";
        assert!(encode(empty).is_ok(), "a component of nothing");
        let error = encode(b"\0asm").unwrap_err();
        assert!(matches!(error, BuildError::NotAComponent { .. }), "{error}");
        // (module (import "env" "read" (func))): an import that no interface of ours has.
        let foreign = b"\0asm\x01\0\0\0\x01\x04\x01\x60\0\0\x02\x0c\x01\x03env\x04read\0\0";
        let error = encode(foreign).unwrap_err();
        assert!(matches!(&error, BuildError::NotAComponent { reason } if reason.contains("env")), "{error}");
    }
}

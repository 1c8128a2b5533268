//! Why a plugin could not be built.

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;

use crate::error::PluginError;

use super::toolchain::{SETUP_DEBIAN, SETUP_RUSTUP, TOOLCHAIN_VARIABLE};

/// Why a plugin could not be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The directory has no `Cargo.toml` with a package.
    #[error("{}: no Cargo.toml of a package there", path.display())]
    NotACrate {
        /// The directory or manifest.
        path: PathBuf,
    },
    /// Cargo does not understand the manifest.
    #[error("{}: {messages}", path.display())]
    Metadata {
        /// The manifest.
        path: PathBuf,
        /// What cargo says.
        messages: String,
    },
    /// No toolchain can compile to WebAssembly.
    #[error(
        "no Rust toolchain for WebAssembly: {}; run `{SETUP_RUSTUP}`, or on Debian `{SETUP_DEBIAN}`",
        reasons.join("; ")
    )]
    NoToolchain {
        /// Why each that was looked for will not do.
        reasons: Vec<String>,
    },
    /// The environment names a toolchain that there is not.
    #[error("{TOOLCHAIN_VARIABLE}={value}: must be auto, rustup or debian")]
    UnknownToolchain {
        /// What it says.
        value: String,
    },
    /// A program could not be started.
    #[error("cannot run {program}: {source}")]
    Spawn {
        /// The program.
        program: String,
        /// Why.
        source: io::Error,
    },
    /// The plugin does not compile.
    #[error("{package} does not compile ({status}){}{messages}", if messages.is_empty() { "" } else { ":\n" })]
    Cargo {
        /// The plugin's package.
        package: String,
        /// How cargo ended.
        status: ExitStatus,
        /// What cargo said, where that was not shown already.
        messages: String,
    },
    /// Cargo made no module.
    #[error("{package} compiled to no WebAssembly module: a plugin is a library (`src/lib.rs`)")]
    NoModule {
        /// The plugin's package.
        package: String,
    },
    /// The module is not a plugin.
    #[error("the module is not a plugin: {reason}; does the crate call `saggar_plugin::export!`?")]
    NotAComponent {
        /// What is missing or too much.
        reason: String,
    },
    /// The component is none that this host takes.
    #[error("the plugin was built, and this saggar would refuse it: {0}")]
    Refused(#[from] PluginError),
    /// A file could not be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

//! Errors of a plugin build.

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;

use saggar_plugin::PluginError;

use super::toolchain::{SETUP_DEBIAN, SETUP_RUSTUP, TOOLCHAIN_VARIABLE};

/// The reason why a plugin could not be built.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BuildError {
    /// The directory has no `Cargo.toml` with a package.
    #[error("{}: the directory has no Cargo.toml with a package", path.display())]
    NotACrate {
        /// The directory or manifest.
        path: PathBuf,
    },
    /// Cargo refuses the manifest.
    #[error("{}: {messages}", path.display())]
    Metadata {
        /// The manifest.
        path: PathBuf,
        /// Cargo's messages.
        messages: String,
    },
    /// No toolchain can compile to WebAssembly.
    #[error(
        "no Rust toolchain for WebAssembly: {}; run `{SETUP_RUSTUP}`, or on Debian `{SETUP_DEBIAN}`",
        reasons.join("; ")
    )]
    NoToolchain {
        /// The reason against each toolchain that was tried.
        reasons: Vec<String>,
    },
    /// The environment names an unknown toolchain.
    #[error("{TOOLCHAIN_VARIABLE}={value}: must be auto, rustup or debian")]
    UnknownToolchain {
        /// The value of the environment variable.
        value: String,
    },
    /// A program could not be started.
    #[error("cannot run {program}: {source}")]
    Spawn {
        /// The program.
        program: String,
        /// The operating system's error.
        source: io::Error,
    },
    /// The plugin does not compile.
    #[error("{package} does not compile ({status}){}{messages}", if messages.is_empty() { "" } else { ":\n" })]
    Cargo {
        /// The plugin's package.
        package: String,
        /// Cargo's exit status.
        status: ExitStatus,
        /// Cargo's messages, unless they were shown already.
        messages: String,
    },
    /// Cargo produced no module.
    #[error("{package} compiled to no WebAssembly module: a plugin is a library (`src/lib.rs`)")]
    NoModule {
        /// The plugin's package.
        package: String,
    },
    /// The module is not a plugin.
    #[error("the module is not a plugin: {reason}; does the crate call `saggar_plugin::export!`?")]
    NotAComponent {
        /// The missing or unexpected import or export.
        reason: String,
    },
    /// This host refuses the component.
    #[error("the plugin was built but this host rejects it: {0}")]
    Refused(#[from] PluginError),
    /// A file could not be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
}

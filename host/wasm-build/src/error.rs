//! Errors of a compilation to WebAssembly.

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;

/// The environment variable that selects a toolchain for plugins in Rust: `auto`, `rustup` or `debian`.
pub(crate) const TOOLCHAIN_VARIABLE: &str = "SAGGAR_GUEST_TOOLCHAIN";

/// The commands that install a toolchain for plugins in Rust.
pub(crate) const SETUP_RUSTUP: &str = "rustup target add wasm32-unknown-unknown";
const SETUP_DEBIAN: &str = "apt install rustc-web cargo-web rust-web-src lld";

/// The reason why a package could not be compiled.
#[derive(Debug, thiserror::Error)]
pub enum WasmBuildError {
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
    /// Cargo could not be started.
    #[error("cannot run {program}: {source}")]
    Spawn {
        /// The program.
        program: String,
        /// The operating system's error.
        source: io::Error,
    },
    /// The package does not compile.
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
}

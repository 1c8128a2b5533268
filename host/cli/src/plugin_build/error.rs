//! Errors of a plugin build.

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;

use saggar_plugin::PluginError;

/// The environment variable that selects a toolchain for plugins in Rust: `auto`, `rustup` or `debian`.
pub(crate) const TOOLCHAIN_VARIABLE: &str = "SAGGAR_GUEST_TOOLCHAIN";

/// The commands that install a toolchain for plugins in Rust.
pub(super) const SETUP_RUSTUP: &str = "rustup target add wasm32-unknown-unknown";
const SETUP_DEBIAN: &str = "apt install rustc-web cargo-web rust-web-src lld";

/// The reason why a plugin could not be built.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BuildError {
    /// The directory has the manifest of no language.
    #[error("{}: there is no plugin in this directory: it has no {}", path.display(), expected.join(" or "))]
    NoManifest {
        /// The directory.
        path: PathBuf,
        /// The manifests of all languages.
        expected: Vec<String>,
    },
    /// A manifest is missing something or has something wrong.
    #[error("{}: {reason}", path.display())]
    Manifest {
        /// The manifest.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A tool of a language is missing and could not be installed.
    #[error("{tool} is needed to build this plugin: {reason}; {hint}")]
    MissingTool {
        /// The tool.
        tool: &'static str,
        /// Why it is not there.
        reason: String,
        /// What to do.
        hint: String,
    },
    /// A tool of a language failed.
    #[error("{what} failed ({status}){}{messages}", if messages.is_empty() { "" } else { ":\n" })]
    Tool {
        /// What was done.
        what: String,
        /// Exit status of the tool.
        status: ExitStatus,
        /// Messages of the tool, unless they were shown already.
        messages: String,
    },
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
    #[error("the module is not a plugin: {reason}; does it call `export`?")]
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

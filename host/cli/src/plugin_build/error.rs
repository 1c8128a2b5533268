//! Errors of a plugin build.

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;

use saggar_plugin::PluginError;
use saggar_wasm_build::WasmBuildError;

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
    /// The package could not be compiled to WebAssembly.
    #[error(transparent)]
    Wasm(#[from] WasmBuildError),
    /// A program could not be started.
    #[error("cannot run {program}: {source}")]
    Spawn {
        /// The program.
        program: String,
        /// The operating system's error.
        source: io::Error,
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

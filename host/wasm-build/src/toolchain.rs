//! Finds a toolchain that compiles to WebAssembly.

use std::env;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;
use std::time::Duration;

use crate::command;
use crate::error::{TOOLCHAIN_VARIABLE, WasmBuildError};

/// The target that plugins are compiled for. It has no operating system, so a plugin imports only our interfaces.
pub(crate) const WASM_TARGET: &str = "wasm32-unknown-unknown";

/// Time limit of a program that only answers a query, in seconds.
const QUERY_SECONDS_MAX: u64 = 20;
/// Time limit of downloading a standard library, in seconds.
const DOWNLOAD_SECONDS_MAX: u64 = 120;

const DEBIAN_RUSTC: &str = "/usr/bin/rustc";
const DEBIAN_CARGO: &str = "/usr/bin/cargo";
const DEBIAN_SOURCE_PACKAGE: &str = "rust-web-src";
const DEBIAN_LINKER: &str = "wasm-ld";

/// The kind of toolchain to look for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum ToolchainChoice {
    /// The first one that works: rustup, then Debian.
    #[default]
    Auto,
    /// Plain cargo; rustup adds the target if it is missing.
    Rustup,
    /// Debian's packages.
    Debian,
}

impl ToolchainChoice {
    /// Returns the choice in [`TOOLCHAIN_VARIABLE`], or `Auto` if it is not set.
    ///
    /// # Errors
    /// `UnknownToolchain`.
    fn from_environment() -> Result<Self, WasmBuildError> {
        match env::var_os(TOOLCHAIN_VARIABLE) {
            Some(value) => value.to_string_lossy().parse(),
            None => Ok(Self::Auto),
        }
    }
}

impl FromStr for ToolchainChoice {
    type Err = WasmBuildError;

    fn from_str(value: &str) -> Result<Self, WasmBuildError> {
        match value {
            "" | "auto" => Ok(Self::Auto),
            "rustup" => Ok(Self::Rustup),
            "debian" => Ok(Self::Debian),
            other => Err(WasmBuildError::UnknownToolchain { value: other.to_owned() }),
        }
    }
}

/// A toolchain that compiles to WebAssembly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WasmToolchain {
    /// Plain cargo: the target's standard library is installed.
    Installed,
    /// Debian's compiler, which builds the standard library from the sources in `library`.
    Debian {
        /// The `library` directory of the compiler's source.
        library: PathBuf,
    },
}

impl fmt::Display for WasmToolchain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Installed => f.write_str("cargo, with the target wasm32-unknown-unknown"),
            Self::Debian { library } => write!(f, "Debian's rustc, with the standard library of {}", library.display()),
        }
    }
}

impl WasmToolchain {
    /// Finds a toolchain for the plugin in `directory`, whose own toolchain file is honoured. The environment variable
    /// `SAGGAR_GUEST_TOOLCHAIN` selects the kind.
    ///
    /// # Errors
    /// `NoToolchain`, with what to install; `UnknownToolchain`.
    pub fn find(directory: &Path) -> Result<WasmToolchain, WasmBuildError> {
        find_toolchain_in(ToolchainChoice::from_environment()?, directory)
    }

    /// Returns the cargo program to run.
    pub(crate) fn cargo(&self) -> &str {
        match self {
            Self::Installed => "cargo",
            // A rustup cargo can be older than the compiler whose standard library it would build.
            Self::Debian { .. } if Path::new(DEBIAN_CARGO).exists() => DEBIAN_CARGO,
            Self::Debian { .. } => "cargo",
        }
    }

    /// Adds the settings that this toolchain needs besides the target.
    pub(crate) fn configure(&self, cargo: &mut Command) {
        let Self::Debian { library } = self else { return };
        cargo.arg("-Zbuild-std=std,panic_abort");
        cargo.env("RUSTC", DEBIAN_RUSTC);
        // Building the standard library is an unstable feature, which a stable compiler refuses without this.
        cargo.env("RUSTC_BOOTSTRAP", "1");
        cargo.env("__CARGO_TESTS_ONLY_SRC_ROOT", library);
        cargo.env("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER", DEBIAN_LINKER);
    }
}

fn find_toolchain_in(choice: ToolchainChoice, directory: &Path) -> Result<WasmToolchain, WasmBuildError> {
    let found = match choice {
        ToolchainChoice::Rustup => find_installed(directory).map_err(|reason| vec![reason]),
        ToolchainChoice::Debian => find_debian().map_err(|reason| vec![reason]),
        ToolchainChoice::Auto => {
            find_installed(directory).or_else(|first| find_debian().map_err(|second| vec![first, second]))
        }
    };
    found.map_err(|reasons| WasmBuildError::NoToolchain { reasons })
}

fn find_installed(directory: &Path) -> Result<WasmToolchain, String> {
    if has_target(directory) {
        return Ok(WasmToolchain::Installed);
    }
    tracing::info!(target = WASM_TARGET, "adding the target with rustup");
    let mut add = Command::new("rustup");
    add.args(["target", "add", WASM_TARGET]).current_dir(directory);
    let added = command::run_with_timeout(&mut add, Duration::from_secs(DOWNLOAD_SECONDS_MAX)).is_some();
    if added && has_target(directory) {
        return Ok(WasmToolchain::Installed);
    }
    Err(format!("the target {WASM_TARGET} is not installed and rustup did not add it"))
}

/// Returns whether the compiler on the path has the target's standard library.
fn has_target(directory: &Path) -> bool {
    let mut rustc = Command::new("rustc");
    rustc.args(["--print", "target-libdir", "--target", WASM_TARGET]).current_dir(directory);
    let libraries = command::run_with_timeout(&mut rustc, Duration::from_secs(QUERY_SECONDS_MAX)).unwrap_or_default();
    let Ok(entries) = Path::new(libraries.trim()).read_dir() else { return false };
    entries.flatten().any(|entry| entry.file_name().to_string_lossy().starts_with("libstd-"))
}

fn find_debian() -> Result<WasmToolchain, String> {
    let answer = Duration::from_secs(QUERY_SECONDS_MAX);
    let owner = command::run_with_timeout(Command::new("dpkg-query").args(["--search", DEBIAN_RUSTC]), answer);
    if owner.is_none() {
        return Err(format!("{DEBIAN_RUSTC} is not Debian's"));
    }
    if command::run_with_timeout(Command::new(DEBIAN_LINKER).arg("--version"), answer).is_none() {
        return Err(format!("the linker {DEBIAN_LINKER} is not installed"));
    }
    let files =
        command::run_with_timeout(Command::new("dpkg-query").args(["--listfiles", DEBIAN_SOURCE_PACKAGE]), answer)
            .ok_or_else(|| format!("the package {DEBIAN_SOURCE_PACKAGE} is not installed"))?;
    let manifest = files.lines().find(|file| file.ends_with("/library/std/Cargo.toml"));
    let library = manifest.and_then(|manifest| Path::new(manifest).ancestors().nth(2));
    let library = library.ok_or_else(|| format!("the package {DEBIAN_SOURCE_PACKAGE} has no library/std"))?;
    matches_compiler(library)?;
    Ok(WasmToolchain::Debian { library: library.to_owned() })
}

/// Checks that the sources have the compiler's version: a standard library only compiles with its own compiler.
fn matches_compiler(library: &Path) -> Result<(), String> {
    let mut rustc = Command::new(DEBIAN_RUSTC);
    let version = command::run_with_timeout(rustc.arg("--version"), Duration::from_secs(QUERY_SECONDS_MAX));
    let version = version.ok_or_else(|| format!("{DEBIAN_RUSTC} does not run"))?;
    // For example `rustc 1.96.0 (...)` and `/usr/src/rustc-1.96.0/library`.
    let number = version.split_whitespace().nth(1).unwrap_or_default();
    let source = library.parent().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
    match source.as_deref().and_then(|name| name.strip_prefix("rustc-")) {
        Some(same) if same == number => Ok(()),
        other => {
            Err(format!("{DEBIAN_RUSTC} is {number} but {DEBIAN_SOURCE_PACKAGE} is {}", other.unwrap_or("unknown")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::SETUP_RUSTUP;

    #[test]
    fn toolchain_choices_parse_from_their_names() {
        let choice = |value: &str| value.parse::<ToolchainChoice>().map_err(|error| error.to_string());
        assert_eq!(choice("auto"), Ok(ToolchainChoice::Auto));
        assert_eq!(choice("rustup"), Ok(ToolchainChoice::Rustup));
        assert_eq!(choice("debian"), Ok(ToolchainChoice::Debian));
        assert_eq!(choice("nix"), Err("SAGGAR_GUEST_TOOLCHAIN=nix: must be auto, rustup or debian".to_owned()));
    }

    #[test]
    fn a_missing_toolchain_error_names_what_to_install() {
        let error = WasmBuildError::NoToolchain { reasons: vec!["/usr/bin/rustc is not Debian's".to_owned()] };
        let text = error.to_string();
        assert!(
            text.contains(SETUP_RUSTUP) && text.contains("rust-web-src") && text.contains("not Debian's"),
            "{text}"
        );
    }
}

//! Compiles a plugin that is written in Rust to a core WebAssembly module. Cargo does the work; this crate finds a
//! toolchain and gives cargo the settings that every plugin is compiled with.
//!
//! `saggar build` uses it, and so does the build script of the crate `reference-plugins`, so that both make the same
//! bytes. All functions block, for seconds to minutes.

mod command;
mod error;
mod package;
mod toolchain;

pub use error::WasmBuildError;
pub use package::PluginPackage;
pub use toolchain::WasmToolchain;

//! Builds a plugin written in Rust: cargo compiles it to a core module, which is encoded as a component.

use std::fs;
use std::path::Path;

use saggar_plugin::PluginDeclarations;
use saggar_wasm_build::{PluginPackage, WasmToolchain};

use super::error::BuildError;
use super::{BuiltComponent, PluginLanguage};

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
        let package = PluginPackage::read(directory)?;
        let declarations = declarations_of(&package)?;
        let module = package.compile(quiet)?;
        let module = fs::read(&module).map_err(|source| BuildError::Io { path: module, source })?;
        let bytes = saggar_plugin::encode_component(&module, &declarations)
            .map_err(|reason| BuildError::NotAComponent { reason })?;
        let directory = package.target_directory.join("saggar");
        Ok(BuiltComponent { name: package.name, directory, bytes })
    }

    fn find_tools(&self) -> Result<String, BuildError> {
        Ok(WasmToolchain::find(Path::new("."))?.to_string())
    }

    fn declarations(&self, directory: &Path) -> Result<PluginDeclarations, BuildError> {
        declarations_of(&PluginPackage::read(directory)?)
    }
}

fn declarations_of(package: &PluginPackage) -> Result<PluginDeclarations, BuildError> {
    PluginDeclarations::from_package(&package.name, &package.metadata)
        .map_err(|reason| BuildError::Manifest { path: package.manifest_path.clone(), reason })
}

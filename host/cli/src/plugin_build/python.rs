//! Builds a plugin written in Python: componentize-py makes one component of the interpreter, the plugin's modules, the
//! guest library and the modules that they import.

mod componentize;
mod manifest;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use include_dir::{Dir, include_dir};
use saggar_plugin::{PluginDeclarations, WIT_FILES};

use super::error::BuildError;
use super::staging::{BuildRecord, write_files};
use super::{BuiltComponent, PluginLanguage};
use componentize::ComponentizeEnvironment;
use manifest::{PythonManifest, WorldExports};

/// The guest library.
pub(crate) static SDK: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../plugins/sdk-python/saggar_plugin");
/// Where `saggar init` puts the guest library and the interface files in a plugin's directory.
pub(crate) const SDK_PATH: &str = "vendor/python";
pub(crate) const WIT_PATH: &str = "vendor/wit";
/// The directory of the plugin's modules.
const SOURCE: &str = "src";
/// The module that componentize-py begins with.
const ENTRY: &str = "saggar_entry";

/// Python: a project with a `pyproject.toml`.
pub(super) struct PythonLanguage;

impl PluginLanguage for PythonLanguage {
    fn name(&self) -> &'static str {
        "Python"
    }

    fn manifest(&self) -> &'static str {
        manifest::FILE
    }

    fn build(&self, directory: &Path, quiet: bool) -> Result<BuiltComponent, BuildError> {
        let manifest = PythonManifest::read(directory)?;
        let output = directory.join("target/saggar");
        let staging = PythonStaging::write(directory, &output.join("python"), &manifest)?;
        let built = output.join(format!("{}.wasm", manifest.name));
        let bytes = match staging.last_build.built_before(&built) {
            Some(bytes) => bytes,
            None => {
                let bytes = componentize(&staging, &manifest, quiet)?;
                staging.last_build.record(&bytes)?;
                bytes
            }
        };
        Ok(BuiltComponent { name: manifest.name, directory: output, bytes })
    }

    fn find_tools(&self) -> Result<String, BuildError> {
        componentize::find_tools()
    }

    fn declarations(&self, directory: &Path) -> Result<PluginDeclarations, BuildError> {
        Ok(PythonManifest::read(directory)?.declarations)
    }
}

fn componentize(staging: &PythonStaging, manifest: &PythonManifest, quiet: bool) -> Result<Vec<u8>, BuildError> {
    let tool = ComponentizeEnvironment::find_or_install(quiet)?;
    tool.install_dependencies(&manifest.dependencies, &staging.environment)?;
    tool.write_bindings(&staging.wit, &manifest.world, &staging.root.join("bindings"))?;
    let module = staging.root.join("component.wasm");
    tool.run(&staging.environment, &staging.wit, &manifest.world, &staging.python_path(), ENTRY, &module)?;
    let bytes = fs::read(&module).map_err(|source| BuildError::Io { path: module.clone(), source })?;
    // It is stored again under the plugin's name.
    let _ = fs::remove_file(&module);
    Ok(manifest.declarations.append_to(bytes))
}

/// The directories that a component is made from.
struct PythonStaging {
    root: PathBuf,
    source: PathBuf,
    /// The module that componentize-py begins with, and a guest library if the plugin has none.
    entry: PathBuf,
    sdk: PathBuf,
    wit: PathBuf,
    /// A virtual environment with the plugin's dependencies.
    environment: PathBuf,
    last_build: BuildRecord,
}

impl PythonStaging {
    fn write(directory: &Path, root: &Path, manifest: &PythonManifest) -> Result<PythonStaging, BuildError> {
        let at = |path: &Path| {
            let path = path.to_owned();
            |source: io::Error| BuildError::Io { path, source }
        };
        let source = directory.join(SOURCE);
        let module = source.join(format!("{}.py", manifest.module));
        if !module.is_file() && !source.join(&manifest.module).is_dir() {
            let reason = format!("[tool.saggar] module: there is no {}", module.display());
            return Err(BuildError::Manifest { path: directory.join(manifest::FILE), reason });
        }
        let entry = root.join("entry");
        // Not what an earlier version of this program has left there.
        let _ = fs::remove_dir_all(&entry);
        fs::create_dir_all(&entry).map_err(at(&entry))?;
        fs::write(entry.join(format!("{ENTRY}.py")), entry_module(manifest)).map_err(at(&entry))?;
        // componentize-py looks for the class of an exported resource in a module with the interface's name.
        fs::write(entry.join("predictor.py"), "from saggar_plugin.exports import ExportedModel as Model\n")
            .map_err(at(&entry))?;
        let mut sdk = directory.join(SDK_PATH);
        if !sdk.is_dir() {
            write_sdk(&entry).map_err(at(&entry))?;
            sdk.clone_from(&entry);
        }
        let mut wit = directory.join(WIT_PATH);
        if !wit.is_dir() {
            wit = root.join("wit");
            write_files(&WIT_FILES, &wit).map_err(at(&wit))?;
        }
        let PythonManifest { world, dependencies, declarations, .. } = manifest;
        let settings = format!("{} {world} {dependencies:?} {declarations:?}", componentize::VERSION);
        let last_build = BuildRecord::new(root.join("built"), &[&source, &entry, &sdk, &wit], &settings)?;
        let environment = root.join("environment");
        Ok(PythonStaging { root: root.to_owned(), source, entry, sdk, wit, environment, last_build })
    }

    fn python_path(&self) -> [&Path; 3] {
        [&self.source, &self.entry, &self.sdk]
    }
}

/// Returns the module that componentize-py begins with.
fn entry_module(manifest: &PythonManifest) -> String {
    let WorldExports { trainer, predictor, http_handler } = manifest.exports;
    let python = |flag| if flag { "True" } else { "False" };
    // A guest library that a plugin brings can be older than handlers.
    let (handler, handles) = if http_handler {
        ("from saggar_plugin.exports import HttpHandler as HttpHandler\n", ", handles=True")
    } else {
        ("", "")
    };
    format!(
        "import {} as _plugin\nfrom saggar_plugin import exports\nfrom saggar_plugin.exports import Trainer as Trainer\n\
         {handler}exports.check(trains={}, predicts={}{handles})\n",
        manifest.module,
        python(trainer),
        python(predictor)
    )
}

/// Writes the guest library, the package `saggar_plugin`, into a directory.
pub(crate) fn write_sdk(directory: &Path) -> io::Result<()> {
    write_files(&SDK, &directory.join("saggar_plugin"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn project() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let text = "[project]\nname = \"mine\"\n[tool.saggar]\nworld = \"train-plugin\"\n";
        fs::write(dir.path().join(manifest::FILE), text).unwrap();
        dir
    }

    #[test]
    fn a_project_without_its_module_is_refused() {
        let dir = project();
        let error = PythonLanguage.build(dir.path(), true).map(|built| built.name).unwrap_err().to_string();
        assert!(error.contains("module: there is no ") && error.contains("src/plugin.py"), "{error}");
    }

    #[test]
    fn the_embedded_guest_library_is_a_typed_package() {
        for file in ["__init__.py", "py.typed", "exports.py"] {
            assert!(SDK.get_file(file).is_some(), "{file}");
        }
    }
}

//! Builds plugins: a language's own tools make a component, which is then checked as an upload of it would be.
//!
//! A language is one module with a [`PluginLanguage`], listed in [`LANGUAGES`]. The manifest of a plugin's directory
//! determines its language. All functions here block, for seconds to minutes.

mod c;
mod command;
mod error;
pub(crate) mod javascript;
pub(crate) mod python;
mod rust;
mod staging;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use saggar_plugin::PluginDeclarations;

use error::BuildError;

/// A language that plugins can be written in, with its tools.
trait PluginLanguage: Sync {
    /// Returns the language's name for messages.
    fn name(&self) -> &'static str;

    /// Returns the name of the file that a plugin's directory has if the plugin is written in this language.
    fn manifest(&self) -> &'static str;

    /// Builds the plugin in `directory`. With `quiet`, messages of the tools are collected for the error instead of
    /// shown.
    ///
    /// # Errors
    /// The errors of the language's tools, or the reason why they cannot be run.
    fn build(&self, directory: &Path, quiet: bool) -> Result<BuiltComponent, BuildError>;

    /// Returns the tools that a build in the current directory would use, as a text for reports. Installs nothing.
    ///
    /// # Errors
    /// What is missing, with what to install.
    fn find_tools(&self) -> Result<String, BuildError>;

    /// Returns what the plugin's manifest declares, without building the plugin.
    ///
    /// # Errors
    /// If the manifest is missing or invalid.
    fn declarations(&self, directory: &Path) -> Result<PluginDeclarations, BuildError>;
}

/// Every language. A directory with the manifests of several has the first one.
static LANGUAGES: [&dyn PluginLanguage; 4] =
    [&rust::RustLanguage, &python::PythonLanguage, &javascript::JavaScriptLanguage, &c::CLanguage];

/// The component of a plugin.
struct BuiltComponent {
    /// The plugin's name.
    name: String,
    /// Where to store the component.
    directory: PathBuf,
    bytes: Vec<u8>,
}

/// Returns whether a directory has the manifest of a plugin.
pub(crate) fn is_plugin_directory(directory: &Path) -> bool {
    language_of(directory).is_ok()
}

/// Returns the manifests of all languages, and where their sources are, as patterns of files to watch.
pub(crate) fn source_patterns() -> impl Iterator<Item = &'static str> {
    LANGUAGES.iter().map(|language| language.manifest()).chain(["src/**/*"])
}

fn language_of(directory: &Path) -> Result<&'static dyn PluginLanguage, BuildError> {
    let mut languages = LANGUAGES.into_iter();
    languages.find(|language| directory.join(language.manifest()).is_file()).ok_or_else(|| BuildError::NoManifest {
        path: directory.to_owned(),
        expected: LANGUAGES.map(|language| format!("{} ({})", language.manifest(), language.name())).to_vec(),
    })
}

/// Builds the plugin in `directory`, and returns the path of the component: `target/saggar/NAME.wasm` in the directory
/// or, in Rust, its workspace. With `quiet`, messages of the tools are collected for the error instead of shown.
///
/// # Errors
/// `NoManifest`; the errors of the language; `NotAComponent` or `Refused` if it builds but is not a plugin or needs
/// interfaces that this host lacks; `Io`.
pub(crate) fn build_plugin(directory: &Path, quiet: bool) -> Result<PathBuf, BuildError> {
    let component = language_of(directory)?.build(directory, quiet)?;
    check_component(&component.bytes)?;
    let path = component.directory.join(format!("{}.wasm", component.name));
    replace_file(&component.directory, &path, &component.bytes)?;
    Ok(path)
}

/// Returns the declarations of the plugin in `directory`, without building it.
///
/// # Errors
/// `NoManifest`; the errors of the language.
pub(crate) fn read_declarations(directory: &Path) -> Result<PluginDeclarations, BuildError> {
    language_of(directory)?.declarations(directory)
}

/// Returns each language with the tools that a build in the current directory would use, or with the reason why it cannot
/// be built. Installs nothing but a target of rustup.
pub(crate) fn find_tools() -> impl Iterator<Item = (&'static str, Result<String, BuildError>)> {
    LANGUAGES.iter().map(|language| (language.name(), language.find_tools()))
}

/// Checks that this host accepts a component: it implements a world of this version, not of a newer one.
///
/// # Errors
/// `NotAComponent`; `Refused`, with the server's reason for refusing an upload of it.
fn check_component(component: &[u8]) -> Result<(), BuildError> {
    let checked = saggar_plugin::check_component(component);
    checked.ok_or_else(|| BuildError::NotAComponent { reason: "it does not read as a component".to_owned() })??;
    Ok(())
}

/// Puts the component in place by a rename, so that a server that watches the file never sees a partial one.
fn replace_file(directory: &Path, path: &Path, bytes: &[u8]) -> Result<(), BuildError> {
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
    fn a_directory_without_a_manifest_is_refused() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let error = build_plugin(&root.join("src"), true).unwrap_err();
        assert!(matches!(&error, BuildError::NoManifest { path, .. } if path.ends_with("src")), "{error}");
    }

    #[test]
    fn a_component_built_for_a_newer_world_is_refused_by_the_build() {
        let component = |import: &str| {
            let text = format!(
                r#"(component (import "saggar:plugin/{import}" (instance)) (instance $i)
                    (export "saggar:plugin/trainer@0.1.0" (instance $i)))"#
            );
            wat::parse_str(text).unwrap()
        };
        check_component(&component("tensors@0.1.0")).unwrap();
        let message = check_component(&component("tensors@99.0.0")).unwrap_err().to_string();
        assert_eq!(
            message,
            "the plugin was built but this host rejects it: saggar:plugin/tensors has version 99.0.0, and \
             this host speaks 0.1.0: take a newer saggar, or build the plugin against saggar:plugin@0.1.0, whose \
             worlds `saggar plugins worlds` lists"
        );
        let older = check_component(&component("tensors@0.0.9")).unwrap_err().to_string();
        assert!(older.contains("this host speaks 0.1.0: build the plugin against saggar:plugin@0.1.0"), "{older}");
        assert!(matches!(check_component(b"\0asm"), Err(BuildError::NotAComponent { .. })));
    }
}

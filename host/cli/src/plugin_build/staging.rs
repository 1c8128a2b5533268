//! What builds of languages with their own bundler share: embedded files, and the record of the last build.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use include_dir::Dir;
use saggar_python_env::tool_cache;
use saggar_store::Digest;

use super::error::BuildError;

/// Writes the files of an embedded directory, which has no others below it.
pub(super) fn write_files(from: &Dir<'_>, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for file in from.files() {
        fs::write(to.join(file.path()), file.contents())?;
    }
    Ok(())
}

/// The record of the last build. Tools that give a component with other bytes each time would make every server compile
/// it again, so the component of equal inputs is kept.
#[derive(Debug)]
pub(super) struct BuildRecord {
    path: PathBuf,
    /// Digest of everything that the component is made from.
    inputs: Digest,
}

impl BuildRecord {
    /// Computes the digest of the files in `directories`, and of `settings`: everything else that determines a
    /// component. The record is the file at `path`.
    ///
    /// # Errors
    /// `Io`.
    pub(super) fn new(path: PathBuf, directories: &[&Path], settings: &str) -> Result<BuildRecord, BuildError> {
        let mut text = settings.to_owned();
        for directory in directories {
            let at = |source| BuildError::Io { path: (*directory).to_owned(), source };
            let mut files = Vec::new();
            list_files(directory, &mut files).map_err(at)?;
            files.sort();
            for file in files {
                let digest = Digest::of(&fs::read(&file).map_err(at)?);
                text.push_str(&format!("\n{} {digest}", file.strip_prefix(directory).unwrap_or(&file).display()));
            }
        }
        Ok(BuildRecord { path, inputs: Digest::of(text.as_bytes()) })
    }

    /// Returns the component of the last build if it was made from the same inputs.
    pub(super) fn built_before(&self, component: &Path) -> Option<Vec<u8>> {
        let record = fs::read_to_string(&self.path).ok()?;
        let bytes = fs::read(component).ok()?;
        (record == self.text(&bytes)).then_some(bytes)
    }

    /// Records the component that was built.
    ///
    /// # Errors
    /// `Io`.
    pub(super) fn record(&self, component: &[u8]) -> Result<(), BuildError> {
        let written = fs::write(&self.path, self.text(component));
        written.map_err(|source| BuildError::Io { path: self.path.clone(), source })
    }

    fn text(&self, component: &[u8]) -> String {
        format!("{}\n{}\n", self.inputs, Digest::of(component))
    }
}

fn list_files(directory: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if !path.is_dir() {
            files.push(path);
        } else if path.file_name().is_some_and(|name| name != "__pycache__") {
            list_files(&path, files)?;
        }
    }
    Ok(())
}

/// Returns a directory for a tool in the user's cache.
///
/// # Errors
/// `MissingTool` if no variable says where that is.
pub(super) fn cache_directory(tool: &'static str) -> Result<PathBuf, BuildError> {
    let missing = || BuildError::MissingTool {
        tool,
        reason: "neither HOME nor XDG_CACHE_HOME is set, so there is no place to install it".to_owned(),
        hint: "set XDG_CACHE_HOME".to_owned(),
    };
    tool_cache::directory().ok_or_else(missing)
}

/// Makes a directory with `create` under a temporary name, and moves it to its place when it is complete.
///
/// # Errors
/// Those of `create`; `Io`.
pub(super) fn install_into(
    directory: &Path,
    create: impl FnOnce(&Path) -> Result<(), BuildError>,
) -> Result<(), BuildError> {
    tool_cache::install_into(directory, create, |path, source| BuildError::Io { path, source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_component_is_kept_while_its_files_are_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let source = dir.path().join("src");
        fs::create_dir(&source).unwrap();
        fs::write(source.join("plugin.py"), "a = 1\n").unwrap();
        let record = |settings| BuildRecord::new(dir.path().join("built"), &[&source], settings).unwrap();
        let component = dir.path().join("mine.wasm");
        fs::write(&component, b"component").unwrap();
        assert_eq!(record("1").built_before(&component), None);
        record("1").record(b"component").unwrap();
        fs::create_dir(source.join("__pycache__")).unwrap();
        fs::write(source.join("__pycache__/plugin.pyc"), b"").unwrap();
        assert_eq!(record("1").built_before(&component).as_deref(), Some(&b"component"[..]));
        assert_eq!(record("2").built_before(&component), None, "another setting");
        fs::write(source.join("plugin.py"), "a = 2\n").unwrap();
        assert_eq!(record("1").built_before(&component), None, "another source");
        fs::write(source.join("plugin.py"), "a = 1\n").unwrap();
        fs::write(&component, b"another").unwrap();
        assert_eq!(record("1").built_before(&component), None, "the component was replaced");
    }
}

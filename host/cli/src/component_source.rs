//! The component that a command line names: a file, the directory of a plugin, or a reference plugin.

use std::borrow::Cow;
use std::fmt;
use std::path::{Path, PathBuf};

use saggar_reference_plugins::{ReferencePlugin, reference_plugin, reference_plugins};

use crate::commands::build;
use crate::exit::{self, CliError};
use crate::output::CliOutput;

/// Where a component is.
#[derive(Clone, Debug)]
pub(crate) enum ComponentSource {
    /// A file.
    File(PathBuf),
    /// Inside this program.
    Reference(&'static ReferencePlugin),
}

impl ComponentSource {
    /// Finds the component that `name` means: a file, a plugin's directory, which is built, or else a reference plugin.
    ///
    /// # Errors
    /// Returns `no_plugin` if it is neither, and `build_failed`.
    pub(crate) fn find_or_build(name: &Path, output: CliOutput) -> Result<ComponentSource, CliError> {
        if name.is_dir() {
            return build::build_component(name, output).map(ComponentSource::File);
        }
        if name.exists() {
            return Ok(ComponentSource::File(name.to_owned()));
        }
        if let Some(plugin) = named_reference(name) {
            return Ok(ComponentSource::Reference(plugin));
        }
        let message = format!("there is no plugin {}", name.display());
        let names: Vec<&str> = reference_plugins().iter().map(ReferencePlugin::name).collect();
        let hint = format!("name a .wasm component, the directory of a plugin, or one of {}", names.join(", "));
        Err(CliError::new(exit::NOT_FOUND, "no_plugin", message).with_hint(hint))
    }

    /// Returns the plugin's name: that of the file without its extension, or of the reference plugin.
    pub(crate) fn name(&self) -> Cow<'_, str> {
        match self {
            ComponentSource::File(path) => path.file_stem().map_or("job".into(), |stem| stem.to_string_lossy()),
            ComponentSource::Reference(plugin) => plugin.name().into(),
        }
    }

    /// Returns the bytes of the component.
    ///
    /// # Errors
    /// Returns `no_plugin` if the file cannot be read.
    pub(crate) fn read(&self) -> Result<Cow<'static, [u8]>, CliError> {
        match self {
            ComponentSource::File(path) => std::fs::read(path)
                .map(Cow::Owned)
                .map_err(|error| CliError::new(exit::NOT_FOUND, "no_plugin", format!("{}: {error}", path.display()))),
            ComponentSource::Reference(plugin) => Ok(Cow::Borrowed(plugin.component())),
        }
    }
}

/// Writes the file's path or the reference plugin's name.
impl fmt::Display for ComponentSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ComponentSource::File(path) => path.display().fmt(f),
            ComponentSource::Reference(plugin) => f.write_str(plugin.name()),
        }
    }
}

/// Returns the reference plugin that `name` means, unless it is the path of something.
pub(crate) fn named_reference(name: &Path) -> Option<&'static ReferencePlugin> {
    if name.exists() { None } else { reference_plugin(name.to_str()?) }
}

#[cfg(test)]
mod tests {
    use saggar_project::REFERENCE_PLUGINS;

    use super::*;

    #[test]
    fn the_project_file_knows_the_reference_plugins_by_name() {
        let names: Vec<&str> = reference_plugins().iter().map(ReferencePlugin::name).collect();
        assert_eq!(names, REFERENCE_PLUGINS);
        assert!(REFERENCE_PLUGINS.iter().all(|name| named_reference(Path::new(name)).is_some()));
    }
}

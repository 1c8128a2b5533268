//! The component that a command line names: a file, the directory of a plugin, a reference plugin, or a file of another
//! server, which the server of the command fetches.

use std::borrow::Cow;
use std::fmt;
use std::path::{Path, PathBuf};

use saggar_reference_plugins::{REFERENCE_PLUGINS_VERSION, ReferencePlugin, reference_plugin, reference_plugins};
use saggar_store::Digest;

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
    /// At a URL, from which the server fetches it.
    Remote {
        /// The URL.
        url: String,
        /// Its SHA-256.
        sha256: Digest,
    },
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
        let hint = format!(
            "name a .wasm component, the directory of a plugin, or one of {}, whose version is \
             {REFERENCE_PLUGINS_VERSION}; `saggar run URL --sha256 DIGEST` has the server fetch one",
            names.join(", ")
        );
        Err(CliError::new(exit::NOT_FOUND, "no_plugin", message).with_hint(hint))
    }

    /// Returns the plugin's name: that of the file without its extension, or of the reference plugin.
    pub(crate) fn name(&self) -> Cow<'_, str> {
        match self {
            ComponentSource::File(path) => path.file_stem().map_or("job".into(), |stem| stem.to_string_lossy()),
            ComponentSource::Reference(plugin) => plugin.name().into(),
            ComponentSource::Remote { url, .. } => {
                let name = saggar_fetch::file_name_of_url(url);
                name.map_or_else(|| "job".to_owned(), |name| name.trim_end_matches(".wasm").to_owned()).into()
            }
        }
    }

    /// Returns a name for people: a reference plugin with its version, the name of a file, or a URL without its query,
    /// which can contain a token.
    pub(crate) fn label(&self) -> String {
        match self {
            ComponentSource::File(path) => path.file_name().map_or_else(String::new, |it| it.to_string_lossy().into()),
            ComponentSource::Reference(plugin) => format!("{}@{REFERENCE_PLUGINS_VERSION}", plugin.name()),
            ComponentSource::Remote { url, .. } => url.split(['?', '#']).next().unwrap_or_default().to_owned(),
        }
    }

    /// Returns the component at `url`, which the server fetches.
    ///
    /// # Errors
    /// Returns `invalid` if there is no valid digest.
    pub(crate) fn remote(url: &str, sha256: Option<&str>) -> Result<ComponentSource, CliError> {
        let Some(sha256) = sha256 else {
            return Err(CliError::invalid(format!("{url}: a component of another server needs its SHA-256"))
                .with_hint("add --sha256 DIGEST; `sha256sum FILE` prints it"));
        };
        Ok(ComponentSource::Remote { url: url.to_owned(), sha256: parse_sha256(sha256)? })
    }

    /// Checks that the component has this SHA-256.
    ///
    /// # Errors
    /// Returns `invalid` with both digests if it has another one.
    pub(crate) fn check_sha256(&self, sha256: &str) -> Result<(), CliError> {
        let (expected, found) = (parse_sha256(sha256)?, Digest::of(&self.read()?));
        if found == expected {
            return Ok(());
        }
        Err(CliError::invalid(format!("{self}: SHA-256 {found}, expected {expected}"))
            .with_hint("the component has changed, or the digest is of another one"))
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
            ComponentSource::Remote { url, .. } => {
                Err(CliError::invalid(format!("{url}: this command needs a component of this machine"))
                    .with_hint("`saggar run URL --sha256 DIGEST` runs one that the server fetches"))
            }
        }
    }
}

/// Writes the file's path or the reference plugin's name.
impl fmt::Display for ComponentSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ComponentSource::File(path) => path.display().fmt(f),
            ComponentSource::Reference(plugin) => f.write_str(plugin.name()),
            ComponentSource::Remote { url, .. } => f.write_str(url),
        }
    }
}

/// Returns whether a text is an address of another server.
pub(crate) fn is_url(text: &str) -> bool {
    text.starts_with("https://") || text.starts_with("http://")
}

fn parse_sha256(text: &str) -> Result<Digest, CliError> {
    let expected = |_| CliError::invalid(format!("--sha256 {text}: expected 64 hexadecimal digits"));
    text.to_ascii_lowercase().parse().map_err(expected)
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

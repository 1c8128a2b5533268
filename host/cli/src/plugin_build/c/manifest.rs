//! The manifest of a plugin written in C: `plugin.toml`.

use std::fs;
use std::path::Path;

use saggar_plugin::PluginDeclarations;
use serde::Deserialize;

use crate::plugin_build::error::BuildError;

pub(super) const FILE: &str = "plugin.toml";
const WORLD_DEFAULT: &str = "model-plugin";

/// A `plugin.toml`.
#[derive(Debug)]
pub(super) struct CManifest {
    /// The plugin's name.
    pub(super) name: String,
    /// The world that the component implements.
    pub(super) world: String,
    pub(super) declarations: PluginDeclarations,
}

#[derive(Deserialize)]
struct ManifestFile {
    name: String,
    world: Option<String>,
    #[serde(flatten)]
    declarations: serde_json::Map<String, serde_json::Value>,
}

impl CManifest {
    /// Reads the manifest in a plugin's directory.
    ///
    /// # Errors
    /// `Io`; `Manifest`.
    pub(super) fn read(directory: &Path) -> Result<CManifest, BuildError> {
        let path = directory.join(FILE);
        let text = fs::read_to_string(&path).map_err(|source| BuildError::Io { path: path.clone(), source })?;
        CManifest::parse(&text).map_err(|reason| BuildError::Manifest { path, reason })
    }

    fn parse(text: &str) -> Result<CManifest, String> {
        let ManifestFile { name, world, declarations } = toml::from_str(text).map_err(|error| error.to_string())?;
        let letters = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
        if name.is_empty() || name.starts_with('.') || !name.bytes().all(letters) {
            return Err(format!("name: {name:?} cannot be the name of a plugin"));
        }
        let world = world.unwrap_or_else(|| WORLD_DEFAULT.to_owned());
        let worlds = saggar_plugin::plugin_worlds().map_err(|error| error.to_string())?;
        if !worlds.iter().any(|known| known.name == world) {
            let names: Vec<&str> = worlds.iter().map(|known| known.name.as_str()).collect();
            return Err(format!("world: expected one of {}, got {world:?}", names.join(", ")));
        }
        let declarations = PluginDeclarations::from_table(&name, &serde_json::Value::Object(declarations))?;
        Ok(CManifest { name, world, declarations })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_has_a_world_and_declarations() {
        let text = "name = \"softmax\"\n[parameters]\nepochs = { type = \"integer\", min = 1 }\n";
        let manifest = CManifest::parse(text).unwrap();
        assert_eq!((manifest.name.as_str(), manifest.world.as_str()), ("softmax", WORLD_DEFAULT));
        assert_eq!(manifest.declarations.parameters["epochs"].min, Some(1.0));
        assert_eq!(CManifest::parse("name = \"a\"\nworld = \"train-plugin\"").unwrap().world, "train-plugin");
    }

    #[test]
    fn mistakes_in_a_manifest_are_named() {
        for (text, says) in [
            ("", "missing field `name`"),
            ("name = \"../m\"", "cannot be the name of a plugin"),
            ("name = \"m\"\nworld = \"pluto\"", "world: expected one of model-plugin"),
            ("name = \"m\"\nparametres = {}", "unknown field `parametres`"),
        ] {
            let error = CManifest::parse(text).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }
}

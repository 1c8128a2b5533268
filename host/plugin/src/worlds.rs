//! The WIT worlds that a plugin can implement, read from the embedded interface files of this build, so that the list
//! cannot differ from what the host implements.

use include_dir::{Dir, include_dir};
use wit_parser::{Resolve, SourceMap, WorldItem, WorldKey};

use crate::error::PluginError;
use crate::inspect::ComponentInterface;

/// The embedded interface files.
pub static WIT_FILES: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/../../wit");

/// The host's own world, which no plugin implements.
const HOST_WORLD: &str = "any-plugin";

/// A world that a plugin can implement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginWorld {
    /// The world's name, such as `model-plugin`.
    pub name: String,
    /// The version of its package, which all its interfaces have.
    pub version: String,
    /// Its purpose, in a sentence or two.
    pub about: String,
    /// Interfaces that a plugin of this world exports, in the order of the file.
    pub exports: Vec<String>,
    /// Interfaces that a plugin of this world can import.
    pub imports: Vec<String>,
}

/// Returns every world that a plugin can implement, in the order of the file.
///
/// # Errors
/// `Engine` if the embedded files are not a WIT package.
pub fn plugin_worlds() -> Result<Vec<PluginWorld>, PluginError> {
    let mut sources = SourceMap::default();
    for file in WIT_FILES.files() {
        let text =
            file.contents_utf8().ok_or_else(|| PluginError::engine("an embedded interface file is not UTF-8"))?;
        sources.push_str(&file.path().display().to_string(), text);
    }
    let group = sources.parse().map_err(|(_, error)| PluginError::engine(error))?;
    let mut resolve = Resolve::default();
    let package = resolve.push_group(group).map_err(PluginError::engine)?;
    let package = &resolve.packages[package];
    let version = package.name.version.as_ref().map(ToString::to_string).unwrap_or_default();
    let worlds = package.worlds.values().map(|id| &resolve.worlds[*id]).filter(|world| world.name != HOST_WORLD);
    Ok(worlds
        .map(|world| PluginWorld {
            name: world.name.clone(),
            version: version.clone(),
            about: world.docs.contents.as_deref().unwrap_or_default().trim().replace('\n', " "),
            exports: interface_names(&resolve, world.exports.iter()),
            imports: interface_names(&resolve, world.imports.iter()),
        })
        .collect())
}

impl PluginWorld {
    /// Returns the exports of a component of this world, such as `saggar:plugin/trainer@0.1.0`.
    pub fn export_names(&self) -> impl Iterator<Item = String> {
        self.exports.iter().map(|interface| format!("saggar:plugin/{interface}@{}", self.version))
    }

    /// Returns whether `text` is the world's name, optionally with its version or a prefix of it, as in
    /// `train-plugin@0.1`.
    pub fn matches_name(&self, text: &str) -> bool {
        let Some((name, version)) = text.split_once('@') else { return text == self.name };
        let begins = self.version.strip_prefix(version).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
        name == self.name && begins && !version.is_empty()
    }
}

/// Returns the exports of a component by name and version, without compiling it, or `None` if the bytes are not a
/// component.
pub fn component_exports(wasm: &[u8]) -> Option<Vec<String>> {
    ComponentInterface::from_bytes(wasm).map(|face| face.exports)
}

/// Returns the names of the interfaces in a world's imports or exports.
fn interface_names<'a>(resolve: &Resolve, items: impl Iterator<Item = (&'a WorldKey, &'a WorldItem)>) -> Vec<String> {
    let name = |(_, item): (&WorldKey, &WorldItem)| match item {
        WorldItem::Interface { id, .. } => resolve.interfaces[*id].name.clone(),
        WorldItem::Function(_) | WorldItem::Type { .. } => None,
    };
    items.filter_map(name).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::error::WIT_VERSION;
    use crate::inspect::{JOB_IMPORTS, PLUGIN_IMPORTS};

    #[test]
    fn a_world_matches_its_name_with_any_prefix_of_its_version() {
        let worlds = plugin_worlds().unwrap();
        let named = |text: &str| worlds.iter().filter(|world| world.matches_name(text)).count();
        for text in ["train-plugin", "train-plugin@0", "train-plugin@0.1", "train-plugin@0.1.0"] {
            assert_eq!(named(text), 1, "{text}");
        }
        for text in ["", "train", "train-plugin@", "train-plugin@0.", "train-plugin@0.10", "train-plugin@1", "@0.1.0"] {
            assert_eq!(named(text), 0, "{text}");
        }
    }

    #[test]
    fn listed_worlds_match_the_interfaces_that_components_are_checked_against() {
        let worlds = plugin_worlds().unwrap();
        let names: Vec<&str> = worlds.iter().map(|world| world.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "model-plugin",
                "predict-plugin",
                "model-http-plugin",
                "predict-http-plugin",
                "train-plugin",
                "step-plugin",
                "import-plugin"
            ]
        );
        for world in &worlds {
            assert_eq!(world.version, WIT_VERSION, "{}", world.name);
            assert!(world.about.ends_with('.'), "{}: {:?}", world.name, world.about);
            let has_job = world.exports.iter().any(|name| name == "trainer" || name == "step");
            let given =
                PLUGIN_IMPORTS.iter().chain(JOB_IMPORTS.iter().filter(|_| has_job)).copied().collect::<BTreeSet<_>>();
            let imports: BTreeSet<&str> = world.imports.iter().map(String::as_str).collect();
            assert!(imports.is_subset(&given), "{}: {imports:?}", world.name);
        }
        let all: BTreeSet<&str> = worlds.iter().flat_map(|world| &world.imports).map(String::as_str).collect();
        assert_eq!(all, PLUGIN_IMPORTS.iter().chain(&JOB_IMPORTS).copied().collect());
    }
}

//! The manifest of a plugin written in Python: `pyproject.toml`.

use std::fs;
use std::path::Path;

use saggar_plugin::PluginDeclarations;
use serde::Deserialize;

use crate::plugin_build::error::BuildError;

pub(super) const FILE: &str = "pyproject.toml";

/// Module names that the component needs itself.
const RESERVED: [&str; 4] = ["predictor", "saggar_entry", "saggar_plugin", "wit_world"];

/// The part of a `pyproject.toml` that a build needs.
#[derive(Debug)]
pub(super) struct PythonManifest {
    /// Name of the project, and of the plugin.
    pub(super) name: String,
    /// Requirements, as pip takes them.
    pub(super) dependencies: Vec<String>,
    /// The module that calls `export`.
    pub(super) module: String,
    /// The world that the component implements.
    pub(super) world: String,
    /// What the world exports.
    pub(super) exports: WorldExports,
    pub(super) declarations: PluginDeclarations,
}

#[derive(Deserialize)]
struct ProjectFile {
    project: ProjectTable,
    #[serde(default)]
    tool: ToolTable,
}

#[derive(Deserialize)]
struct ProjectTable {
    name: String,
    #[serde(default)]
    dependencies: Vec<String>,
}

#[derive(Default, Deserialize)]
struct ToolTable {
    #[serde(default)]
    saggar: serde_json::Map<String, serde_json::Value>,
}

impl PythonManifest {
    /// Reads the manifest in a plugin's directory.
    ///
    /// # Errors
    /// `Io`; `Manifest`.
    pub(super) fn read(directory: &Path) -> Result<PythonManifest, BuildError> {
        let path = directory.join(FILE);
        let text = fs::read_to_string(&path).map_err(|source| BuildError::Io { path: path.clone(), source })?;
        PythonManifest::parse(&text).map_err(|reason| BuildError::Manifest { path, reason })
    }

    fn parse(text: &str) -> Result<PythonManifest, String> {
        let ProjectFile { project, tool } = toml::from_str(text).map_err(|error| error.to_string())?;
        let mut table = tool.saggar;
        let mut take = |name: &str, default: &str| match table.remove(name) {
            None => Ok(default.to_owned()),
            Some(serde_json::Value::String(value)) => Ok(value),
            Some(other) => Err(format!("[tool.saggar] {name}: expected a text, got {other}")),
        };
        let (module, world) = (take("module", "plugin")?, take("world", "model-plugin")?);
        let is_name = |name: &str| !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        if !module.split('.').all(is_name) || RESERVED.contains(&module.as_str()) {
            return Err(format!("[tool.saggar] module: {module:?} cannot be the name of a plugin's module"));
        }
        let letters = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
        if project.name.is_empty() || project.name.starts_with('.') || !project.name.bytes().all(letters) {
            return Err(format!("[project] name: {:?} cannot be the name of a plugin", project.name));
        }
        let declarations = PluginDeclarations::from_table(&project.name, &serde_json::Value::Object(table))
            .map_err(|reason| format!("[tool.saggar]: {reason}"))?;
        let exports = exports_of(&world)?;
        Ok(PythonManifest {
            name: project.name,
            dependencies: project.dependencies,
            module,
            world,
            exports,
            declarations,
        })
    }
}

/// What a world exports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WorldExports {
    pub(super) trainer: bool,
    pub(super) predictor: bool,
    pub(super) http_handler: bool,
}

/// Returns what a world exports.
fn exports_of(world: &str) -> Result<WorldExports, String> {
    let worlds = saggar_plugin::plugin_worlds().map_err(|error| error.to_string())?;
    // The guest library for Python has neither.
    let is_missing = |export: &String| export == "importer" || export == "step";
    let usable = || worlds.iter().filter(|world| !world.exports.iter().any(is_missing));
    let Some(found) = usable().find(|found| found.name == world) else {
        let names: Vec<&str> = usable().map(|world| world.name.as_str()).collect();
        return Err(format!("[tool.saggar] world: expected one of {}, got {world:?}", names.join(", ")));
    };
    let exports = |interface: &str| found.exports.iter().any(|export| export == interface);
    Ok(WorldExports {
        trainer: exports("trainer"),
        predictor: exports("predictor"),
        http_handler: exports("http-handler"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_has_defaults_and_declarations() {
        let text = "[project]\nname = \"mine\"\ndependencies = [\"a>=1\"]\n\
                    [tool.saggar.parameters]\nepochs = { type = \"integer\", min = 1 }\n\
                    [tool.saggar.data]\n\"/data\" = [\"image\"]\n[tool.mypy]\nstrict = true\n";
        let manifest = PythonManifest::parse(text).unwrap();
        assert_eq!((manifest.module.as_str(), manifest.world.as_str()), ("plugin", "model-plugin"));
        let all = WorldExports { trainer: true, predictor: true, http_handler: false };
        assert_eq!((manifest.exports, manifest.dependencies.as_slice()), (all, &["a>=1".to_owned()][..]));
        assert_eq!(manifest.declarations.name.as_deref(), Some("mine"));
        assert_eq!(manifest.declarations.parameters["epochs"].min, Some(1.0));
        let trains =
            PythonManifest::parse("[project]\nname = \"m\"\n[tool.saggar]\nworld = \"train-plugin\"\n").unwrap();
        assert_eq!(trains.exports, WorldExports { predictor: false, ..all });
        let handles =
            PythonManifest::parse("[project]\nname = \"m\"\n[tool.saggar]\nworld = \"model-http-plugin\"\n").unwrap();
        assert_eq!(handles.exports, WorldExports { http_handler: true, ..all });
    }

    #[test]
    fn mistakes_in_a_manifest_are_named() {
        let error = |saggar: &str| {
            PythonManifest::parse(&format!("[project]\nname = \"m\"\n[tool.saggar]\n{saggar}\n")).unwrap_err()
        };
        assert_eq!(
            error("world = \"pluto\""),
            "[tool.saggar] world: expected one of model-plugin, predict-plugin, model-http-plugin, \
             predict-http-plugin, train-plugin, got \"pluto\""
        );
        assert!(error("module = \"predictor\"").contains("cannot be the name of a plugin's module"));
        assert!(error("module = 3").contains("expected a text, got 3"));
        assert!(error("wrld = \"model-plugin\"").contains("unknown field `wrld`"));
        assert!(PythonManifest::parse("[tool.saggar]").unwrap_err().contains("missing field `project`"));
        assert!(PythonManifest::parse("[project]\nname = \"../m\"").unwrap_err().contains("[project] name"));
    }
}

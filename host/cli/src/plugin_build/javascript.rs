//! Builds a plugin written in JavaScript: ComponentizeJS makes one component of an interpreter, the plugin's modules and
//! the guest library.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use include_dir::{Dir, include_dir};
use saggar_plugin::{PluginDeclarations, WIT_FILES};
use serde::Deserialize;

use super::error::BuildError;
use super::staging::{self, BuildRecord, write_files};
use super::{BuiltComponent, PluginLanguage, command};

static SDK: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../plugins/sdk-javascript/saggar-plugin");
/// Where `saggar init` puts the guest library in a plugin's directory.
const SDK_PATH: &str = "vendor/javascript/saggar-plugin";
const WIT_PATH: &str = "vendor/wit";
const MANIFEST: &str = "package.json";
/// The version that the guest library is tested with.
const VERSION: &str = "0.23.0";
/// The oldest Node.js that runs it.
const NODE_MAJOR_MIN: u32 = 20;
/// The worlds of plugins in JavaScript: without and with HTTP handlers.
const MODEL_WORLD: &str = "model-plugin";
const HTTP_WORLD: &str = "model-http-plugin";
const BUILD_SCRIPT: &str = include_str!("javascript/build.mjs");
const ENTRY_MODULE: &str = "import './MAIN';
import { check } from './vendor/javascript/saggar-plugin/exports.js';
export { predictor, trainer } from './vendor/javascript/saggar-plugin/exports.js';
check(HANDLES);
";
const HTTP_EXPORT: &str = "export { httpHandler } from './vendor/javascript/saggar-plugin/http.js';\n";

/// JavaScript: a package with a `package.json`.
pub(super) struct JavaScriptLanguage;

impl PluginLanguage for JavaScriptLanguage {
    fn name(&self) -> &'static str {
        "JavaScript"
    }

    fn manifest(&self) -> &'static str {
        MANIFEST
    }

    fn build(&self, directory: &Path, quiet: bool) -> Result<BuiltComponent, BuildError> {
        let manifest = PackageManifest::read(directory)?;
        let declarations = manifest.declarations(directory)?;
        let output = directory.join("target/saggar");
        let staged = output.join("javascript");
        stage(directory, &staged.join("modules"), &manifest)?;
        let wit = directory.join(WIT_PATH);
        let settings = format!("{VERSION} {BUILD_SCRIPT} {} {declarations:?}", manifest.world());
        let last_build = BuildRecord::new(staged.join("built"), &[&staged.join("modules"), &wit], &settings)?;
        let built = output.join(format!("{}.wasm", manifest.name));
        let bytes = match last_build.built_before(&built) {
            Some(bytes) => bytes,
            None => {
                let bytes = declarations.append_to(componentize(&staged, &wit, manifest.world(), quiet)?);
                last_build.record(&bytes)?;
                bytes
            }
        };
        Ok(BuiltComponent { name: manifest.name, directory: output, bytes })
    }

    fn find_tools(&self) -> Result<String, BuildError> {
        let version = |program: &str| {
            let mut asked = Command::new(program);
            asked.arg("--version").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
            let output = command::run_to_completion(&mut asked)
                .map_err(|error| missing_npm(error.to_string(), "on Debian `apt install nodejs npm`"))?;
            Ok::<String, BuildError>(String::from_utf8_lossy(&output.stdout).trim().trim_start_matches('v').to_owned())
        };
        let (node, npm) = (version("node")?, version("npm")?);
        let major: u32 = node.split('.').next().and_then(|major| major.parse().ok()).unwrap_or_default();
        if major < NODE_MAJOR_MIN {
            return Err(missing_npm(format!("this is Node.js {node}"), "install a newer Node.js"));
        }
        Ok(format!("Node.js {node}, npm {npm} and ComponentizeJS {VERSION}"))
    }

    fn declarations(&self, directory: &Path) -> Result<PluginDeclarations, BuildError> {
        PackageManifest::read(directory)?.declarations(directory)
    }
}

/// The part of a `package.json` that a build needs.
#[derive(Deserialize)]
struct PackageManifest {
    name: String,
    #[serde(default = "default_main")]
    main: String,
    #[serde(default)]
    saggar: serde_json::Map<String, serde_json::Value>,
}

fn default_main() -> String {
    "src/plugin.js".to_owned()
}

impl PackageManifest {
    fn read(directory: &Path) -> Result<PackageManifest, BuildError> {
        let path = directory.join(MANIFEST);
        let text = fs::read_to_string(&path).map_err(|source| BuildError::Io { path: path.clone(), source })?;
        let refused = |reason: String| BuildError::Manifest { path: path.clone(), reason };
        let manifest: PackageManifest = serde_json::from_str(&text).map_err(|error| refused(error.to_string()))?;
        let letters = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
        if manifest.name.is_empty() || manifest.name.starts_with('.') || !manifest.name.bytes().all(letters) {
            return Err(refused(format!("name: {:?} cannot be the name of a plugin", manifest.name)));
        }
        if !manifest.main.starts_with("src/") || manifest.main.contains(['\'', '\\', '\n']) {
            return Err(refused(format!("main: expected a module below src, got {:?}", manifest.main)));
        }
        let world = manifest.saggar.get("world");
        if world.is_some_and(|world| world != MODEL_WORLD && world != HTTP_WORLD) {
            let given = world.map(ToString::to_string).unwrap_or_default();
            return Err(refused(format!("saggar.world: expected {MODEL_WORLD} or {HTTP_WORLD}, got {given}")));
        }
        Ok(manifest)
    }

    /// Returns the world that the component implements.
    fn world(&self) -> &str {
        self.saggar.get("world").and_then(serde_json::Value::as_str).unwrap_or(MODEL_WORLD)
    }

    fn has_http_handlers(&self) -> bool {
        self.world() == HTTP_WORLD
    }

    fn declarations(&self, directory: &Path) -> Result<PluginDeclarations, BuildError> {
        let mut table = self.saggar.clone();
        table.shift_remove("world");
        let table = serde_json::Value::Object(table);
        PluginDeclarations::from_table(&self.name, &table).map_err(|reason| BuildError::Manifest {
            path: directory.join(MANIFEST),
            reason: format!("saggar: {reason}"),
        })
    }
}

/// Writes the guest library and the interface files into a plugin's directory.
pub(crate) fn write_vendor(directory: &Path) -> std::io::Result<()> {
    write_files(&SDK, &directory.join(SDK_PATH))?;
    write_files(&WIT_FILES, &directory.join(WIT_PATH))
}

/// Copies the plugin's modules and the guest library into one directory, the only one that ComponentizeJS reads.
fn stage(directory: &Path, to: &Path, manifest: &PackageManifest) -> Result<(), BuildError> {
    let at = |path: &Path| {
        let path = path.to_owned();
        |source| BuildError::Io { path, source }
    };
    let _ = fs::remove_dir_all(to);
    for part in ["src", SDK_PATH] {
        copy_directory(&directory.join(part), &to.join(part)).map_err(at(&directory.join(part)))?;
    }
    let handles = manifest.has_http_handlers();
    let mut entry = ENTRY_MODULE.replace("MAIN", &manifest.main).replace("HANDLES", &handles.to_string());
    if handles {
        entry.push_str(HTTP_EXPORT);
    }
    fs::write(to.join("saggar-entry.js"), entry).map_err(at(to))
}

fn copy_directory(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_directory(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

fn componentize(staged: &Path, wit: &Path, world: &str, quiet: bool) -> Result<Vec<u8>, BuildError> {
    let tool = find_or_install(quiet)?;
    let component = staged.join("component.wasm");
    let script = tool.join("build.mjs");
    fs::write(&script, BUILD_SCRIPT).map_err(|source| BuildError::Io { path: script.clone(), source })?;
    let mut node = Command::new("node");
    // ComponentizeJS finds modules relative to the current directory.
    node.current_dir(staged.join("modules")).arg(&script).arg("saggar-entry.js");
    node.arg(absolute(wit)?).arg(world).arg(absolute(&component)?);
    node.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command::check("ComponentizeJS", command::run_to_completion(&mut node)?)?;
    let bytes = fs::read(&component).map_err(|source| BuildError::Io { path: component.clone(), source })?;
    // It is stored again under the plugin's name.
    let _ = fs::remove_file(&component);
    Ok(bytes)
}

fn absolute(path: &Path) -> Result<PathBuf, BuildError> {
    std::path::absolute(path).map_err(|source| BuildError::Io { path: path.to_owned(), source })
}

/// Returns the directory in the user's cache that ComponentizeJS is installed in, by npm if it is missing.
fn find_or_install(quiet: bool) -> Result<PathBuf, BuildError> {
    let directory = staging::cache_directory("ComponentizeJS")?.join(format!("componentize-js-{VERSION}"));
    if !directory.join("node_modules").is_dir() {
        if !quiet {
            tracing::info!(version = VERSION, "installing ComponentizeJS");
        }
        staging::install_into(&directory, install)?;
    }
    Ok(directory)
}

fn install(draft: &Path) -> Result<(), BuildError> {
    let mut npm = Command::new("npm");
    npm.args(["install", "--no-audit", "--no-fund", "--silent", "--prefix"]).arg(draft);
    npm.arg(format!("@bytecodealliance/componentize-js@{VERSION}"));
    npm.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let output = command::run_to_completion(&mut npm)
        .map_err(|error| missing_npm(error.to_string(), "on Debian `apt install nodejs npm`"))?;
    if output.status.success() {
        return Ok(());
    }
    let reason = format!("npm could not install version {VERSION}: {}", command::error_text(&output));
    Err(missing_npm(reason, "connect this machine to a package registry for the first build"))
}

fn missing_npm(reason: String, hint: &str) -> BuildError {
    BuildError::MissingTool { tool: "ComponentizeJS, with Node.js 20 and npm,", reason, hint: hint.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_in_a_package_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let error = |text: &str| {
            fs::write(dir.path().join(MANIFEST), text).unwrap();
            JavaScriptLanguage.declarations(dir.path()).unwrap_err().to_string()
        };
        assert!(error("{}").contains("missing field `name`"));
        assert!(error(r#"{"name": "@scope/m"}"#).contains("cannot be the name of a plugin"));
        assert!(error(r#"{"name": "m", "main": "../x.js"}"#).contains("expected a module below src"));
        assert!(error(r#"{"name": "m", "saggar": {"parametres": {}}}"#).contains("unknown field `parametres`"));
        assert!(
            error(r#"{"name": "m", "saggar": {"world": "pluto"}}"#).contains("expected model-plugin or model-http")
        );
        fs::write(dir.path().join(MANIFEST), r#"{"name": "m", "saggar": {"world": "model-http-plugin"}}"#).unwrap();
        assert!(PackageManifest::read(dir.path()).unwrap().has_http_handlers());
        assert_eq!(JavaScriptLanguage.declarations(dir.path()).unwrap().name.as_deref(), Some("m"));
        fs::write(dir.path().join(MANIFEST), r#"{"name": "m"}"#).unwrap();
        assert_eq!(JavaScriptLanguage.declarations(dir.path()).unwrap().name.as_deref(), Some("m"));
    }
}

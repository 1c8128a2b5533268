//! `saggar init`: creates a plugin that builds without further downloads of this project: the guest library and
//! interface files of this host's version are copied beside it.

mod pipeline_project;
pub(crate) mod templates;

use std::path::Path;

use include_dir::{Dir, include_dir};
use saggar_plugin::WIT_FILES;
use saggar_project::PROJECT_FILE;
use serde::Serialize;

use crate::args::InitArgs;
use crate::exit::{self, CliError};
use crate::output::CliOutput;
use crate::plugin_build::{javascript, python};
use templates::{PluginTemplate, TemplateLanguage};

static SDK: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../plugins/sdk/src");
const WORKSPACE: &str = include_str!("../../../../plugins/Cargo.toml");
const SDK_MANIFEST: &str = include_str!("../../../../plugins/sdk/Cargo.toml");

/// A new plugin as JSON.
#[derive(Serialize)]
struct InitializedPlugin<'a> {
    plugin: &'a str,
    template: &'a str,
}

pub(crate) fn init(args: &InitArgs, output: CliOutput) -> Result<(), CliError> {
    let name = args.name.clone().map_or_else(current_directory_name, Ok)?;
    let letters = name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    if !letters || !name.starts_with(|c: char| c.is_ascii_lowercase()) || name.len() > 63 {
        return Err(CliError::invalid(format!("{name:?} is no plugin's name"))
            .with_hint("expected a-z, 0-9 and '-', beginning with a letter; `saggar init NAME` creates a directory"));
    }
    let root = Path::new(if args.name.is_some() { name.as_str() } else { "." });
    if is_taken(root, args.name.is_none()) {
        let (what, hint) = match args.name {
            Some(_) => (format!("{name} is there already"), "choose another name"),
            None => ("this directory is not empty".to_owned(), "`saggar init NAME` creates a directory in it"),
        };
        return Err(CliError::new(exit::CONFLICT, "exists", what).with_hint(hint));
    }
    let written = |error| CliError::new(exit::UNEXPECTED, "write", format!("{name}: {error}"));
    if args.template == pipeline_project::NAME {
        pipeline_project::write_pipeline_project(root, &name).map_err(written)?;
        return print_initialized(
            args,
            &name,
            &["saggar pipeline check", "saggar pipeline run nightly --follow"],
            output,
        );
    }
    let template = templates::find_template(&args.template)
        .ok_or_else(|| CliError::invalid(format!("there is no template {:?}", args.template)))?;
    write_project(root, &name, template).map_err(written)?;
    let run = template.run.replace("NAME", &name);
    print_initialized(args, &name, &["saggar dev", &run], output)
}

/// Prints the name of what was created, and as notes the next commands: one inside its directory, and one for a server.
fn print_initialized(args: &InitArgs, name: &str, next: &[&str; 2], output: CliOutput) -> Result<(), CliError> {
    let [inside, run] = next;
    if output.json {
        output.print_json(&InitializedPlugin { plugin: name, template: &args.template });
        return Ok(());
    }
    output.print_line(name);
    match args.name {
        Some(_) => output.print_note(&format!("Next: cd {name} && {inside}")),
        None => output.print_note(&format!("Next: {inside}")),
    }
    output.print_note(&format!("  or: saggar serve, and in another terminal: {run}"));
    Ok(())
}

/// Returns the name of the current directory.
fn current_directory_name() -> Result<String, CliError> {
    let place = std::env::current_dir()
        .map_err(|error| CliError::new(exit::UNEXPECTED, "read", format!("this directory: {error}")))?;
    Ok(place.file_name().unwrap_or_default().to_string_lossy().into_owned())
}

/// Returns whether a plugin cannot be written at `root`. Hidden files are ignored if the directory must be empty.
fn is_taken(root: &Path, must_be_empty: bool) -> bool {
    if !must_be_empty {
        return root.exists();
    }
    let is_shown = |entry: std::fs::DirEntry| !entry.file_name().to_string_lossy().starts_with('.');
    std::fs::read_dir(root).is_ok_and(|entries| entries.flatten().any(is_shown))
}

fn write_project(root: &Path, name: &str, template: &PluginTemplate) -> std::io::Result<()> {
    let source = root.join("src");
    std::fs::create_dir_all(&source)?;
    for (path, contents) in template.files() {
        std::fs::write(source.join(path), contents)?;
    }
    match template.language {
        TemplateLanguage::Rust => write_rust_files(root, name, template)?,
        TemplateLanguage::Python => write_python_files(root, name, template)?,
        TemplateLanguage::JavaScript => write_javascript_files(root, name, template)?,
    }
    std::fs::write(root.join(PROJECT_FILE), project_file(name, template))?;
    std::fs::write(root.join("README.md"), readme(name, template))
}

fn write_rust_files(root: &Path, name: &str, template: &PluginTemplate) -> std::io::Result<()> {
    let vendor = root.join("vendor");
    copy_embedded_dir(&SDK, &vendor.join("plugins/sdk/src"))?;
    copy_embedded_dir(&WIT_FILES, &vendor.join("wit"))?;
    std::fs::write(vendor.join("plugins/sdk/Cargo.toml"), SDK_MANIFEST)?;
    std::fs::write(root.join("Cargo.toml"), cargo_manifest(name, template))?;
    std::fs::write(root.join(".gitignore"), "/target\n/.saggar\n")
}

fn write_python_files(root: &Path, name: &str, template: &PluginTemplate) -> std::io::Result<()> {
    python::write_sdk(&root.join(python::SDK_PATH))?;
    copy_embedded_dir(&WIT_FILES, &root.join(python::WIT_PATH))?;
    replace_name(&root.join("src/plugin.py"), name)?;
    std::fs::write(root.join("pyproject.toml"), template.manifest.replace("NAME", name))?;
    std::fs::write(root.join(".gitignore"), "/target\n/.saggar\n__pycache__/\n")
}

fn write_javascript_files(root: &Path, name: &str, template: &PluginTemplate) -> std::io::Result<()> {
    javascript::write_vendor(root)?;
    replace_name(&root.join("src/plugin.js"), name)?;
    std::fs::write(root.join("package.json"), template.manifest.replace("NAME", name))?;
    std::fs::write(root.join(".gitignore"), "/target\n/.saggar\nnode_modules/\n")
}

fn replace_name(file: &Path, name: &str) -> std::io::Result<()> {
    let text = std::fs::read_to_string(file)?;
    std::fs::write(file, text.replace("NAME", name))
}

fn copy_embedded_dir(dir: &Dir<'_>, to: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(to)?;
    for file in dir.files() {
        let name = file.path().file_name().unwrap_or_default();
        std::fs::write(to.join(name), file.contents())?;
    }
    for child in dir.dirs() {
        copy_embedded_dir(child, &to.join(child.path().file_name().unwrap_or_default()))?;
    }
    Ok(())
}

/// Returns the manifest of a workspace with the plugin and the guest library. The library inherits its dependency
/// versions from it, as it does in this project.
fn cargo_manifest(name: &str, template: &PluginTemplate) -> String {
    let line = |line: &str| match line {
        members if members.starts_with("members = ") => "members = [\".\"]\n".to_owned(),
        other => format!("{other}\n").replace("path = \"sdk\"", "path = \"vendor/plugins/sdk\""),
    };
    let workspace: String = WORKSPACE.lines().map(line).collect();
    format!(
        "[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2024\"\npublish = false\n\n\
         [lib]\ncrate-type = [\"cdylib\", \"rlib\"]\n\n{}\
         [dependencies]\nsaggar-plugin-sdk.workspace = true\n\n{workspace}",
        template.declarations()
    )
}

fn project_file(name: &str, template: &PluginTemplate) -> String {
    let text = format!(
        "# `saggar check` checks this file; `saggar check --schema` describes every key.\n\
         manifest = 1\n\n[project]\nname = \"NAME\"\n\n\
         [plugin.NAME]\nsource = \"target/saggar/NAME.wasm\"\n\
         [plugin.NAME.build]\ncommand = \"saggar build\"\nwatch = [WATCH]\n\n\
         # saggar run --task train -f\n[task.train]\nplugin = \"NAME\"\n{}",
        template.task
    );
    let watch = match template.language {
        TemplateLanguage::Rust => r#""src/**/*.rs", "Cargo.toml""#,
        TemplateLanguage::Python => r#""src/**/*.py", "pyproject.toml""#,
        TemplateLanguage::JavaScript => r#""src/**/*.js", "package.json""#,
    };
    text.replace("NAME", name).replace("WATCH", watch)
}

fn readme(name: &str, template: &PluginTemplate) -> String {
    let text = format!(
        "# NAME\n\n{}\n\n`vendor/` holds the guest library and the interface files of the host that created this.\n\n\
         ```\nsaggar dev                              # builds, trains and serves it, and builds again on every save\n\
         saggar run --task train -f              # runs the task of saggar.toml on a running server\n\
         {}   # the same without saggar.toml, from the folder above\n```\n",
        template.readme, template.run
    );
    text.replace("NAME", name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generated_cargo_manifest_uses_the_vendored_sdk() {
        let manifest: toml::Table = cargo_manifest("mine", &templates::TEMPLATES[0]).parse().unwrap();
        let declared = &manifest["package"]["metadata"]["saggar"]["parameters"]["batch"];
        assert_eq!(declared["min"].as_integer(), Some(1), "what the template declares, the plugin declares");
        let sdk = &manifest["workspace"]["dependencies"]["saggar-plugin-sdk"]["path"];
        assert_eq!(sdk.as_str(), Some("vendor/plugins/sdk"));
        assert_eq!(manifest["workspace"]["members"].as_array().unwrap()[0].as_str(), Some("."));
    }

    #[test]
    fn init_writes_every_project_file() {
        let dir = tempfile::tempdir().unwrap();
        write_project(dir.path(), "mine", &templates::TEMPLATES[0]).unwrap();
        for file in [
            "Cargo.toml",
            "src/lib.rs",
            "vendor/plugins/sdk/src/lib.rs",
            "vendor/plugins/sdk/Cargo.toml",
            "vendor/wit/graphs.wit",
            "saggar.toml",
        ] {
            assert!(dir.path().join(file).is_file(), "{file}");
        }
    }

    #[test]
    fn init_writes_every_file_of_a_python_project() {
        let dir = tempfile::tempdir().unwrap();
        let template = templates::find_template("python").unwrap();
        write_project(dir.path(), "mine", template).unwrap();
        for file in ["pyproject.toml", "vendor/python/saggar_plugin/py.typed", "vendor/wit/graphs.wit", "README.md"] {
            assert!(dir.path().join(file).is_file(), "{file}");
        }
        let plugin = std::fs::read_to_string(dir.path().join("src/plugin.py")).unwrap();
        assert!(plugin.contains("job.param(\"model\", \"mine\")") && plugin.lines().count() < 90, "{plugin}");
        assert!(!dir.path().join("Cargo.toml").exists());
        let declared = crate::plugin_build::read_declarations(dir.path()).unwrap();
        assert_eq!(declared.name.as_deref(), Some("mine"));
    }

    #[test]
    fn every_template_has_a_valid_project_file() {
        for template in &templates::TEMPLATES {
            let text = project_file("mine", template);
            let manifest = saggar_project::ProjectManifest::parse(&text).map_err(|found| found.render("saggar.toml"));
            let manifest = manifest.unwrap_or_else(|found| panic!("{}: {found}", template.name));
            assert_eq!(manifest.tasks["train"].plugin.as_deref(), Some("mine"));
        }
    }
}

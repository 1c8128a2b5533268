//! Builds the plugins of the project, and uploads components.

use std::ffi::OsString;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use saggar_project::{PROJECT_FILE, PluginSection};
use saggar_reference_plugins::reference_plugin;
use saggar_rest::plugins::{FetchPluginRequest, PluginDocument};

use super::world;
use crate::args::RunArgs;
use crate::client::{ApiClient, RequestBody};
use crate::commands::dev::DevShutdown;
use crate::component_source::{ComponentSource, is_url};
use crate::exit::{self, CliError};
use crate::output::CliOutput;
use crate::project::ProjectContext;

/// A shell function that makes `saggar` in a build command run this program.
const SAGGAR_SHELL_FUNCTION: &str = "saggar() { \"$SAGGAR_PROGRAM\" \"$@\"; }";

/// Returns the component of a project plugin, built first if the project file has a build command.
///
/// # Errors
/// Returns `build_failed` if the build fails, `no_plugin` if there is no file at the source path, and `invalid` if the
/// component does not implement the world that the project file gives.
pub(crate) fn build_plugin(
    project: &ProjectContext,
    name: &str,
    output: CliOutput,
    ending: Option<&DevShutdown>,
) -> Result<ComponentSource, CliError> {
    // The parser has checked that every used name exists.
    let Some(plugin) = project.manifest.plugins.get(name) else {
        return Err(CliError::invalid(format!("{PROJECT_FILE} has no plugin {name:?}")));
    };
    if let Some(build) = &plugin.build {
        output.print_note(&format!("building {name}: {}", build.command));
        run_build_command(project, &build.command, output, ending)?;
    }
    let component = component_source(project, plugin)?;
    if let Some(world) = plugin.world {
        let option = format!("plugin.{name}.world");
        world::check_exports(&option, &world::find_world(&option, world)?, &component)?;
    }
    Ok(component)
}

/// Returns the component that the command line names, after checking its digest if one is given.
///
/// # Errors
/// Returns `no_plugin` if it does not exist, `build_failed`, and `invalid` if its digest is wrong or missing.
pub(super) fn named_component(name: &Path, args: &RunArgs, output: CliOutput) -> Result<ComponentSource, CliError> {
    if let Some(url) = name.to_str().filter(|name| is_url(name)) {
        return ComponentSource::remote(url, args.sha256.as_deref());
    }
    let component = ComponentSource::find_or_build(name, output)?;
    args.sha256.as_deref().map(|sha256| component.check_sha256(sha256)).transpose()?;
    Ok(component)
}

/// Returns a project plugin's component without building it.
///
/// # Errors
/// Returns `no_plugin` if there is no file at the source path.
pub(crate) fn built_component(project: &ProjectContext, name: &str) -> Result<ComponentSource, CliError> {
    match project.manifest.plugins.get(name) {
        Some(plugin) => component_source(project, plugin),
        None => Err(CliError::invalid(format!("{PROJECT_FILE} has no plugin {name:?}"))),
    }
}

fn component_source(project: &ProjectContext, plugin: &PluginSection) -> Result<ComponentSource, CliError> {
    if is_url(&plugin.source) {
        return ComponentSource::remote(&plugin.source, plugin.sha256.as_deref());
    }
    let component = local_component_source(project, plugin)?;
    plugin.sha256.as_deref().map(|sha256| component.check_sha256(sha256)).transpose()?;
    Ok(component)
}

fn local_component_source(project: &ProjectContext, plugin: &PluginSection) -> Result<ComponentSource, CliError> {
    let path = project.path(&plugin.source);
    if path.is_file() {
        return Ok(ComponentSource::File(path));
    }
    if let Some(plugin) = reference_plugin(&plugin.source).filter(|_| plugin.build.is_none()) {
        return Ok(ComponentSource::Reference(plugin));
    }
    let message = format!("there is no component {}", path.display());
    let hint = match plugin.build {
        Some(_) => "its build command did not create it: fix `source` or `command`",
        None => {
            "build it, add a build command ([plugin.NAME.build] command = \"saggar build\"), or name a reference plugin, which `saggar plugins ls` lists"
        }
    };
    Err(CliError::new(exit::NOT_FOUND, "no_plugin", message).with_hint(hint))
}

/// Runs a build command of the project in its directory. Its output goes to standard error, because standard output
/// belongs to this command. `saggar` in it is this program. `ending` can end it, with every process that it started.
fn run_build_command(
    project: &ProjectContext,
    command: &str,
    output: CliOutput,
    ending: Option<&DevShutdown>,
) -> Result<(), CliError> {
    let quiet = output.quiet || output.json;
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("{SAGGAR_SHELL_FUNCTION}\n{command}")]);
    shell.current_dir(&project.root).stdin(Stdio::null());
    // A function for the command itself, whatever this program's file name is; a path for scripts that it starts.
    let program = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("saggar"));
    if let Some(path) = search_path_with(&program) {
        shell.env("PATH", path);
    }
    shell.env("SAGGAR_PROGRAM", program);
    shell.env("SAGGAR_LOG", "warn");
    let failed = |reason: String| CliError::new(exit::INVALID, "build_failed", format!("{command}: {reason}"));
    match quiet {
        true => shell.stdout(Stdio::null()).stderr(Stdio::piped()),
        false => {
            let errors = std::io::stderr().as_fd().try_clone_to_owned().map(Stdio::from);
            shell.stdout(errors.unwrap_or_else(|_| Stdio::null()))
        }
    };
    if ending.is_some() {
        shell.process_group(0);
    }
    let child = shell.spawn().map_err(|error| failed(error.to_string()))?;
    ending.inspect(|ending| ending.set_build_group(Some(child.id())));
    let ended = child.wait_with_output();
    ending.inspect(|ending| ending.set_build_group(None));
    let ended = ended.map_err(|error| failed(error.to_string()))?;
    if ended.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&ended.stderr);
    Err(match quiet {
        true => failed(format!("{}\n{}", ended.status, said.trim())),
        false => failed(ended.status.to_string()).with_hint("see the error above"),
    })
}

/// Returns the program search path, with this program's directory first.
fn search_path_with(program: &Path) -> Option<OsString> {
    let directory = program.parent()?.to_owned();
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::join_paths(std::iter::once(directory).chain(std::env::split_paths(&path))).ok()
}

/// Uploads the component to the server, or lets it fetch the component. Returns its digest.
pub(crate) fn upload_plugin(client: &ApiClient, component: &ComponentSource) -> Result<String, CliError> {
    Ok(upload_component(client, component)?.digest)
}

/// Like [`upload_plugin`], but returns what the server read from the component.
pub(crate) fn upload_component(client: &ApiClient, component: &ComponentSource) -> Result<PluginDocument, CliError> {
    match component {
        ComponentSource::Remote { url, sha256 } => {
            let request = FetchPluginRequest { url: url.clone(), sha256: sha256.hex() };
            client.post("/api/v1/plugins/fetch", RequestBody::json(&request))
        }
        ComponentSource::File(_) | ComponentSource::Reference(_) => {
            let body = RequestBody::Bytes { content_type: "application/wasm", bytes: &component.read()? };
            client.post("/api/v1/plugins", body)
        }
    }
}

//! Finds what is deprecated and in use: requests to the server, keys of the project file, and plugins that were built
//! against another version of the interface.

use std::path::{Path, PathBuf};
use std::time::Duration;

use saggar_plugin::error::WIT_VERSION;
use saggar_project::ProjectManifest;
use saggar_rest::deprecations::DeprecationListDocument;

use super::{DoctorFinding, FindingState};
use crate::project;
use crate::server::ServerAddress;

/// The name of these findings.
const NAME: &str = "deprecated";
/// Maximum time for the server to answer.
const SERVER_TIME_MAX: Duration = Duration::from_secs(5);

/// Names what clients of the server used since it started. Returns nothing if no server answers.
pub(super) fn check_server(server: &ServerAddress) -> Vec<DoctorFinding> {
    let document = server
        .client()
        .and_then(|client| client.get_within::<DeprecationListDocument>("/api/v1/deprecations", SERVER_TIME_MAX));
    let used = document.unwrap_or_default().deprecations.into_iter().filter(|it| it.uses > 0);
    let finding = |it: saggar_rest::deprecations::DeprecationDocument| {
        let times = if it.uses == 1 { "once".to_owned() } else { format!("{} times", it.uses) };
        let what = format!("{}: used {times} by clients of {} ({})", it.name, server.host(), it.operation);
        DoctorFinding::new(NAME, FindingState::Deprecated, what).with_hint(format!("use {}", it.replacement))
    };
    used.map(finding).collect()
}

/// Names the deprecated keys of the project file.
pub(super) fn check_project_file() -> Vec<DoctorFinding> {
    let Some(path) = project::find_file() else { return Vec::new() };
    let Some(manifest) = project::read_manifest_text(&path).ok().and_then(|text| ProjectManifest::parse(&text).ok())
    else {
        return Vec::new();
    };
    let finding = |warning: &saggar_project::Diagnostic| {
        DoctorFinding::new(NAME, FindingState::Deprecated, format!("{}:{warning}", path.display()))
    };
    manifest.warnings.iter().map(finding).collect()
}

/// Names the plugins of stored models that were built against another version of the interface than this program's.
pub(super) fn check_models(home: &Path) -> Vec<DoctorFinding> {
    let mut findings = Vec::new();
    for (name, component) in model_components(&home.join("models")) {
        let Ok(wasm) = std::fs::read(&component) else { continue };
        let versions = saggar_plugin::interface_versions(&wasm);
        let others: Vec<&str> = versions.iter().map(String::as_str).filter(|version| *version != WIT_VERSION).collect();
        if others.is_empty() {
            continue;
        }
        let works = matches!(saggar_plugin::check_component(&wasm), Some(Ok(())));
        let state = if works { FindingState::Deprecated } else { FindingState::Failed };
        let what = format!(
            "the plugin of {name} was built against saggar:plugin {}, and this program speaks {WIT_VERSION}",
            others.join(", ")
        );
        let hint = "build it again with this version's `saggar build`, and publish it";
        findings.push(DoctorFinding::new("plugins", state, what).with_hint(hint));
    }
    findings
}

/// Returns the component of each version of each model, with the version's name.
fn model_components(models: &Path) -> Vec<(String, PathBuf)> {
    let entries = |directory: &Path| {
        let mut paths: Vec<PathBuf> =
            std::fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
        paths.sort();
        paths
    };
    let last = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut found = Vec::new();
    for model in entries(models) {
        for version in entries(&model) {
            let component = version.join("plugin.wasm");
            if component.is_file() {
                found.push((format!("{}@{}", last(&model), last(&version)), component));
            }
        }
    }
    found
}

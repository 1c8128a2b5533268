//! Checks a job's requirements at submission: parameters, data, device, secrets.

use saggar_jobs::error::SpecError;
use saggar_jobs::{DataMount, JobError, JobSpec};
use saggar_plugin::PluginDeclarations;
use saggar_store::dataset::DatasetInfo;
use serde_json::{Map, Value};

use crate::access::ProjectScope;
use crate::app::AppState;
use crate::error::ApiError;

/// The maximum number of characters of a value that an error quotes.
const QUOTED_CHARS_MAX: usize = 80;

/// Checks the parameters against the plugin's declarations.
///
/// # Errors
/// Returns `Parameter` for the first parameter that does not match its declaration.
pub(in crate::api) fn check_parameters(
    declares: &PluginDeclarations,
    parameters: &Map<String, Value>,
) -> Result<(), ApiError> {
    for (name, declared) in &declares.parameters {
        if let Some(value) = parameters.get(name).filter(|value| !declared.accepts(value)) {
            let got = value.to_string().chars().take(QUOTED_CHARS_MAX).collect();
            let error = SpecError::Parameter { name: name.clone(), expected: declared.to_string(), got };
            return Err(JobError::from(error).into());
        }
    }
    Ok(())
}

/// Checks that a dataset is mounted at every mount point that the plugin declares.
///
/// # Errors
/// Returns `NotMounted` for the first mount point without one.
pub(super) fn check_mounts(declares: &PluginDeclarations, mounts: &[DataMount]) -> Result<(), ApiError> {
    match declares.data.keys().find(|point| !mounts.iter().any(|mount| mount.mount == **point)) {
        Some(mount) => Err(JobError::from(SpecError::NotMounted { mount: mount.clone() }).into()),
        None => Ok(()),
    }
}

/// Checks that a mounted dataset has the fields that the plugin declares.
///
/// # Errors
/// Returns `NoField` for the first missing field.
pub(super) fn check_fields(
    declares: &PluginDeclarations,
    mount: &DataMount,
    info: &DatasetInfo,
) -> Result<(), ApiError> {
    let wanted = declares.data.get(&mount.mount).into_iter().flatten();
    let lacks = |field: &&String| !info.fields.iter().any(|has| has.name == **field);
    let Some(field) = wanted.into_iter().find(lacks) else { return Ok(()) };
    let fields: Vec<&str> = info.fields.iter().map(|field| field.name.as_str()).collect();
    let error = SpecError::NoField {
        field: field.clone(),
        mount: mount.mount.clone(),
        dataset: format!("{}/{}", info.name, info.version),
        fields: fields.join(", "),
    };
    Err(JobError::from(error).into())
}

/// Checks that the job's device exists on this machine.
///
/// # Errors
/// Returns `NoDevice` if it does not.
pub(super) async fn check_device(app: &AppState, device: &str) -> Result<(), ApiError> {
    if matches!(device, "auto" | "cpu") {
        return Ok(());
    }
    let names = app.parts().devices.names().await;
    // A GPU is named by its driver (`vulkan0`), and can also be given by number (`gpu0`).
    let is_there = |name: &String| match device.strip_prefix("gpu") {
        Some("") => name != "cpu",
        Some(index) => name.strip_prefix("vulkan") == Some(index),
        None => name == device,
    };
    if names.iter().any(is_there) {
        return Ok(());
    }
    let device = device.chars().take(QUOTED_CHARS_MAX).collect();
    Err(JobError::from(SpecError::NoDevice { device, known: names.join(", ") }).into())
}

/// Checks that the submitter can use the secrets that the job names. Secrets outside the submitter's projects are
/// reported like missing ones.
///
/// # Errors
/// Returns `NotFound` for the first secret that cannot be used.
pub(super) async fn check_secrets(app: &AppState, sight: &ProjectScope, spec: &JobSpec) -> Result<(), ApiError> {
    if spec.secrets.is_empty() {
        return Ok(());
    }
    let rights = sight.rights().clone();
    let usable = app.run_blocking(move |parts| parts.secrets.names(&rights)).await?;
    let Some(name) = spec.secrets.iter().find(|name| !usable.contains_key(*name)) else { return Ok(()) };
    let name: String = name.chars().take(QUOTED_CHARS_MAX).collect();
    let known = match usable.keys().map(String::as_str).collect::<Vec<_>>() {
        none if none.is_empty() => "no secrets are stored".to_owned(),
        known => format!("stored: {}", known.join(", ")),
    };
    let project = &spec.project;
    let who = if sight.rights().projects().is_some() { "an administrator can store" } else { "store" };
    let hint = format!("{known}; {who} one for {project}: `saggar secret set {name} --project {project}`");
    Err(ApiError::NotFound { kind: "secret", name, hint })
}

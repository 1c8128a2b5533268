//! What a job needs so that it can succeed, checked when it is submitted: parameters, data, a device, secrets.

use saggar_jobs::error::SpecError;
use saggar_jobs::{DataMount, JobError, JobSpec};
use saggar_plugin::PluginDeclarations;
use saggar_store::dataset::DatasetInfo;
use serde_json::{Map, Value};

use crate::access::ProjectScope;
use crate::app::AppState;
use crate::error::ApiError;

/// Characters of a value that an error quotes.
const QUOTED_CHARS_MAX: usize = 80;

/// Checks the parameters that the plugin declares.
///
/// # Errors
/// `Parameter`, for the first that is not as it declares.
pub(super) fn check_parameters(declares: &PluginDeclarations, parameters: &Map<String, Value>) -> Result<(), ApiError> {
    for (name, declared) in &declares.parameters {
        if let Some(value) = parameters.get(name).filter(|value| !declared.accepts(value)) {
            let got = value.to_string().chars().take(QUOTED_CHARS_MAX).collect();
            let error = SpecError::Parameter { name: name.clone(), expected: declared.to_string(), got };
            return Err(JobError::from(error).into());
        }
    }
    Ok(())
}

/// Checks that something is mounted wherever the plugin declares to read data.
///
/// # Errors
/// `NotMounted`.
pub(super) fn check_mounts(declares: &PluginDeclarations, mounts: &[DataMount]) -> Result<(), ApiError> {
    match declares.data.keys().find(|point| !mounts.iter().any(|mount| mount.mount == **point)) {
        Some(mount) => Err(JobError::from(SpecError::NotMounted { mount: mount.clone() }).into()),
        None => Ok(()),
    }
}

/// Checks that a mounted dataset has the fields that the plugin declares to read.
///
/// # Errors
/// `NoField`.
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

/// Checks that a job's device is one of this machine's.
///
/// # Errors
/// `NoDevice`.
pub(super) async fn check_device(app: &AppState, device: &str) -> Result<(), ApiError> {
    if matches!(device, "auto" | "cpu") {
        return Ok(());
    }
    let names = app.parts().devices.names().await;
    // A GPU has the name of what drives it, and goes by its number too.
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

/// Checks that the secrets which a job names are there for who submits it. One of another project's is to them as one that
/// there is not.
///
/// # Errors
/// `NotFound`.
pub(super) async fn check_secrets(app: &AppState, sight: &ProjectScope, spec: &JobSpec) -> Result<(), ApiError> {
    if spec.secrets.is_empty() {
        return Ok(());
    }
    let rights = sight.rights().clone();
    let usable = app.run_blocking(move |parts| parts.home.secrets().names(&rights)).await?;
    let Some(name) = spec.secrets.iter().find(|name| !usable.contains_key(*name)) else { return Ok(()) };
    let name: String = name.chars().take(QUOTED_CHARS_MAX).collect();
    let known = match usable.keys().map(String::as_str).collect::<Vec<_>>() {
        none if none.is_empty() => "none is kept".to_owned(),
        known => format!("there are: {}", known.join(", ")),
    };
    let project = &spec.project;
    let who = if sight.rights().projects().is_some() { "an administrator keeps" } else { "keep" };
    let hint = format!("{known}; {who} one for {project}: `saggar secret set {name} --project {project}`");
    Err(ApiError::NotFound { kind: "secret", name, hint })
}

//! Completes a plan from what the server knows: names of reference plugins become digests, and the inputs and outputs of
//! steps are those that their plugins declare.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use saggar_jobs::{DataStepSource, DataStepSpec, DataStepVersion};
use saggar_pipelines::{CheckedRun, PipelineError, PipelineService, RunRequest};
use saggar_project::limits::PIPELINE_STEPS_MAX;
use saggar_project::{ParameterDeclaration, PipelineStep, StepDeclarations, StepKind};
use saggar_store::AccessRights;
use saggar_store::digest::Digest;
use serde_json::{Map, Value};

use crate::api::jobs::data_step::check_version;
use crate::api::plugins;
use crate::app::AppState;
use crate::error::ApiError;
use crate::plugin_inspector::PluginFacts;

/// Completes the plan of a request and checks it, with the addresses that its data steps fetch from and the versions that
/// they name. Returns the values of all parameters.
///
/// # Errors
/// The errors of [`PipelineService::check`]; `Step` if the plugin of a step of kind `plugin` does not exist or is no step;
/// `Fetch` for an address from which the server does not fetch; `Dataset` for a version that does not exist or is hidden.
pub(super) async fn complete_and_check(
    app: &AppState,
    rights: &AccessRights,
    request: &mut RunRequest,
) -> Result<Map<String, Value>, ApiError> {
    let mut known: HashMap<Digest, Option<PluginFacts>> = HashMap::new();
    // The check refuses a plan with more steps.
    for step in request.plan.steps.iter_mut().take(PIPELINE_STEPS_MAX) {
        complete_step(app, step, &mut known).await?;
    }
    let CheckedRun { params, sample_specs } = PipelineService::check(request)?;
    for DataStepSpec { dataset, from } in sample_specs.into_iter().filter_map(|spec| spec.data_step) {
        match from {
            DataStepSource::Fetch(fetch) => app.parts().fetcher.check(&fetch.url)?,
            DataStepSource::Version(DataStepVersion { version }) => {
                check_version(app, rights, &format!("{dataset}/{version}")).await?;
            }
            DataStepSource::Output(_) => {}
        }
    }
    Ok(params)
}

async fn complete_step(
    app: &AppState,
    step: &mut PipelineStep,
    known: &mut HashMap<Digest, Option<PluginFacts>>,
) -> Result<(), ApiError> {
    step.declares = None;
    if !matches!(step.kind, StepKind::Train | StepKind::Plugin) {
        return Ok(());
    }
    let Some(named) = step.spec.get("plugin").and_then(Value::as_str).map(str::to_owned) else { return Ok(()) };
    let digest = plugins::digest_of_name(app, &named).await?;
    if digest != named {
        step.component.get_or_insert(named);
        step.spec.insert("plugin".to_owned(), digest.clone().into());
    }
    // The check refuses what is not a digest.
    let Ok(digest) = digest.to_ascii_lowercase().parse::<Digest>() else { return Ok(()) };
    if let Entry::Vacant(entry) = known.entry(digest) {
        entry.insert(match plugins::facts(app, &digest).await {
            Ok(facts) => Some(facts),
            Err(ApiError::NotFound { .. }) => None,
            Err(error) => return Err(error),
        });
    }
    let refuse =
        |reason: String| Err(PipelineError::Step { step: step.name.chars().take(80).collect(), reason }.into());
    match (step.kind, known.get(&digest).and_then(Option::as_ref)) {
        (StepKind::Plugin, Some(facts)) if facts.is_step => step.declares = Some(declarations(facts)),
        (StepKind::Plugin, Some(_)) => {
            return refuse(format!("its plugin {digest} is no step; a training is a step of kind train"));
        }
        (StepKind::Plugin, None) => {
            return refuse(format!("there is no plugin {digest}; POST /api/v1/plugins uploads one"));
        }
        (_, Some(facts)) if facts.is_step => {
            return refuse(format!("its plugin {digest} is a step; give the step kind = \"plugin\""));
        }
        // A training whose plugin is missing fails when it starts.
        _ => {}
    }
    Ok(())
}

/// Returns the inputs and outputs of a plugin without their help texts, which nothing reads from a plan.
fn declarations(facts: &PluginFacts) -> StepDeclarations {
    let bare = |(name, declared): (&String, &ParameterDeclaration)| {
        (name.clone(), ParameterDeclaration { help: String::new(), ..declared.clone() })
    };
    StepDeclarations {
        inputs: facts.declares.inputs.iter().map(bare).collect(),
        outputs: facts.declares.outputs.iter().map(bare).collect(),
    }
}

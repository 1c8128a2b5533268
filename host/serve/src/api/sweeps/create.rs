//! `POST /api/v1/sweeps`. References of the sweep's job are resolved once, so that every trial reads the same data.

use axum::extract::{Request, State};
use saggar_plugin::PluginDeclarations;
use saggar_project::ParameterType;
use saggar_rest::sweeps::SweepDocument;
use saggar_store::records::SweepRecord;
use saggar_sweeps::{SweepError, SweepSpec, SweepSpecError, SweepSubmission, ValidSweep};
use serde_json::{Map, Value};

use super::views;
use crate::access::{Actor, ProjectScope};
use crate::api::jobs::requirements;
use crate::api::jobs::submit::{idempotency_key, key_name, pin_spec, runnable_facts};
use crate::app::AppState;
use crate::audit::AuditAction;
use crate::error::{ApiError, CreatedResponse};
use crate::json_body::JsonBody;

impl JsonBody for SweepSpec {
    const EXAMPLE: &'static str = r#"{"job": {"project": "digits", "plugin": "lenet", "data": [{"dataset": "digits", "mount": "/data"}]}, "space": {"lr": "log(1e-3,1e-1)", "channels": "8,16"}, "trials": 16, "method": "asha", "metric": "validation/accuracy"}"#;
}

/// Handles `POST /api/v1/sweeps`.
pub(crate) async fn create(
    State(app): State<AppState>,
    request: Request,
) -> Result<CreatedResponse<SweepDocument>, ApiError> {
    let key = idempotency_key(request.headers())?;
    let (actor, sight) =
        (Actor::from_extensions(request.extensions()), ProjectScope::from_extensions(request.extensions()));
    let spec: SweepSpec = app.body_reader().read_json(request).await?;
    let project = spec.job.project.clone();
    let created = record(&app, &actor, &sight, spec, key).await;
    let name = created.as_ref().map_or("", |sweep| sweep.name.as_str());
    app.audit().record(&actor, AuditAction::SweepCreate, name, &format!("in {project}"), &created);
    Ok(CreatedResponse(views::sweep_with_trials(&app, &created?).await?))
}

async fn record(
    app: &AppState,
    actor: &Actor,
    sight: &ProjectScope,
    spec: SweepSpec,
    key: Option<String>,
) -> Result<SweepRecord, ApiError> {
    sight.check_submission(&spec.job.project)?;
    let idempotency_key = key.map(|key| sight.idempotency_key(&spec.job.project, key));
    if let Some(key) = &idempotency_key
        && let Some(sweep) = app.sweeps().sweep_by_idempotency_key(key).await?
    {
        return Ok(sweep);
    }
    let _kept = app.reference_lock().read().await;
    let mut sweep = spec.validate().map_err(SweepError::from)?;
    pin_sweep(app, sight, &mut sweep).await?;
    let (owner, rights) = (key_name(actor), actor.rights.clone());
    Ok(app.sweeps().create(SweepSubmission { sweep, owner, rights, idempotency_key }).await?)
}

/// Resolves the references of the sweep's job, and checks that the plugin accepts every range.
async fn pin_sweep(app: &AppState, sight: &ProjectScope, sweep: &mut ValidSweep) -> Result<(), ApiError> {
    let mut job = sweep.spec().job.clone();
    pin_spec(app, sight, &mut job).await?;
    // Before a trial's parameters, so that an error names the range and not one of its values.
    check_space(&runnable_facts(app, &job.plugin).await?.declares, sweep)?;
    let mut first = job.clone();
    first.parameters.extend(sweep.parameters(1));
    app.jobs().validate_spec(&first)?;
    *sweep.job_mut() = job;
    Ok(())
}

/// Checks the searched parameters against the plugin's declarations. A plugin without declarations is only checked when
/// it runs.
fn check_space(declares: &PluginDeclarations, sweep: &ValidSweep) -> Result<(), ApiError> {
    for (name, range) in sweep.space().ranges() {
        if !declares.parameters.is_empty() && !declares.parameters.contains_key(name) {
            let known = declares.parameters.keys().cloned().collect::<Vec<_>>().join(", ");
            let error = SweepSpecError::UnknownParameter { parameter: name.clone(), known };
            return Err(SweepError::from(error).into());
        }
        if let Some(declared) = declares.parameters.get(name).filter(|declared| declared.kind == ParameterType::Integer)
            && range.draws_fractions()
        {
            let (parameter, range, expected) = (name.clone(), range.to_string(), declared.to_string());
            return Err(SweepError::from(SweepSpecError::NotWhole { parameter, range, expected }).into());
        }
        for value in range.extremes() {
            let one: Map<String, Value> = [(name.clone(), value)].into_iter().collect();
            requirements::check_parameters(declares, &one)?;
        }
    }
    Ok(())
}

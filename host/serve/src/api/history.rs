//! `GET /api/v1/history`: samples of devices, models and jobs since the server began.
//!
//! Every key sees devices. A key that is limited to projects sees the models that it can use. Jobs are seen by keys that
//! can read them, those of the key's projects.

use std::collections::BTreeSet;

use axum::Json;
use axum::extract::State;
use saggar_metrics::history::{HistoryKey, HistoryQuantity, HistoryResolution, HistorySamples, HistorySubject};
use saggar_rest::history::{HistoryDocument, HistorySeriesDocument};
use saggar_store::AccessAction;

use super::query::QueryParameters;
use crate::access::ProjectScope;
use crate::app::AppState;
use crate::error::ApiError;

/// The owner under which memory of jobs is summed that the client cannot see.
const HIDDEN_OWNER: &str = "other jobs";

/// Handles `GET /api/v1/history?since=&step=&series=&model=&device=`.
pub(crate) async fn history(
    State(app): State<AppState>,
    sight: ProjectScope,
    parameters: QueryParameters,
) -> Result<Json<HistoryDocument>, ApiError> {
    let resolution = match parameters.get("step") {
        None | Some("1") => HistoryResolution::Second,
        Some("60") => HistoryResolution::Minute,
        Some(other) => {
            let got = other.chars().take(80).collect();
            return Err(ApiError::Parameter { name: "step", expected: "1 or 60, in seconds", got });
        }
    };
    let since_ms = parameters.parse::<u64>("since", "milliseconds since 1970")?.unwrap_or(0);
    let quantities = parameters.all("series").map(parse_quantity).collect::<Result<Vec<_>, _>>()?;
    let (model, device) = (parameters.get("model"), parameters.get("device"));
    let is_wanted = |(quantity, subject): &HistoryKey| {
        (quantities.is_empty() || quantities.contains(quantity)) && is_about(subject, model, device)
    };
    let samples = app.history().samples.samples_since(resolution, since_ms, is_wanted);
    let filter = HistoryFilter::new(&app, sight, &samples).await?;
    Ok(Json(filter.document(resolution, since_ms, samples)))
}

fn parse_quantity(name: &str) -> Result<HistoryQuantity, ApiError> {
    let found = HistoryQuantity::ALL.into_iter().find(|quantity| quantity.name() == name);
    found.ok_or_else(|| ApiError::Parameter {
        name: "series",
        expected: "the name of a series, such as model_requests_per_second; \
                   without the parameter, the answer has all",
        got: name.chars().take(80).collect(),
    })
}

/// Returns whether a series is about this model and this device, if they are given.
fn is_about(subject: &HistorySubject, model: Option<&str>, device: Option<&str>) -> bool {
    if model.is_none() && device.is_none() {
        return true;
    }
    match subject {
        HistorySubject::Model(name) => model == Some(name),
        HistorySubject::Device(name)
        | HistorySubject::ModelMemory(name)
        | HistorySubject::JobMemory { device: name, .. } => device == Some(name),
        HistorySubject::Project(_) => false,
    }
}

/// What the client can see of the samples.
struct HistoryFilter {
    sight: ProjectScope,
    hidden_models: BTreeSet<String>,
    reads_jobs: bool,
}

impl HistoryFilter {
    async fn new(app: &AppState, sight: ProjectScope, samples: &HistorySamples) -> Result<HistoryFilter, ApiError> {
        let reads_jobs = sight.rights().has_scope(AccessAction::ReadJob.scope());
        let mut hidden_models = BTreeSet::new();
        if sight.rights().projects().is_some() {
            let named = samples.series.iter().filter_map(|((_, subject), _)| match subject {
                HistorySubject::Model(model) => Some(model.clone()),
                _ => None,
            });
            let (models, rights): (BTreeSet<String>, _) = (named.collect(), sight.rights().clone());
            let hidden = move |parts: &crate::AppParts| {
                let projects = parts.model_projects();
                let mut hidden = BTreeSet::new();
                for model in models {
                    let owners = projects.owners(&model)?;
                    if !rights.allows_projects(AccessAction::Predict, owners.as_deref()) {
                        hidden.insert(model);
                    }
                }
                Ok::<_, ApiError>(hidden)
            };
            hidden_models = app.run_blocking(hidden).await?;
        }
        Ok(HistoryFilter { sight, hidden_models, reads_jobs })
    }

    fn document(&self, resolution: HistoryResolution, since_ms: u64, samples: HistorySamples) -> HistoryDocument {
        let mut series: Vec<HistorySeriesDocument> = Vec::with_capacity(samples.series.len());
        for ((quantity, subject), mut values) in samples.series {
            if matches!(subject, HistorySubject::Project(_)) {
                // A project without jobs has no value.
                values.iter_mut().for_each(|value| *value = value.or(Some(0.0)));
            }
            let Some(document) = self.series_document(quantity, subject) else { continue };
            let same = |other: &&mut HistorySeriesDocument| {
                (&other.name, &other.model, &other.device, &other.owner)
                    == (&document.name, &document.model, &document.device, &document.owner)
            };
            // Jobs of several projects, and memory of hidden jobs, are one series.
            match series.iter_mut().find(same) {
                Some(sum) => sum.values = add_values(&sum.values, &values),
                None => series.push(HistorySeriesDocument { values, ..document }),
            }
        }
        HistoryDocument {
            newest_ms: samples.times_ms.last().copied().unwrap_or(since_ms),
            step_seconds: resolution.interval().as_secs(),
            times_ms: samples.times_ms,
            series,
            series_left_out: samples.left_out,
        }
    }

    /// Returns the series without its values, or `None` if the client cannot see it.
    fn series_document(&self, quantity: HistoryQuantity, subject: HistorySubject) -> Option<HistorySeriesDocument> {
        let document = HistorySeriesDocument { name: quantity.name().to_owned(), ..HistorySeriesDocument::default() };
        match subject {
            HistorySubject::Model(model) => {
                let is_visible = !self.hidden_models.contains(&model);
                is_visible.then_some(HistorySeriesDocument { model: Some(model), ..document })
            }
            HistorySubject::Device(device) => Some(HistorySeriesDocument { device: Some(device), ..document }),
            HistorySubject::ModelMemory(device) => {
                Some(HistorySeriesDocument { device: Some(device), owner: Some("models".to_owned()), ..document })
            }
            HistorySubject::JobMemory { device, job, project } => {
                let is_visible = self.reads_jobs && self.sight.contains_project(&project);
                let owner = if is_visible { job } else { HIDDEN_OWNER.to_owned() };
                Some(HistorySeriesDocument { device: Some(device), owner: Some(owner), ..document })
            }
            HistorySubject::Project(project) => {
                (self.reads_jobs && self.sight.contains_project(&project)).then_some(document)
            }
        }
    }
}

/// Adds two series of the same times. A sum has a value where either has one.
fn add_values(one: &[Option<f32>], other: &[Option<f32>]) -> Vec<Option<f32>> {
    let sum = |(a, b): (&Option<f32>, &Option<f32>)| match (a, b) {
        (None, None) => None,
        (a, b) => Some(a.unwrap_or(0.0) + b.unwrap_or(0.0)),
    };
    one.iter().zip(other).map(sum).collect()
}

//! `/api/v1/plugins/{digest}/resume-test`: marks a plugin as resumable if an interrupted training ended with the same
//! result as an uninterrupted one.
//!
//! The client's claim is not trusted: the server has both jobs and compares their results.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::{Path, Request, State};
use saggar_rest::jobs::JobSpecSummary;
use saggar_rest::plugins::{ResumeTestDocument, ResumeTestRequest};
use saggar_store::digest::Digest;
use saggar_store::error::StoreError;
use saggar_store::models;
use saggar_store::objects::{ObjectStorage, PutOutcome};
use saggar_store::records::{JobRecord, JobState};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::facts;
use crate::access::{Actor, ProjectScope};
use crate::api::jobs::views::{PUBLISHED, published_versions};
use crate::api::query;
use crate::app::AppState;
use crate::audit::AuditAction;
use crate::error::ApiError;
use crate::json_body::JsonBody;

/// The folder of the marks, each stored under its plugin's digest.
const MARKS_FOLDER: &str = "resume-tests";

/// A pair of jobs that proves that a plugin resumes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ResumeTest {
    /// The name of the job that was not interrupted.
    pub whole: String,
    /// The name of the same job, interrupted.
    pub interrupted: String,
    /// The project of both jobs.
    pub project: String,
    /// How often the interrupted job resumed from a checkpoint.
    pub resumes: u64,
    /// When the comparison was made, in Unix milliseconds.
    pub at_ms: u64,
}

impl JsonBody for ResumeTestRequest {
    const EXAMPLE: &'static str = r#"{"whole": "digits-1", "interrupted": "digits-2"}"#;
}

/// Handles `POST /api/v1/plugins/{digest}/resume-test`. Returns the stored mark, which can be an earlier one.
pub(crate) async fn record_resume_test(
    State(app): State<AppState>,
    Path(digest): Path<String>,
    request: Request,
) -> Result<Json<ResumeTestDocument>, ApiError> {
    let (actor, sight) =
        (Actor::from_extensions(request.extensions()), ProjectScope::from_extensions(request.extensions()));
    let pair: ResumeTestRequest = app.body_reader().read_json(request).await?;
    let plugin = query::parse_digest("digest", &digest)?;
    let marked = verify_resume_test(&app, &sight, &plugin, pair).await;
    let detail = marked.as_ref().map_or_else(|_| String::new(), |it| format!("{} as {}", it.interrupted, it.whole));
    app.audit().record(&actor, AuditAction::PluginMark, &digest, &detail, &marked);
    Ok(Json(resume_test_document(marked?, &sight)))
}

async fn verify_resume_test(
    app: &AppState,
    sight: &ProjectScope,
    plugin: &Digest,
    pair: ResumeTestRequest,
) -> Result<ResumeTest, ApiError> {
    facts(app, plugin).await?;
    let whole = FinishedTraining::load(app, sight, plugin, &pair.whole).await?;
    let interrupted = FinishedTraining::load(app, sight, plugin, &pair.interrupted).await?;
    if whole.job.id == interrupted.job.id {
        return Err(whole.conflict("both jobs of the pair are this one; expected two different jobs"));
    }
    if whole.resumes > 0 {
        return Err(whole.conflict("it was interrupted; expected a job that ran without interruption"));
    }
    if interrupted.resumes == 0 {
        return Err(interrupted.conflict("it never resumed from a checkpoint, so it proves nothing"));
    }
    if whole.training_inputs() != interrupted.training_inputs() {
        return Err(interrupted.conflict(&format!("its specification differs from that of {}", whole.job.name)));
    }
    whole.compare(&interrupted)?;
    let test = ResumeTest {
        whole: whole.job.name,
        interrupted: interrupted.job.name,
        project: interrupted.job.project,
        resumes: interrupted.resumes,
        at_ms: app.now_ms(),
    };
    let text = serde_json::to_vec(&test).expect("a mark is plain data");
    let objects = &app.parts().objects;
    // The first mark is kept: one is enough.
    match objects.create(&mark_object_name(plugin), text.into()).await? {
        PutOutcome::Created => Ok(test),
        PutOutcome::Taken => Ok(load_resume_test(objects, plugin).await?.unwrap_or(test)),
    }
}

/// Returns a mark as visible to a client. Every client sees that a plugin resumes; only clients of the project see the
/// jobs.
pub(super) fn resume_test_document(test: ResumeTest, sight: &ProjectScope) -> ResumeTestDocument {
    let ResumeTest { whole, interrupted, project, resumes, at_ms } = test;
    let is_visible = sight.contains_project(&project);
    let unless_hidden = |name: String| is_visible.then_some(name);
    ResumeTestDocument {
        whole: unless_hidden(whole),
        interrupted: unless_hidden(interrupted),
        project: unless_hidden(project),
        resumes,
        at_ms,
    }
}

/// A finished job and its results.
struct FinishedTraining {
    job: JobRecord,
    resumes: u64,
    /// The digests of the weights of the newest version of each model that it published.
    models: BTreeMap<String, Digest>,
    /// The step and digest of its newest checkpoint.
    checkpoint: Option<(u64, Digest)>,
}

impl FinishedTraining {
    async fn load(
        app: &AppState,
        sight: &ProjectScope,
        plugin: &Digest,
        name: &str,
    ) -> Result<FinishedTraining, ApiError> {
        let job = sight.find_job(app.jobs(), name).await?;
        if JobSpecSummary::read(&parse_spec(&job)).plugin != plugin.hex() {
            return Err(job_conflict(&job, "it ran another plugin"));
        }
        if job.state != JobState::Succeeded {
            return Err(job_conflict(&job, &format!("it is {}, and must have SUCCEEDED", job.state)));
        }
        let attempts = app.jobs().attempts(&job.id).await?;
        let resumes = attempts.iter().skip(1).filter(|attempt| attempt.usage.first_step > 0).count() as u64;
        let published = published_versions(&app.jobs().events_of_kinds(&job.id, &[PUBLISHED]).await?);
        let checkpoints = app.checkpoints().list(&job.id).await?;
        let checkpoint = checkpoints.first().map(|newest| (newest.step, newest.digest));
        // Oldest first, so that the newest version of each model is kept. Versions may have been removed since, and
        // nothing depends on them.
        let made: BTreeMap<String, u64> = published.into_iter().map(|it| (it.model, it.version)).collect();
        let read = move |parts: &crate::AppParts| {
            let models = parts.model_registry();
            let weights = |(model, version): (String, u64)| {
                let files = models::verify(&models.version_dir(&model, version)?)?;
                Ok::<_, ApiError>((model, files.manifest.weights))
            };
            made.into_iter().map(weights).collect()
        };
        let models = app.run_blocking(read).await?;
        Ok(FinishedTraining { job, resumes, models, checkpoint })
    }

    /// Returns the part of the specification that the result depends on: everything but descriptions, placement and
    /// limits.
    fn training_inputs(&self) -> Value {
        let mut spec = parse_spec(&self.job);
        if let Some(fields) = spec.as_object_mut() {
            for aside in ["message", "experiment", "queue", "priority", "preemptible", "retry", "retry_on"] {
                fields.remove(aside);
            }
        }
        spec
    }

    /// Compares the results of two jobs.
    ///
    /// # Errors
    /// Returns `Conflict` if the results differ or there is nothing to compare.
    fn compare(&self, other: &FinishedTraining) -> Result<(), ApiError> {
        if !self.models.is_empty() || !other.models.is_empty() {
            if self.models == other.models {
                return Ok(());
            }
            return Err(other.conflict(&format!("the weights of its model differ from those of {}", self.job.name)));
        }
        match (self.checkpoint, other.checkpoint) {
            (Some(here), Some(there)) if here == there => Ok(()),
            (Some((step, _)), Some((same, _))) if step == same => {
                Err(other.conflict(&format!("its checkpoint @{step} differs from that of {}", self.job.name)))
            }
            _ => Err(other.conflict(
                "neither published a model, and their newest checkpoints are of different steps: have it publish, or run \
                 both with --checkpoint-every Nsteps",
            )),
        }
    }

    fn conflict(&self, reason: &str) -> ApiError {
        job_conflict(&self.job, reason)
    }
}

fn parse_spec(job: &JobRecord) -> Value {
    serde_json::from_str(&job.spec).unwrap_or_default()
}

fn job_conflict(job: &JobRecord, reason: &str) -> ApiError {
    ApiError::Conflict { what: format!("job {}", job.name), reason: reason.to_owned() }
}

fn mark_object_name(plugin: &Digest) -> String {
    format!("{MARKS_FOLDER}/{plugin}.json")
}

/// Reads the stored mark of a plugin, if it has one.
pub(super) async fn load_resume_test(
    objects: &ObjectStorage,
    plugin: &Digest,
) -> Result<Option<ResumeTest>, StoreError> {
    Ok(objects.find(&mark_object_name(plugin)).await?.and_then(|text| serde_json::from_slice(&text).ok()))
}

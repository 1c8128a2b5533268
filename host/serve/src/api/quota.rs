//! `GET /api/v1/quota`: storage by kind, and the usage and limits of the jobs of each project and key.

use axum::Json;
use axum::extract::State;
use saggar_jobs::ResourceQuota;
use saggar_store::records::{ActiveJob, UsageTotal};
use serde_json::{Value, json};

use crate::access::ProjectScope;
use crate::app::AppState;
use crate::error::ApiError;

/// Handles `GET /api/v1/quota`.
pub(crate) async fn quota(State(app): State<AppState>, sight: ProjectScope) -> Result<Json<Value>, ApiError> {
    let usage = app.run_blocking(crate::AppParts::count_storage).await?;
    let spent = app.jobs().resource_usage().await?;
    let running = app.jobs().running_jobs().await?;
    let layout = app.jobs().scheduler_config();
    let storage = usage.iter().map(|(kind, bytes)| json!({ "kind": kind.name(), "bytes": bytes }));

    let mut projects: Vec<&str> = spent.iter().map(|spent| spent.project.as_str()).collect();
    projects.extend(layout.projects.keys().map(String::as_str));
    projects.retain(|project| sight.contains_project(project));
    projects.sort_unstable();
    projects.dedup();
    let project = |name: &&str| {
        let of = |it: &&UsageTotal| it.project == **name;
        let runs = |it: &&ActiveJob| it.project == **name;
        let mut row = usage_row(&spent, &running, of, runs, layout.projects.get(*name));
        row["project"] = json!(name);
        row
    };
    let mut owners: Vec<&str> = spent.iter().filter_map(|spent| spent.owner.as_deref()).collect();
    owners.extend(layout.owners.keys().map(String::as_str));
    owners.retain(|owner| sight.shows_key(owner));
    owners.sort_unstable();
    owners.dedup();
    let owner = |name: &&str| {
        let of = |it: &&UsageTotal| it.owner.as_deref() == Some(*name);
        let runs = |it: &&ActiveJob| it.owner.as_deref() == Some(*name);
        let mut row = usage_row(&spent, &running, of, runs, layout.owners.get(*name));
        row["key"] = json!(name);
        row
    };
    Ok(Json(json!({
        "storage": storage.collect::<Vec<_>>(),
        "storage_bytes": usage.total(),
        "storage_quota_bytes": app.parts().storage_quota.map(|quota| quota.limit_bytes),
        "projects": projects.iter().map(project).collect::<Vec<_>>(),
        "keys": owners.iter().map(owner).collect::<Vec<_>>(),
    })))
}

/// Returns the usage and the limits of a group of jobs.
fn usage_row(
    spent: &[UsageTotal],
    running: &[ActiveJob],
    of: impl Fn(&&UsageTotal) -> bool,
    runs: impl Fn(&&ActiveJob) -> bool,
    allowance: Option<&ResourceQuota>,
) -> Value {
    let allowance = allowance.copied().unwrap_or_default();
    let sum =
        |take: fn(&UsageTotal) -> f64| spent.iter().filter(|it| of(it)).map(take).fold(0.0, |sum, more| sum + more);
    json!({
        "gpu_seconds": sum(|it| it.gpu_seconds),
        "gpu_seconds_quota": allowance.gpu_seconds,
        "wall_seconds": sum(|it| it.wall_seconds),
        "running_jobs": running.iter().filter(|it| runs(it)).count(),
        "max_running_jobs": allowance.max_running_jobs,
    })
}

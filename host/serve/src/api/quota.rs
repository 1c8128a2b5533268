//! `GET /api/v1/quota`: storage by kind, and the usage and limits of the jobs of each project and key.

use axum::Json;
use axum::extract::State;
use saggar_jobs::ResourceQuota;
use saggar_rest::quota::{QuotaDocument, StorageDocument, UsageDocument};
use saggar_store::records::{ActiveJob, UsageTotal};

use crate::access::ProjectScope;
use crate::app::AppState;
use crate::error::ApiError;

/// Handles `GET /api/v1/quota`.
pub(crate) async fn quota(State(app): State<AppState>, sight: ProjectScope) -> Result<Json<QuotaDocument>, ApiError> {
    let usage = app.run_blocking(crate::AppParts::count_storage).await?;
    let spent = app.jobs().resource_usage().await?;
    let running = app.jobs().running_jobs().await?;
    let layout = app.jobs().scheduler_config();
    let storage = usage.iter().map(|(kind, bytes)| StorageDocument { kind: kind.name().to_owned(), bytes });

    let mut projects: Vec<&str> = spent.iter().map(|spent| spent.project.as_str()).collect();
    projects.extend(layout.projects.keys().map(String::as_str));
    projects.retain(|project| sight.contains_project(project));
    projects.sort_unstable();
    projects.dedup();
    let project = |name: &&str| {
        let of = |it: &&UsageTotal| it.project == **name;
        let runs = |it: &&ActiveJob| it.project == **name;
        let usage = usage_document(&spent, &running, of, runs, layout.projects.get(*name));
        UsageDocument { project: Some((*name).to_owned()), ..usage }
    };
    let mut owners: Vec<&str> = spent.iter().filter_map(|spent| spent.owner.as_deref()).collect();
    owners.extend(layout.owners.keys().map(String::as_str));
    owners.retain(|owner| sight.shows_key(owner));
    owners.sort_unstable();
    owners.dedup();
    let owner = |name: &&str| {
        let of = |it: &&UsageTotal| it.owner.as_deref() == Some(*name);
        let runs = |it: &&ActiveJob| it.owner.as_deref() == Some(*name);
        let usage = usage_document(&spent, &running, of, runs, layout.owners.get(*name));
        UsageDocument { key: Some((*name).to_owned()), ..usage }
    };
    Ok(Json(QuotaDocument {
        storage: storage.collect(),
        storage_bytes: usage.total(),
        storage_quota_bytes: app.parts().storage_quota.map(|quota| quota.limit_bytes),
        projects: projects.iter().map(project).collect(),
        keys: owners.iter().map(owner).collect(),
    }))
}

/// Returns the usage and the limits of a group of jobs.
fn usage_document(
    spent: &[UsageTotal],
    running: &[ActiveJob],
    of: impl Fn(&&UsageTotal) -> bool,
    runs: impl Fn(&&ActiveJob) -> bool,
    allowance: Option<&ResourceQuota>,
) -> UsageDocument {
    let allowance = allowance.copied().unwrap_or_default();
    let sum =
        |take: fn(&UsageTotal) -> f64| spent.iter().filter(|it| of(it)).map(take).fold(0.0, |sum, more| sum + more);
    UsageDocument {
        gpu_seconds: sum(|it| it.gpu_seconds),
        gpu_seconds_quota: allowance.gpu_seconds,
        wall_seconds: sum(|it| it.wall_seconds),
        running_jobs: running.iter().filter(|it| runs(it)).count(),
        max_running_jobs: allowance.max_running_jobs,
        project: None,
        key: None,
    }
}

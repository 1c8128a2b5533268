//! What a server has in common with others and follows at intervals: the models in a bucket, of which it has copies, the
//! configuration and the desired state of each model, and secrets.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use saggar_clock::Clock;
use saggar_serve::AppParts;
use saggar_store::models::MirrorChanges;
use saggar_store::records::{DocumentRecords, JobRecords};
use saggar_store::{ModelRegistry, StateDir};
use saggar_telemetry::RepeatedFailure;
use tokio::sync::watch;

use super::repeated_work::repeat;
use crate::args::{DatabaseArgs, DatabaseUrl};

/// Interval at which changes of other servers are looked for. Each time costs a listing of the bucket and two queries.
const INTERVAL: Duration = Duration::from_secs(2);

static VERSIONS_FAILURE: RepeatedFailure = RepeatedFailure::new("the models are not synchronized with the bucket");
static NOTES_FAILURE: RepeatedFailure =
    RepeatedFailure::new("aliases and configurations that other servers have changed are not known");
static PUBLICATIONS_FAILURE: RepeatedFailure =
    RepeatedFailure::new("publications of jobs that have ended are not completed");
static COUNT_FAILURE: RepeatedFailure = RepeatedFailure::new("the bytes in the bucket are not known");
static SECRETS_FAILURE: RepeatedFailure = RepeatedFailure::new("secrets that other servers have changed are not known");

/// Returns the registry of the models.
pub(super) fn open_registry(
    args: &DatabaseArgs,
    home: &StateDir,
    models_dir: &Path,
    records: &Arc<dyn JobRecords>,
) -> ModelRegistry {
    let registry = ModelRegistry::of_home(home, models_dir);
    if home.bucket().is_none() || args.database.as_ref().is_none_or(DatabaseUrl::is_empty) {
        return registry;
    }
    registry.with_shared_notes(Arc::clone(records) as Arc<dyn DocumentRecords>)
}

/// Makes the copies of this machine equal to the bucket, and the notes of models to the records, before models are loaded.
/// What fails is logged, and tried again later.
pub(super) async fn synchronize(registry: &ModelRegistry) {
    let registry = registry.clone();
    let synchronized = tokio::task::spawn_blocking(move || {
        synchronize_versions(&registry);
        synchronize_notes(&registry);
    });
    if let Err(error) = synchronized.await {
        tracing::error!(%error, "synchronizing the models failed");
    }
}

fn synchronize_versions(registry: &ModelRegistry) {
    VERSIONS_FAILURE.log(registry.synchronize().map(|changes| log_changes(&changes)));
}

fn log_changes(changes: &MirrorChanges) {
    for (model, version) in &changes.fetched {
        tracing::info!(model, version, "the version was fetched from the bucket");
    }
    for (model, version) in &changes.removed {
        tracing::info!(model, version, "the version was removed from the bucket, and now here");
    }
    for (model, version) in &changes.published {
        tracing::info!(model, version, "the version was copied here by hand, and is now in the bucket");
    }
    for path in &changes.set_aside {
        let path = path.display();
        tracing::warn!(%path, "the version was copied here by hand under a number that is taken; it was renamed");
    }
}

/// Makes versions visible that jobs were permitted to publish and did not, because their workers have ended.
fn complete_publications(registry: &ModelRegistry, records: &dyn JobRecords) {
    let completed = registry.complete_publications(records);
    for (model, version) in completed.iter().flatten() {
        tracing::info!(model, version, "the publication of a job that has ended was completed");
    }
    PUBLICATIONS_FAILURE.log(completed.map(drop));
}

fn synchronize_notes(registry: &ModelRegistry) {
    NOTES_FAILURE.log(registry.synchronize_notes().map(drop));
}

/// Follows the others until the server stops. The watcher of the models directory sees what changes there. Nothing waits
/// for another: a large version delays no alias.
pub(super) fn keep_synchronized(
    registry: &ModelRegistry,
    parts: &AppParts,
    clock: &Arc<dyn Clock>,
    down: &watch::Receiver<bool>,
) {
    let (secrets, records) = (&parts.secrets, parts.jobs.records());
    keep_bucket_counted(&parts.home, &records, clock, down);
    if records.is_shared() {
        let versions = registry.clone();
        repeat(down.clone(), INTERVAL, move || complete_publications(&versions, &*records));
    }
    if registry.is_mirrored() {
        let versions = registry.clone();
        repeat(down.clone(), INTERVAL, move || synchronize_versions(&versions));
    }
    if registry.shares_notes() {
        let notes = registry.clone();
        repeat(down.clone(), INTERVAL, move || synchronize_notes(&notes));
    }
    if secrets.is_shared() {
        let secrets = secrets.clone();
        repeat(down.clone(), INTERVAL, move || SECRETS_FAILURE.log(secrets.refresh()));
    }
}

/// Counts the bytes in the bucket that several servers use, for the storage quota.
fn keep_bucket_counted(
    home: &StateDir,
    records: &Arc<dyn JobRecords>,
    clock: &Arc<dyn Clock>,
    down: &watch::Receiver<bool>,
) {
    let (Some(bucket), Some(usage)) = (home.bucket().cloned(), home.bucket_usage().cloned()) else { return };
    let (records, clock) = (Arc::clone(records), Arc::clone(clock));
    repeat(down.clone(), INTERVAL, move || COUNT_FAILURE.log(usage.refresh(&*records, &bucket, clock.now_ms())));
}

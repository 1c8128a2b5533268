//! The thread that collects samples and publishes windows as versions of datasets.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use saggar_metrics::MetricsRegistry;
use saggar_serving::PredictionSampler;
use tokio::runtime::Handle;

use super::npy_writer::write_folder;
use super::sampler::SampleQueue;
use super::window::RecordingWindow;
use super::{RECORDED_PREFIX, RecordingPolicy};
use crate::access::ProjectScope;
use crate::api::datasets;
use crate::app::{AppState, WeakAppState};
use crate::app_parts::AppParts;
use crate::error::ApiError;
use crate::limits::{RECORDED_VERSIONS_MAX, RECORDING_TICK, RECORDING_TIME_MAX};

/// Records sampled predictions of some models.
#[derive(Debug)]
pub struct PredictionRecorder {
    policies: BTreeMap<String, RecordingPolicy>,
    queue: Arc<SampleQueue>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl PredictionRecorder {
    /// Creates a recorder of these models, or returns `None` without a model.
    pub fn new(
        policies: BTreeMap<String, RecordingPolicy>,
        metrics: &MetricsRegistry,
    ) -> Option<Arc<PredictionRecorder>> {
        if policies.is_empty() {
            return None;
        }
        for model in policies.keys() {
            metrics.families.recorded_rows.with_label_values(&[model]);
            metrics.families.recorded_rows_dropped.with_label_values(&[model, "failed"]);
        }
        let queue = Arc::new(SampleQueue::new(&policies, metrics));
        Some(Arc::new(PredictionRecorder { policies, queue, thread: Mutex::new(None) }))
    }

    /// Returns the sampler for predictions.
    pub fn sampler(&self) -> Arc<dyn PredictionSampler> {
        Arc::<SampleQueue>::clone(&self.queue)
    }

    /// Starts the thread. Must be called in the server's runtime.
    pub fn start(&self, app: &AppState) {
        let windows = self.policies.iter().map(|(model, policy)| (model.clone(), RecordingWindow::new(*policy)));
        let publisher = RecordingPublisher {
            app: app.downgrade(),
            queue: Arc::clone(&self.queue),
            windows: windows.collect(),
            runtime: Handle::current(),
        };
        match std::thread::Builder::new().name("recording".to_owned()).spawn(move || publisher.run()) {
            Ok(thread) => *self.thread.lock() = Some(thread),
            Err(error) => tracing::warn!(%error, "predictions are not recorded"),
        }
    }

    /// Publishes what was recorded, within a maximum time. Called when the server stops.
    pub async fn stop(&self) {
        self.queue.stop();
        let Some(thread) = self.thread.lock().take() else { return };
        let ended = tokio::task::spawn_blocking(move || thread.join());
        if tokio::time::timeout(RECORDING_TIME_MAX, ended).await.is_err() {
            tracing::warn!("the last recorded predictions are lost: storing them takes too long");
        }
    }
}

struct RecordingPublisher {
    app: WeakAppState,
    queue: Arc<SampleQueue>,
    windows: BTreeMap<String, RecordingWindow>,
    runtime: Handle,
}

impl RecordingPublisher {
    fn run(mut self) {
        loop {
            let (samples, is_stopping) = self.queue.wait(RECORDING_TICK);
            let now = Instant::now();
            let Some(app) = self.app.upgrade() else { return };
            for sample in samples {
                if let Some(window) = self.windows.get_mut(&sample.model) {
                    let added = window.add(&sample, now) as u64;
                    app.metrics().families.recorded_rows.with_label_values(&[&sample.model]).inc_by(added);
                }
            }
            for (model, window) in &mut self.windows {
                if window.is_due(now) || (is_stopping && window.has_new_rows()) {
                    publish(&app, &self.runtime, model, window);
                }
            }
            if is_stopping {
                return;
            }
        }
    }
}

/// Publishes a window. A failure is logged, its rows are counted, and recording goes on.
fn publish(app: &AppState, runtime: &Handle, model: &str, window: &mut RecordingWindow) {
    let rows = window.row_count();
    let stored = store_version(app.parts(), model, window, app.now_ms());
    window.mark_published();
    match stored {
        Ok(version) => {
            tracing::info!(model, dataset = format!("{RECORDED_PREFIX}{model}"), version, rows, "predictions recorded");
            runtime.block_on(remove_old_versions(app, model));
        }
        Err(error) => {
            app.metrics().families.recorded_rows_dropped.with_label_values(&[model, "failed"]).inc_by(rows as u64);
            tracing::warn!(model, %error, rows, "recorded predictions cannot be stored");
        }
    }
}

fn store_version(parts: &AppParts, model: &str, window: &RecordingWindow, now_ms: u64) -> Result<u64, ApiError> {
    let name = format!("{RECORDED_PREFIX}{model}");
    let folder = TemporaryFolder::create(parts.home.cache().join(format!("{name}.{}", std::process::id())))?;
    write_folder(&folder.0, model, window).map_err(internal)?;
    let _turn = parts.uploads.acquire_ingest_permit()?;
    let info = parts.datasets.ingest_within(&name, &folder.0, now_ms, |bytes| parts.check_storage_quota(bytes))?;
    // Inputs belong to whom the model belongs to.
    if let Some(projects) = parts.model_projects().recorded_projects(model)? {
        parts.dataset_projects().set(&name, projects)?;
    }
    datasets::update_dataset_bytes_metric(parts)?;
    Ok(info.version)
}

/// Removes all but the newest versions, except those that unfinished jobs mount.
async fn remove_old_versions(app: &AppState, model: &str) {
    let name = format!("{RECORDED_PREFIX}{model}");
    let Ok(all) = app.parts().datasets.list() else { return };
    let versions: Vec<u64> = all.iter().filter(|info| info.name == name).map(|info| info.version).collect();
    for version in versions.iter().take(versions.len().saturating_sub(RECORDED_VERSIONS_MAX)) {
        let reference = format!("{name}/{version}");
        if let Err(error) = datasets::remove_unused_version(app, &ProjectScope::default(), reference).await {
            tracing::debug!(dataset = name, version, %error, "an old version stays");
        }
    }
}

fn internal(error: std::io::Error) -> ApiError {
    ApiError::Internal { cause: format!("recorded predictions: {error}") }
}

/// A folder that is removed when it is dropped.
struct TemporaryFolder(PathBuf);

impl TemporaryFolder {
    fn create(path: PathBuf) -> Result<TemporaryFolder, ApiError> {
        // One that a killed server left.
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).map_err(internal)?;
        Ok(TemporaryFolder(path))
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const _: () = assert!(RECORDING_TICK.as_millis() < Duration::from_secs(1).as_millis());

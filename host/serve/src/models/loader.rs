//! The one loop that takes up model versions: it looks at the models directory, brings up the newest version of each
//! model that is whole and was not refused before, and swaps it in.
//!
//! What serves goes on serving whatever happens to newer versions. A version whose files are half there is waited for; one
//! that is refused is tried again when its files change; one whose directory is removed gives way to the one before it.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use saggar_metrics::Metrics;
use saggar_store::digest::{Digest, Hasher};
use saggar_store::error::ModelError;
use saggar_store::models::{Found, FoundState, MANIFEST_FILE, Manifest, Models, verify};
use tokio::sync::watch;

use super::import::DroppedFiles;
use super::metered::Metered;
use super::predictor::{LoadError, Loaded, ModelHost, Phase};
use super::router::{Listed, ModelRouter};
use super::version::{Origin, Serving};
use crate::connection::told;
use crate::limits::LOAD_TRIES_MAX;

/// What a directory's files look like without reading them: names, sizes, times and inodes, links followed.
type Fingerprint = Digest;

/// A version on disk.
#[derive(Clone, Debug)]
struct OnDisk {
    found: Found,
    fingerprint: Fingerprint,
    origin: Option<Origin>,
}

/// What is remembered of a model between looks.
#[derive(Debug, Default)]
struct Memory {
    /// The files of the version that serves, as they were when it was loaded.
    serving: Option<(u64, Fingerprint)>,
    /// Versions that were refused: their files then, and why.
    refused: BTreeMap<u64, (Fingerprint, String)>,
}

/// Takes up model versions.
#[derive(Debug)]
pub struct Loader {
    models: Models,
    host: Arc<dyn ModelHost>,
    router: Arc<ModelRouter>,
    metrics: Arc<Metrics>,
    memory: BTreeMap<String, Memory>,
    /// Files that models are made of, where such are watched for.
    dropped: Option<DroppedFiles>,
    /// What was wrong with the last look, so that it is logged once.
    trouble: Option<String>,
}

/// What wakes the loader.
pub trait Ticks: Send {
    /// Waits for the next reason to look; none where there will be no more.
    fn next(&mut self) -> impl Future<Output = Option<()>> + Send;
}

impl Ticks for saggar_plugin::ModelWatch {
    async fn next(&mut self) -> Option<()> {
        self.changed().await
    }
}

impl Loader {
    /// A loader of versions in `models`, brought up by `host`, that serve through `router`.
    pub fn new(models: Models, host: Arc<dyn ModelHost>, router: Arc<ModelRouter>, metrics: Arc<Metrics>) -> Loader {
        Loader { models, host, router, metrics, memory: BTreeMap::new(), dropped: None, trouble: None }
    }

    /// Makes models of files that are dropped beside the versions, too.
    #[must_use]
    pub fn with_dropped(self, dropped: DroppedFiles) -> Loader {
        Loader { dropped: Some(dropped), ..self }
    }

    /// Looks at once, and then at every tick, until `shutdown` is true or there are no more ticks.
    pub async fn run(mut self, mut ticks: impl Ticks, mut shutdown: watch::Receiver<bool>) {
        loop {
            self.look().await;
            tokio::select! {
                tick = ticks.next() => if tick.is_none() { return },
                () = told(&mut shutdown) => return,
            }
        }
    }

    /// Looks at the models directory once and brings up what is new, one version after the other.
    pub async fn look(&mut self) {
        self.metrics.families.watch_rescans.with_label_values::<&str>(&[]).inc();
        if let Some(mut dropped) = self.dropped.take() {
            let take_in = move || {
                dropped.take_in();
                dropped
            };
            // Where taking in panics, the panic is logged and files are no longer looked for.
            self.dropped = tokio::task::spawn_blocking(take_in).await.ok();
        }
        let models = self.models.clone();
        let scan = tokio::task::spawn_blocking(move || scan(&models)).await;
        let found = match scan {
            Ok(Ok(found)) => found,
            Ok(Err(error)) => return self.troubled(error.to_string()),
            Err(_) => return self.troubled("looking at the models panicked".to_owned()),
        };
        self.trouble = None;
        let began = Instant::now();
        self.memory.retain(|name, _| found.contains_key(name));
        let listed = self.listed(&found);
        self.router.describe(listed);
        for (name, versions) in &found {
            self.take_up(name, versions, began).await;
        }
    }

    /// Says once, not at every tick, that the models cannot be looked at; what serves goes on.
    fn troubled(&mut self, trouble: String) {
        if self.trouble.as_ref() != Some(&trouble) {
            tracing::error!(error = trouble, "the models directory cannot be read");
            self.trouble = Some(trouble);
        }
    }

    fn listed(&mut self, found: &BTreeMap<String, BTreeMap<u64, OnDisk>>) -> BTreeMap<String, BTreeMap<u64, Listed>> {
        let mut listed = BTreeMap::new();
        for (name, versions) in found {
            let memory = self.memory.entry(name.clone()).or_default();
            memory.refused.retain(|version, (then, _)| versions.get(version).is_some_and(|v| v.fingerprint == *then));
            let list = |(version, on_disk): (&u64, &OnDisk)| {
                let refused = memory.refused.get(version).map(|(_, reason)| reason.clone());
                let waiting = match &on_disk.found.state {
                    FoundState::Complete => String::new(),
                    FoundState::Incomplete(reason) => format!("INCOMPLETE: {}", without_dir(reason, &on_disk.found)),
                };
                let failed = refused.is_some();
                let reason = refused.unwrap_or(waiting);
                (*version, Listed { origin: on_disk.origin.clone(), reason, failed })
            };
            listed.insert(name.clone(), versions.iter().map(list).collect());
        }
        listed
    }

    /// Brings up the newest version of a model that can be, unless that one serves already.
    async fn take_up(&mut self, name: &str, versions: &BTreeMap<u64, OnDisk>, began: Instant) {
        let memory = self.memory.entry(name.to_owned()).or_default();
        // As long as its directory is there, nothing older than what serves is of interest.
        let serving = memory.serving.filter(|(version, _)| versions.contains_key(version));
        let oldest = serving.map_or(0, |(version, _)| version);
        let mut tries = 0;
        for (&version, on_disk) in versions.range(oldest..).rev() {
            let memory = self.memory.entry(name.to_owned()).or_default();
            if serving == Some((version, on_disk.fingerprint)) {
                return;
            }
            let refused = memory.refused.contains_key(&version);
            if refused || on_disk.found.state != FoundState::Complete || tries == LOAD_TRIES_MAX {
                continue;
            }
            tries += 1;
            if self.bring_up(name, version, on_disk, began).await {
                return;
            }
        }
    }

    /// Brings a version up and swaps it in. Says whether that ended the search for one.
    async fn bring_up(&mut self, name: &str, version: u64, on_disk: &OnDisk, began: Instant) -> bool {
        let serving = self.router.serving(name);
        let same_plugin =
            serving.as_ref().zip(on_disk.origin.as_ref()).is_some_and(|(s, o)| s.origin.plugin == o.plugin);
        let kind = if same_plugin { "weights" } else { "full" };
        self.router.loading(name, Some(version));
        tracing::info!(model = name, version, kind, "loading");
        let (host, dir, metrics) = (Arc::clone(&self.host), on_disk.found.dir.clone(), Arc::clone(&self.metrics));
        let model = name.to_owned();
        let load = move || load(&*host, &dir, &metrics, &model);
        // The result is an error only where loading panicked.
        let result = tokio::task::spawn_blocking(load).await.unwrap_or(Err(LoadError::Panicked));
        self.router.loading(name, None);
        match result {
            Ok((origin, loaded)) => {
                self.memory.entry(name.to_owned()).or_default().serving = Some((version, on_disk.fingerprint));
                self.swap(name, version, origin, loaded, kind, began);
                true
            }
            Err(LoadError::Files(ModelError::NotFound { .. })) => false,
            Err(error) => {
                self.refuse(name, version, on_disk, kind, &error);
                false
            }
        }
    }

    fn swap(&self, name: &str, version: u64, origin: Origin, loaded: Loaded, kind: &'static str, began: Instant) {
        let (weights, device) = (origin.weights, loaded.device.clone());
        let metered = Metered::new(loaded, Arc::clone(&self.metrics));
        self.router.swap(Serving::new(name, version, origin, device.clone(), Box::new(metered)));
        let families = &self.metrics.families;
        families.model_setups.with_label_values(&[name, &version.to_string()]).inc();
        self.router.reloaded(name, [kind, "ok", ""]);
        let seconds = began.elapsed().as_secs_f64();
        families.model_swap_duration.with_label_values(&[name]).observe(seconds);
        tracing::info!(model = name, version, kind, %weights, device, seconds, "version serves");
    }

    fn refuse(&mut self, name: &str, version: u64, on_disk: &OnDisk, kind: &'static str, error: &LoadError) {
        let reason = format!("{}: {}", error.reason(), without_dir(&error.to_string(), &on_disk.found));
        let result = if error.is_rejection() { "rejected" } else { "failed" };
        self.router.reloaded(name, [kind, result, error.reason()]);
        tracing::warn!(model = name, version, reason, "version refused; what served before goes on serving");
        let memory = self.memory.entry(name.to_owned()).or_default();
        memory.refused.insert(version, (on_disk.fingerprint, reason.clone()));
        self.router.failed(name, version, reason);
    }
}

fn load(host: &dyn ModelHost, dir: &Path, metrics: &Metrics, model: &str) -> Result<(Origin, Loaded), LoadError> {
    let observe = |phase: Phase, seconds: f64| {
        metrics.families.cold_start.with_label_values(&[model, phase.name()]).observe(seconds);
    };
    let began = Instant::now();
    let files = verify(dir)?;
    observe(Phase::Verify, began.elapsed().as_secs_f64());
    let loaded = host.bring_up(&files, &mut |phase, time| observe(phase, time.as_secs_f64()))?;
    Ok((origin(files.manifest), loaded))
}

fn origin(manifest: Manifest) -> Origin {
    let Manifest { plugin, weights, created_ms, source_job, .. } = manifest;
    Origin { plugin, weights, created_ms, source_job }
}

fn scan(models: &Models) -> Result<BTreeMap<String, BTreeMap<u64, OnDisk>>, ModelError> {
    let mut all: BTreeMap<String, BTreeMap<u64, OnDisk>> = BTreeMap::new();
    for found in models.scan()? {
        let fingerprint = fingerprint(&found.dir);
        let manifest = fs::read(found.dir.join(MANIFEST_FILE)).ok();
        let origin = manifest.and_then(|text| serde_json::from_slice(&text).ok()).map(origin);
        all.entry(found.name.clone()).or_default().insert(found.version, OnDisk { found, fingerprint, origin });
    }
    Ok(all)
}

/// A directory or file that cannot be looked at counts as empty: it looks different once it can be.
fn fingerprint(dir: &Path) -> Fingerprint {
    let mut files: Vec<_> = fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    files.sort();
    let mut hasher = Hasher::new();
    for file in files {
        hasher.update_field(file.as_os_str().as_encoded_bytes());
        if let Ok(meta) = fs::metadata(&file) {
            for number in [meta.len(), meta.ino(), meta.dev(), meta.mtime() as u64, meta.mtime_nsec() as u64] {
                hasher.update_u64(number);
            }
        }
    }
    hasher.finish()
}

/// A message without the path of the version's directory, which is this machine's own matter.
fn without_dir(message: &str, found: &Found) -> String {
    message.replace(&format!("{}/", found.dir.display()), "")
}

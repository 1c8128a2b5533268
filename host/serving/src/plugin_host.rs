//! Loads model versions as plugins on a device.

mod content_check;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use saggar_compile::{DisabledOptimizations, Optimization};
use saggar_device::Meter;
use saggar_devices::RecoverableDevice;
use saggar_metrics::MetricsRegistry;
use saggar_plugin::{
    CompilePurpose, CompiledPlugin, DeclaredWeights, HandlerOptions, HandlerRequest, HandlerResponse,
    InstanceStartHook, LoadedModel, ModelLimits, ModelParts, ModelSignature, NamedTensor, PluginEngine, PluginError,
    PredictionOptions, WeakCompiledPlugin,
};
use saggar_store::Digest;
use saggar_store::models::VersionFiles;

use crate::limits::{
    COMPILED_PLUGIN_BYTES_MAX, COMPILED_PLUGINS_MAX, MODEL_BATCH_MEMORY_DIVISOR, MODEL_RETAINED_MEMORY_DIVISOR,
};
use crate::metrics::device_usage::DeviceUsageAccount;
use crate::predictor::{
    CandidateContent, LoadError, LoadKind, LoadPhase, LoadedVersion, ModelHost, ModelPredictor, VersionCandidate,
};

/// Compiles plugins and runs them on one device.
#[derive(Debug)]
pub struct PluginHost {
    host: PluginEngine,
    device: Arc<RecoverableDevice>,
    /// Maximum device memory of one version.
    device_bytes_max: u64,
    /// Maximum duration of loading a version.
    load_time: Duration,
    metrics: Arc<MetricsRegistry>,
    /// The plugins compiled last, newest at the end, so that new weights for one of them need no compilation.
    compiled: Mutex<VecDeque<CachedPlugin>>,
    /// The version of each model that was loaded last, while it serves.
    last_loaded: Mutex<BTreeMap<String, LastLoadedModel>>,
}

/// A compiled plugin that a later version can use. Large ones, such as those with a Python interpreter, are freed with
/// the last version that uses them: they are loaded again from the artifact cache.
#[derive(Debug)]
struct CachedPlugin {
    digest: Digest,
    plugin: WeakCompiledPlugin,
    /// Keeps a small plugin in memory.
    _retained: Option<CompiledPlugin>,
}

impl CachedPlugin {
    fn new(plugin: &CompiledPlugin) -> CachedPlugin {
        let is_small = plugin.code_bytes() <= COMPILED_PLUGIN_BYTES_MAX;
        CachedPlugin {
            digest: *plugin.digest(),
            plugin: plugin.downgrade(),
            _retained: is_small.then(|| plugin.clone()),
        }
    }
}

/// A loaded version, and the account that its instances are charged to.
#[derive(Debug)]
struct LastLoadedModel {
    model: Weak<LoadedModel>,
    account: Weak<DeviceUsageAccount>,
    instances_max: usize,
    without: DisabledOptimizations,
}

impl PluginHost {
    /// Creates a host that runs models on `device`. Each version can use at most `device_bytes_max` of its memory and
    /// must load within `load_time`, so that a version that never finishes loading does not block others of its model.
    pub fn new(
        host: PluginEngine,
        device: Arc<RecoverableDevice>,
        device_bytes_max: u64,
        load_time: Duration,
        metrics: Arc<MetricsRegistry>,
    ) -> PluginHost {
        PluginHost {
            host,
            device,
            device_bytes_max,
            load_time,
            metrics,
            compiled: Mutex::default(),
            last_loaded: Mutex::default(),
        }
    }

    fn compile(&self, files: &VersionFiles) -> Result<CompiledPlugin, LoadError> {
        let compiled = || self.compiled.lock();
        let mut cached = compiled();
        let known = cached.iter().find(|cached| cached.digest == files.manifest.plugin);
        if let Some(plugin) = known.and_then(|cached| cached.plugin.upgrade()) {
            return Ok(plugin);
        }
        cached.retain(|cached| cached.digest != files.manifest.plugin);
        drop(cached);
        let plugin = self.host.compile_for(&files.load_plugin()?, CompilePurpose::Load, self.load_time)?;
        let mut compiled = compiled();
        compiled.push_back(CachedPlugin::new(&plugin));
        if compiled.len() > COMPILED_PLUGINS_MAX {
            compiled.pop_front();
        }
        Ok(plugin)
    }

    fn lock_last_loaded(&self) -> MutexGuard<'_, BTreeMap<String, LastLoadedModel>> {
        self.last_loaded.lock()
    }

    /// Returns the loaded version that differs from this candidate only in its weights, if there is one.
    fn find_same_plugin_model(
        &self,
        it: VersionCandidate<'_>,
        plugin: &CompiledPlugin,
    ) -> Option<(Arc<LoadedModel>, Arc<DeviceUsageAccount>)> {
        if !it.without.enables(Optimization::SharedInstances) {
            return None;
        }
        let up = self.lock_last_loaded();
        let is_same = |up: &&LastLoadedModel| up.instances_max == it.instances_max && up.without == it.without;
        let up = up.get(it.model).filter(is_same)?;
        let (model, account) = (up.model.upgrade()?, up.account.upgrade()?);
        let manifest = &it.files.manifest;
        let is_compatible = model.is_compatible(plugin, (&manifest.config, &manifest.inputs), it.variables);
        is_compatible.then_some((model, account))
    }

    /// Returns the limits of a version with at most this many instances.
    fn model_limits(&self, instances_max: usize) -> ModelLimits {
        let default = ModelLimits::default();
        ModelLimits {
            instances_max,
            load_time: self.load_time,
            residual_bytes_max: default.residual_bytes_max.min(self.device_bytes_max / MODEL_RETAINED_MEMORY_DIVISOR),
            batch_bytes_max: default.batch_bytes_max.min(self.device_bytes_max / MODEL_BATCH_MEMORY_DIVISOR),
            ..default
        }
    }

    /// Loads a version with new instances and warms it up.
    fn load_model(
        &self,
        it: VersionCandidate<'_>,
        plugin: CompiledPlugin,
        weights_meter: &Meter,
    ) -> Result<(LoadedModel, Arc<DeviceUsageAccount>), LoadError> {
        let starts = self.metrics.families.instance_start.with_label_values::<&str>(&[]);
        let limits = self.model_limits(it.instances_max);
        let meter = Meter::new(self.device_bytes_max);
        let parts = ModelParts {
            plugin,
            variables: it.variables.to_vec(),
            config: it.files.manifest.config.clone(),
            inputs: it.files.manifest.inputs.clone(),
            weights_meter: weights_meter.clone(),
            meter: meter.clone(),
            limits,
            on_instance_start: Some(InstanceStartHook::new(move |time| starts.observe(time.as_secs_f64()))),
        };
        let device = saggar_device::without_optimizations(self.device.current(), it.without);
        let model = LoadedModel::load(&self.host, parts, device)?;
        Ok((model, Arc::new(DeviceUsageAccount::new(meter))))
    }
}

impl ModelHost for PluginHost {
    fn check_content(&self, it: CandidateContent<'_>) -> Result<DeclaredWeights, LoadError> {
        self.load_and_predict_once(it)
    }

    fn load_version(
        &self,
        it: VersionCandidate<'_>,
        phase: &mut dyn FnMut(LoadPhase, Duration),
    ) -> Result<LoadedVersion, LoadError> {
        let started = Instant::now();
        let mut began = started;
        let mut lap = |part| {
            let now = Instant::now();
            phase(part, now.duration_since(began));
            began = now;
        };
        let plugin = self.compile(it.files)?;
        lap(LoadPhase::Compile);
        let weights_meter = Meter::new(self.device_bytes_max);
        let (model, account, kind) = match self.find_same_plugin_model(it, &plugin) {
            Some((relative, account)) => {
                (relative.with_weights(it.variables, &weights_meter)?, account, LoadKind::Weights)
            }
            None => {
                let (model, account) = self.load_model(it, plugin, &weights_meter)?;
                (model, account, LoadKind::Full)
            }
        };
        lap(LoadPhase::Load);
        // With shared programs, one call is enough to verify that these weights can be computed with.
        match kind {
            LoadKind::Full => model.warm_up(self.load_time.saturating_sub(started.elapsed()))?,
            LoadKind::Weights => model.predict_defaults_once(self.load_time.saturating_sub(started.elapsed()))?,
        }
        lap(LoadPhase::Warmup);
        let model = Arc::new(model);
        let up = LastLoadedModel {
            model: Arc::downgrade(&model),
            account: Arc::downgrade(&account),
            instances_max: it.instances_max,
            without: it.without,
        };
        self.lock_last_loaded().insert(it.model.to_owned(), up);
        let device = self.device.current().info().name.clone();
        let accounts = vec![Arc::new(DeviceUsageAccount::new(weights_meter)), account];
        Ok(LoadedVersion { predictor: model, device, device_usage: accounts, kind })
    }

    fn lost_device(&self) -> Option<(String, String)> {
        let error = self.device.lost_error()?;
        Some((self.device.current().info().name.clone(), error.to_string()))
    }

    fn reopen_device(&self) -> Result<(), LoadError> {
        self.device.reopen().map_err(|error| LoadError::Plugin(error.into()))?;
        // The loaded versions have their programs on the lost device.
        self.lock_last_loaded().clear();
        Ok(())
    }
}

impl ModelPredictor for LoadedModel {
    fn signature(&self) -> &ModelSignature {
        LoadedModel::signature(self)
    }

    fn device_bytes(&self) -> u64 {
        self.meter().bytes()
    }

    fn calls_driver(&self) -> bool {
        LoadedModel::calls_driver(self)
    }

    fn device_model(&self) -> Option<&LoadedModel> {
        // Preprocessing starts from pixels in the host's memory.
        (!self.preprocesses_inputs()).then_some(self)
    }

    fn predict(&self, inputs: Vec<NamedTensor>, terms: &PredictionOptions) -> Result<Vec<NamedTensor>, PluginError> {
        LoadedModel::predict(self, inputs, terms)
    }

    fn handle(
        &self,
        request: HandlerRequest,
        options: &HandlerOptions,
    ) -> Result<Option<HandlerResponse>, PluginError> {
        LoadedModel::handle(self, request, options)
    }
}

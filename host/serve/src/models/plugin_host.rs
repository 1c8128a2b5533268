//! Brings model versions up as plugins on a device.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use saggar_device::{Meter, RecoverableDevice};
use saggar_metrics::Metrics;
use saggar_plugin::{
    Host, LoadedModel, ModelLimits, ModelParts, NamedBytes, Plugin, PluginError, Purpose, Signature, Started, Terms,
};
use saggar_store::models::VersionFiles;

use super::metered::Account;
use super::predictor::{Candidate, Kind, LoadError, Loaded, ModelHost, Phase, Predictor};
use crate::limits::{COMPILED_MAX, MODEL_BATCH_PART, MODEL_LEFT_PART};
use crate::predict::decode::Tensor;

/// Compiles plugins and runs them on one device.
#[derive(Debug)]
pub struct PluginHost {
    host: Host,
    device: Arc<RecoverableDevice>,
    /// Device memory of one version.
    device_bytes_max: u64,
    /// How long a version may take to load.
    load_time: Duration,
    metrics: Arc<Metrics>,
    /// The plugins compiled last, newest at the end: new weights for one of them need no compiling.
    compiled: Mutex<VecDeque<Plugin>>,
    /// The version of each model that came up last, as long as it serves.
    up: Mutex<BTreeMap<String, Up>>,
}

/// A version that is up, and the account that its instances are charged to.
#[derive(Debug)]
struct Up {
    model: Weak<LoadedModel>,
    account: Weak<Account>,
    instances_max: usize,
}

impl PluginHost {
    /// Models run on `device`, take at most `device_bytes_max` of its memory each, and load within `load_time`: a version
    /// that never ends must not keep others of its model waiting.
    pub fn new(
        host: Host,
        device: Arc<RecoverableDevice>,
        device_bytes_max: u64,
        load_time: Duration,
        metrics: Arc<Metrics>,
    ) -> PluginHost {
        PluginHost {
            host,
            device,
            device_bytes_max,
            load_time,
            metrics,
            compiled: Mutex::default(),
            up: Mutex::default(),
        }
    }

    fn compile(&self, files: &VersionFiles) -> Result<Plugin, LoadError> {
        let compiled = || self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(plugin) = compiled().iter().find(|plugin| *plugin.digest() == files.manifest.plugin) {
            return Ok(plugin.clone());
        }
        let plugin = self.host.compile_for(&files.load_plugin()?, Purpose::Load, self.load_time)?;
        let mut compiled = compiled();
        compiled.push_back(plugin.clone());
        if compiled.len() > COMPILED_MAX {
            compiled.pop_front();
        }
        Ok(plugin)
    }

    fn up(&self) -> MutexGuard<'_, BTreeMap<String, Up>> {
        self.up.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The version that is up and differs from this candidate in its weights alone.
    fn relative(&self, it: Candidate<'_>, plugin: &Plugin) -> Option<(Arc<LoadedModel>, Arc<Account>)> {
        let up = self.up();
        let up = up.get(it.model).filter(|up| up.instances_max == it.instances_max)?;
        let (model, account) = (up.model.upgrade()?, up.account.upgrade()?);
        model.takes(plugin, &it.files.manifest.config, it.variables).then_some((model, account))
    }

    /// A version with instances of its own, warm.
    fn load(
        &self,
        it: Candidate<'_>,
        plugin: Plugin,
        weights_meter: &Meter,
    ) -> Result<(LoadedModel, Arc<Account>), LoadError> {
        let starts = self.metrics.families.instance_start.with_label_values::<&str>(&[]);
        let default = ModelLimits::default();
        let limits = ModelLimits {
            instances_max: it.instances_max,
            load_time: self.load_time,
            left_bytes_max: default.left_bytes_max.min(self.device_bytes_max / MODEL_LEFT_PART),
            batch_bytes_max: default.batch_bytes_max.min(self.device_bytes_max / MODEL_BATCH_PART),
            ..default
        };
        let meter = Meter::new(self.device_bytes_max);
        let parts = ModelParts {
            plugin,
            variables: it.variables.to_vec(),
            config: it.files.manifest.config.clone(),
            weights_meter: weights_meter.clone(),
            meter: meter.clone(),
            limits,
            started: Some(Started::new(move |time| starts.observe(time.as_secs_f64()))),
        };
        let model = LoadedModel::load(&self.host, parts, self.device.current())?;
        Ok((model, Arc::new(Account::new(meter))))
    }
}

impl ModelHost for PluginHost {
    fn bring_up(&self, it: Candidate<'_>, phase: &mut dyn FnMut(Phase, Duration)) -> Result<Loaded, LoadError> {
        let started = Instant::now();
        let mut began = started;
        let mut lap = |part| {
            let now = Instant::now();
            phase(part, now.duration_since(began));
            began = now;
        };
        let plugin = self.compile(it.files)?;
        lap(Phase::Compile);
        let weights_meter = Meter::new(self.device_bytes_max);
        let (model, account, kind) = match self.relative(it, &plugin) {
            Some((relative, account)) => (relative.reweighted(it.variables, &weights_meter)?, account, Kind::Weights),
            None => {
                let (model, account) = self.load(it, plugin, &weights_meter)?;
                (model, account, Kind::Full)
            }
        };
        lap(Phase::Load);
        // The programs of a relative are warm; whether these weights can be computed with, one call tells.
        match kind {
            Kind::Full => model.warm(self.load_time.saturating_sub(started.elapsed()))?,
            Kind::Weights => model.try_once(self.load_time.saturating_sub(started.elapsed()))?,
        }
        lap(Phase::Warmup);
        let model = Arc::new(model);
        let up =
            Up { model: Arc::downgrade(&model), account: Arc::downgrade(&account), instances_max: it.instances_max };
        self.up().insert(it.model.to_owned(), up);
        let device = self.device.current().info().name.clone();
        let accounts = vec![Arc::new(Account::new(weights_meter)), account];
        Ok(Loaded { predictor: model, device, accounts, kind })
    }

    fn lost(&self) -> Option<(String, String)> {
        let error = self.device.lost_error()?;
        Some((self.device.current().info().name.clone(), error.to_string()))
    }

    fn renew(&self) -> Result<(), LoadError> {
        self.device.reopen().map_err(|error| LoadError::Plugin(error.into()))?;
        // What is up has its programs on the lost device.
        self.up().clear();
        Ok(())
    }
}

impl Predictor for LoadedModel {
    fn signature(&self) -> &Signature {
        LoadedModel::signature(self)
    }

    fn bytes(&self) -> u64 {
        self.meter().bytes()
    }

    fn calls_driver(&self) -> bool {
        LoadedModel::calls_driver(self)
    }

    fn on_device(&self) -> Option<&LoadedModel> {
        Some(self)
    }

    fn predict(&self, inputs: Vec<Tensor>, terms: &Terms) -> Result<Vec<Tensor>, PluginError> {
        let inputs = inputs.into_iter().map(|it| (it.name, it.descriptor, it.bytes)).collect();
        let outputs = LoadedModel::predict(self, inputs, terms)?;
        let tensor = |(name, descriptor, bytes): NamedBytes| Tensor { name, descriptor, bytes };
        Ok(outputs.into_iter().map(tensor).collect())
    }
}

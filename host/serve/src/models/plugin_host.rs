//! Brings model versions up as plugins on a device.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use saggar_device::{Backend, Meter};
use saggar_plugin::{Host, LoadedModel, ModelLimits, NamedBytes, PieceSink, Plugin, PluginError, Signature};
use saggar_store::models::VersionFiles;

use super::predictor::{LoadError, Loaded, ModelHost, Phase, Predictor};
use crate::limits::{COMPILED_MAX, COMPUTING_MAX};
use crate::predict::decode::Tensor;

/// Compiles plugins and runs them on one device.
#[derive(Debug)]
pub struct PluginHost {
    host: Host,
    device: Arc<dyn Backend>,
    /// Device memory of one version.
    device_bytes_max: u64,
    /// How long a version may take to load.
    load_time: Duration,
    /// The plugins compiled last, newest at the end: new weights for one of them need no compiling.
    compiled: Mutex<VecDeque<Plugin>>,
}

impl PluginHost {
    /// Models run on `device`, take at most `device_bytes_max` of its memory each, and load within `load_time`: versions
    /// come up one after the other, so one that never ends would keep the others waiting.
    pub fn new(host: Host, device: Arc<dyn Backend>, device_bytes_max: u64, load_time: Duration) -> PluginHost {
        PluginHost { host, device, device_bytes_max, load_time, compiled: Mutex::default() }
    }

    fn compile(&self, files: &VersionFiles) -> Result<Plugin, LoadError> {
        let compiled = || self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(plugin) = compiled().iter().find(|plugin| *plugin.digest() == files.manifest.plugin) {
            return Ok(plugin.clone());
        }
        let plugin = self.host.compile(&files.load_plugin()?)?;
        let mut compiled = compiled();
        compiled.push_back(plugin.clone());
        if compiled.len() > COMPILED_MAX {
            compiled.pop_front();
        }
        Ok(plugin)
    }
}

impl ModelHost for PluginHost {
    fn bring_up(&self, files: &VersionFiles, phase: &mut dyn FnMut(Phase, Duration)) -> Result<Loaded, LoadError> {
        let mut began = Instant::now();
        let mut lap = |part| {
            let now = Instant::now();
            phase(part, now.duration_since(began));
            began = now;
        };
        let plugin = self.compile(files)?;
        lap(Phase::Compile);
        let variables = files.load_weights()?;
        let limits = ModelLimits { instances_max: COMPUTING_MAX, load_time: self.load_time, ..ModelLimits::default() };
        let meter = Meter::new(self.device_bytes_max);
        let device = Arc::clone(&self.device);
        let config = &files.manifest.config;
        let charged = meter.clone();
        let model = LoadedModel::load(&self.host, &plugin, variables, config, device, charged, limits)?;
        lap(Phase::Load);
        model.warm()?;
        lap(Phase::Warmup);
        Ok(Loaded { predictor: Box::new(model), device: self.device.info().name.clone(), meter })
    }
}

impl Predictor for LoadedModel {
    fn signature(&self) -> &Signature {
        LoadedModel::signature(self)
    }

    fn predict(
        &self,
        inputs: Vec<Tensor>,
        limit: Duration,
        pieces: Option<Arc<dyn PieceSink>>,
    ) -> Result<Vec<Tensor>, PluginError> {
        let inputs = inputs.into_iter().map(|it| (it.name, it.descriptor, it.bytes)).collect();
        let outputs = self.predict_with(inputs, limit, pieces)?;
        let tensor = |(name, descriptor, bytes): NamedBytes| Tensor { name, descriptor, bytes };
        Ok(outputs.into_iter().map(tensor).collect())
    }
}

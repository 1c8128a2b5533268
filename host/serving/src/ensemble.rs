//! Ensembles: models composed of other models. The outputs of each step are inputs of later steps and stay on the
//! device. An ensemble has no weights or versions. Its steps are resolved by name when a batch is computed.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use saggar_device::DeviceBuffer;
use saggar_plugin::{LoadedModel, ModelPort, ModelSignature, NamedTensor, PluginError, PredictionOptions, model};

use crate::live_version::{LiveVersion, VersionLease};
use crate::model_config::EnsembleConfig;
use crate::model_reference::ModelReference;
use crate::predictor::ModelPredictor;
use crate::router::ModelRouter;

/// The connected steps of an ensemble.
#[derive(Debug)]
pub(crate) struct EnsembleModel {
    router: Weak<ModelRouter>,
    steps: Vec<ConnectedStep>,
    signature: ModelSignature,
}

/// A step, and the wires that its ports are connected to, in the order of its signature.
#[derive(Debug)]
struct ConnectedStep {
    reference: ModelReference,
    signature: ModelSignature,
    /// Whether its version called a driver when the ensemble was made. All versions of a server are on one device.
    calls_driver: bool,
    inputs: Vec<String>,
    outputs: Vec<String>,
}

/// The reason for which steps cannot be connected.
#[derive(Clone, Debug, thiserror::Error)]
#[error("ensemble: {0}")]
pub(crate) struct EnsembleError(String);

impl EnsembleModel {
    /// Connects the steps by the names of their ports.
    ///
    /// # Errors
    /// Returns `EnsembleError` if a step is not ready or its outputs do not match a later step's inputs.
    pub(crate) fn new(
        router: &Arc<ModelRouter>,
        name: &str,
        ensemble: &EnsembleConfig,
    ) -> Result<EnsembleModel, EnsembleError> {
        let mut steps = Vec::with_capacity(ensemble.steps.len());
        let mut wires: BTreeMap<String, ModelPort> = BTreeMap::new();
        let mut inputs: Vec<ModelPort> = Vec::new();
        let mut outputs: Vec<ModelPort> = Vec::new();
        let mut sizes: Option<Vec<usize>> = None;
        for (at, step) in ensemble.steps.iter().enumerate() {
            let refuse = |reason: String| EnsembleError(format!("step {at}, {}: {reason}", step.model));
            let reference = ModelReference::parse(&step.model).map_err(|error| refuse(error.to_string()))?;
            if reference.model == name {
                return Err(refuse("an ensemble cannot be a step of itself".to_owned()));
            }
            let serving = router.find_live(Some(&reference)).map_err(|error| refuse(error.to_string()))?;
            let calls_driver = serving.predictor().calls_driver();
            let signature = serving.predictor().signature().clone();
            let unknown = |names: &BTreeMap<String, String>, ports: &[ModelPort]| {
                names.keys().find(|name| !ports.iter().any(|port| port.name == **name)).cloned()
            };
            if let Some(port) = unknown(&step.inputs, &signature.inputs).or(unknown(&step.outputs, &signature.outputs))
            {
                return Err(refuse(format!("it has no port {port}")));
            }
            let wire = |names: &BTreeMap<String, String>, port: &ModelPort| {
                names.get(&port.name).unwrap_or(&port.name).clone()
            };
            let mut input_wires = Vec::with_capacity(signature.inputs.len());
            for port in &signature.inputs {
                let wire = wire(&step.inputs, port);
                match wires.get(&wire) {
                    Some(given) if given.item == port.item => outputs.retain(|output| output.name != wire),
                    Some(given) => {
                        return Err(refuse(format!("{} takes {}, and {wire} is {}", port.name, port.item, given.item)));
                    }
                    None => {
                        let input = ModelPort { name: wire.clone(), ..port.clone() };
                        wires.insert(wire.clone(), input.clone());
                        inputs.push(input);
                    }
                }
                input_wires.push(wire);
            }
            let mut given = Vec::with_capacity(signature.outputs.len());
            for port in &signature.outputs {
                let wire = wire(&step.outputs, port);
                let output = ModelPort { name: wire.clone(), ..port.clone() };
                if wires.insert(wire.clone(), output.clone()).is_some() {
                    return Err(refuse(format!("{wire} is there already; name the output otherwise")));
                }
                outputs.push(output);
                given.push(wire);
            }
            sizes = Some(match sizes {
                None => signature.batch_sizes.clone(),
                Some(sizes) if sizes.is_empty() != signature.batch_sizes.is_empty() => {
                    return Err(refuse(
                        "it knows batches and another step does not, or the other way round".to_owned(),
                    ));
                }
                Some(sizes) => sizes.into_iter().filter(|size| signature.batch_sizes.contains(size)).collect(),
            });
            steps.push(ConnectedStep { reference, signature, calls_driver, inputs: input_wires, outputs: given });
        }
        let sizes = sizes.unwrap_or_default();
        if sizes.is_empty() && steps.iter().any(|step| !step.signature.batch_sizes.is_empty()) {
            return Err(EnsembleError("the steps have no batch size in common".to_owned()));
        }
        let signature =
            ModelSignature { inputs, outputs, batch_sizes: sizes, routes: Vec::new(), handlers: Vec::new() };
        Ok(EnsembleModel { router: Arc::downgrade(router), steps, signature })
    }

    /// Leases the versions that the steps' names resolve to now. None of them is freed before the leases are dropped.
    fn lease_steps(&self) -> Result<Vec<VersionLease>, PluginError> {
        let gone = |reason: String| PluginError::Engine { reason };
        let router = self.router.upgrade().ok_or_else(|| gone("the server is stopping".to_owned()))?;
        let lease = |step: &ConnectedStep| {
            let serving: Arc<LiveVersion> = router
                .find_live(Some(&step.reference))
                .map_err(|error| gone(format!("step {}: {error}", step.reference.model)))?;
            if *serving.predictor().signature() != step.signature {
                return Err(gone(format!("step {} takes or gives something else now", step.reference.model)));
            }
            let waited = Duration::ZERO;
            let instances = serving.policy().batch.slots;
            serving.try_lease().ok_or(PluginError::Busy { instances, waited })
        };
        self.steps.iter().map(lease).collect()
    }

    /// Returns the batch sizes that every step has programs for, or only the smallest of all if there is no such size
    /// yet.
    fn common_batch_sizes(&self, models: &[&LoadedModel], items: usize) -> Vec<usize> {
        let ready: Vec<Vec<usize>> = models.iter().map(|model| model.batch_sizes_for(items)).collect();
        let all = &self.signature.batch_sizes;
        let common = all.iter().copied().filter(|size| ready.iter().all(|sizes| sizes.contains(size)));
        let common: Vec<usize> = common.collect();
        if common.is_empty() { all.iter().take(1).copied().collect() } else { common }
    }

    /// Runs one part of a batch through all steps on the device.
    fn predict_on_device(
        &self,
        models: &[&LoadedModel],
        part: Vec<NamedTensor>,
        [count, size]: [usize; 2],
        terms: &PredictionOptions,
        until: Instant,
    ) -> Result<Vec<NamedTensor>, PluginError> {
        let Some(first) = models.first() else { return Ok(Vec::new()) };
        let mut wires: BTreeMap<String, DeviceBuffer> = first.upload(part, until, terms)?.into_iter().collect();
        for (step, model) in self.steps.iter().zip(models) {
            let ports = step.signature.inputs.iter().zip(&step.inputs);
            let inputs = ports.filter_map(|(port, wire)| Some((port.name.clone(), wires.get(wire)?.clone()))).collect();
            let left = PredictionOptions { deadline: until.saturating_duration_since(Instant::now()), ..terms.clone() };
            let outputs = model.predict_buffers(inputs, count, size, &left)?;
            wires.extend(step.outputs.iter().cloned().zip(outputs.into_iter().map(|(_, buffer)| buffer)));
        }
        let ports = self.signature.outputs.iter();
        let outputs = ports.filter_map(|port| Some((port.name.clone(), wires.remove(&port.name)?))).collect();
        first.download(outputs, until, terms)
    }

    /// Runs a whole batch through all steps, for steps that cannot keep their tensors on the device.
    fn predict_through_host(
        &self,
        leases: &[VersionLease],
        inputs: Vec<NamedTensor>,
        terms: &PredictionOptions,
        until: Instant,
    ) -> Result<Vec<NamedTensor>, PluginError> {
        let mut wires: BTreeMap<String, NamedTensor> =
            inputs.into_iter().map(|tensor| (tensor.name.clone(), tensor)).collect();
        for (step, lease) in self.steps.iter().zip(leases) {
            let ports = step.signature.inputs.iter().zip(&step.inputs);
            let named = |(port, wire): (&ModelPort, &String)| {
                Some(NamedTensor { name: port.name.clone(), ..wires.get(wire)?.clone() })
            };
            let inputs = ports.filter_map(named).collect();
            let left = PredictionOptions { deadline: until.saturating_duration_since(Instant::now()), ..terms.clone() };
            for tensor in lease.live_version().predictor().predict(inputs, &left)? {
                let place = step.signature.outputs.iter().position(|port| port.name == tensor.name);
                let Some(wire) = place.and_then(|place| step.outputs.get(place)) else { continue };
                wires.insert(wire.clone(), NamedTensor { name: wire.clone(), ..tensor });
            }
        }
        Ok(self.signature.outputs.iter().filter_map(|port| wires.remove(&port.name)).collect())
    }
}

impl ModelPredictor for EnsembleModel {
    fn signature(&self) -> &ModelSignature {
        &self.signature
    }

    fn device_bytes(&self) -> u64 {
        0
    }

    fn calls_driver(&self) -> bool {
        self.steps.iter().any(|step| step.calls_driver)
    }

    fn predict(&self, inputs: Vec<NamedTensor>, terms: &PredictionOptions) -> Result<Vec<NamedTensor>, PluginError> {
        let until = Instant::now() + terms.deadline;
        // Steps have no client to which chunks could be sent.
        let terms = PredictionOptions { sink: None, ..terms.clone() };
        let leases = self.lease_steps()?;
        let models: Option<Vec<&LoadedModel>> =
            leases.iter().map(|lease| lease.live_version().predictor().device_model()).collect();
        let Some(models) = models else { return self.predict_through_host(&leases, inputs, &terms, until) };
        let compute =
            |part, [count, size]: [usize; 2]| self.predict_on_device(&models, part, [count, size], &terms, until);
        let sizes = |items| self.common_batch_sizes(&models, items);
        let outputs = model::split_and_pad(&self.signature, inputs, sizes, compute);
        leases.iter().for_each(|lease| lease.live_version().predictor().report_device_use());
        outputs
    }
}

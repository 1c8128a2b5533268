//! Runs the ONNX project's cases end to end: the compiled plugin imports each model, which is loaded like a served
//! version and predicts the data sets, on the CPU device and on every GPU adapter.
//!
//! `plugins/onnx` runs the same cases with its import rules alone, on an interpreter; here they pass through the whole
//! host.

mod case;
mod proto;
pub mod small_model;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use saggar_device::{Backend, Meter};
use saggar_plugin::{
    CompiledPlugin, LoadedModel, ModelLimits, ModelParts, NamedTensor, PluginEngine, PluginEngineConfig, PluginError,
    PredictionOptions, import,
};
use saggar_tensor::{Descriptor, Shape};
use serde_json::{Map, Value, json};

use case::{ConformanceTensor, OnnxCase};

/// Time limit for a prediction of a case.
const PREDICT_TIME: Duration = Duration::from_secs(60);
/// Maximum elements of an input that is fixed at import.
const FIXED_ELEMENTS_MAX: usize = 64;

/// The plugin, compiled for importing on any device.
#[derive(Debug)]
pub struct ConformanceImporter {
    host: PluginEngine,
    plugin: CompiledPlugin,
}

/// The results of the cases on one device.
#[derive(Clone, Debug, Default)]
pub struct OnnxReport {
    /// Cases whose outputs were all within the tolerance.
    pub passed: usize,
    /// Cases that the plugin or the device does not support, each with the reason.
    pub unsupported: Vec<String>,
    /// Cases with wrong outputs, or that failed although they are supported, each with the reason.
    pub wrong: Vec<String>,
}

/// The reason why a case did not pass.
enum CaseFailure {
    Unsupported(String),
    Wrong(String),
}

impl ConformanceImporter {
    /// Compiles the component.
    ///
    /// # Errors
    /// Returns why the component cannot import models.
    pub fn new(component: &[u8]) -> Result<ConformanceImporter, String> {
        let host = PluginEngine::new(PluginEngineConfig::default()).map_err(|error| error.to_string())?;
        let plugin = host.compile(component).map_err(|error| error.to_string())?;
        Ok(ConformanceImporter { host, plugin })
    }

    /// Runs the cases under `root` whose path contains `only`, and calls `progress` after each.
    ///
    /// # Errors
    /// Returns an error if no case is found.
    pub fn check(
        &self,
        root: &Path,
        only: &str,
        device: &Arc<dyn Backend>,
        mut progress: impl FnMut(usize, usize),
    ) -> Result<OnnxReport, String> {
        let folders = case::case_folders(root, only)?;
        let mut report = OnnxReport::default();
        for (at, folder) in folders.iter().enumerate() {
            let name = folder.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
            let outcome = case::read(folder).map_err(CaseFailure::Unsupported).and_then(|case| self.run(&case, device));
            match outcome {
                Ok(()) => report.passed += 1,
                Err(CaseFailure::Unsupported(reason)) => report.unsupported.push(format!("{name}: {reason}")),
                Err(CaseFailure::Wrong(reason)) => report.wrong.push(format!("{name}: {reason}")),
            }
            progress(at + 1, folders.len());
        }
        Ok(report)
    }

    fn run(&self, case: &OnnxCase, device: &Arc<dyn Backend>) -> Result<(), CaseFailure> {
        for (inputs, expected) in &case.sets {
            let (model, fixed) = self.load(case, inputs, device)?;
            let given = inputs.iter().filter(|input| !fixed.contains(&input.name));
            let batched = !model.signature().batch_sizes.is_empty();
            let given = given.map(|input| input_tensor(input, batched)).collect::<Result<Vec<NamedTensor>, _>>()?;
            let outputs = model
                .predict(given, &PredictionOptions::with_deadline(PREDICT_TIME))
                .map_err(|error| classify_refusal("predict", &error))?;
            for (want, output) in expected.iter().zip(&outputs) {
                let descriptor = if batched { output.descriptor.clone() } else { item_descriptor(&output.descriptor)? };
                if let Some(difference) = want.difference_from(&descriptor, &output.bytes) {
                    return Err(CaseFailure::Wrong(format!("output {}: {difference}", output.name)));
                }
            }
        }
        Ok(())
    }

    /// Imports and loads the model, with as few fixed inputs as possible. Returns the names of these too.
    fn load(
        &self,
        case: &OnnxCase,
        inputs: &[ConformanceTensor],
        device: &Arc<dyn Backend>,
    ) -> Result<(LoadedModel, Vec<String>), CaseFailure> {
        let mut fixed = Vec::new();
        let limits = ModelLimits { instances_max: 1, ..ModelLimits::default() };
        loop {
            let options = import_options(inputs, &fixed).to_string();
            let meter = Meter::unlimited();
            let imported = import(&self.host, &self.plugin, &case.model, &options, device.clone(), meter, limits);
            let imported = match imported {
                Ok(imported) => imported,
                Err(PluginError::Guest { message, .. }) if fix_input(&message, inputs, &mut fixed) => continue,
                Err(PluginError::Guest { message, .. }) => return Err(CaseFailure::Unsupported(message)),
                Err(error) => return Err(classify_refusal("import", &error)),
            };
            let parts = ModelParts {
                plugin: self.plugin.clone(),
                variables: imported.variables,
                config: imported.config,
                inputs: Default::default(),
                weights_meter: Meter::unlimited(),
                meter: Meter::unlimited(),
                limits,
                on_instance_start: None,
            };
            return LoadedModel::load(&self.host, parts, device.clone())
                .map(|model| (model, fixed))
                .map_err(|error| classify_refusal("load", &error));
        }
    }
}

/// Classifies an error: by-design limits of the host are unsupported, all others are wrong.
fn classify_refusal(during: &str, error: &PluginError) -> CaseFailure {
    let reason = format!("{during}: {error}");
    match error {
        PluginError::BadSignature { .. } => CaseFailure::Unsupported(reason),
        PluginError::Device(error) if error.to_string().contains("64-bit") => CaseFailure::Unsupported(reason),
        _ => CaseFailure::Wrong(reason),
    }
}

/// Returns the options of an import: the values of fixed inputs, and the shapes of the others.
fn import_options(inputs: &[ConformanceTensor], fixed: &[String]) -> Value {
    let (mut shapes, mut constants) = (Map::new(), Map::new());
    for input in inputs {
        if fixed.contains(&input.name) {
            constants.insert(input.name.clone(), input.json());
        } else {
            shapes.insert(input.name.clone(), json!(input.descriptor.shape.dims()));
        }
    }
    json!({ "shapes": shapes, "constants": constants })
}

/// Fixes the input that the message requires to be known; if that one is computed, fixes all inputs of a few integers.
/// Returns whether any input is newly fixed.
fn fix_input(message: &str, inputs: &[ConformanceTensor], fixed: &mut Vec<String>) -> bool {
    let Some((head, _)) = message.split_once(" must be known when the model is imported") else { return false };
    let name = head.rsplit_once("` (").and_then(|(head, _)| head.rsplit_once('`')).map_or("", |(_, name)| name);
    let before = fixed.len();
    if inputs.iter().any(|input| input.name == name) && !fixed.iter().any(|other| other == name) {
        fixed.push(name.to_owned());
        return true;
    }
    for input in inputs {
        let few = input.descriptor.shape.elements() <= FIXED_ELEMENTS_MAX;
        if !input.descriptor.dtype.is_float() && few && !fixed.contains(&input.name) {
            fixed.push(input.name.clone());
        }
    }
    fixed.len() > before
}

/// Returns an input as the model accepts it: a model without batch dimension accepts items, which become a batch of
/// one.
fn input_tensor(input: &ConformanceTensor, batched: bool) -> Result<NamedTensor, CaseFailure> {
    let descriptor = if batched {
        input.descriptor.clone()
    } else {
        let dims = [&[1], input.descriptor.shape.dims()].concat();
        let shape = Shape::new(dims).map_err(|error| CaseFailure::Unsupported(error.to_string()))?;
        Descriptor::new(input.descriptor.dtype, shape)
    };
    Ok(NamedTensor { name: input.name.clone(), descriptor, bytes: input.bytes.clone() })
}

/// Returns the descriptor of an output without its batch dimension of one.
fn item_descriptor(batch: &Descriptor) -> Result<Descriptor, CaseFailure> {
    let dims = batch.shape.dims().get(1..).unwrap_or_default();
    let shape = Shape::new(dims).map_err(|error| CaseFailure::Wrong(error.to_string()))?;
    Ok(Descriptor::new(batch.dtype, shape))
}

/// Returns the number of unsupported cases by reason: the operator or type that is named, or the beginning of the
/// message.
pub fn count_reasons(unsupported: &[String]) -> Vec<(String, usize)> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for line in unsupported {
        let words: Vec<&str> = line.split_whitespace().skip(1).collect();
        let named = ["operator", "type"].iter().find_map(|marker| {
            let at = words.iter().position(|word| word == marker)?;
            Some(format!("{marker} {}", words.get(at + 1)?))
        });
        let reason = named.unwrap_or_else(|| words.join(" ").chars().take(100).collect());
        *counts.entry(reason).or_default() += 1;
    }
    let mut sorted: Vec<(String, usize)> = counts.into_iter().collect();
    sorted.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    sorted
}

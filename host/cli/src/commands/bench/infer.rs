//! `saggar bench infer`: runs a model's predictions one after the other on each device, as the server computes them,
//! without network, queue and encoding.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use saggar_device::{Backend, DeviceInfo, Meter, without_optimizations};
use saggar_plugin::{CompiledPlugin, LoadedModel, ModelLimits, ModelParts, PluginEngine, PredictionOptions};
use saggar_store::checkpoint::SavedVariable;
use saggar_store::{ImageInputs, StateDir};
use serde::Serialize;

use super::device::{self, BenchDeviceResult, DeviceResults};
use super::on_off::{self, OptimizationEffect};
use super::saved_result::{BenchKind, BetterDirection, MeasuredSeries, SavedResult};
use crate::args::BenchInferArgs;
use crate::commands::stored_version;
use crate::component_source::{ComponentSource, named_reference};
use crate::exit::{self, CliError};
use crate::output::CliOutput;
use crate::plugin_build;

/// The consecutive parts of the requests whose figures are compared by `saggar bench diff`.
const PARTS: usize = 20;
/// How often an optimization is measured on and off.
const ON_OFF_ROUNDS: usize = 3;
/// Maximum time of one request.
const REQUEST_TIME_MAX: Duration = Duration::from_secs(600);

/// A model that is ready to be loaded.
struct BenchModel {
    host: PluginEngine,
    plugin: CompiledPlugin,
    config: String,
    inputs: ImageInputs,
    variables: Vec<SavedVariable>,
}

/// The measurements of one device and one request size.
struct InferenceRow {
    info: DeviceInfo,
    batch: u32,
    first: Duration,
    /// The time of each request after the first, in ascending order.
    took: Vec<Duration>,
    /// The mean seconds of a request in each of [`PARTS`] consecutive parts, or of fewer if there are fewer requests.
    part_seconds: Vec<f64>,
    busy: Duration,
}

pub(super) fn infer(args: &BenchInferArgs, output: CliOutput) -> Result<i32, CliError> {
    let model = BenchModel::from_args(args, output)?;
    if args.on_off {
        return measure_on_off(args, &model, output);
    }
    let results = device::measure_on_each(&args.devices, output, |device| {
        model.run_requests(&without_optimizations(device, args.without.optimizations()), args)
    });
    if output.json {
        output.print_json(&results_document(args, &model, &results));
    } else {
        let rows = results.iter().filter_map(|(_, result)| result.as_ref().ok()).flatten();
        let cells: Vec<Vec<String>> = rows.map(InferenceRow::table_cells).collect();
        let headers =
            ["DEVICE", "ADAPTER", "DRIVER", "BATCH", "FIRST", "P50", "P99", "REQUESTS/S", "ITEMS/S", "GPU-SEC"];
        if !cells.is_empty() {
            output.print_table(&headers, &cells);
        }
    }
    if let Some(file) = &args.save {
        saved_result(args, &model, &results).save(file)?;
    }
    Ok(device::exit_code(&results))
}

/// Measures with and without each optimization and prints the effects.
fn measure_on_off(args: &BenchInferArgs, model: &BenchModel, output: CliOutput) -> Result<i32, CliError> {
    let with = args.without.optimizations();
    let results = device::measure_on_each(&args.devices, output, |device| {
        let mut effects = Vec::new();
        for optimization in on_off::measured_optimizations().filter(|&optimization| with.enables(optimization)) {
            output.print_note(&format!("measuring {optimization}"));
            let mut samples: BTreeMap<u32, [Vec<f64>; 2]> = BTreeMap::new();
            // On and off take turns, so that a slower or faster machine affects both.
            for _ in 0..ON_OFF_ROUNDS {
                for (at, without) in [with, with.with(optimization)].into_iter().enumerate() {
                    for row in model.run_requests(&without_optimizations(Arc::clone(&device), without), args)? {
                        samples.entry(row.batch).or_default()[at].extend(&row.part_seconds);
                    }
                }
            }
            let effect = |(batch, [on, off]): (u32, [Vec<f64>; 2])| {
                OptimizationEffect::new(optimization, (device.info().name.clone(), batch), &on, &off)
            };
            effects.extend(samples.into_iter().filter_map(effect));
        }
        Ok(effects)
    });
    let code = device::exit_code(&results);
    let effects: Vec<OptimizationEffect> =
        results.into_iter().filter_map(|(_, result)| result.ok()).flatten().collect();
    match output.json {
        true => output.print_json(&effects),
        false => on_off::print_effects(&effects, output),
    }
    Ok(code)
}

impl BenchModel {
    fn from_args(args: &BenchInferArgs, output: CliOutput) -> Result<BenchModel, CliError> {
        let home = super::open_state_dir(&args.home)?;
        let path = Path::new(&args.model);
        // A model can have the name of a reference plugin; with --model, the name is the plugin.
        let is_reference = args.weights.is_some() && named_reference(path).is_some();
        let is_plugin = path.is_file() || plugin_build::is_plugin_directory(path) || is_reference;
        let weights = match (&args.weights, is_plugin) {
            (Some(weights), _) => weights,
            (None, false) => &args.model,
            (None, true) => {
                let message = format!("{} is a plugin's code, and a prediction takes weights", args.model);
                let hint = "name a model, or the one that has the weights: --model digits@3";
                return Err(CliError::new(exit::USAGE, "no_weights", message).with_hint(hint));
            }
        };
        let models = args.models.clone().or_else(|| home.as_ref().map(StateDir::models));
        let hint = "name a version's directory, or the state directory that has the model: --home DIR";
        let (files, variables) = stored_version::open_version(weights, models.as_deref(), hint)?;
        let wasm = match (is_plugin, args.weights.is_some()) {
            (true, _) => ComponentSource::find_or_build(path, output)?.read()?.into_owned(),
            (false, false) => files.load_plugin().map_err(|error| CliError::invalid(error.to_string()))?,
            (false, true) => {
                let message = format!("there is no plugin {}", args.model);
                return Err(CliError::new(exit::NOT_FOUND, "no_plugin", message).with_hint(
                    "name a .wasm component, the directory of a plugin, or a reference plugin, such as lenet",
                ));
            }
        };
        let host = super::plugin_host(home.as_ref())?;
        let plugin = host.compile(&wasm).map_err(|error| CliError::invalid(format!("{}: {error}", args.model)))?;
        Ok(BenchModel { host, plugin, config: files.manifest.config, inputs: files.manifest.inputs, variables })
    }

    /// Loads the model on the device and runs the requests of each size.
    fn run_requests(&self, device: &Arc<dyn Backend>, args: &BenchInferArgs) -> Result<Vec<InferenceRow>, CliError> {
        let failed = |error| device::plugin_error(&error);
        let meter = Meter::unlimited();
        let parts = ModelParts {
            plugin: self.plugin.clone(),
            variables: self.variables.clone(),
            config: self.config.clone(),
            inputs: self.inputs.clone(),
            weights_meter: meter.clone(),
            meter: meter.clone(),
            limits: ModelLimits { instances_max: 1, ..ModelLimits::default() },
            on_instance_start: None,
        };
        let model = LoadedModel::load(&self.host, parts, Arc::clone(device)).map_err(failed)?;
        let row = |&batch: &u32| {
            let inputs = model.default_batch(batch as usize).map_err(failed)?;
            let request = || {
                let inputs = inputs.clone();
                let began = Instant::now();
                model
                    .predict(inputs, &PredictionOptions::with_deadline(REQUEST_TIME_MAX))
                    .map(|_| began.elapsed())
                    .map_err(failed)
            };
            let first = request()?;
            let before = meter.busy_time();
            let mut took = (0..args.requests).map(|_| request()).collect::<Result<Vec<Duration>, CliError>>()?;
            device.synchronize().map_err(|error| failed(error.into()))?;
            let part_seconds = part_seconds(&took);
            took.sort_unstable();
            Ok(InferenceRow {
                info: device.info().clone(),
                batch,
                first,
                took,
                part_seconds,
                busy: meter.busy_time().saturating_sub(before),
            })
        };
        args.batch.iter().map(row).collect()
    }
}

impl InferenceRow {
    /// Returns the requests per second, sent one after the other.
    fn requests_per_second(&self) -> f64 {
        let all: Duration = self.took.iter().sum();
        self.took.len() as f64 / all.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    fn percentile(&self, percent: usize) -> f64 {
        percentile(&self.took, percent).as_secs_f64()
    }

    fn table_cells(&self) -> Vec<String> {
        let rate = self.requests_per_second();
        vec![
            self.info.name.clone(),
            device::adapter_label(&self.info),
            self.info.driver.clone(),
            self.batch.to_string(),
            device::format_seconds(self.first.as_secs_f64()),
            device::format_seconds(self.percentile(50)),
            device::format_seconds(self.percentile(99)),
            device::format_rate(rate),
            device::format_rate(rate * f64::from(self.batch)),
            device::format_busy_seconds(&self.info, self.busy.as_secs_f64()),
        ]
    }

    fn document(&self) -> BenchDeviceResult<'_, InferenceDocument> {
        let rate = self.requests_per_second();
        let measured = InferenceDocument {
            batch: self.batch,
            requests: self.took.len(),
            first_seconds: self.first.as_secs_f64(),
            p50_seconds: self.percentile(50),
            p99_seconds: self.percentile(99),
            requests_per_second: rate,
            items_per_second: rate * f64::from(self.batch),
            gpu_seconds: self.busy.as_secs_f64(),
        };
        BenchDeviceResult::measured(&self.info, measured)
    }
}

/// Returns the mean seconds of consecutive parts of `took`.
fn part_seconds(took: &[Duration]) -> Vec<f64> {
    let mean = |part: &[Duration]| part.iter().sum::<Duration>().as_secs_f64() / part.len() as f64;
    took.chunks(took.len().div_ceil(PARTS).max(1)).map(mean).collect()
}

/// Returns the `percent` percentile of `sorted`, by the nearest-rank method.
fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or_default()
}

/// The measurements of one device and one request size as JSON.
#[derive(Serialize)]
struct InferenceDocument {
    batch: u32,
    requests: usize,
    first_seconds: f64,
    p50_seconds: f64,
    p99_seconds: f64,
    requests_per_second: f64,
    items_per_second: f64,
    gpu_seconds: f64,
}

/// All measurements as JSON.
#[derive(Serialize)]
struct InferenceResults<'a> {
    model: &'a str,
    plugin: String,
    results: Vec<BenchDeviceResult<'a, InferenceDocument>>,
}

fn results_document<'a>(
    args: &'a BenchInferArgs,
    model: &BenchModel,
    results: &'a DeviceResults<Vec<InferenceRow>>,
) -> InferenceResults<'a> {
    let rows = |(name, result): &'a (String, Result<Vec<InferenceRow>, CliError>)| match result {
        Ok(rows) => rows.iter().map(InferenceRow::document).collect(),
        Err(failure) => vec![BenchDeviceResult::failed(name, failure)],
    };
    let results = results.iter().flat_map(rows).collect();
    InferenceResults { model: &args.model, plugin: model.plugin.digest().hex(), results }
}

fn saved_result<'a>(
    args: &'a BenchInferArgs,
    model: &BenchModel,
    results: &'a DeviceResults<Vec<InferenceRow>>,
) -> SavedResult<InferenceResults<'a>> {
    let series = |row: &InferenceRow| MeasuredSeries {
        group: format!("{}, batch {}", row.info.name, row.batch),
        name: "request seconds".to_owned(),
        better: BetterDirection::Lower,
        samples: row.part_seconds.clone(),
    };
    let rows = results.iter().filter_map(|(_, result)| result.as_ref().ok()).flatten();
    let document = results_document(args, model, results);
    let plugin = document.plugin.clone();
    SavedResult::new(BenchKind::Infer, rows.map(series).collect(), document)
        .with_condition("model", &args.model)
        .with_condition("weights", args.weights.as_deref().unwrap_or(&args.model))
        .with_property("plugin digest", plugin)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_divided_into_consecutive_parts() {
        let took: Vec<Duration> = (1..=40).map(Duration::from_secs).collect();
        let parts = part_seconds(&took);
        assert_eq!((parts.len(), parts[0], parts[19]), (PARTS, 1.5, 39.5));
        assert_eq!(part_seconds(&took[..3]), [1.0, 2.0, 3.0]);
        assert!(part_seconds(&[]).is_empty());
    }

    #[test]
    fn a_percentile_is_one_of_the_measured_times() {
        let sorted: Vec<Duration> = (1..=200).map(Duration::from_millis).collect();
        let ms = |percent| percentile(&sorted, percent).as_millis();
        assert_eq!((ms(50), ms(99), ms(100)), (100, 198, 200));
        assert_eq!(percentile(&sorted[..1], 50), sorted[0]);
        assert_eq!(percentile(&[], 99), Duration::ZERO);
    }
}

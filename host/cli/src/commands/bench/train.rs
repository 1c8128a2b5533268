//! `saggar bench train`: runs a plugin's own training for some steps on each device.

use std::collections::BTreeMap;
use std::sync::Arc;

use saggar_device::{Backend, DeviceInfo, Meter, without_optimizations};
use saggar_jobs::JobSpec;
use saggar_jobs::measure::{MeasureUntil, MeasurementConfig, TrainingEstimate, TrainingMeasurement, measure_training};
use saggar_plugin::{CompiledPlugin, PluginEngine, PluginError};
use saggar_store::{ColumnarDataset, ModelRegistry};
use serde::Serialize;
use serde_json::Value;

use super::data::{self, split_folders};
use super::device::{self, BenchDeviceResult, BenchError, DeviceResults};
use super::profile::{self, KernelProfile, ProfileDocument};
use super::saved_result::{BenchKind, BetterDirection, MeasuredSeries, SavedResult};
use super::trace;
use crate::args::{BenchTrainArgs, RunArgs};
use crate::commands::run;
use crate::exit::CliError;
use crate::output::CliOutput;

/// The consecutive parts of a training whose figures are compared by `saggar bench diff`.
const PARTS: usize = 20;

/// A training that is ready to be measured.
struct BenchTraining {
    host: PluginEngine,
    plugin: CompiledPlugin,
    spec: JobSpec,
    datasets: BTreeMap<String, Arc<ColumnarDataset>>,
    models: Option<ModelRegistry>,
}

/// The measurements of one device.
struct TrainingRow {
    info: DeviceInfo,
    measured: TrainingMeasurement,
    /// The estimate for the requested steps, from a short start, or for the whole training, from all measured steps.
    estimate: Option<TrainingEstimate>,
    /// The seconds of the requested steps.
    took_seconds: Option<f64>,
    /// The kernel times, or their error; `None` if no profile was requested.
    kernels: Option<Result<KernelProfile, CliError>>,
}

pub(super) fn train(args: &BenchTrainArgs, output: CliOutput) -> Result<i32, CliError> {
    let training = BenchTraining::from_args(args, output)?;
    // Fail before the measurement if the trace cannot be written.
    let file = args.profile.as_deref().map(|path| Ok((path, trace::create_trace_file(path)?))).transpose()?;
    let results = device::measure_on_each(&args.devices, output, |device| {
        let device = without_optimizations(device, args.without.optimizations());
        let trial = training.measurement_config(MeasureUntil::Steps(args.steps));
        let measured =
            measure_training(&training.host, &training.plugin, &device, Meter::unlimited(), trial, |_, _| true);
        let measured = measured.map_err(|error| device::plugin_error(&error))?;
        let kernels = args
            .profile
            .as_ref()
            .map(|_| KernelProfile::measure(&device, |device| training.run_profiled(device, args)));
        Ok(TrainingRow { kernels, ..TrainingRow::new(device.info().clone(), measured, args) })
    });
    if output.json {
        output.print_json(&results_document(args, &training.plugin, &results));
    } else {
        print_results(args, &results, output);
    }
    if let Some(file) = &args.save {
        saved_result(args, &training.plugin, &results).save(file)?;
    }
    // The measurements are shown already, whether or not the profile succeeds.
    let mut code = device::exit_code(&results);
    let mut profiled = Vec::new();
    for (name, kernels) in
        results.iter().filter_map(|(name, result)| Some((name, result.as_ref().ok()?.kernels.as_ref()?)))
    {
        match kernels {
            Ok(kernels) => profiled.push(kernels),
            Err(failure) => {
                let message = format!("{name}: measured, but not profiled: {}", failure.message);
                output.print_error(&CliError::new(failure.exit_code, &failure.code, message));
                code = if code == 0 { failure.exit_code } else { code };
            }
        }
    }
    if !output.json {
        profiled.iter().for_each(|kernels| kernels.print(output));
    }
    if let Some((path, file)) = file {
        trace::write_trace(path, file, &profiled)?;
        output.print_note(&format!("wrote {}: chrome://tracing and https://ui.perfetto.dev show it", path.display()));
    }
    Ok(code)
}

impl BenchTraining {
    fn from_args(args: &BenchTrainArgs, output: CliOutput) -> Result<BenchTraining, CliError> {
        let home = super::open_state_dir(&args.home)?;
        let (folders, datasets) = split_folders(&args.data, home.as_ref());
        let run = RunArgs {
            plugin: args.plugin.clone(),
            task: args.task.clone(),
            data: datasets,
            parameters: [args.param.clone(), args.parameters.clone()].concat(),
            ..RunArgs::default()
        };
        let (mut spec, component) = run::local_run(&run, output)?;
        spec.seed = args.seed.unwrap_or(spec.seed);
        if let Some(precision) = &args.precision {
            spec.precision = serde_json::from_value(precision.as_str().into())
                .map_err(|error| CliError::invalid(format!("--precision: {error}")))?;
        }
        let datasets = data::open_datasets(&spec.data, &folders, home.as_ref())?;
        let host = super::plugin_host(home.as_ref())?;
        let wasm = component.read()?;
        let invalid = |error| CliError::invalid(format!("{component}: {error}"));
        let plugin = host.compile(&wasm).map_err(invalid)?;
        if !plugin.has_trainer() {
            let message = format!("{component} exports no trainer");
            return Err(
                CliError::invalid(message).with_hint("`saggar bench infer` measures a plugin that only predicts")
            );
        }
        Ok(BenchTraining { host, plugin, spec, datasets, models: home.map(|home| ModelRegistry::new(home.models())) })
    }

    /// Trains for a few more steps on a device that records its kernels.
    fn run_profiled(&self, device: &Arc<dyn Backend>, args: &BenchTrainArgs) -> Result<(), PluginError> {
        let trial = self.measurement_config(MeasureUntil::Steps(args.steps.min(profile::STEPS_MAX)));
        measure_training(&self.host, &self.plugin, device, Meter::unlimited(), trial, |_, _| true).map(|_| ())
    }

    fn measurement_config(&self, until: MeasureUntil) -> MeasurementConfig {
        MeasurementConfig {
            spec: self.spec.clone(),
            datasets: self.datasets.clone(),
            secrets: Default::default(),
            models: self.models.clone(),
            rights: None,
            until,
        }
    }
}

impl TrainingRow {
    fn new(info: DeviceInfo, measured: TrainingMeasurement, args: &BenchTrainArgs) -> TrainingRow {
        let timeline = &measured.timeline;
        let steps = args.steps.min(timeline.steps());
        let estimate = match args.total {
            true => measured.total_steps().and_then(|all| timeline.estimate(all, true)),
            false => timeline.shortest_sufficient_prefix(steps).estimate(steps, false),
        };
        let took_seconds = timeline.time_at_step(steps).map(|time| time.as_secs_f64());
        TrainingRow { info, estimate, took_seconds, measured, kernels: None }
    }

    fn first_step_seconds(&self) -> f64 {
        self.measured.timeline.first_step_time().unwrap_or_default().as_secs_f64()
    }

    fn table_cells(&self) -> Vec<String> {
        let rate = self.measured.timeline.steps_per_second().map_or_else(|| "-".to_owned(), device::format_rate);
        let estimate = self.estimate.map_or_else(
            || "unknown".to_owned(),
            |it| {
                let at_least = if it.lacks_epoch_end { "at least " } else { "" };
                let time = device::format_seconds(it.time.as_secs_f64());
                format!("{at_least}{time} for {} (from {} steps)", it.steps, it.measured_steps)
            },
        );
        vec![
            self.info.name.clone(),
            device::adapter_label(&self.info),
            self.info.driver.clone(),
            device::format_seconds(self.first_step_seconds()),
            rate,
            device::format_busy_seconds(&self.info, self.measured.busy.as_secs_f64()),
            self.took_seconds.map_or_else(|| "-".to_owned(), device::format_seconds),
            estimate,
        ]
    }

    fn document(&self) -> BenchDeviceResult<'_, TrainingDocument<'_>> {
        let measured = TrainingDocument {
            steps: self.measured.timeline.steps(),
            steps_in_all: self.measured.total_steps(),
            first_step_seconds: self.first_step_seconds(),
            steps_per_second: self.measured.timeline.steps_per_second(),
            gpu_seconds: self.measured.busy.as_secs_f64(),
            seconds: self.took_seconds,
            estimate: self.estimate.map(|it| it.to_json()),
            profile: self.kernels.as_ref().map(ProfileResult::new),
        };
        BenchDeviceResult::measured(&self.info, measured)
    }
}

/// The measurements of one device as JSON.
#[derive(Serialize)]
struct TrainingDocument<'a> {
    steps: u64,
    steps_in_all: Option<u64>,
    first_step_seconds: f64,
    steps_per_second: Option<f64>,
    gpu_seconds: f64,
    seconds: Option<f64>,
    estimate: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    profile: Option<ProfileResult<'a>>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum ProfileResult<'a> {
    Profile(ProfileDocument),
    Failure { error: BenchError<'a> },
}

impl<'a> ProfileResult<'a> {
    fn new(kernels: &'a Result<KernelProfile, CliError>) -> ProfileResult<'a> {
        match kernels {
            Ok(kernels) => ProfileResult::Profile(kernels.document()),
            Err(failure) => ProfileResult::Failure { error: failure.into() },
        }
    }
}

/// All measurements as JSON.
#[derive(Serialize)]
struct TrainingResults<'a> {
    plugin: String,
    steps: u64,
    devices: Vec<BenchDeviceResult<'a, TrainingDocument<'a>>>,
}

fn results_document<'a>(
    args: &BenchTrainArgs,
    plugin: &CompiledPlugin,
    results: &'a DeviceResults<TrainingRow>,
) -> TrainingResults<'a> {
    let device = |(name, result): &'a (String, Result<TrainingRow, CliError>)| match result {
        Ok(row) => row.document(),
        Err(failure) => BenchDeviceResult::failed(name, failure),
    };
    let devices = results.iter().map(device).collect();
    TrainingResults { plugin: plugin.digest().hex(), steps: args.steps, devices }
}

fn saved_result<'a>(
    args: &BenchTrainArgs,
    plugin: &CompiledPlugin,
    results: &'a DeviceResults<TrainingRow>,
) -> SavedResult<TrainingResults<'a>> {
    let series = |row: &TrainingRow| MeasuredSeries {
        group: row.info.name.clone(),
        name: "step seconds".to_owned(),
        better: BetterDirection::Lower,
        samples: row.measured.timeline.part_step_seconds(PARTS),
    };
    let rows = results.iter().filter_map(|(_, result)| result.as_ref().ok());
    let name = args.plugin.as_ref().map(|path| path.display().to_string()).or_else(|| args.task.clone());
    let parameters = [args.param.as_slice(), &args.parameters].concat();
    SavedResult::new(BenchKind::Train, rows.map(series).collect(), results_document(args, plugin, results))
        .with_condition("plugin", name.as_deref().unwrap_or("."))
        .with_condition("data", args.data.join(", "))
        .with_condition("parameters", parameters.join(" "))
        .with_condition("precision", args.precision.as_deref().unwrap_or("default"))
        .with_property("plugin digest", plugin.digest().hex())
}

fn print_results(args: &BenchTrainArgs, results: &DeviceResults<TrainingRow>, output: CliOutput) {
    let rows: Vec<&TrainingRow> = results.iter().filter_map(|(_, result)| result.as_ref().ok()).collect();
    if rows.is_empty() {
        return;
    }
    // A training can have fewer steps than requested.
    let steps = rows.iter().map(|row| row.measured.timeline.steps().min(args.steps)).max().unwrap_or(args.steps);
    let took = format!("{steps} STEPS");
    let headers = ["DEVICE", "ADAPTER", "DRIVER", "FIRST STEP", "STEPS/S", "GPU-SEC", &took, "ESTIMATE"];
    output.print_table(&headers, &rows.iter().map(|row| row.table_cells()).collect::<Vec<_>>());
    if steps < args.steps {
        output.print_note(&format!("the plugin's whole training has {steps} steps"));
    }
    if rows.iter().any(|row| row.estimate.is_some_and(|it| it.lacks_epoch_end)) {
        output.print_note("no epoch ended in the steps that were measured: work at the end of an epoch, such as a validation, is not in the estimate; use more --steps");
    }
}

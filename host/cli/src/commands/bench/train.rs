//! `saggar bench train`: a plugin's own training for some steps on each device.

use std::collections::BTreeMap;
use std::sync::Arc;

use saggar_device::{Backend, DeviceInfo, Meter};
use saggar_jobs::JobSpec;
use saggar_jobs::measure::{Estimate, Measured, Trial, Until, measure};
use saggar_plugin::{Host, Plugin, PluginError};
use saggar_store::{Dataset, Models};
use serde_json::{Value, json};

use super::data::{self, folders};
use super::device::{self, Results};
use super::profile::{self, Kernels};
use super::trace;
use crate::args::{BenchTrain, Run};
use crate::commands::run;
use crate::exit::Failure;
use crate::output::Output;

/// A training that is ready to be measured.
struct Training {
    host: Host,
    plugin: Plugin,
    spec: JobSpec,
    datasets: BTreeMap<String, Arc<Dataset>>,
    models: Option<Models>,
}

/// What one device did.
struct Row {
    info: DeviceInfo,
    measured: Measured,
    /// For the steps that were asked for, from a short beginning; or for the whole training, from all of them.
    estimate: Option<Estimate>,
    /// What the steps took that were asked for.
    took_seconds: Option<f64>,
    /// What its kernels took, or why that is not known, where it is asked for.
    kernels: Option<Result<Kernels, Failure>>,
}

pub(super) fn train(args: &BenchTrain, output: Output) -> Result<i32, Failure> {
    let training = Training::of(args, output)?;
    // Where no trace can be written, nothing is measured for one.
    let file = args.profile.as_deref().map(|path| Ok((path, trace::create(path)?))).transpose()?;
    let results = device::each(&args.devices, output, |device| {
        let trial = training.trial(Until::Steps(args.steps));
        let measured = measure(&training.host, &training.plugin, &device, Meter::unlimited(), trial, |_, _| true);
        let measured = measured.map_err(|error| device::plugin_failure(&error))?;
        let kernels = args.profile.as_ref().map(|_| Kernels::of(&device, |device| training.repeat(device, args)));
        Ok(Row { kernels, ..Row::new(device.info().clone(), measured, args) })
    });
    if output.json {
        output.json(&document(args, &training.plugin, &results));
    } else {
        show(args, &results, output);
    }
    // What was measured is shown already, whatever becomes of the profile.
    let mut code = device::exit_code(&results);
    let mut profiled = Vec::new();
    for (name, kernels) in
        results.iter().filter_map(|(name, result)| Some((name, result.as_ref().ok()?.kernels.as_ref()?)))
    {
        match kernels {
            Ok(kernels) => profiled.push(kernels),
            Err(failure) => {
                let message = format!("{name}: measured, but not profiled: {}", failure.message);
                output.failure(&Failure::new(failure.exit, &failure.code, message));
                code = if code == 0 { failure.exit } else { code };
            }
        }
    }
    if !output.json {
        profiled.iter().for_each(|kernels| kernels.show(output));
    }
    if let Some((path, file)) = file {
        trace::write(path, file, &profiled)?;
        output.note(&format!("wrote {}: chrome://tracing and https://ui.perfetto.dev show it", path.display()));
    }
    Ok(code)
}

impl Training {
    fn of(args: &BenchTrain, output: Output) -> Result<Training, Failure> {
        let home = super::home(&args.home)?;
        let (folders, datasets) = folders(&args.data, home.as_ref());
        let run = Run {
            plugin: args.plugin.clone(),
            task: args.task.clone(),
            data: datasets,
            parameters: [args.param.clone(), args.parameters.clone()].concat(),
            ..Run::default()
        };
        let (mut spec, component) = run::local(&run, output)?;
        spec.seed = args.seed.unwrap_or(spec.seed);
        if let Some(precision) = &args.precision {
            spec.precision = serde_json::from_value(json!(precision))
                .map_err(|error| Failure::invalid(format!("--precision: {error}")))?;
        }
        let datasets = data::open(&spec.data, &folders, home.as_ref())?;
        let host = super::host(home.as_ref())?;
        let wasm = super::component(&component)?;
        let invalid = |error| Failure::invalid(format!("{}: {error}", component.display()));
        let plugin = host.compile(&wasm).map_err(invalid)?;
        if !plugin.trains() {
            let message = format!("{} exports no trainer", component.display());
            return Err(Failure::invalid(message).hint("`saggar bench infer` measures a plugin that only predicts"));
        }
        Ok(Training { host, plugin, spec, datasets, models: home.map(|home| Models::new(home.models())) })
    }

    /// Trains for a few more steps, on a device that writes kernels down.
    fn repeat(&self, device: &Arc<dyn Backend>, args: &BenchTrain) -> Result<(), PluginError> {
        let trial = self.trial(Until::Steps(args.steps.min(profile::STEPS_MAX)));
        measure(&self.host, &self.plugin, device, Meter::unlimited(), trial, |_, _| true).map(|_| ())
    }

    fn trial(&self, until: Until) -> Trial {
        Trial {
            spec: self.spec.clone(),
            datasets: self.datasets.clone(),
            secrets: Default::default(),
            models: self.models.clone(),
            rights: None,
            until,
        }
    }
}

impl Row {
    fn new(info: DeviceInfo, measured: Measured, args: &BenchTrain) -> Row {
        let timeline = &measured.timeline;
        let steps = args.steps.min(timeline.steps());
        let estimate = match args.total {
            true => measured.steps_in_all().and_then(|all| timeline.estimate(all, true)),
            false => timeline.beginning(steps).estimate(steps, false),
        };
        let took_seconds = timeline.time_of(steps).map(|time| time.as_secs_f64());
        Row { info, estimate, took_seconds, measured, kernels: None }
    }

    fn first_step_seconds(&self) -> f64 {
        self.measured.timeline.first_step().unwrap_or_default().as_secs_f64()
    }

    fn cells(&self) -> Vec<String> {
        let rate = self.measured.timeline.steps_per_second().map_or_else(|| "-".to_owned(), device::rate);
        let estimate = self.estimate.map_or_else(
            || "unknown".to_owned(),
            |it| {
                let at_least = if it.lacks_epoch_end { "at least " } else { "" };
                let time = device::time(it.time.as_secs_f64());
                format!("{at_least}{time} for {} (from {} steps)", it.steps, it.measured_steps)
            },
        );
        vec![
            self.info.name.clone(),
            device::adapter(&self.info),
            self.info.driver.clone(),
            device::time(self.first_step_seconds()),
            rate,
            device::busy(&self.info, self.measured.busy.as_secs_f64()),
            self.took_seconds.map_or_else(|| "-".to_owned(), device::time),
            estimate,
        ]
    }

    fn json(&self) -> Value {
        let mut fields = device::fields(
            &self.info,
            json!({
                "steps": self.measured.timeline.steps(),
                "steps_in_all": self.measured.steps_in_all(),
                "first_step_seconds": self.first_step_seconds(),
                "steps_per_second": self.measured.timeline.steps_per_second(),
                "gpu_seconds": self.measured.busy.as_secs_f64(),
                "seconds": self.took_seconds,
                "estimate": self.estimate.map(|it| it.fields()),
            }),
        );
        let kernels = |kernels: &Result<Kernels, Failure>| match kernels {
            Ok(kernels) => kernels.json(),
            Err(failure) => json!({ "error": device::error(failure) }),
        };
        fields.extend(self.kernels.as_ref().map(|it| ("profile".to_owned(), kernels(it))));
        Value::Object(fields)
    }
}

fn document(args: &BenchTrain, plugin: &Plugin, results: &Results<Row>) -> Value {
    let device = |(name, result): &(String, Result<Row, Failure>)| match result {
        Ok(row) => row.json(),
        Err(failure) => device::failed(name, failure),
    };
    let devices: Vec<Value> = results.iter().map(device).collect();
    json!({ "plugin": plugin.digest().hex(), "steps": args.steps, "devices": devices })
}

fn show(args: &BenchTrain, results: &Results<Row>, output: Output) {
    let rows: Vec<&Row> = results.iter().filter_map(|(_, result)| result.as_ref().ok()).collect();
    if rows.is_empty() {
        return;
    }
    // A training may be shorter than what was asked for.
    let steps = rows.iter().map(|row| row.measured.timeline.steps().min(args.steps)).max().unwrap_or(args.steps);
    let took = format!("{steps} STEPS");
    let headers = ["DEVICE", "ADAPTER", "DRIVER", "FIRST STEP", "STEPS/S", "GPU-SEC", &took, "ESTIMATE"];
    output.table(&headers, &rows.iter().map(|row| row.cells()).collect::<Vec<_>>());
    if steps < args.steps {
        output.note(&format!("the plugin's whole training has {steps} steps"));
    }
    if rows.iter().any(|row| row.estimate.is_some_and(|it| it.lacks_epoch_end)) {
        output.note("no epoch ended in the steps that were measured: what comes with its end, such as a validation, is not in the estimate; more --steps tell");
    }
}

//! `saggar predict MODEL --in DATASET`: submits a job that predicts every item of a dataset.

use saggar_jobs::{DataMount, JobSpec, PredictionSpec};
use saggar_rest::jobs::JobDocument;

use crate::args::PredictArgs;
use crate::client::{ApiClient, RequestBody};
use crate::commands::run::wait_and_report;
use crate::exit::CliError;
use crate::output::CliOutput;

/// Submits the job, and waits for it if requested. Returns the exit code.
pub(crate) fn submit_prediction_job(
    args: &PredictArgs,
    dataset: &str,
    client: &ApiClient,
    output: CliOutput,
) -> Result<i32, CliError> {
    let job: JobDocument = client.post("/api/v1/jobs", RequestBody::json(&prediction_spec(args, dataset)?))?;
    if args.wait {
        return wait_and_report(client, output, &job.name, false);
    }
    if output.json {
        output.print_json(&job);
        return Ok(0);
    }
    let name = &job.name;
    output.print_line(name);
    output.print_note(&format!("Next: saggar logs -f {name} | saggar output get {name}"));
    Ok(0)
}

fn prediction_spec(args: &PredictArgs, dataset: &str) -> Result<JobSpec, CliError> {
    let read = saggar_project::parse_mount(dataset);
    let mount = read.map_err(|error| CliError::invalid(format!("--in {error}")))?;
    let source = mount.source.into();
    let whole = args.model.as_deref().unwrap_or_default();
    let (model, version) = match whole.split_once('@') {
        None => (whole, None),
        Some((model, version)) => {
            let expected = || CliError::invalid(format!("{whole}: invalid version {version:?}, expected a number"));
            (model, Some(version.parse().map_err(|_| expected())?))
        }
    };
    // The server replaces this digest by that of the model's plugin.
    let mut spec = JobSpec::new(args.project.as_str(), "0".repeat(64));
    spec.data = vec![DataMount { source, mount: mount.at }];
    if let Some(device) = &args.device {
        spec.device.clone_from(device);
    }
    spec.task = "predict".to_owned();
    spec.predict =
        Some(PredictionSpec { model: model.to_owned(), version, split: args.split.clone(), out: args.out.clone() });
    Ok(spec)
}

//! `saggar predict MODEL --in DATASET`: a job that predicts every item of a dataset.

use saggar_jobs::{JobSpec, Mount, Prediction, Source};
use saggar_project::MountSource;
use serde_json::json;

use crate::args::Predict;
use crate::client::{Client, Payload};
use crate::commands::run::stay_until_over;
use crate::exit::Failure;
use crate::output::Output;

/// Submits the job, and waits for it where that is asked for. The process's exit code.
pub(crate) fn submit(args: &Predict, dataset: &str, client: &Client, output: Output) -> Result<i32, Failure> {
    let job = client.post("/api/v1/jobs", Payload::Json(&json!(spec(args, dataset)?)))?;
    let name = job["name"].as_str().unwrap_or_default().to_owned();
    if args.wait {
        return stay_until_over(client, output, &name, false);
    }
    if output.json {
        output.json(&job);
        return Ok(0);
    }
    output.line(&name);
    output.note(&format!("Next: saggar logs -f {name} | saggar output get {name}"));
    Ok(0)
}

fn spec(args: &Predict, dataset: &str) -> Result<JobSpec, Failure> {
    let read = saggar_project::parse_mount(dataset);
    let mount = read.map_err(|error| Failure::invalid(format!("--in {error}")))?;
    let source = match mount.source {
        MountSource::Dataset { dataset, version } => Source::Dataset { name: dataset, version },
        MountSource::Job { job, path } => Source::Output { job, path },
    };
    let whole = args.model.as_deref().unwrap_or_default();
    let (model, version) = match whole.split_once('@') {
        None => (whole, None),
        Some((model, version)) => {
            let expected =
                || Failure::invalid(format!("{whole}: {version:?} is no version; expected such as digits@3"));
            (model, Some(version.parse().map_err(|_| expected())?))
        }
    };
    // The server puts the model's plugin there.
    let mut spec = JobSpec::new(args.project.as_str(), "0".repeat(64));
    spec.data = vec![Mount { source, mount: mount.at }];
    if let Some(device) = &args.device {
        spec.device.clone_from(device);
    }
    spec.task = "predict".to_owned();
    spec.predict =
        Some(Prediction { model: model.to_owned(), version, split: args.split.clone(), out: args.out.clone() });
    Ok(spec)
}

//! Starts a sweep.

use std::collections::BTreeMap;
use std::time::Duration;

use saggar_rest::sweeps::SweepDocument;
use saggar_sweeps::space::ParameterRange;
use saggar_sweeps::{SweepMethod, SweepSpec};

use super::follow;
use crate::args::{SweepMethodArg, SweepStartArgs};
use crate::client::{ApiClient, RequestBody};
use crate::commands::run;
use crate::exit::CliError;
use crate::output::CliOutput;

/// Starts a sweep, and follows it if asked to. Returns the exit code.
pub(super) fn start(args: &SweepStartArgs, client: &ApiClient, output: CliOutput) -> Result<i32, CliError> {
    if args.run.estimate || args.run.mode.is_some() {
        return Err(CliError::invalid("--estimate and --mode are options of `saggar run`")
            .with_hint("estimate one training first: `saggar run PLUGIN --estimate`"));
    }
    // Everything is checked before the plugin is built.
    let space = read_space(args)?;
    let metric = args.metric.clone().ok_or_else(|| {
        CliError::invalid("--metric is missing").with_hint("name a series, for example --metric validation/accuracy")
    })?;
    let job = run::job_spec_of_run(&args.run, client, output)?;
    let seed = job.seed;
    let mut spec = SweepSpec { trials: args.random, seed, ..SweepSpec::new(job, space, metric) };
    if let Some(method) = args.method {
        spec.method = match method {
            SweepMethodArg::Full => SweepMethod::Full,
            SweepMethodArg::Median => SweepMethod::Median,
            SweepMethodArg::Halving => SweepMethod::Halving,
            SweepMethodArg::Asha => SweepMethod::Asha,
        };
    }
    spec.max_parallel = args.max_parallel.unwrap_or(spec.max_parallel);
    spec.eta = args.eta.unwrap_or(spec.eta);
    spec.rungs = args.rungs.unwrap_or(spec.rungs);
    spec.budget_seconds = args.budget.map(|time: Duration| time.as_secs_f64());
    spec.budget_device_seconds = args.device_budget.map(|time| time.as_secs_f64());
    let sweep: SweepDocument = client.post("/api/v1/sweeps", RequestBody::json(&spec))?;
    let name = sweep.name.clone();
    if args.run.follow || args.run.wait {
        output.print_note(&format!("Started {name}: {} trials", sweep.trials_target));
        return follow(client, output, &name);
    }
    if output.json {
        output.print_json(&sweep);
    } else {
        output.print_line(&name);
        output.print_note(&format!("  {} trials, method {}", sweep.trials_target, sweep.method));
        output.print_note(&format!(
            "Next: saggar sweep status {name} | saggar sweep results {name} | saggar sweep stop {name}"
        ));
    }
    Ok(0)
}

/// Reads `--space` and `--grid`.
fn read_space(args: &SweepStartArgs) -> Result<BTreeMap<String, String>, CliError> {
    let mut space = BTreeMap::new();
    let words = args.space.iter().map(|word| ("--space", word)).chain(args.grid.iter().map(|word| ("--grid", word)));
    for (flag, word) in words {
        let refuse = |reason: &str| {
            CliError::invalid(format!("{flag} {word}: {reason}"))
                .with_hint("for example --space 'lr=log(1e-4,1e-1)' or --grid lr=0.1,0.01")
        };
        let (name, range) = word.split_once('=').ok_or_else(|| refuse("expected a parameter and its values"))?;
        let parsed = ParameterRange::parse(range).map_err(|error| refuse(&error.to_string()))?;
        if flag == "--grid" && parsed.listed().is_none() {
            return Err(refuse("a grid has listed values"));
        }
        if space.insert(name.to_owned(), range.to_owned()).is_some() {
            return Err(refuse("the parameter is given twice"));
        }
    }
    if space.is_empty() {
        return Err(CliError::invalid("no parameter is searched")
            .with_hint("for example --grid lr=0.1,0.01, or --space 'lr=log(1e-4,1e-1)' --random 20"));
    }
    Ok(space)
}

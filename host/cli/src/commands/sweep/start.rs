//! Starts a sweep.

use std::collections::BTreeMap;
use std::time::Duration;

use saggar_project::{PROJECT_FILE, SweepSection};
use saggar_rest::sweeps::SweepDocument;
use saggar_sweeps::space::ParameterRange;
use saggar_sweeps::{SweepMethod, SweepSpec};

use super::follow;
use crate::args::{SweepMethodArg, SweepStartArgs};
use crate::client::{ApiClient, RequestBody};
use crate::commands::run;
use crate::exit::{self, CliError};
use crate::output::CliOutput;
use crate::project::ProjectContext;

/// Starts a sweep, and follows it if asked to. Returns the exit code.
pub(super) fn start(mut args: SweepStartArgs, client: &ApiClient, output: CliOutput) -> Result<i32, CliError> {
    if args.run.estimate || args.run.mode.is_some() {
        return Err(CliError::invalid("--estimate and --mode are options of `saggar run`")
            .with_hint("estimate one training first: `saggar run PLUGIN --estimate`"));
    }
    let project = args.sweep.as_ref().map(|_| ProjectContext::require()).transpose()?;
    let section = match (&args.sweep, &project) {
        (Some(name), Some(project)) => Some(find_section(project, name)?),
        _ => None,
    };
    if let Some(section) = section {
        args.run.task.get_or_insert_with(|| section.task.clone());
    }
    // Everything is checked before the plugin is built.
    let space = read_space(&args, section)?;
    let metric = args.metric.clone().or_else(|| section.map(|section| section.metric.clone())).ok_or_else(|| {
        CliError::invalid("--metric is missing").with_hint("name a series, for example --metric validation/accuracy")
    })?;
    let method = find_method(&args, section);
    let job = run::job_spec_of_run(&args.run, client, output)?;
    let (seed, new) = (job.seed, SweepSpec::new(job, space, metric));
    let number = |flag: Option<u32>, key: fn(&SweepSection) -> Option<u32>| flag.or_else(|| section.and_then(key));
    let time = |flag: Option<Duration>, key: fn(&SweepSection) -> Option<Duration>| {
        flag.or_else(|| section.and_then(key)).map(|time| time.as_secs_f64())
    };
    let spec = SweepSpec {
        trials: number(args.random, |section| section.trials),
        method,
        seed,
        max_parallel: number(args.max_parallel, |section| section.max_parallel).unwrap_or(new.max_parallel),
        eta: number(args.eta, |section| section.eta).unwrap_or(new.eta),
        rungs: number(args.rungs, |section| section.rungs).unwrap_or(new.rungs),
        generations: number(args.generations, |section| section.generations),
        exploit_quantile: args.exploit_quantile.or_else(|| section?.exploit_quantile),
        perturb_factors: args.perturb_factors.clone().or_else(|| section?.perturb_factors.clone()),
        resample_probability: args.resample_probability.or_else(|| section?.resample_probability),
        budget_seconds: time(args.budget, |section| section.budget),
        budget_device_seconds: time(args.device_budget, |section| section.device_budget),
        ..new
    };
    submit(&args, &spec, client, output)
}

fn submit(args: &SweepStartArgs, spec: &SweepSpec, client: &ApiClient, output: CliOutput) -> Result<i32, CliError> {
    let sweep: SweepDocument = client.post("/api/v1/sweeps", RequestBody::json(spec))?;
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

/// Returns a sweep of the project file.
fn find_section<'a>(project: &'a ProjectContext, name: &str) -> Result<&'a SweepSection, CliError> {
    project.manifest.sweeps.get(name).ok_or_else(|| {
        let known: Vec<&str> = project.manifest.sweeps.keys().map(String::as_str).collect();
        let hint = match known.is_empty() {
            true => format!("add a table [sweep.{name}] to {PROJECT_FILE}"),
            false => format!("its sweeps are: {}", known.join(", ")),
        };
        CliError::new(exit::NOT_FOUND, "no_sweep", format!("{PROJECT_FILE} has no sweep {name:?}")).with_hint(hint)
    })
}

fn find_method(args: &SweepStartArgs, section: Option<&SweepSection>) -> SweepMethod {
    match args.method {
        Some(SweepMethodArg::Full) => SweepMethod::Full,
        Some(SweepMethodArg::Median) => SweepMethod::Median,
        Some(SweepMethodArg::Halving) => SweepMethod::Halving,
        Some(SweepMethodArg::Asha) => SweepMethod::Asha,
        Some(SweepMethodArg::Tpe) => SweepMethod::Tpe,
        Some(SweepMethodArg::TpeAsha) => SweepMethod::TpeAsha,
        Some(SweepMethodArg::Pbt) => SweepMethod::Pbt,
        None => {
            let named = section.and_then(|section| section.method.as_deref());
            let found = named.and_then(|name| SweepMethod::ALL.into_iter().find(|method| method.name() == name));
            found.unwrap_or_default()
        }
    }
}

/// Reads `--space` and `--grid`, which replace the ranges of the project file by name.
fn read_space(args: &SweepStartArgs, section: Option<&SweepSection>) -> Result<BTreeMap<String, String>, CliError> {
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
    for (name, range) in section.iter().flat_map(|section| &section.space) {
        ParameterRange::parse(range)
            .map_err(|error| CliError::invalid(format!("{PROJECT_FILE}: space.{name}: {error}")))?;
        space.entry(name.clone()).or_insert_with(|| range.clone());
    }
    if space.is_empty() {
        return Err(CliError::invalid("no parameter is searched")
            .with_hint("for example --grid lr=0.1,0.01, or --space 'lr=log(1e-4,1e-1)' --random 20"));
    }
    Ok(space)
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;
    use saggar_project::SWEEP_METHODS;

    use super::*;

    #[test]
    fn the_methods_of_options_and_the_project_file_are_those_of_sweeps() {
        let names = SweepMethod::ALL.map(SweepMethod::name);
        assert_eq!(SWEEP_METHODS, names);
        let values: Vec<String> = SweepMethodArg::value_variants()
            .iter()
            .filter_map(|method| Some(method.to_possible_value()?.get_name().to_owned()))
            .collect();
        assert_eq!(values, names);
    }
}

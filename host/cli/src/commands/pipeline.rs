//! `saggar pipeline`: checks, shows and runs the pipelines of the project file, and shows and controls runs.

mod check;
mod folders;
mod graph;
mod plan;
mod show;

use std::time::Duration;

use saggar_pipelines::RunRequest;
use saggar_project::PipelinePlan;
use saggar_rest::pipelines::{
    PipelineApprovalRequest, PipelineRestartRequest, PipelineRunDocument, PipelineRunListDocument,
    PipelineScheduleDocument, PipelineScheduleListDocument, RemovedPipelineRunDocument,
    RemovedPipelineScheduleDocument, SetPipelineScheduleRequest,
};
use serde::Serialize;

use super::job_log;
use crate::args::{PipelineCommand, PipelineRunArgs, PipelineScheduleArgs};
use crate::client::{ApiClient, RequestBody, encode_path_segment};
use crate::exit::{self, CliError};
use crate::output::CliOutput;
use crate::project::ProjectContext;
use crate::reconnect::ReconnectState;
use crate::units;

/// How often a followed run is read.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

pub(crate) fn pipeline(args: &PipelineCommand, client: &ApiClient, output: CliOutput) -> Result<i32, CliError> {
    match args {
        PipelineCommand::Check { name } => check::check(name.as_deref(), output),
        PipelineCommand::Graph(args) => graph::graph(args, output),
        PipelineCommand::Run(args) => run(args, client, output),
        PipelineCommand::Ls { name } => list(name.as_deref(), client, output),
        PipelineCommand::Status { run } => {
            show::print_run(&client.get(&run_path(run))?, output);
            Ok(0)
        }
        PipelineCommand::Logs { run, step, follow } => logs(run, step.as_deref(), *follow, client, output),
        PipelineCommand::Stop { run } => command(run, "stop", RequestBody::Empty, "stopping", client, output),
        PipelineCommand::Approve { run, step, reject } => {
            let request = PipelineApprovalRequest { step: step.clone(), approve: !reject };
            let said = if *reject { "rejected" } else { "approved" };
            command(run, "approve", RequestBody::json(&request), said, client, output)
        }
        PipelineCommand::Restart { run, from } => {
            let request = PipelineRestartRequest { from: from.clone() };
            command(run, "restart", RequestBody::json(&request), "restarted", client, output)
        }
        PipelineCommand::Rm { run } => {
            let removed: RemovedPipelineRunDocument = client.delete(&run_path(run))?;
            print_name(&removed, &removed.name, "removed", output);
            Ok(0)
        }
        PipelineCommand::Schedule(args) => schedule(args, client, output),
    }
}

/// Returns the run's path in the REST interface.
fn run_path(run: &str) -> String {
    format!("/api/v1/pipeline-runs/{}", encode_path_segment(run))
}

fn print_name(document: &impl Serialize, name: &str, what: &str, output: CliOutput) {
    match output.json {
        true => output.print_json(document),
        false if output.quiet => output.print_line(name),
        false => output.print_line(&format!("{name} {what}")),
    }
}

fn run(args: &PipelineRunArgs, client: &ApiClient, output: CliOutput) -> Result<i32, CliError> {
    let mut request = plan::run_request(&args.name, &args.params, client, output)?;
    request.from_failed = match args.from_failed.as_deref() {
        Some("") => Some(newest_failed_run(&request.plan, client)?),
        named => named.map(str::to_owned),
    };
    let body = RequestBody::json(&request);
    let run: PipelineRunDocument = match &args.idempotency_key {
        Some(key) => client.post_with_header("/api/v1/pipeline-runs", ("idempotency-key", key), body)?,
        None => client.post("/api/v1/pipeline-runs", body)?,
    };
    if let Some(earlier) = &run.reuse_from {
        output.print_note(&format!("results of {earlier} are used where nothing changed"));
    }
    if args.follow {
        return follow(&run.name, client, output);
    }
    match output.json {
        true => output.print_json(&run),
        false => output.print_line(&run.name),
    }
    let name = &run.name;
    output.print_note(&format!("Next: saggar pipeline status {name} | saggar pipeline stop {name}"));
    Ok(0)
}

/// Returns the name of the newest run of a pipeline that failed.
fn newest_failed_run(plan: &PipelinePlan, client: &ApiClient) -> Result<String, CliError> {
    let path = format!("/api/v1/pipeline-runs?pipeline={}&state=FAILED", encode_path_segment(&plan.name));
    let PipelineRunListDocument { runs, .. } = client.get(&path)?;
    let newest = runs.into_iter().find(|run| run.project == plan.project);
    newest.map(|run| run.name).ok_or_else(|| {
        let message = format!("pipeline {} has no run that failed", plan.name);
        CliError::new(exit::NOT_FOUND, "no_run", message)
            .with_hint(format!("`saggar pipeline ls {}` lists its runs; --from-failed RUN names one", plan.name))
    })
}

/// Shows the changes of a run's steps until it ends. Waits across restarts of the server.
fn follow(name: &str, client: &ApiClient, output: CliOutput) -> Result<i32, CliError> {
    let mut changes = show::StepChanges::default();
    let mut reconnect = ReconnectState::new(output);
    loop {
        match client.get::<PipelineRunDocument>(&run_path(name)) {
            Ok(run) => {
                reconnect.note_connected();
                changes.print_new(&run, output);
                if run.state != "RUNNING" {
                    return Ok(show::print_end(&run, output));
                }
            }
            Err(error) => reconnect.wait_for_retry(error)?,
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

fn list(name: Option<&str>, client: &ApiClient, output: CliOutput) -> Result<i32, CliError> {
    let query = name.map_or_else(String::new, |name| format!("?pipeline={}", encode_path_segment(name)));
    let PipelineRunListDocument { runs, .. } = client.get(&format!("/api/v1/pipeline-runs{query}"))?;
    if output.json {
        output.print_json(&runs);
    } else if output.quiet {
        runs.iter().for_each(|run| output.print_line(&run.name));
    } else {
        show::print_runs(&runs, output);
    }
    Ok(0)
}

fn logs(run: &str, step: Option<&str>, follow: bool, client: &ApiClient, output: CliOutput) -> Result<i32, CliError> {
    let run: PipelineRunDocument = client.get(&run_path(run))?;
    let steps = run.steps.unwrap_or_default();
    if let Some(name) = step.filter(|name| steps.iter().all(|step| step.name != **name)) {
        let names: Vec<&str> = steps.iter().map(|step| step.name.as_str()).collect();
        let message = format!("{} has no step {name:?}", run.name);
        return Err(CliError::new(exit::NOT_FOUND, "not_found", message)
            .with_hint(format!("its steps are {}", names.join(", "))));
    }
    let mut printed = 0;
    for attempt in steps.iter().filter(|it| step.is_none_or(|name| it.name == name)).flat_map(|step| &step.attempts) {
        let Some(job) = attempt.job.as_ref().filter(|_| attempt.cached_from.is_none()) else { continue };
        let follow_flag = if follow { "&follow=1" } else { "" };
        let path = format!("/api/v1/jobs/{}/logs?prefix=1{follow_flag}", encode_path_segment(job));
        match follow {
            true => job_log::follow_log(client, output, &path)?,
            false => job_log::print_log(client, output, &path)?,
        }
        printed += 1;
    }
    if printed == 0 {
        output.print_note("no job of it has started");
    }
    Ok(0)
}

fn command(
    run: &str,
    command: &str,
    body: RequestBody<'_>,
    said: &str,
    client: &ApiClient,
    output: CliOutput,
) -> Result<i32, CliError> {
    let run: PipelineRunDocument = client.post(&format!("{}/{command}", run_path(run)), body)?;
    print_name(&run, &run.name, said, output);
    Ok(0)
}

fn schedule(args: &PipelineScheduleArgs, client: &ApiClient, output: CliOutput) -> Result<i32, CliError> {
    let Some(name) = &args.name else {
        let PipelineScheduleListDocument { pipelines } = client.get("/api/v1/pipelines")?;
        print_schedules(&pipelines, output);
        return Ok(0);
    };
    if args.remove {
        let path = format!("/api/v1/pipelines/{}", encode_path_segment(name));
        let removed: RemovedPipelineScheduleDocument = client.delete(&path)?;
        print_name(&removed, &removed.name, "is not scheduled any more", output);
        return Ok(0);
    }
    let project = ProjectContext::require()?;
    let own = plan::find_pipeline(&project, name)?.schedule.as_ref().map(|cron| cron.as_str().to_owned());
    let Some(cron) = args.cron.clone().or(own) else {
        return Err(CliError::invalid(format!("pipeline {name} has no schedule"))
            .with_hint(format!("give --cron '15 23 * * *', or add schedule = \"15 23 * * *\" to [pipeline.{name}]")));
    };
    let run: RunRequest = plan::run_request(name, &args.params, client, output)?;
    for version in folders::named_versions(&run.plan) {
        output.print_note(&format!("each run uses {version}; set the schedule again to push the folder again"));
    }
    let request = SetPipelineScheduleRequest { cron, run };
    let set: PipelineScheduleDocument = client.post("/api/v1/pipelines", RequestBody::json(&request))?;
    print_schedules(&[set], output);
    Ok(0)
}

fn print_schedules(schedules: &[PipelineScheduleDocument], output: CliOutput) {
    if output.json {
        return output.print_json(&schedules);
    }
    let row = |it: &PipelineScheduleDocument| {
        let next = it.next_ms.map_or("-".to_owned(), units::format_time);
        vec![it.name.clone(), it.cron.clone(), next, it.last_run.clone().unwrap_or_else(|| "-".to_owned())]
    };
    let rows: Vec<Vec<String>> = schedules.iter().map(row).collect();
    output.print_table(&["PIPELINE", "CRON", "NEXT", "LAST RUN"], &rows);
}

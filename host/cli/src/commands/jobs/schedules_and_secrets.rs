//! `saggar schedule` and `saggar secret`.

use std::io::Read;

use saggar_project::{PROJECT_FILE, TaskSection};
use saggar_rest::jobs::JobDocument;
use saggar_rest::schedules::{RemovedScheduleDocument, ScheduleDocument, ScheduleListDocument, SetScheduleRequest};
use saggar_rest::secrets::{SecretListDocument, SecretNameDocument, SetSecretRequest};
use serde::Serialize;

use crate::args::{ScheduleCommand, SecretCommand};
use crate::client::{ApiClient, RequestBody, encode_path_segment};
use crate::commands::job_follow::job_path;
use crate::commands::run;
use crate::exit::{self, CliError};
use crate::output::CliOutput;
use crate::project::ProjectContext;
use crate::units;

pub(crate) fn schedules(args: &ScheduleCommand, client: &ApiClient, output: CliOutput) -> Result<(), CliError> {
    match args {
        ScheduleCommand::Set { name, cron, like } => {
            let JobDocument { spec, .. } = client.get(&job_path(like))?;
            let request = SetScheduleRequest { name: name.clone(), cron: cron.clone(), spec };
            print_schedules(&[client.post("/api/v1/schedules", RequestBody::json(&request))?], output);
        }
        ScheduleCommand::Apply { tasks } => print_schedules(&apply_project_schedules(tasks, client, output)?, output),
        ScheduleCommand::Ls => {
            let ScheduleListDocument { schedules } = client.get("/api/v1/schedules")?;
            print_schedules(&schedules, output);
            if schedules.is_empty() {
                output.print_note("No schedules. `saggar schedule set nightly '15 23 * * *' --like JOB` creates one.");
            }
        }
        ScheduleCommand::Rm { name } => {
            let path = format!("/api/v1/schedules/{}", encode_path_segment(name));
            let removed: RemovedScheduleDocument = client.delete(&path)?;
            print_result(&removed, &removed.name, "removed", output);
        }
    }
    Ok(())
}

/// Sets the schedules of the project file, each named after its project and task.
fn apply_project_schedules(
    named: &[String],
    client: &ApiClient,
    output: CliOutput,
) -> Result<Vec<ScheduleDocument>, CliError> {
    let project = ProjectContext::require()?;
    let all: Vec<(&str, &TaskSection)> = match named.is_empty() {
        true => project.manifest.tasks.iter().map(|(name, task)| (name.as_str(), task)).collect(),
        false => named.iter().map(|name| project.task(name)).collect::<Result<_, _>>()?,
    };
    let scheduled =
        |(name, task): (&str, &TaskSection)| Some((name.to_owned(), task.plugin.clone()?, task.schedule.clone()?));
    let scheduled: Vec<_> = all.into_iter().filter_map(scheduled).collect();
    if scheduled.is_empty() {
        return Err(CliError::invalid(format!("no such task of {PROJECT_FILE} has a schedule"))
            .with_hint("add a line, for example schedule = \"15 23 * * *\" to [task.NAME]"));
    }
    let mut set = Vec::new();
    for (task, plugin, cron) in scheduled {
        let component = run::build_plugin(&project, &plugin, output, None)?;
        let spec = run::task_spec(&project, &task, &run::upload_plugin(client, &component)?, &component)?;
        let name = format!("{}-{task}", spec.project);
        let request = SetScheduleRequest { name, cron: cron.as_str().to_owned(), spec };
        set.push(client.post("/api/v1/schedules", RequestBody::json(&request))?);
    }
    Ok(set)
}

fn print_schedules(schedules: &[ScheduleDocument], output: CliOutput) {
    if output.json {
        output.print_json(&schedules);
        return;
    }
    let row = |schedule: &ScheduleDocument| {
        let next = schedule.next_ms.map_or("-".to_owned(), units::format_time);
        let last = schedule.last_job.as_deref().unwrap_or("-");
        vec![schedule.name.clone(), schedule.cron.clone(), next, last.to_owned()]
    };
    let rows: Vec<Vec<String>> = schedules.iter().map(row).collect();
    output.print_table(&["SCHEDULE", "CRON (UTC)", "NEXT", "LAST JOB"], &rows);
}

pub(crate) fn secret(args: &SecretCommand, client: &ApiClient, output: CliOutput) -> Result<(), CliError> {
    match args {
        SecretCommand::Set { name, projects } => {
            let mut value = String::new();
            let read = std::io::stdin().read_to_string(&mut value);
            read.map_err(|error| CliError::new(exit::UNEXPECTED, "read", format!("standard input: {error}")))?;
            let value = value.strip_suffix('\n').unwrap_or(&value);
            let projects = (!projects.is_empty()).then(|| projects.clone());
            let request = SetSecretRequest { value: value.to_owned(), projects };
            let path = format!("/api/v1/secrets/{}", encode_path_segment(name));
            let set: SecretNameDocument = client.put_json(&path, &request)?;
            print_result(&set, &set.name, "kept", output);
        }
        SecretCommand::Ls => {
            let listed: SecretListDocument = client.get("/api/v1/secrets")?;
            if output.json {
                output.print_json(&listed.secrets);
                return Ok(());
            }
            if output.quiet {
                listed.secrets.iter().for_each(|name| output.print_line(name));
                return Ok(());
            }
            let row = |name: &String| {
                let projects = listed.projects.get(name).map_or_else(String::new, |projects| projects.join(","));
                vec![name.clone(), if projects.is_empty() { "-".to_owned() } else { projects }]
            };
            let rows: Vec<Vec<String>> = listed.secrets.iter().map(row).collect();
            output.print_table(&["SECRET", "PROJECTS"], &rows);
        }
        SecretCommand::Rm { name } => {
            let path = format!("/api/v1/secrets/{}", encode_path_segment(name));
            let removed: SecretNameDocument = client.delete(&path)?;
            print_result(&removed, &removed.name, "removed", output);
        }
    }
    Ok(())
}

fn print_result(document: &impl Serialize, name: &str, what: &str, output: CliOutput) {
    if output.json {
        output.print_json(document);
    } else {
        output.print_line(&format!("{name} {what}"));
    }
}

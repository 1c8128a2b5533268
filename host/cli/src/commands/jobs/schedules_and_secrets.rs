//! `saggar schedule` and `saggar secret`.

use std::io::Read;

use saggar_project::{PROJECT_FILE, TaskSection};
use serde_json::{Value, json};

use super::{job_path, text};
use crate::args::{ScheduleCommand, SecretCommand};
use crate::client::{ApiClient, RequestBody, encode_path_segment};
use crate::commands::run;
use crate::exit::{self, CliError};
use crate::output::CliOutput;
use crate::project::ProjectContext;
use crate::units;

pub(crate) fn schedules(args: &ScheduleCommand, client: &ApiClient, output: CliOutput) -> Result<(), CliError> {
    match args {
        ScheduleCommand::Set { name, cron, like } => {
            let spec = client.get(&job_path(like))?["spec"].clone();
            let body = json!({ "name": name, "cron": cron, "spec": spec });
            let set = client.post("/api/v1/schedules", RequestBody::Json(&body))?;
            print_schedules(&[set], output);
        }
        ScheduleCommand::Apply { tasks } => print_schedules(&apply_project_schedules(tasks, client, output)?, output),
        ScheduleCommand::Ls => {
            let answer = client.get("/api/v1/schedules")?;
            let schedules = answer["schedules"].as_array().cloned().unwrap_or_default();
            print_schedules(&schedules, output);
            if schedules.is_empty() {
                output.print_note("No schedules. `saggar schedule set nightly '15 23 * * *' --like JOB` creates one.");
            }
        }
        ScheduleCommand::Rm { name } => {
            let gone = client.delete(&format!("/api/v1/schedules/{}", encode_path_segment(name)))?;
            print_result(&gone, "removed", output);
        }
    }
    Ok(())
}

/// Sets the schedules of the project file, each named after its project and task.
fn apply_project_schedules(named: &[String], client: &ApiClient, output: CliOutput) -> Result<Vec<Value>, CliError> {
    let project = ProjectContext::require()?;
    let all: Vec<(&str, &TaskSection)> = match named.is_empty() {
        true => project.manifest.tasks.iter().map(|(name, task)| (name.as_str(), task)).collect(),
        false => named.iter().map(|name| project.task(name)).collect::<Result<_, _>>()?,
    };
    let scheduled =
        |(name, task): (&str, &TaskSection)| Some((name.to_owned(), task.plugin.clone(), task.schedule.clone()?));
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
        let body = json!({ "name": name, "cron": cron.as_str(), "spec": spec });
        set.push(client.post("/api/v1/schedules", RequestBody::Json(&body))?);
    }
    Ok(set)
}

fn print_schedules(schedules: &[Value], output: CliOutput) {
    if output.json {
        output.print_json(&json!(schedules));
        return;
    }
    let row = |schedule: &Value| {
        let next = schedule["next_ms"].as_u64().map_or("-".to_owned(), units::format_time);
        let last = schedule["last_job"].as_str().unwrap_or("-");
        vec![text(schedule, "name").to_owned(), text(schedule, "cron").to_owned(), next, last.to_owned()]
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
            let mut body = json!({ "value": value });
            if !projects.is_empty() {
                body["projects"] = json!(projects);
            }
            let set = client.put_json(&format!("/api/v1/secrets/{}", encode_path_segment(name)), &body)?;
            print_result(&set, "kept", output);
        }
        SecretCommand::Ls => {
            let answer = client.get("/api/v1/secrets")?;
            if output.json {
                output.print_json(&answer["secrets"]);
                return Ok(());
            }
            let names = answer["secrets"].as_array().into_iter().flatten().filter_map(Value::as_str);
            if output.quiet {
                names.for_each(|name| output.print_line(name));
                return Ok(());
            }
            let row = |name: &str| {
                let projects = answer["projects"][name].as_array().into_iter().flatten().filter_map(Value::as_str);
                let projects = projects.collect::<Vec<&str>>().join(",");
                vec![name.to_owned(), if projects.is_empty() { "-".to_owned() } else { projects }]
            };
            let rows: Vec<Vec<String>> = names.map(row).collect();
            output.print_table(&["SECRET", "PROJECTS"], &rows);
        }
        SecretCommand::Rm { name } => {
            let gone = client.delete(&format!("/api/v1/secrets/{}", encode_path_segment(name)))?;
            print_result(&gone, "removed", output);
        }
    }
    Ok(())
}

fn print_result(answer: &Value, what: &str, output: CliOutput) {
    if output.json {
        output.print_json(answer);
    } else {
        output.print_line(&format!("{} {what}", text(answer, "name")));
    }
}

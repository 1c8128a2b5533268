//! `saggar schedule` and `saggar secret`.

use std::io::Read;

use saggar_project::{PROJECT_FILE, Task};
use serde_json::{Value, json};

use super::{job_path, text};
use crate::args::{Schedules, Secret};
use crate::client::{Client, Payload, segment};
use crate::commands::run;
use crate::exit::{self, Failure};
use crate::output::Output;
use crate::project::Project;
use crate::units;

pub(crate) fn schedules(args: &Schedules, client: &Client, output: Output) -> Result<(), Failure> {
    match args {
        Schedules::Set { name, cron, like } => {
            let spec = client.get(&job_path(like))?["spec"].clone();
            let body = json!({ "name": name, "cron": cron, "spec": spec });
            let set = client.post("/api/v1/schedules", Payload::Json(&body))?;
            show(&[set], output);
        }
        Schedules::Apply { tasks } => show(&apply(tasks, client, output)?, output),
        Schedules::Ls => {
            let answer = client.get("/api/v1/schedules")?;
            let schedules = answer["schedules"].as_array().cloned().unwrap_or_default();
            show(&schedules, output);
            if schedules.is_empty() {
                output.note("No schedules. `saggar schedule set nightly '15 23 * * *' --like JOB` makes one.");
            }
        }
        Schedules::Rm { name } => {
            let gone = client.delete(&format!("/api/v1/schedules/{}", segment(name)))?;
            told(&gone, "removed", output);
        }
    }
    Ok(())
}

/// Schedules what the project file says, each task under its project's name and its own.
fn apply(named: &[String], client: &Client, output: Output) -> Result<Vec<Value>, Failure> {
    let project = Project::require()?;
    let all: Vec<(&str, &Task)> = match named.is_empty() {
        true => project.manifest.tasks.iter().map(|(name, task)| (name.as_str(), task)).collect(),
        false => named.iter().map(|name| project.task(name)).collect::<Result<_, _>>()?,
    };
    let scheduled = |(name, task): (&str, &Task)| Some((name.to_owned(), task.plugin.clone(), task.schedule.clone()?));
    let scheduled: Vec<_> = all.into_iter().filter_map(scheduled).collect();
    if scheduled.is_empty() {
        return Err(Failure::invalid(format!("no such task of {PROJECT_FILE} has a schedule"))
            .hint("add a line such as schedule = \"15 23 * * *\" to [task.NAME]"));
    }
    let mut set = Vec::new();
    for (task, plugin, cron) in scheduled {
        let component = run::build_plugin(&project, &plugin, output, None)?;
        let spec = run::task_spec(&project, &task, &run::upload(client, &component)?, &component)?;
        let name = format!("{}-{task}", spec.project);
        let body = json!({ "name": name, "cron": cron.as_str(), "spec": spec });
        set.push(client.post("/api/v1/schedules", Payload::Json(&body))?);
    }
    Ok(set)
}

fn show(schedules: &[Value], output: Output) {
    if output.json {
        output.json(&json!(schedules));
        return;
    }
    let row = |schedule: &Value| {
        let next = schedule["next_ms"].as_u64().map_or("-".to_owned(), units::show_time);
        let last = schedule["last_job"].as_str().unwrap_or("-");
        vec![text(schedule, "name").to_owned(), text(schedule, "cron").to_owned(), next, last.to_owned()]
    };
    let rows: Vec<Vec<String>> = schedules.iter().map(row).collect();
    output.table(&["SCHEDULE", "CRON (UTC)", "NEXT", "LAST JOB"], &rows);
}

pub(crate) fn secret(args: &Secret, client: &Client, output: Output) -> Result<(), Failure> {
    match args {
        Secret::Set { name, projects } => {
            let mut value = String::new();
            let read = std::io::stdin().read_to_string(&mut value);
            read.map_err(|error| Failure::new(exit::UNEXPECTED, "read", format!("standard input: {error}")))?;
            let value = value.strip_suffix('\n').unwrap_or(&value);
            let mut body = json!({ "value": value });
            if !projects.is_empty() {
                body["projects"] = json!(projects);
            }
            let set = client.put_json(&format!("/api/v1/secrets/{}", segment(name)), &body)?;
            told(&set, "kept", output);
        }
        Secret::Ls => {
            let answer = client.get("/api/v1/secrets")?;
            if output.json {
                output.json(&answer["secrets"]);
                return Ok(());
            }
            let names = answer["secrets"].as_array().into_iter().flatten().filter_map(Value::as_str);
            if output.quiet {
                names.for_each(|name| output.line(name));
                return Ok(());
            }
            let row = |name: &str| {
                let projects = answer["projects"][name].as_array().into_iter().flatten().filter_map(Value::as_str);
                let projects = projects.collect::<Vec<&str>>().join(",");
                vec![name.to_owned(), if projects.is_empty() { "-".to_owned() } else { projects }]
            };
            let rows: Vec<Vec<String>> = names.map(row).collect();
            output.table(&["SECRET", "PROJECTS"], &rows);
        }
        Secret::Rm { name } => {
            let gone = client.delete(&format!("/api/v1/secrets/{}", segment(name)))?;
            told(&gone, "removed", output);
        }
    }
    Ok(())
}

fn told(answer: &Value, what: &str, output: Output) {
    if output.json {
        output.json(answer);
    } else {
        output.line(&format!("{} {what}", text(answer, "name")));
    }
}

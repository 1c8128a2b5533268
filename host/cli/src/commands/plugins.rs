//! `saggar plugins`: lists and shows the server's plugins and the reference plugins, lists the worlds that a plugin can be built for, and tests whether a plugin resumes
//! after interruptions.

mod show;
mod worlds;

use std::time::Duration;

use saggar_jobs::JobSpec;
use saggar_rest::jobs::JobDocument;
use saggar_rest::plugins::{ListedPluginDocument, PluginListDocument, ResumeTestDocument, ResumeTestRequest};
use saggar_store::JobState;

use super::{job_follow, run};
use crate::args::{PluginsCommand, TestResumeArgs};
use crate::client::{ApiClient, RequestBody};
use crate::exit::CliError;
use crate::output::CliOutput;
use crate::units;

/// How often a training that is to be interrupted is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

pub(crate) fn plugins(args: &PluginsCommand, client: &ApiClient, output: CliOutput) -> Result<i32, CliError> {
    match args {
        PluginsCommand::Ls => list_plugins(client, output).map(|()| 0),
        PluginsCommand::Show { plugin } => show::show_plugin(plugin, client, output).map(|()| 0),
        PluginsCommand::Worlds => worlds::list_worlds(output).map(|()| 0),
        PluginsCommand::Test(args) => test_resume(args, client, output),
    }
}

fn list_plugins(client: &ApiClient, output: CliOutput) -> Result<(), CliError> {
    let PluginListDocument { plugins } = client.get("/api/v1/plugins")?;
    if output.json {
        output.print_json(&plugins);
        return Ok(());
    }
    if output.quiet {
        plugins.iter().for_each(|listed| output.print_line(&listed.plugin.digest));
        return Ok(());
    }
    let yes = |flag: bool| if flag { "yes" } else { "-" }.to_owned();
    let row = |ListedPluginDocument { plugin, resume_test }: &ListedPluginDocument| {
        vec![
            plugin.declared_name().unwrap_or("-").to_owned(),
            plugin.digest.chars().take(12).collect(),
            yes(plugin.trains),
            yes(plugin.predicts),
            units::format_bytes(plugin.bytes),
            if plugin.reference { "saggar" } else { "upload" }.to_owned(),
            describe_resume_test(resume_test.as_ref()),
        ]
    };
    output.print_table(
        &["NAME", "PLUGIN", "TRAINS", "PREDICTS", "SIZE", "FROM", "RESUMES"],
        &plugins.iter().map(row).collect::<Vec<_>>(),
    );
    output.print_note("Next: saggar plugins show NAME | saggar run NAME --data DATASET");
    Ok(())
}

/// Returns whether a plugin is known to resume after an interruption, with the job that showed it.
fn describe_resume_test(test: Option<&ResumeTestDocument>) -> String {
    match test.map(|test| &test.interrupted) {
        None => "not tested".to_owned(),
        Some(Some(job)) => format!("yes ({job})"),
        Some(None) => "yes".to_owned(),
    }
}

fn test_resume(args: &TestResumeArgs, client: &ApiClient, output: CliOutput) -> Result<i32, CliError> {
    let spec = run::job_spec_of_run(&args.run, client, output)?;
    let whole = submit_job(&spec, client)?;
    output.print_note(&format!("{whole} trains without interruption"));
    let job = job_follow::wait_until_over(client, output, &whole)?;
    if job.state != JobState::Succeeded.name() {
        output.print_line(&job_follow::describe_end(&job, &whole, output));
        return Ok(job_follow::exit_code(&job));
    }
    let steps = job.step;
    let interrupted = submit_job(&spec, client)?;
    output.print_note(&format!("{interrupted} trains and is preempted {} times", args.preemptions));
    for number in 1..=args.preemptions {
        let at = steps * u64::from(number) / u64::from(args.preemptions + 1);
        preempt_at_step(client, &interrupted, at.max(1), u64::from(number))?;
    }
    let job = job_follow::wait_until_over(client, output, &interrupted)?;
    if job.state != JobState::Succeeded.name() {
        output.print_line(&job_follow::describe_end(&job, &interrupted, output));
        return Ok(job_follow::exit_code(&job));
    }
    let pair = ResumeTestRequest { whole: whole.clone(), interrupted: interrupted.clone() };
    let marked: ResumeTestDocument =
        client.post(&format!("/api/v1/plugins/{}/resume-test", spec.plugin), RequestBody::json(&pair))?;
    if output.json {
        output.print_json(&marked);
    } else {
        let resumes = marked.resumes;
        output.print_line(&format!(
            "{interrupted} resumed {resumes} times, and its result equals {whole}'s bit by bit: the plugin resumes"
        ));
    }
    Ok(0)
}

fn submit_job(spec: &JobSpec, client: &ApiClient) -> Result<String, CliError> {
    let job: JobDocument = client.post("/api/v1/jobs", RequestBody::json(spec))?;
    Ok(job.name)
}

/// Preempts the job's attempt of this number once it has done `step` steps, and waits until the attempt ends.
fn preempt_at_step(client: &ApiClient, name: &str, step: u64, attempt: u64) -> Result<(), CliError> {
    let path = format!("/api/v1/jobs/{name}");
    let mut asked = false;
    loop {
        let job: JobDocument = client.get(&path)?;
        let attempts = job.attempts.unwrap_or_default();
        let ended = attempts.get(attempt as usize - 1).is_some_and(|attempt| attempt.ended_ms.is_some());
        let over = job.finished_ms.is_some();
        if over || (ended && !asked) {
            return Err(CliError::invalid(format!("{name} ended before it could be interrupted at step {step}"))
                .with_hint("make the training longer: more epochs, or more data"));
        }
        if ended {
            return Ok(());
        }
        if !asked && job.state == JobState::Running.name() && job.step >= step {
            client.post::<JobDocument>(&format!("{path}/preempt"), RequestBody::Empty)?;
            asked = true;
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

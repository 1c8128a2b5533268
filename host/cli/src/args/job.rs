//! What is said about jobs that are there.

use std::time::Duration;

use clap::{Args, Subcommand};
use saggar_project::units;

#[derive(Debug, Args)]
pub(crate) struct RestartArgs {
    /// The job to do again: `digits-7`.
    pub(crate) job: String,
    /// Go on from its newest checkpoint; without it, a job that did not succeed does, and others start anew.
    #[arg(long, conflicts_with = "from_scratch")]
    pub(crate) resume: bool,
    /// Start anew, whatever checkpoints there are.
    #[arg(long)]
    pub(crate) from_scratch: bool,
    /// Change a field of its specification, as `saggar status JOB --json` names them: `device=cpu`, `seed=4`. May be given
    /// several times.
    #[arg(long = "set", value_name = "FIELD=VALUE")]
    pub(crate) set: Vec<String>,
    /// Print the log until the job ends; Ctrl-C leaves it running.
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Wait until the job ends and show the result.
    #[arg(long, conflicts_with = "follow")]
    pub(crate) wait: bool,
    /// Parameters to change: `lr=0.01` or `--lr 0.01`.
    #[arg(last = true, value_name = "PARAMETERS")]
    pub(crate) parameters: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct WaitArgs {
    /// The job: `digits-7`.
    pub(crate) job: String,
    /// Wait for this state instead of the end.
    #[arg(long = "for", value_name = "STATE")]
    pub(crate) state: Option<String>,
    /// Give up after this time, with exit code 124; the job goes on.
    #[arg(long, value_parser = units::parse_duration, value_name = "TIME")]
    pub(crate) timeout: Option<Duration>,
}

#[derive(Debug, Args)]
pub(crate) struct DiffArgs {
    /// A job.
    pub(crate) first: String,
    /// Another.
    pub(crate) second: String,
}

#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// The jobs.
    #[arg(required = true, num_args = 2.., value_name = "JOB")]
    pub(crate) jobs: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct MetricsArgs {
    /// The job: `digits-7`.
    pub(crate) job: String,
    /// Only these series, separated by commas.
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    pub(crate) series: Vec<String>,
    /// Every value, a line a step, with a column a series.
    #[arg(long)]
    pub(crate) csv: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RmArgs {
    /// The jobs.
    #[arg(required_unless_present = "experiment", value_name = "JOB")]
    pub(crate) jobs: Vec<String>,
    /// All jobs of this experiment that are over.
    #[arg(long, conflicts_with = "jobs", value_name = "NAME")]
    pub(crate) experiment: Option<String>,
    /// Do not ask.
    #[arg(short, long)]
    pub(crate) yes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct GcArgs {
    /// Of each project, keep the newest so many jobs that are over.
    #[arg(long, required_unless_present = "failed_older_than", value_name = "N")]
    pub(crate) keep_last: Option<u64>,
    /// Remove jobs that failed, were stopped or timed out longer ago than this: `7d`.
    #[arg(long, value_parser = units::parse_duration, value_name = "TIME")]
    pub(crate) failed_older_than: Option<Duration>,
    /// Only this project's.
    #[arg(long, env = "SAGGAR_PROJECT", value_name = "NAME")]
    pub(crate) project: Option<String>,
    /// Only show what would be freed.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Do not ask.
    #[arg(short, long)]
    pub(crate) yes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CostArgs {
    /// The jobs.
    #[arg(required = true, value_name = "JOB")]
    pub(crate) jobs: Vec<String>,
    /// What an hour costs: `0.65/h`.
    #[arg(long, value_parser = units::parse_hourly_price, value_name = "PRICE/h")]
    pub(crate) rate: f64,
    /// What an hour of a preemptible job costs; the same where it is left out.
    #[arg(long, value_parser = units::parse_hourly_price, value_name = "PRICE/h")]
    pub(crate) preemptible_rate: Option<f64>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ScheduleCommand {
    /// Submit a job again and again, at times in UTC.
    Set {
        /// The schedule's name.
        name: String,
        /// When: minute, hour, day of the month, month, day of the week.
        cron: String,
        /// The job to do again.
        #[arg(long, value_name = "JOB")]
        like: String,
    },
    /// Set a schedule for every task of the project file that has one, or for those that are named.
    Apply {
        /// The tasks.
        #[arg(value_name = "TASK")]
        tasks: Vec<String>,
    },
    /// List schedules.
    Ls,
    /// Forget a schedule; its jobs stay.
    Rm {
        /// The schedule.
        name: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum SecretCommand {
    /// Keep a secret; its value is read from standard input.
    Set {
        /// Its name.
        name: String,
        /// A project whose keys may have jobs read it. May be given several times. Where it is left out, those that the secret
        /// has already stay; a secret that has none is for keys that are limited to no project.
        #[arg(long = "project", value_name = "PROJECT", value_delimiter = ',')]
        projects: Vec<String>,
    },
    /// List names, and the projects whose keys may have jobs read each.
    Ls,
    /// Forget a secret.
    Rm {
        /// Its name.
        name: String,
    },
}

//! Arguments of the commands that list jobs, show one, or end some.

use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct PsArgs {
    /// Finished jobs too.
    #[arg(short, long)]
    pub(crate) all: bool,
    /// Only jobs in this state.
    #[arg(long, value_name = "STATE")]
    pub(crate) state: Option<String>,
    /// What holds memory or slots although nobody asked anything of it for a minute: models that are awake, and why they
    /// do not sleep, and jobs that do no steps.
    #[arg(long, conflicts_with_all = ["all", "state", "experiment"])]
    pub(crate) idle: bool,
    /// Only jobs of this experiment, finished ones too.
    #[arg(short, long, value_name = "NAME")]
    pub(crate) experiment: Option<String>,
    /// List them anew every 2 s, until Ctrl-C.
    #[arg(short, long)]
    pub(crate) watch: bool,
}

#[derive(Debug, Args)]
pub(crate) struct JobNamesArgs {
    /// The jobs: `digits-7`; in a project's directory `7`.
    #[arg(required = true, value_name = "JOB")]
    pub(crate) jobs: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// The job: `digits-7`; in a project's directory `7`.
    pub(crate) job: String,
    /// Print only this value: `spec`, `metrics.loss`.
    #[arg(long, value_name = "FIELD")]
    pub(crate) field: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct LogsArgs {
    /// The job: `digits-7`; in a project's directory `7`.
    pub(crate) job: String,
    /// Go on until the job ends.
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Only this attempt's.
    #[arg(long, value_name = "N")]
    pub(crate) attempt: Option<u32>,
    /// Only those of the attempt before the newest.
    #[arg(short, long, conflicts_with = "attempt")]
    pub(crate) previous: bool,
    /// Only lines from then on: 10m ago, or 2026-11-21T12:03:13Z.
    #[arg(long, value_parser = crate::units::parse_since, value_name = "TIME")]
    pub(crate) since: Option<String>,
    /// Only the last lines.
    #[arg(long, value_name = "N")]
    pub(crate) tail: Option<u64>,
    /// With the time of each line.
    #[arg(long)]
    pub(crate) timestamps: bool,
    /// With the job and the attempt of each line.
    #[arg(long)]
    pub(crate) prefix: bool,
}

//! Arguments of the commands that list, show and stop jobs.

use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct PsArgs {
    /// List finished jobs too.
    #[arg(short, long)]
    pub(crate) all: bool,
    /// List only jobs in this state.
    #[arg(long, value_name = "STATE")]
    pub(crate) state: Option<String>,
    /// List what holds memory or slots but was idle for a minute: loaded models, each with the reason why it does not
    /// sleep, and jobs that make no progress.
    #[arg(long, conflicts_with_all = ["all", "state", "experiment"])]
    pub(crate) idle: bool,
    /// List the hosts that run jobs, with their labels, slots and jobs.
    #[arg(long, conflicts_with_all = ["all", "state", "experiment", "idle", "spark"])]
    pub(crate) workers: bool,
    /// List only jobs of this experiment, including finished ones.
    #[arg(short, long, value_name = "NAME")]
    pub(crate) experiment: Option<String>,
    /// Add this series of each job as a line of blocks, from its lowest to its highest value, for the first 50 jobs.
    #[arg(long, conflicts_with = "idle", value_name = "SERIES")]
    pub(crate) spark: Option<String>,
    /// List again every 2 s, until Ctrl-C.
    #[arg(short, long)]
    pub(crate) watch: bool,
}

#[derive(Debug, Args)]
pub(crate) struct JobNamesArgs {
    /// The jobs: `digits-7`, or `7` in a project's directory.
    #[arg(required = true, value_name = "JOB")]
    pub(crate) jobs: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct NotebookArgs {
    /// The notebook's job: `faces-7`, or `7` in a project's directory.
    pub(crate) job: String,
}

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// The job: `digits-7`, or `7` in a project's directory.
    pub(crate) job: String,
    /// Print only this value: `spec`, `metrics.loss`.
    #[arg(long, value_name = "FIELD")]
    pub(crate) field: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct LogsArgs {
    /// The job: `digits-7`, or `7` in a project's directory.
    pub(crate) job: String,
    /// Print new lines until the job ends.
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Print only the lines of this attempt.
    #[arg(long, value_name = "N")]
    pub(crate) attempt: Option<u32>,
    /// Print only the lines of the attempt before the newest one.
    #[arg(short, long, conflicts_with = "attempt")]
    pub(crate) previous: bool,
    /// Print only lines since this time: 10m (ago), or 2026-11-21T12:03:13Z.
    #[arg(long, value_parser = crate::units::parse_since, value_name = "TIME")]
    pub(crate) since: Option<String>,
    /// Print only the last N lines.
    #[arg(long, value_name = "N")]
    pub(crate) tail: Option<u64>,
    /// Print the time of each line.
    #[arg(long)]
    pub(crate) timestamps: bool,
    /// Print the job and the attempt of each line.
    #[arg(long)]
    pub(crate) prefix: bool,
}

//! Arguments of `saggar pipeline`.

use clap::{Args, Subcommand, ValueEnum};

#[derive(Debug, Subcommand)]
pub(crate) enum PipelineCommand {
    /// Check the pipelines of the project file, without a server.
    Check {
        /// The pipeline [default: all].
        name: Option<String>,
    },
    /// Print the steps of a pipeline of the project file in their order.
    Graph(PipelineGraphArgs),
    /// Start a pipeline of the project file.
    Run(PipelineRunArgs),
    /// List pipeline runs.
    Ls {
        /// List only runs of this pipeline.
        name: Option<String>,
    },
    /// Show one run with its steps.
    Status {
        /// The run: `nightly-7`.
        run: String,
    },
    /// Print the logs of a run's jobs.
    Logs {
        /// The run: `nightly-7`.
        run: String,
        /// Print only the logs of this step.
        step: Option<String>,
        /// Print new lines until the jobs end.
        #[arg(short, long)]
        follow: bool,
    },
    /// Stop a run: its jobs save their state and end.
    Stop {
        /// The run: `nightly-7`.
        run: String,
    },
    /// Approve a step that waits for a person.
    Approve {
        /// The run: `nightly-7`.
        run: String,
        /// The step.
        step: String,
        /// Reject the step: it fails, with all that come after it.
        #[arg(long)]
        reject: bool,
    },
    /// Repeat the steps of a run that did not succeed.
    Restart {
        /// The run: `nightly-7`.
        run: String,
        /// Repeat also this step, and all that depend on it.
        #[arg(long, value_name = "STEP")]
        from: Option<String>,
    },
    /// Remove the record of a run that is over; its jobs stay.
    Rm {
        /// The run: `nightly-7`.
        run: String,
    },
    /// Make a pipeline of the project file start at set times, in UTC; without a name, list those that do.
    Schedule(PipelineScheduleArgs),
}

#[derive(Debug, Args)]
pub(crate) struct PipelineGraphArgs {
    /// The pipeline.
    pub(crate) name: String,
    /// The form of the graph.
    #[arg(long, value_enum, default_value = "text")]
    pub(crate) format: GraphFormat,
}

/// The form of a printed graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum GraphFormat {
    /// A table for a terminal
    Text,
    /// A flowchart of Mermaid, which many editors and forges draw
    Mermaid,
    /// A picture
    Svg,
}

#[derive(Debug, Args)]
pub(crate) struct PipelineRunArgs {
    /// The pipeline.
    pub(crate) name: String,
    /// A parameter: `train_steps=100`. A list is written a,b,c. Can be given several times.
    #[arg(short, long = "param", value_name = "NAME=VALUE")]
    pub(crate) params: Vec<String>,
    /// Show the steps until the run ends; Ctrl-C leaves it running.
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Use the results of a run that did not succeed, for steps whose plugin, parameters and inputs are the same
    /// [default: the newest run that failed].
    #[arg(long, value_name = "RUN", num_args = 0..=1, default_missing_value = "")]
    pub(crate) from_failed: Option<String>,
    /// A key of the run: a second start with the same key returns the run of the first one.
    #[arg(long, value_name = "KEY")]
    pub(crate) idempotency_key: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct PipelineScheduleArgs {
    /// The pipeline.
    pub(crate) name: Option<String>,
    /// The times: minute, hour, day of the month, month, day of the week [default: the pipeline's `schedule`].
    #[arg(long, value_name = "CRON", requires = "name")]
    pub(crate) cron: Option<String>,
    /// A parameter of the runs: `train_steps=100`. Can be given several times.
    #[arg(short, long = "param", value_name = "NAME=VALUE", requires = "name")]
    pub(crate) params: Vec<String>,
    /// Remove the schedule; its runs stay.
    #[arg(long, conflicts_with_all = ["cron", "params"], requires = "name")]
    pub(crate) remove: bool,
}

//! Arguments of the commands about existing jobs, schedules and secrets.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use saggar_project::units;
use saggar_rest::comparisons::{COMPARED_JOBS, COMPARED_RUNS, COMPARED_SWEEPS};

use super::{ChartFileArgs, ChartLookArgs};

#[derive(Debug, Args)]
pub(crate) struct RestartArgs {
    /// The job to submit again: `digits-7`.
    pub(crate) job: String,
    /// Continue from its newest checkpoint. By default a job that did not succeed continues, and any other starts from
    /// scratch.
    #[arg(long, conflicts_with = "from_scratch")]
    pub(crate) resume: bool,
    /// Start from scratch, even if there are checkpoints.
    #[arg(long)]
    pub(crate) from_scratch: bool,
    /// Change a field of its specification, named as in `saggar status JOB --json`: `device=cpu`, `seed=4`. Can be
    /// given several times.
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
pub(crate) struct ReplayArgs {
    /// The training to replay: `digits-7`.
    pub(crate) job: String,
    /// The first step to look at. The replay starts from the newest checkpoint before it.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..), default_value_t = 1, value_name = "STEP")]
    pub(crate) from_step: u64,
    /// The last step, instead of the end of the training.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..), value_name = "STEP")]
    pub(crate) to: Option<u64>,
    /// Print this operand at every step: a label, an input, a variable or an output of a graph, or the number of a node
    /// such as `%12`. Can be given several times.
    #[arg(long, value_name = "OPERAND")]
    pub(crate) print: Vec<String>,
    /// Compute on this device, instead of that of the job.
    #[arg(long, value_name = "DEVICE")]
    pub(crate) device: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct PauseArgs {
    /// The jobs: `digits-7`.
    #[arg(required = true, value_name = "JOB")]
    pub(crate) jobs: Vec<String>,
    /// Pause at the first step boundary at or after this step, instead of the next one.
    #[arg(long, value_name = "STEP")]
    pub(crate) at_step: Option<u64>,
    /// Pause only once this series has a value at that step or later: `validation/accuracy`.
    #[arg(long, value_name = "SERIES", requires = "at_step")]
    pub(crate) metric: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct WaitArgs {
    /// The job: `digits-7`.
    pub(crate) job: String,
    /// The state to wait for, instead of the end.
    #[arg(long = "for", value_name = "STATE")]
    pub(crate) state: Option<String>,
    /// Give up after this time, with exit code 124; the job keeps running.
    #[arg(long, value_parser = units::parse_duration, value_name = "TIME")]
    pub(crate) timeout: Option<Duration>,
}

#[derive(Debug, Args)]
pub(crate) struct DiffArgs {
    /// The first job.
    pub(crate) first: String,
    /// The second job.
    pub(crate) second: String,
}

#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// The jobs, pipeline runs or sweeps to compare, at least two of one kind.
    #[arg(required_unless_present = "experiment", num_args = 2.., value_name = "NAME")]
    pub(crate) names: Vec<String>,
    /// Compare all jobs of this experiment.
    #[arg(short, long, conflicts_with = "names", value_name = "NAME")]
    pub(crate) experiment: Option<String>,
    /// What the names are. Without it, jobs if all are names of jobs, else pipeline runs, else sweeps.
    #[arg(long, conflicts_with = "experiment")]
    pub(crate) kind: Option<ComparisonKind>,
    /// Columns to show, separated by commas: parameters, fields of the specification, metrics, tags (`tag.NAME`), and
    /// `state`, `note`, `gpu-sec`, `wall-sec` [default: the parameters that differ, tags, all metrics, gpu-sec].
    #[arg(long, value_delimiter = ',', value_name = "COLUMN,...")]
    pub(crate) columns: Vec<String>,
    /// Sort by this column, lowest first; `-COLUMN` is highest first.
    #[arg(long, value_name = "COLUMN", allow_hyphen_values = true)]
    pub(crate) sort: Option<String>,
    /// Show only jobs for which this holds: `lr<0.1`, `validation/accuracy>=0.9`, `state=SUCCEEDED`, `tag.kind!=test`.
    /// Can be given several times.
    #[arg(long, value_name = "CONDITION")]
    pub(crate) filter: Vec<String>,
    #[command(flatten)]
    pub(crate) files: ChartFileArgs,
    /// The series that the chart shows of each job, or of each step of a pipeline run [default: loss, else the first one
    /// by name]. Sweeps are drawn by their best value so far.
    #[arg(long, requires = "chart_files", value_name = "SERIES")]
    pub(crate) metric: Option<String>,
    #[command(flatten)]
    pub(crate) look: ChartLookArgs,
}

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ComparisonKind {
    /// Jobs.
    Job,
    /// Pipeline runs.
    PipelineRun,
    /// Sweeps.
    Sweep,
}

impl ComparisonKind {
    /// Returns the name that the server uses.
    pub(crate) fn name(self) -> &'static str {
        match self {
            ComparisonKind::Job => COMPARED_JOBS,
            ComparisonKind::PipelineRun => COMPARED_RUNS,
            ComparisonKind::Sweep => COMPARED_SWEEPS,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct TagArgs {
    /// The job: `digits-7`.
    pub(crate) job: String,
    /// Tags to set: `kind=baseline`.
    #[arg(value_name = "NAME=VALUE", required_unless_present = "remove")]
    pub(crate) tags: Vec<String>,
    /// A tag to remove. Can be given several times.
    #[arg(long = "rm", value_name = "NAME")]
    pub(crate) remove: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct NoteArgs {
    /// The job: `digits-7`.
    pub(crate) job: String,
    /// The note; an empty text removes it.
    pub(crate) text: String,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ExperimentCommand {
    /// List the experiments.
    Ls,
    /// Compare the jobs of an experiment.
    Show {
        /// The experiment.
        name: String,
    },
    /// Remove the finished jobs of an experiment with their logs, outputs and checkpoints.
    Rm {
        /// The experiment.
        name: String,
        /// Do not ask for confirmation.
        #[arg(short, long)]
        yes: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct MetricsArgs {
    /// The jobs: `digits-7`, or `7` in a project's directory.
    #[arg(required = true, value_name = "JOB")]
    pub(crate) jobs: Vec<String>,
    /// Show only these series, separated by commas.
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    pub(crate) series: Vec<String>,
    /// Print every value as CSV: one row per step, one column per series.
    #[arg(long)]
    pub(crate) csv: bool,
    /// Draw charts with characters before the table, as in a terminal, even if the output is not one.
    #[arg(long, conflicts_with_all = ["csv", "tensorboard", "chart_files"])]
    pub(crate) chart: bool,
    #[command(flatten)]
    pub(crate) files: ChartFileArgs,
    #[command(flatten)]
    pub(crate) look: ChartLookArgs,
    /// Write every value to an event file in this directory, which `tensorboard --logdir` shows. A job is a run. An
    /// earlier file of the job is replaced.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["csv", "chart_files"])]
    pub(crate) tensorboard: Option<PathBuf>,
    /// Write further values until the job is over.
    #[arg(short, long, requires = "tensorboard")]
    pub(crate) follow: bool,
}

/// The kind of an item that a training logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LoggedItemKind {
    /// Images.
    Image,
    /// Tables.
    Table,
    /// Histograms.
    Histogram,
}

impl LoggedItemKind {
    /// Returns the name that the server uses.
    pub(crate) fn name(self) -> &'static str {
        match self {
            LoggedItemKind::Image => "image",
            LoggedItemKind::Table => "table",
            LoggedItemKind::Histogram => "histogram",
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct LoggedArgs {
    /// The job: `digits-7`, or `7` in a project's directory.
    pub(crate) job: String,
    /// Select only items of this kind.
    #[arg(long, value_enum)]
    pub(crate) kind: Option<LoggedItemKind>,
    /// Select only items of this name, and list each. With a step, the values of tables and histograms are printed.
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Select only items of this step, and list each.
    #[arg(long)]
    pub(crate) step: Option<u64>,
    /// Save the selected items in this directory: images as PNG files, tables and histograms as JSON. A file of the same
    /// name is replaced.
    #[arg(short, long, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct RmArgs {
    /// The jobs to remove.
    #[arg(required_unless_present = "experiment", value_name = "JOB")]
    pub(crate) jobs: Vec<String>,
    /// Remove all finished jobs of this experiment.
    #[arg(long, conflicts_with = "jobs", value_name = "NAME")]
    pub(crate) experiment: Option<String>,
    /// Do not ask for confirmation.
    #[arg(short, long)]
    pub(crate) yes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct GcArgs {
    /// Keep only the newest N finished jobs of each project.
    #[arg(long, required_unless_present = "failed_older_than", value_name = "N")]
    pub(crate) keep_last: Option<u64>,
    /// Remove jobs that failed, were stopped or timed out longer ago than this: `7d`.
    #[arg(long, value_parser = units::parse_duration, value_name = "TIME")]
    pub(crate) failed_older_than: Option<Duration>,
    /// Only jobs of this project.
    #[arg(long, env = "SAGGAR_PROJECT", value_name = "NAME")]
    pub(crate) project: Option<String>,
    /// Only show what would be removed and freed.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Do not ask for confirmation.
    #[arg(short, long)]
    pub(crate) yes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CostArgs {
    /// The jobs.
    #[arg(required = true, value_name = "JOB")]
    pub(crate) jobs: Vec<String>,
    /// The price of an hour: `0.65/h`.
    #[arg(long, value_parser = units::parse_hourly_price, value_name = "PRICE/h")]
    pub(crate) rate: f64,
    /// The price of an hour of a preemptible job [default: that of --rate].
    #[arg(long, value_parser = units::parse_hourly_price, value_name = "PRICE/h")]
    pub(crate) preemptible_rate: Option<f64>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ScheduleCommand {
    /// Submit a job again at set times, in UTC.
    Set {
        /// The schedule's name.
        name: String,
        /// The times: minute, hour, day of the month, month, day of the week.
        cron: String,
        /// The job to submit again.
        #[arg(long, value_name = "JOB")]
        like: String,
    },
    /// Set the schedules of the project file's tasks: of all that have one, or only of the named tasks.
    Apply {
        /// The tasks [default: all with a schedule].
        #[arg(value_name = "TASK")]
        tasks: Vec<String>,
    },
    /// List schedules.
    Ls,
    /// Remove a schedule; its jobs stay.
    Rm {
        /// The schedule's name.
        name: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum SecretCommand {
    /// Store a secret; its value is read from standard input.
    Set {
        /// The secret's name.
        name: String,
        /// A project whose keys can let jobs read the secret. Can be given several times. Without it, a secret keeps
        /// its projects; a secret without projects is only for keys that are not limited to projects.
        #[arg(long = "project", value_name = "PROJECT", value_delimiter = ',')]
        projects: Vec<String>,
    },
    /// List the names of secrets, each with the projects whose keys can let jobs read it.
    Ls,
    /// Remove a secret.
    Rm {
        /// The secret's name.
        name: String,
    },
}

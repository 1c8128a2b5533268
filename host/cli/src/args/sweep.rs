//! Arguments of `saggar sweep`.

use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use saggar_project::units;

use super::{ChartFileArgs, ChartLookArgs, RunArgs};

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct SweepArgs {
    #[command(subcommand)]
    pub(crate) command: Option<SweepCommand>,
    #[command(flatten)]
    pub(crate) start: Box<SweepStartArgs>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SweepCommand {
    /// List sweeps.
    Ls,
    /// Show a sweep with its trials.
    Status {
        /// The sweep: `digits-sweep-1`.
        sweep: String,
    },
    /// Stop sweeps: running trials save their state and pause.
    Stop {
        /// The sweeps.
        #[arg(required = true, value_name = "SWEEP")]
        sweeps: Vec<String>,
    },
    /// Resume stopped sweeps: their trials continue where they paused.
    Resume {
        /// The sweeps.
        #[arg(required = true, value_name = "SWEEP")]
        sweeps: Vec<String>,
    },
    /// Make the result of the best trial the default version of a model.
    Publish {
        /// The sweep: `digits-sweep-1`. It must be over.
        sweep: String,
        /// The model [default: the one that the trial published].
        #[arg(long, value_name = "MODEL")]
        model: Option<String>,
    },
    /// Show the trials by their metric, best first, and how important each parameter is.
    Results {
        /// The sweep: `digits-sweep-1`.
        sweep: String,
        /// Show only the best N trials.
        #[arg(long, value_name = "N")]
        limit: Option<usize>,
        /// Append the best trial to the project file saggar.toml, as a task of this name.
        #[arg(long, value_name = "TASK")]
        save_task: Option<String>,
        #[command(flatten)]
        files: ChartFileArgs,
        #[command(flatten)]
        look: ChartLookArgs,
    },
}

#[derive(Debug, Args)]
pub(crate) struct SweepStartArgs {
    /// The training, and the parameters that all trials share.
    #[command(flatten)]
    pub(crate) run: RunArgs,
    /// Start this sweep of the project file saggar.toml, `[sweep.NAME]`; options given here win.
    #[arg(long, value_name = "NAME")]
    pub(crate) sweep: Option<String>,
    /// The range of a parameter: `lr=log(1e-4,1e-1)`, `momentum=uniform(0,0.9)`, `layers=int(1,8)`,
    /// `optimizer=choice(sgd,adam)`. Can be given several times.
    #[arg(long, value_name = "NAME=RANGE")]
    pub(crate) space: Vec<String>,
    /// The values of a parameter: `lr=0.1,0.01`. Every combination is a trial, unless --random is given. Can be given
    /// several times.
    #[arg(long, value_name = "NAME=VALUE,...")]
    pub(crate) grid: Vec<String>,
    /// Draw this many trials, instead of every combination: `100` or `n=100`. With the methods tpe and tpe-asha, only the
    /// first ones are drawn at random. `--trials` is another name of this option.
    #[arg(long, visible_alias = "trials", value_parser = parse_trial_count, value_name = "N")]
    pub(crate) random: Option<u32>,
    /// How parameters are chosen and trials are stopped early [default: full].
    #[arg(long, value_enum)]
    pub(crate) method: Option<SweepMethodArg>,
    /// The series by which trials are compared: `validation/accuracy`, `min:loss`, `max:bleu`. Without a direction, a
    /// series whose name ends in `accuracy` is best at its maximum, and any other at its minimum.
    #[arg(long, value_name = "SERIES")]
    pub(crate) metric: Option<String>,
    /// The maximum number of trials that run at once [default: 4].
    #[arg(long, value_name = "N")]
    pub(crate) max_parallel: Option<u32>,
    /// Of halving, asha and tpe-asha: one of N trials continues at each rung [default: 3].
    #[arg(long, value_name = "N")]
    pub(crate) eta: Option<u32>,
    /// Of halving, asha and tpe-asha: the number of rungs before the end [default: 2].
    #[arg(long, value_name = "N")]
    pub(crate) rungs: Option<u32>,
    /// Of pbt: divide the steps of a training into N intervals, after each of which the population is compared
    /// [default: 10]. `--trials` is the size of the population.
    #[arg(long, value_name = "N")]
    pub(crate) generations: Option<u32>,
    /// Of pbt: the share of the population that is replaced after an interval [default: 0.2].
    #[arg(long, value_name = "SHARE")]
    pub(crate) exploit_quantile: Option<f64>,
    /// Of pbt: the factors by which the parameters of a copy are multiplied, one of them each [default: 0.8,1.2].
    #[arg(long, value_delimiter = ',', value_name = "FACTOR,...")]
    pub(crate) perturb_factors: Option<Vec<f64>>,
    /// Of pbt: the probability with which a parameter of a copy is drawn from its range instead [default: 0.25].
    #[arg(long, value_name = "SHARE")]
    pub(crate) resample_probability: Option<f64>,
    /// End the sweep after this time: 2h.
    #[arg(long, value_parser = units::parse_duration, value_name = "TIME")]
    pub(crate) budget: Option<Duration>,
    /// End the sweep once its trials have used this much device time: 2h.
    #[arg(long, value_parser = units::parse_duration, value_name = "TIME")]
    pub(crate) device_budget: Option<Duration>,
}

/// How parameters are chosen and trials are stopped early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SweepMethodArg {
    /// Every trial runs to its end
    Full,
    /// A trial that is worse than the median of the others is stopped
    Median,
    /// The best trials of each rung continue, once all have reached it
    Halving,
    /// The best trials of each rung continue, without waiting for all
    Asha,
    /// Parameters are drawn where results are best so far; every trial runs to its end
    Tpe,
    /// Parameters as with tpe, trials stopped as with asha
    TpeAsha,
    /// The worst trials of a population continue from the state of the best ones, with perturbed parameters
    Pbt,
}

/// Parses `100` or `n=100`.
fn parse_trial_count(text: &str) -> Result<u32, String> {
    let expected = || format!("invalid number of trials `{text}`: expected a whole number, such as 100 or n=100");
    text.strip_prefix("n=").unwrap_or(text).parse().map_err(|_| expected())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_of_trials_can_be_named() {
        assert_eq!((parse_trial_count("100"), parse_trial_count("n=7")), (Ok(100), Ok(7)));
        for wrong in ["n=", "x", "-1", "n=1.5"] {
            assert!(parse_trial_count(wrong).unwrap_err().contains("n=100"));
        }
    }
}

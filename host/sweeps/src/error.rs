//! Errors of sweeps.

use saggar_jobs::JobError;
use saggar_store::error::RecordError;
use thiserror::Error;

use crate::limits::{
    PARAMETERS_MAX, PERTURB_FACTOR_MAX, PERTURB_FACTORS_MAX, POPULATION_INTERVALS_MAX, RANGE_BYTES_MAX, TRIALS_MAX,
    VALUES_MAX,
};

/// Why the range of a parameter is rejected.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum RangeError {
    /// A function that is not one of a range.
    #[error(
        "unknown range {name}(): expected log(MIN,MAX), uniform(MIN,MAX), int(MIN,MAX), choice(A,B,...) or values separated by commas"
    )]
    Function {
        /// Its name.
        name: String,
    },
    /// A parenthesis is not closed, or text follows it.
    #[error("expected `)` at the end of {text:?}")]
    Open {
        /// The text.
        text: String,
    },
    /// A bound that is not a number of the range, or not two bounds.
    #[error("{name}() takes a minimum and a maximum, two {kind}, such as {example}; got {got:?}")]
    Bounds {
        /// The function.
        name: &'static str,
        /// `numbers`.
        kind: &'static str,
        /// A valid range.
        example: &'static str,
        /// What is between the parentheses.
        got: String,
    },
    /// The maximum is not above the minimum.
    #[error("the maximum {max} is not above the minimum {min}")]
    Order {
        /// The minimum.
        min: f64,
        /// The maximum.
        max: f64,
    },
    /// No value, or an empty one.
    #[error("a value is missing; expected values separated by commas, such as 0.1,0.01")]
    Empty,
    /// The same value twice.
    #[error("the value {value} is given twice")]
    Twice {
        /// The value.
        value: String,
    },
    /// Too many values.
    #[error("{count} values; the maximum is {VALUES_MAX}")]
    Values {
        /// The number of values.
        count: usize,
    },
    /// The text is too long.
    #[error("{bytes} bytes; the maximum is {RANGE_BYTES_MAX}")]
    Bytes {
        /// Its size.
        bytes: usize,
    },
}

/// Why a sweep's specification is rejected.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum SweepSpecError {
    /// No parameter is searched.
    #[error("space: no parameter is searched; name at least one, such as {{\"lr\": \"log(1e-4,1e-1)\"}}")]
    EmptySpace,
    /// Too many parameters are searched.
    #[error("space: {count} parameters; the maximum is {PARAMETERS_MAX}")]
    Parameters {
        /// Their number.
        count: usize,
    },
    /// An invalid name of a parameter.
    #[error("space: {name:?} is not the name of a parameter: expected 1 to 63 of a-z, A-Z, 0-9, '.', '_' and '-'")]
    Name {
        /// The name.
        name: String,
    },
    /// An invalid range.
    #[error("space.{parameter}: {source}")]
    Range {
        /// The parameter.
        parameter: String,
        /// What is wrong.
        source: RangeError,
    },
    /// A range of infinitely many values in a search of all combinations.
    #[error(
        "space.{parameter}: {range} has no list of values; set `trials` to draw values at random, or list them, such as 0.1,0.01"
    )]
    NotListed {
        /// The parameter.
        parameter: String,
        /// Its range.
        range: String,
    },
    /// Too many trials.
    #[error("{count} trials; a sweep has 1 to {TRIALS_MAX}")]
    Trials {
        /// Their number.
        count: u64,
    },
    /// A method that draws parameters has no number of trials.
    #[error("trials: {method} needs a number of trials, such as 40")]
    TrialsMissing {
        /// The method.
        method: &'static str,
    },
    /// A population of fewer than two members.
    #[error("trials: pbt needs the size of its population, at least 2, such as 10; got {members}")]
    Population {
        /// The number of members.
        members: u32,
    },
    /// Too many members and generations.
    #[error(
        "generations: {members} members in {generations} generations; members times generations must be at most \
         {POPULATION_INTERVALS_MAX}"
    )]
    PopulationIntervals {
        /// The number of members.
        members: u32,
        /// The number of generations.
        generations: u32,
    },
    /// A setting of `pbt` with another method.
    #[error("{field}: only the method pbt has it, not {method}; remove it, or set \"method\": \"pbt\"")]
    OnlyPopulation {
        /// The field.
        field: &'static str,
        /// The method.
        method: &'static str,
    },
    /// A share or a probability outside its range.
    #[error("{field}: {value} is not {expected}")]
    Share {
        /// The field.
        field: &'static str,
        /// The given value.
        value: f64,
        /// Its range.
        expected: &'static str,
    },
    /// Factors that are not valid.
    #[error(
        "perturb_factors: expected 1 to {PERTURB_FACTORS_MAX} numbers above 0, at most {PERTURB_FACTOR_MAX}, such as [0.8, 1.2]"
    )]
    PerturbFactors,
    /// A number outside its range.
    #[error("{field}: {value} is not from {min} to {max}")]
    OutOfRange {
        /// The field.
        field: &'static str,
        /// The given value.
        value: u32,
        /// The minimum.
        min: u32,
        /// The maximum.
        max: u32,
    },
    /// A budget that is not positive and finite.
    #[error("{field}: expected a number of seconds above 0")]
    Budget {
        /// The field.
        field: &'static str,
    },
    /// A parameter that the plugin does not declare.
    #[error("space.{parameter}: the plugin has no such parameter; it declares: {known}")]
    UnknownParameter {
        /// The parameter.
        parameter: String,
        /// The declared parameters.
        known: String,
    },
    /// A range of any numbers for a parameter that is a whole number.
    #[error(
        "space.{parameter}: {range} draws numbers that are not whole, and the plugin expects {expected}; use int(MIN,MAX) or \
         list the values, such as 8,16"
    )]
    NotWhole {
        /// The parameter.
        parameter: String,
        /// Its range.
        range: String,
        /// What the plugin accepts.
        expected: String,
    },
    /// The metric has no name.
    #[error("metric: expected the name of a series, such as validation/accuracy, or min:NAME or max:NAME")]
    Metric,
    /// The job of the trials does not train.
    #[error("job: a sweep needs a training; this job {what}")]
    NoTraining {
        /// What it does.
        what: &'static str,
    },
}

/// Why a request about a sweep failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SweepError {
    /// The specification is invalid.
    #[error(transparent)]
    Spec(#[from] SweepSpecError),
    /// The sweep does not exist.
    #[error("no sweep {name}; `saggar sweep ls` lists them")]
    NotFound {
        /// The given name.
        name: String,
    },
    /// The sweep is over.
    #[error("sweep {name} is {state}; only one that is not over can be stopped or resumed")]
    Over {
        /// Its name.
        name: String,
        /// Its state.
        state: &'static str,
    },
    /// The result of a sweep that is not over was asked for.
    #[error("sweep {name} is {state}; the best trial is known once it is over: `saggar sweep status {name}` shows it")]
    NotOver {
        /// Its name.
        name: String,
        /// Its state.
        state: &'static str,
    },
    /// No trial of the sweep has a result.
    #[error("sweep {name} has no completed trial with a finite value; `saggar sweep status {name}` shows its trials")]
    NoResult {
        /// Its name.
        name: String,
    },
    /// The job of the best trial was removed.
    #[error(
        "the job of trial {trial}, the best of {name}, was removed; `saggar sweep results {name} --save-task best` keeps its parameters"
    )]
    JobRemoved {
        /// The sweep.
        name: String,
        /// The trial.
        trial: u32,
    },
    /// The best trial published no model, and none is named for its checkpoint.
    #[error(
        "trial {trial}, the best of {name}, published no model; name the model whose next version its checkpoint becomes: \
         `saggar sweep publish {name} --model NAME` (its job is {job})"
    )]
    NoModel {
        /// The sweep.
        name: String,
        /// The trial.
        trial: u32,
        /// Its job.
        job: String,
    },
    /// The best trial has neither a model nor a checkpoint.
    #[error(
        "trial {trial}, the best of {name}, has neither published a model nor kept a checkpoint; \
         `saggar output checkpoints {job}` lists them"
    )]
    NoWeights {
        /// The sweep.
        name: String,
        /// The trial.
        trial: u32,
        /// Its job.
        job: String,
    },
    /// The version of the best trial does not meet the model's condition to be promoted.
    #[error("{version}, the result of trial {trial}, is stored and not served: it is not promoted, because {reason}")]
    NotPromoted {
        /// The version, as `MODEL@VERSION`.
        version: String,
        /// The trial.
        trial: u32,
        /// Which part of the condition is not met.
        reason: String,
        /// The command that promotes it all the same.
        hint: String,
    },
    /// A job of the sweep.
    #[error(transparent)]
    Job(#[from] JobError),
    /// The records could not be read or written.
    #[error("sweep records: {0}")]
    Records(#[from] RecordError),
    /// A thread of the server could not run.
    #[error("sweeps: {0}")]
    Io(#[from] std::io::Error),
}

//! Trainings that misbehave.

use saggar_plugin::bindings::job as raw;
use saggar_plugin::bindings::variables::Initializer;
use saggar_plugin::{Column, Dataset, Error, Graph, Job, Params, Result, Variables, emit};

use crate::damage;

/// The behaviours of a training besides [`DAMAGES`](crate::DAMAGES): behaves well, returns an error, ignores stop
/// requests, makes `steps` host calls without a step boundary, reports metrics that are not finite, reports metrics
/// without end, publishes under a name that is a path, takes checkpoints with too large a state, goes back in its
/// steps, streams a piece of an answer, creates a dataset that lacks a byte, or begins a phase whose name is a path.
pub const TRAININGS: [&str; 12] = [
    "well",
    "error",
    "ignore-stop",
    "no-boundary",
    "nan-metric",
    "metrics",
    "publish-path",
    "huge-state",
    "backwards",
    "emit",
    "column",
    "phase",
];

/// Behaves as the parameter `train` states, for `steps` (default 100) steps if the behaviour counts them.
///
/// # Errors
/// Returns the host's error if the host refuses a call, or the requested error.
pub fn train(job: &Job) -> Result<()> {
    let behaviour = job.param("train", TRAININGS[0].to_owned())?;
    let steps: u64 = job.param("steps", 100)?;
    let load = job.param("load", "well".to_owned())?;
    let predict = job.param("predict", "well".to_owned())?;
    let model = job.param("model", "hostile".to_owned())?;
    job.params().check()?;
    let config = Params::new().with("load", load).with("predict", predict);
    let variables = job.variables();
    let count = StepCounter::new(&variables)?;
    match behaviour.as_str() {
        "well" => {
            let begun = job.resume(&variables, &[])?.map_or(0, |(step, _)| step);
            for step in begun + 1..=steps {
                count.step()?;
                job.metric(step, "loss", 1.0 / step as f64);
                job.progress(step, steps);
                job.boundary(step, &variables, &[], &[])?;
            }
            job.publish(&model, &variables, &config).map(|_| ())
        }
        "error" => Err(Error::NoItems),
        "ignore-stop" => loop {
            count.step()?;
            let _ = job.boundary(1, &variables, &[], &[]);
        },
        "no-boundary" => (0..steps).try_for_each(|_| count.step()),
        "nan-metric" => {
            for (step, value) in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY].into_iter().enumerate() {
                raw::metric(step as u64, "loss", value);
            }
            Ok(())
        }
        "metrics" => {
            for step in 0_u64.. {
                raw::metric(step, &format!("series/{step}"), 0.0);
            }
            Ok(())
        }
        "publish-path" => job.publish("../../etc/passwd", &variables, &config).map(|_| ()),
        "huge-state" => {
            for step in 1..=steps {
                job.boundary(step, &variables, &[], &vec![7; (64 << 20) + 1])?;
            }
            Ok(())
        }
        "backwards" => (0..steps).rev().try_for_each(|step| job.boundary(step, &variables, &[], &[])),
        "emit" => emit("y", 0, &[0; 4]),
        "column" => {
            let column = Column { data: vec![0; 15], ..Column::of_i32("x", 2, &[]) };
            Dataset::from_columns(vec![column], &[("train".to_owned(), 2)]).map(drop)
        }
        "phase" => job.phase("../post"),
        other => damage::run(other),
    }
}

/// The smallest possible training step: increments a variable.
struct StepCounter(saggar_plugin::Executable);

impl StepCounter {
    fn new(variables: &Variables) -> Result<Self> {
        let count = variables.parameter("count", &[], &Initializer::Zeros)?;
        let graph = Graph::for_training();
        let next = graph.variable(&count)?.add_scalar(1.0)?;
        graph.assign(&count, &next)?;
        Ok(Self(graph.build([("count", &next)])?))
    }

    fn step(&self) -> Result<()> {
        self.0.dispatch([]).map(|_| ())
    }
}

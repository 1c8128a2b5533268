//! A training without checkpoints: it never resumes, never reaches a step boundary, and publishes at the end.
//!
//! Its model is one number, `w`, that each of `steps` (default 100) steps brings nearer to 3.

use saggar_plugin::bindings::variables::Initializer;
use saggar_plugin::{DataType, Error, Graph, Job, Params, Result};

/// Runs the training.
///
/// # Errors
/// Returns the host's error if the host refuses a call.
pub fn train(job: &Job) -> Result<()> {
    let steps: u64 = job.param("steps", 100)?;
    let model = job.param("model", "careless".to_owned())?;
    // If given, the phase `post` fails after the training because this file does not exist.
    let reads: Option<String> = job.params().optional("reads")?;
    job.params().check()?;
    let variables = job.variables();
    let w = variables.parameter("w", &[], &Initializer::Zeros)?;
    let graph = Graph::for_training();
    let value = graph.variable(&w)?;
    let miss = value.sub(&graph.scalar(DataType::Float32, 3.0)?)?;
    let loss = miss.mul(&miss)?;
    let gradients = graph.gradients(&loss, &[&value])?;
    for gradient in &gradients {
        graph.assign(&w, &value.sub(&gradient.mul_scalar(0.1)?)?)?;
    }
    let step_graph = graph.build([("loss", &loss)])?;
    for step in 1..=steps {
        for output in step_graph.dispatch([])? {
            let loss = output.tensor.read_f32()?.first().copied().unwrap_or(f32::NAN);
            job.metric(step, &output.name, f64::from(loss));
        }
        job.progress(step, steps);
    }
    job.publish(&model, &variables, &Params::new())?;
    match reads {
        Some(name) => {
            job.phase("post")?;
            Err(Error::NoSuch { what: "file", name, known: Vec::new() })
        }
        None => Ok(()),
    }
}

saggar_plugin::export!(train: train);

//! A step with an input of each type of reference, which returns what it was given.

use saggar_plugin::{Error, Job, Result, StepInputs, StepOutputs};

/// Runs the step.
///
/// # Errors
/// Returns the host's error if an input cannot be read, or the error that the input `error` asks for.
pub fn run(job: &Job, inputs: &StepInputs) -> Result<StepOutputs> {
    if inputs.boolean("error")? {
        return Err(Error::NoItems);
    }
    let items = inputs.dataset("table")?.count(None)? as i64;
    let bytes = inputs.file("report")?.len() as i64;
    let (model, version) = inputs.model("model")?;
    let best = inputs.checkpoint("best")?;
    for count in 0..inputs.integer("spin")? * 1_000_000 {
        std::hint::black_box(count);
    }
    let mut verdict = format!("{model}@{version} of {items} items with at least {}", inputs.number("least")?);
    match inputs.text("secret")? {
        "" => {}
        name => verdict += &job.secret(name)?,
    }
    let outputs = StepOutputs::new().integer("items", items).integer("steps", items + bytes);
    Ok(outputs.model("chosen", model, version).checkpoint("start", best).text("verdict", &verdict))
}

saggar_plugin::export!(step: run);

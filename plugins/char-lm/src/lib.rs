//! A small GPT that learns to continue a text, byte by byte.
//!
//! It trains on any dataset of text files. The text is cut into windows, in which each byte except the first is
//! predicted from those before it. The published model continues a prompt.

mod generate;
mod model;
mod windows;

use saggar_plugin::losses::CrossEntropy;
use saggar_plugin::optimizers::{Adam, LearningRateSchedule, Muon, Optimizer};
use saggar_plugin::{Dataset, Feed, Fit, Graph, Inputs, Job, Objective, Result, info};

pub use generate::TextGenerator;
pub use model::{Gpt, GptConfig};

/// Trains on the dataset at `/data` and publishes the result.
///
/// Parameters: `context` (bytes of context), `epochs`, `batch`, `lr`, `warmup`, `optimizer` (`adamw` or `muon`),
/// `accumulate` (batches per step of the optimizer), `average` (decay of a moving average of the weights; 0 for none),
/// `half` (compute in `float16`), `layers`, `heads`, `width`, `dropout`, `model` (the name to publish under).
///
/// # Errors
/// Returns an error if a parameter, a field or a shape does not fit, or the host refuses a call.
pub fn train(job: &Job) -> Result<()> {
    let architecture = architecture(job)?;
    let data = windows::cut_windows(&Dataset::open("/data")?, architecture.context)?;
    let feed = Feed::new(&data, &["text"], job.param("batch", 16)?)?;
    let epochs = job.param("epochs", 2)?;
    let accumulate: u32 = job.param("accumulate", 1)?;
    let average: f64 = job.param("average", 0.0)?;
    let half = job.param("half", false)?;
    let name = job.param("model", "writer".to_owned())?;
    let optimizer = optimizer(job, feed.steps_per_epoch()? * epochs / u64::from(accumulate.max(1)))?;
    info(&format!("{} bytes of context, {} parameters", architecture.context, architecture.parameter_count()));

    let variables = job.variables();
    let config = architecture.to_params();
    let gpt = Gpt::new(&variables, architecture)?;
    let objective = |_: &Graph, batch: &Inputs| {
        let text = batch.get("text")?;
        let (size, length) = (text.shape()[0], text.shape()[1]);
        let (before, after) = (text.slice(&[0, 0], &[size, length - 1])?, text.slice(&[0, 1], &[size, length - 1])?);
        let logits = gpt.logits(&before)?;
        let cross_entropy = CrossEntropy::new();
        let loss = cross_entropy.loss(&logits, &after)?;
        Ok(Objective::new(loss).metric("accuracy", cross_entropy.accuracy(&logits, &after)?))
    };
    let mut fit = Fit::new(job, &variables, optimizer.as_ref(), &objective);
    fit = fit.clip_grad_norm(1.0).gradient_accumulation_steps(accumulate).mixed_precision(half);
    if average > 0.0 {
        fit = fit.exponential_moving_average(average);
    }
    fit.epochs(&feed, epochs)?;
    job.publish(&name, &variables, &config)?;
    Ok(())
}

fn optimizer(job: &Job, steps: u64) -> Result<Box<dyn Optimizer>> {
    let kind = job.params().choice("optimizer", &["adamw", "muon"])?;
    let (peak, warmup) = (job.param("lr", 0.002)?, job.param("warmup", 100)?);
    let schedule = |peak| LearningRateSchedule::Cosine { peak, warmup, steps };
    let adamw = Adam::new(schedule(peak)).betas(0.9, 0.99).weight_decay(0.1);
    // The embedding tables use Adam, because each step updates only a few of their rows.
    let muon = || Muon::new(schedule(0.02), adamw).adam_for(&["bytes", "places"]);
    Ok(if kind == "muon" { Box::new(muon()) } else { Box::new(adamw) })
}

fn architecture(job: &Job) -> Result<GptConfig> {
    Ok(GptConfig {
        context: job.param("context", 64)?,
        layers: job.param("layers", 4)?,
        heads: job.param("heads", 4)?,
        width: job.param("width", 128)?,
        dropout: job.param("dropout", 0.0)?,
    })
}

saggar_plugin::export!(predictor: TextGenerator);
saggar_plugin::export!(train: train);

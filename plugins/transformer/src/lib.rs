//! The encoder-decoder of "Attention is all you need" (Vaswani et al., arXiv:1706.03762).
//!
//! It trains on any dataset with the integer fields `source` `[s]` and `target` `[t]`, sentences of word numbers from one
//! vocabulary: 0 fills up, 1 begins a target, 2 ends a sentence. It publishes a model that translates by beam search.

mod beam;
mod blocks;
mod model;
mod translate;

use saggar_plugin::losses::CrossEntropy;
use saggar_plugin::optimizers::{Adam, LearningRate};
use saggar_plugin::{Dataset, Error, Feed, Fit, Graph, Inputs, Job, Objective, Result, info};

pub use beam::Beam;
pub use model::{Architecture, Transformer};
pub use translate::Translator;

/// What stands after the end of a sentence.
pub const PADDING: i32 = 0;
/// The word before the first of a target.
pub const BEGIN: i32 = 1;
/// The word after the last.
pub const END: i32 = 2;

/// A named set of hyper-parameters.
struct Set {
    layers: u32,
    width: u32,
    heads: u32,
    inner: u32,
    warmup: u64,
}

/// For a processor and an afternoon.
const TINY: Set = Set { layers: 2, width: 128, heads: 4, inner: 512, warmup: 800 };
/// The paper's base model, for a GPU.
const BASE: Set = Set { layers: 6, width: 512, heads: 8, inner: 2048, warmup: 4000 };

/// Trains on the dataset at `/data` and publishes the result.
///
/// Parameters: `hparams` (`tiny` or `base`), and each of the set's by itself: `layers`, `width`, `heads`, `inner`,
/// `warmup`; `dropout`, `smoothing`, `lr` (a factor of the paper's schedule), `batch`, `accumulate`, `epochs`, `average`
/// (share of the old in a running mean of the weights; 0 for none), `half` (compute in `float16`), `vocabulary` (words,
/// where the field `target` does not name them), `model` (the name to publish under).
///
/// # Errors
/// A parameter, a field or a shape that does not fit; what the host refuses.
pub fn train(job: &Job) -> Result<()> {
    let data = Dataset::open("/data")?;
    let feed = Feed::new(&data, &["source", "target"], job.param("batch", 64)?)?;
    let set = if job.params().choice("hparams", &["tiny", "base"])? == "base" { BASE } else { TINY };
    let architecture = architecture(job, &data, &set)?;
    let (warmup, factor): (u64, f64) = (job.param("warmup", set.warmup)?, job.param("lr", 1.0)?);
    let peak = factor / (f64::from(architecture.width) * warmup.max(1) as f64).sqrt();
    let adam = Adam { beta2: 0.98, epsilon: 1e-9, ..Adam::new(LearningRate::InverseSquareRoot { peak, warmup }) };
    let cross_entropy = CrossEntropy::new().smoothing(job.param("smoothing", 0.1)?).ignore(PADDING);
    let (name, epochs) = (job.param("model", "translator".to_owned())?, job.param("epochs", 10)?);
    let average = job.param("average", 0.0)?;
    let (accumulate, half) = (job.param("accumulate", 1)?, job.param("half", false)?);
    info(&format!("{} words, {} parameters", architecture.words, architecture.parameters()));

    let variables = job.variables();
    let config = architecture.to_params();
    let transformer = Transformer::new(&variables, architecture)?;
    let objective = |_: &Graph, batch: &Inputs| {
        let (source, target) = (batch.get("source")?, batch.get("target")?);
        let (size, length) = (target.shape()[0], target.shape()[1] - 1);
        let (before, after) = (target.slice(&[0, 0], &[size, length])?, target.slice(&[0, 1], &[size, length])?);
        let memory = transformer.encode(source)?;
        let logits = transformer.logits(&transformer.decode(&before, &memory, source)?)?;
        let accuracy = cross_entropy.accuracy(&logits, &after)?;
        Ok(Objective::new(cross_entropy.loss(&logits, &after)?).metric("accuracy", accuracy))
    };
    let mut fit = Fit::new(job, &variables, &adam, &objective).accumulate(accumulate).mixed_precision(half);
    if average > 0.0 {
        fit = fit.average(average);
    }
    fit.epochs(&feed, epochs)?;
    job.publish(&name, &variables, &config)?;
    Ok(())
}

fn architecture(job: &Job, data: &Dataset, set: &Set) -> Result<Architecture> {
    let length = |name: &str| match data.field(name)?.item.shape[..] {
        [length] if length >= 2 => Ok(length),
        ref given => {
            let what = format!("the field `{name}`");
            Err(Error::Shape { what, expected: "sentences of at least 2 words, [n]", given: given.to_vec() })
        }
    };
    let words = match data.field("target")?.classes.len() {
        0 => job.params().require("vocabulary")?,
        named => named as u32,
    };
    Ok(Architecture {
        words,
        source: length("source")?,
        target: length("target")?,
        layers: job.param("layers", set.layers)?,
        width: job.param("width", set.width)?,
        heads: job.param("heads", set.heads)?,
        inner: job.param("inner", set.inner)?,
        dropout: job.param("dropout", 0.1)?,
    })
}

saggar_plugin::export!(predictor: Translator);
saggar_plugin::export!(train: train);

//! The encoder-decoder of "Attention is all you need" (Vaswani et al., arXiv:1706.03762).
//!
//! It trains on any dataset with the text fields `source` and `target`, a sentence and its translation, and learns a
//! vocabulary of subwords from them. The published model translates text by beam search.

mod beam_search;
mod bpe_tokenizer;
mod encoder_decoder_layers;
mod hparams;
mod model;
mod transformer_config;
mod translate;
mod translation_dataset;

use saggar_plugin::losses::CrossEntropy;
use saggar_plugin::optimizers::{Adam, LearningRateSchedule};
use saggar_plugin::{Dataset, Fit, Graph, Inputs, Job, Objective, Result, info};

use hparams::Hparams;

pub use beam_search::BeamSearch;
pub use bpe_tokenizer::BpeTokenizer;
pub use model::Transformer;
pub use transformer_config::TransformerConfig;
pub use translate::Translator;
pub use translation_dataset::TranslationDataset;

/// The token after the end of a sentence.
pub const PADDING: i32 = 0;
/// The token before the first subword of a target.
pub const BEGIN: i32 = 1;
/// The token after the last subword.
pub const END: i32 = 2;
/// The first number that is a subword.
pub const FIRST_SUBWORD: i32 = 3;

/// Trains on the dataset at `/data` and publishes the result.
///
/// Parameters: `hparams` (a set and values that replace some of it: `tiny`, `base`, `base,batch_size=2048`), and each
/// value as a separate parameter: `layers`, `width`, `heads`, `inner`, `dropout`, `smoothing`, `warmup`, `lr`,
/// `vocabulary` (subwords), `length` (subwords of the longest sentence), `batch-size` (subwords per batch),
/// `accumulate` (batches per step of the optimizer), `epochs`, `average` (decay of a moving average of the weights; 0
/// for none), `half` (compute in `float16`), `beam` and `alpha` (of the model's beam search), `model` (the name to
/// publish under).
///
/// # Errors
/// Returns an error if a parameter or a field does not fit, or the host refuses a call.
pub fn train(job: &Job) -> Result<()> {
    let hparams = Hparams::new(job)?;
    let set = hparams.set;
    let warmup: u64 = hparams.get("warmup", set.warmup)?;
    let peak = hparams.get("lr", set.rate)? / (warmup.max(1) as f64).sqrt();
    let adam = Adam::new(LearningRateSchedule::InverseSquareRoot { peak, warmup }).betas(0.9, 0.98).epsilon(1e-9);
    let cross_entropy = CrossEntropy::new().label_smoothing(hparams.get("smoothing", 0.1)?).ignore_index(PADDING);
    let (name, epochs) = (job.param("model", "translator".to_owned())?, hparams.get("epochs", set.epochs)?);
    let (average, half) = (hparams.get("average", set.average)?, hparams.get("half", false)?);
    let (batch, accumulate) = (hparams.get("batch-size", 1024)?, hparams.get("accumulate", 1)?);
    let (beam, alpha): (u32, f64) = (hparams.get("beam", 4)?, hparams.get("alpha", 0.6)?);
    let vocabulary = hparams.get("vocabulary", set.vocabulary)?;
    let mut architecture = architecture(&hparams)?;
    hparams.check()?;
    job.params().check()?;

    let data = Dataset::open("/data")?;
    let sentences = TranslationDataset::read(&data, vocabulary, architecture.length)?;
    let feeds = sentences.feeds(batch)?;
    architecture.words = sentences.subwords().count() as u32;
    info(&format!("{} subwords, {} parameters", architecture.words, architecture.parameter_count()));

    let variables = job.variables();
    let config = architecture.to_params().with("beam", beam).with("alpha", alpha);
    let config = config.with("subwords", sentences.subwords().to_numbers());
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
    let mut fit =
        Fit::new(job, &variables, &adam, &objective).gradient_accumulation_steps(accumulate).mixed_precision(half);
    if average > 0.0 {
        fit = fit.exponential_moving_average(average);
    }
    fit.epochs_of(&feeds, epochs)?;
    job.publish(&name, &variables, &config)?;
    job.phase("post")?;
    job.write_output("subwords.txt", sentences.subwords().listing().as_bytes())
}

/// Returns the configuration with 0 words, because the vocabulary is not known yet.
fn architecture(hparams: &Hparams<'_>) -> Result<TransformerConfig> {
    let set = hparams.set;
    Ok(TransformerConfig {
        words: 0,
        length: hparams.get("length", set.length)?,
        layers: hparams.get("layers", set.layers)?,
        width: hparams.get("width", set.width)?,
        heads: hparams.get("heads", set.heads)?,
        inner: hparams.get("inner", set.inner)?,
        dropout: hparams.get("dropout", 0.1)?,
    })
}

saggar_plugin::export!(predictor: Translator);
saggar_plugin::export!(train: train);

//! The training.

use saggar_plugin::optimizers::{Adam, LearningRateSchedule, Optimizer, Sgd};
use saggar_plugin::{
    Classes, ConfusionMatrix, Dataset, Error, Feed, Field, Fit, Job, Objective, Result, accuracy, named,
};

use crate::model::{Lenet, LenetConfig};
use crate::wrong_predictions::WrongPredictions;

/// The number of classes of a dataset that does not name them.
const DEFAULT_CLASSES: u32 = 10;

/// Trains on the dataset at `/data`, reports the confusion matrix of the held-out part, and publishes the result.
///
/// Parameters: `epochs`, `batch`, `optimizer` (`sgd` or `adam`), `lr`, `momentum`, `channels`, `hidden`, `classes`
/// (their number, if the dataset does not name them), `model` (the name to publish under), `log_images` (the number of
/// wrong predictions to log as images), `normalization` (`fixed`, or `per-image` for images that the host standardizes
/// in training and in serving), `log_histograms` (whether to log histograms of the weights after each epoch).
/// The learning rate follows a cosine decay.
///
/// # Errors
/// Returns an error if a parameter, a field or a shape does not fit, or the host refuses a call.
pub fn train(job: &Job) -> Result<()> {
    let data = Dataset::open("/data")?;
    let architecture = architecture(job, &data.field("image")?, &data.field("label")?)?;
    if let Some(preprocessing) = architecture.preprocessing() {
        job.declare_image_input("image", &preprocessing)?;
    }
    let feed = Feed::new(&data, &["image", "label"], job.param("batch", 32)?)?;
    let epochs: u64 = job.param("epochs", 20)?;
    let name = job.param("model", "digits".to_owned())?;
    let steps = feed.steps_per_epoch()? * epochs;
    let optimizer = optimizer(job, steps)?;
    let mut wrong = WrongPredictions::new(job.param("log_images", 16)?);
    let log_histograms = job.param("log_histograms", true)?;

    let variables = job.variables();
    let config = architecture.to_params();
    let lenet = Lenet::new(&variables, architecture)?;
    Fit::new(job, &variables, optimizer.as_ref(), &|_, batch| {
        let logits = lenet.logits(batch.get("image")?)?;
        let label = batch.get("label")?;
        Ok(Objective::new(logits.softmax_cross_entropy(label)?).metric("accuracy", accuracy(&logits, label)?))
    })
    .log_histograms(log_histograms)
    .epochs(&feed, epochs)?;

    let answers = ConfusionMatrix::of_held_out_with(
        &feed,
        &lenet.config().classes,
        &|_, batch| Ok((lenet.logits(batch.get("image")?)?, batch.get("label")?.clone())),
        &mut |batch, truth, predicted| wrong.collect(named(batch, "image")?, truth, predicted),
    )?;
    if let Some(confusion) = answers {
        confusion.report(job)?;
        wrong.log(job, steps, lenet.config())?;
    }
    job.publish(&name, &variables, &config)?;
    Ok(())
}

fn optimizer(job: &Job, steps: u64) -> Result<Box<dyn Optimizer>> {
    let kind = job.params().choice("optimizer", &["sgd", "adam"])?;
    let momentum = job.param("momentum", 0.9)?;
    let peak = job.param("lr", if kind == "adam" { 0.002 } else { 0.05 })?;
    let rate = LearningRateSchedule::Cosine { peak, warmup: 0, steps };
    Ok(if kind == "adam" { Box::new(Adam::new(rate)) } else { Box::new(Sgd::new(rate).momentum(momentum)) })
}

fn architecture(job: &Job, image: &Field, label: &Field) -> Result<LenetConfig> {
    let (height, width, colors) = match image.item.shape[..] {
        [height, width] => (height, width, 1),
        [height, width, colors] => (height, width, colors),
        ref given => {
            let (what, given) = ("the field `image`".to_owned(), given.to_vec());
            return Err(Error::Shape { what, expected: "[height, width] or [height, width, 3]", given });
        }
    };
    let classes = Classes::of(label, job.param("classes", DEFAULT_CLASSES)?);
    let (channels, hidden) = (job.param("channels", 16)?, job.param("hidden", 64)?);
    let per_image = job.params().choice("normalization", &["fixed", "per-image"])? == "per-image";
    Ok(LenetConfig { height, width, colors, channels, hidden, per_image, classes })
}

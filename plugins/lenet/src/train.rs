//! How the network is trained.

use saggar_plugin::optimizers::{Adam, LearningRate, Optimizer, Sgd};
use saggar_plugin::{
    BatchOptions, DataType, Dataset, Error, Feed, Field, Fit, Graph, Job, Objective, Result, accuracy, descriptor,
};

use crate::model::{Architecture, Lenet};

/// Classes of a dataset that does not name them.
const CLASSES: u32 = 10;
/// How many images tell what the brightest pixel of a dataset is.
const IMAGES_MEASURED: u32 = 1024;

/// Trains on the dataset at `/data` and publishes the result.
///
/// Parameters: `epochs`, `batch`, `optimizer` (`sgd` or `adam`), `lr`, `momentum`, `channels`, `hidden`, `classes` (how
/// many, where the dataset does not name them), `model` (the name to publish under). The learning rate falls along a
/// cosine.
///
/// # Errors
/// A parameter, a field or a shape that does not fit; what the host refuses.
pub fn train(job: &Job) -> Result<()> {
    let data = Dataset::open("/data")?;
    let feed = Feed::new(&data, &["image", "label"], job.param("batch", 32)?)?;
    let epochs: u64 = job.param("epochs", 10)?;
    let name = job.param("model", "digits".to_owned())?;
    let optimizer = optimizer(job, feed.steps_per_epoch()? * epochs)?;

    let variables = job.variables();
    let architecture = architecture(job, &data, &data.field("image")?, &data.field("label")?)?;
    let config = architecture.to_params();
    let lenet = Lenet::new(&variables, architecture)?;
    Fit::new(job, &variables, optimizer.as_ref(), &|_, batch| {
        let logits = lenet.logits(batch.get("image")?)?;
        let label = batch.get("label")?;
        Ok(Objective::new(logits.softmax_cross_entropy(label)?).metric("accuracy", accuracy(&logits, label)?))
    })
    .epochs(&feed, epochs)?;

    let version = job.publish(&name, &variables, &config)?;
    saggar_plugin::info(&format!("published {name}, version {version}"));
    Ok(())
}

fn optimizer(job: &Job, steps: u64) -> Result<Box<dyn Optimizer>> {
    let kind = job.params().choice("optimizer", &["sgd", "adam"])?;
    let momentum = job.param("momentum", 0.9)?;
    let peak = job.param("lr", if kind == "adam" { 0.002 } else { 0.05 })?;
    let rate = LearningRate::Cosine { peak, warmup: 0, steps };
    Ok(if kind == "adam" { Box::new(Adam::new(rate)) } else { Box::new(Sgd::momentum(rate, momentum)) })
}

fn architecture(job: &Job, data: &Dataset, image: &Field, label: &Field) -> Result<Architecture> {
    let [height, width] = image.item.shape[..] else {
        let given = image.item.shape.clone();
        return Err(Error::Shape { what: "the field `image`".to_owned(), expected: "[height, width]", given });
    };
    let count = job.param("classes", CLASSES)?;
    let classes = match label.classes.as_slice() {
        [] => (0..count).map(|class| class.to_string()).collect(),
        named => named.to_vec(),
    };
    let (channels, hidden) = (job.param("channels", 8)?, job.param("hidden", 64)?);
    Ok(Architecture { height, width, white: white(data, image)?, channels, hidden, classes })
}

/// The brightest pixel among the dataset's first images.
fn white(data: &Dataset, image: &Field) -> Result<f64> {
    let size = u32::try_from(data.count(None)?).unwrap_or(u32::MAX).min(IMAGES_MEASURED);
    let options = BatchOptions { size, shuffle_seed: None, drop_last: false, split: None };
    let Some(batch) = data.batches(std::slice::from_ref(&image.name), &options)?.next_batch()? else { return Err(Error::NoItems) };
    let shape = [&[size], image.item.shape.as_slice()].concat();
    let graph = Graph::new();
    let input = graph.input(&image.name, &descriptor(image.item.data_type, shape))?;
    let brightest = graph.build([("white", &input.cast(DataType::Float32)?.reduce_max(&[], false)?)])?;
    let outputs = brightest.dispatch(batch.iter().map(|field| (field.name.as_str(), &field.tensor)))?;
    let values = outputs.first().map(|output| output.tensor.read_f32()).transpose()?.unwrap_or_default();
    // A dataset of black images has nothing to scale.
    Ok(values.first().copied().map_or(1.0, |white| f64::from(white).max(1.0)))
}

//! A multi-layer perceptron: the smallest reference plugin.
//!
//! Two hidden layers with the same number of units classify images of any size by their pixels. It trains on any
//! dataset with the fields `image` (`uint8`, any shape) and `label`, and logs a row for each epoch.

mod model;

use saggar_plugin::optimizers::Adam;
use saggar_plugin::{Classes, Dataset, Feed, Fit, Job, Objective, Result, accuracy, info};

pub use model::{Mlp, MlpConfig};

/// Trains on the dataset at `/data` and publishes the result.
///
/// Parameters: `unit` (units of each hidden layer), `batch`, `epochs`, `lr`, `classes` (their number, if the dataset
/// does not name them), `model` (the name to publish under).
///
/// # Errors
/// Returns an error if a parameter, a field or a shape does not fit, or the host refuses a call.
pub fn train(job: &Job) -> Result<()> {
    let data = Dataset::open("/data")?;
    let (unit, batch, epochs) = (job.param("unit", 1000)?, job.param("batch", 100)?, job.param("epochs", 20)?);
    let feed = Feed::new(&data, &["image", "label"], batch)?;
    let adam = Adam::new(job.param("lr", 0.001)?);
    let name = job.param("model", "mlp".to_owned())?;
    let classes = Classes::of(&data.field("label")?, job.param("classes", 10)?);
    let architecture = MlpConfig { image: data.field("image")?.item.shape, unit, classes };
    info(&format!("units: {unit}, batch: {batch}, epochs: {epochs}"));

    let variables = job.variables();
    let config = architecture.to_params();
    let mlp = Mlp::new(&variables, architecture)?;
    Fit::new(job, &variables, &adam, &|_, batch| {
        let (logits, label) = (mlp.logits(batch.get("image")?)?, batch.get("label")?);
        Ok(Objective::new(logits.softmax_cross_entropy(label)?).metric("accuracy", accuracy(&logits, label)?))
    })
    .epochs(&feed, epochs)?;
    job.publish(&name, &variables, &config)?;
    Ok(())
}

saggar_plugin::export!(Mlp, train);

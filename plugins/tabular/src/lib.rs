//! Predicts one column of a table from the others: a class or a number.
//!
//! Every field of a dataset is an input, except the one that is predicted. Numbers are standardised with the means and
//! deviations of the training part, which are variables of the model, so that a request contains the numbers of the
//! table. Each field of classes has an embedding.

mod column_reader;
mod columns;
mod model;
mod standardization;

use saggar_plugin::losses::mean_squared_error;
use saggar_plugin::optimizers::{Adam, LearningRateSchedule};
use saggar_plugin::{ConfusionMatrix, Dataset, Feed, Fit, Graph, Inputs, Job, Objective, Result, info};

pub use columns::{CategoryColumn, NumberColumn, TableColumns, TargetColumn};
pub use model::{TabularConfig, TabularModel};
pub use standardization::ColumnStandardization;

/// Trains on the dataset at `/data` and publishes the result.
///
/// Parameters: `target` (the field that is predicted), `units` and `layers` (of the hidden layers), `dropout`, `decay`
/// (weight decay), `batch`, `epochs`, `lr` (the peak of a cosine schedule), `model` (the name to publish under).
///
/// # Errors
/// Returns an error if a parameter or a field does not fit, or the host refuses a call.
pub fn train(job: &Job) -> Result<()> {
    let data = Dataset::open("/data")?;
    let columns = TableColumns::of(&data, job.params().optional("target")?)?;
    let (batch, epochs): (u32, u64) = (job.param("batch", 128)?, job.param("epochs", 150)?);
    let (peak, decay): (f64, f64) = (job.param("lr", 0.002)?, job.param("decay", 0.01)?);
    let name = job.param("model", "tabular".to_owned())?;
    let config = TabularConfig {
        columns,
        units: job.param("units", 128)?,
        layers: job.param("layers", 1)?,
        dropout: job.param("dropout", 0.0)?,
    };
    let fields = config.columns.names();
    let feed = Feed::new(&data, &fields, batch)?;
    let schedule = LearningRateSchedule::Cosine { peak, warmup: 0, steps: feed.steps_per_epoch()? * epochs };
    let adam = Adam::new(schedule).weight_decay(decay);
    info(&format!("{}; units: {}, layers: {}", config.columns.describe(), config.units, config.layers));

    let variables = job.variables();
    let params = config.to_params();
    let network = TabularModel::new(&variables, config)?;
    network.measure(&data)?;
    let objective = |_: &Graph, inputs: &Inputs| {
        let answer = network.forward(inputs)?;
        match network.target() {
            TargetColumn::Classes { name, .. } => Objective::classification(&answer, inputs.get(name)?),
            TargetColumn::Quantity { name } => {
                let wanted = network.standardized_target(inputs.get(name)?)?;
                let error = mean_squared_error(&answer, &wanted)?;
                // Of a standardised quantity, the mean squared error is the share of the variance that is unexplained.
                let explained = error.mul_scalar(-1.0)?.add_scalar(1.0)?;
                Ok(Objective::new(error).metric("r2", explained))
            }
        }
    };
    Fit::new(job, &variables, &adam, &objective).epochs(&feed, epochs)?;
    if let TargetColumn::Classes { name, classes } = network.target() {
        let answers = ConfusionMatrix::of_held_out(&feed, classes, &|_, inputs| {
            Ok((network.forward(inputs)?, inputs.get(name)?.clone()))
        })?;
        if let Some(confusion) = answers {
            confusion.report(job)?;
        }
    }
    job.publish(&name, &variables, &params)?;
    Ok(())
}

saggar_plugin::export!(TabularModel, train);

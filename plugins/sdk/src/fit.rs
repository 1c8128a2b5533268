//! The training loop.

mod epoch_table;
mod exponential_average;
mod feed;
mod feed_order;
mod held_out_confusion;
mod objective;
mod training_position;
mod training_run;
mod training_step;
mod validation;
mod weighted_means;

pub use feed::Feed;
pub use objective::Objective;

use crate::call_site::AtCallSite;
use crate::error::{Error, Result};
use crate::graph::{Executable, Graph, GraphPurpose, Inputs};
use crate::job::Job;
use crate::logging;
use crate::optimizers::Optimizer;
use crate::tensor::Tensor;
use crate::variables::Variables;
use training_run::{ActiveFeed, FitRun};
use training_step::StepOptions;
use validation::HeldOutValidation;

/// Maximum number of steps between two step boundaries, small enough for a training to stop soon.
const STEPS_PER_BOUNDARY: u64 = 10;

/// A training loop: minimises an objective with an optimiser.
///
/// It resumes, takes checkpoints, validates and reports automatically. It records metrics every few steps (`loss` and
/// the objective's metrics), and after every epoch their means over the epoch (`epoch/loss`, ...) and over the held-out
/// items (`validation/loss`, ...), also as a row of a table in the log. A training that was interrupted ends with the
/// same result as one that was not.
///
/// ```no_run
/// # use saggar_plugin::*;
/// use saggar_plugin::layers::Linear;
/// use saggar_plugin::optimizers::Adam;
///
/// fn train(job: &Job) -> Result<()> {
///     let data = Dataset::open("/data")?; // fields `features` float32[4] and `label` int32[]
///     let feed = Feed::new(&data, &["features", "label"], 32)?;
///     let (variables, adam) = (job.variables(), Adam::new(0.001));
///     let linear = Linear::new(&variables, 4, 3)?;
///     let objective = |_: &Graph, batch: &Inputs| {
///         let (logits, label) = (linear.forward(batch.get("features")?)?, batch.get("label")?);
///         Ok(Objective::new(logits.softmax_cross_entropy(label)?).metric("accuracy", accuracy(&logits, label)?))
///     };
///     Fit::new(job, &variables, &adam, &objective).clip_grad_norm(1.0).early_stopping(3).epochs(&feed, 20)
/// }
/// ```
pub struct Fit<'a> {
    job: &'a Job,
    variables: &'a Variables,
    optimizer: &'a dyn Optimizer,
    objective: &'a dyn Fn(&Graph, &Inputs) -> Result<Objective>,
    options: StepOptions,
    patience: Option<u64>,
    log_histograms: bool,
}

impl<'a> Fit<'a> {
    /// Returns a training loop for the parameters in `variables`. `objective` builds the loss from the inputs of a
    /// batch. It is called once for each graph; [`Graph::training`] distinguishes training graphs from evaluation
    /// graphs.
    ///
    /// ```no_run
    /// # use saggar_plugin::*;
    /// # fn f(job: &Job, v: &Variables, linear: &layers::Linear, feed: &Feed<'_>) -> Result<()> {
    /// let adam = optimizers::Adam::new(0.001);
    /// let objective = |_: &Graph, batch: &Inputs| {
    ///     let y = linear.forward(batch.get("x")?)?;
    ///     Ok(Objective::new(losses::mean_squared_error(&y, batch.get("y")?)?))
    /// };
    /// Fit::new(job, v, &adam, &objective).epochs(feed, 10)?;
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn new(
        job: &'a Job,
        variables: &'a Variables,
        optimizer: &'a dyn Optimizer,
        objective: &'a dyn Fn(&Graph, &Inputs) -> Result<Objective>,
    ) -> Self {
        Self {
            job,
            variables,
            optimizer,
            objective,
            options: StepOptions::default(),
            patience: None,
            log_histograms: false,
        }
    }

    /// Clips gradients: scales all of them by one factor so that their total L2 norm is at most `norm`.
    ///
    /// ```no_run
    /// # use saggar_plugin::*;
    /// # fn f(fit: Fit<'_>, feed: &Feed<'_>) -> Result<()> {
    /// fit.clip_grad_norm(1.0).epochs(feed, 10)?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn clip_grad_norm(mut self, norm: f64) -> Self {
        self.options.clip = Some(norm);
        self
    }

    /// Averages the gradients of this number of batches for each step of the optimiser, as if the batches were one.
    /// Batches left over at the end of an epoch count for the first step of the next epoch.
    ///
    /// ```no_run
    /// # use saggar_plugin::*;
    /// # fn f(fit: Fit<'_>, feed: &Feed<'_>) -> Result<()> {
    /// // With batches of 32 items, each step of the optimiser uses 128 items.
    /// fit.gradient_accumulation_steps(4).epochs(feed, 10)?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn gradient_accumulation_steps(mut self, batches: u32) -> Self {
        self.options.accumulate = batches.max(1);
        self
    }

    /// Enables mixed precision: computes forward and backward in `float16`, with parameters stored as `float32`. The
    /// loss is scaled to keep small gradients from underflowing. A batch whose gradients are not finite is skipped and
    /// the scale is halved; after 2000 finite batches in a row it is doubled. The model must cast its inputs to
    /// [`Graph::float`]. Source: Micikevicius et al., arXiv:1710.03740.
    ///
    /// ```no_run
    /// # use saggar_plugin::*;
    /// # fn f(job: &Job, v: &Variables, linear: &layers::Linear, feed: &Feed<'_>) -> Result<()> {
    /// let adam = optimizers::Adam::new(0.001);
    /// let objective = |graph: &Graph, batch: &Inputs| {
    ///     let x = batch.get("x")?.cast(graph.float())?;
    ///     Objective::classification(&linear.forward(&x)?, batch.get("label")?)
    /// };
    /// Fit::new(job, v, &adam, &objective).mixed_precision(true).epochs(feed, 10)?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn mixed_precision(mut self, whether: bool) -> Self {
        self.options.half = whether;
        self
    }

    /// Maintains an exponential moving average of the parameters: each step computes
    /// `average = decay * average + (1 - decay) * parameter`, with a smaller decay in the first steps. A usual decay is
    /// 0.999. Validation uses the averages, and at the end the parameters are set to the averages. Source: Polyak and
    /// Juditsky, SIAM J. Control Optim. 30, 1992, with exponential weights.
    ///
    /// ```no_run
    /// # use saggar_plugin::*;
    /// # fn f(fit: Fit<'_>, feed: &Feed<'_>) -> Result<()> {
    /// fit.exponential_moving_average(0.999).epochs(feed, 10)?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn exponential_moving_average(mut self, decay: f64) -> Self {
        self.options.average = Some(decay);
        self
    }

    /// Stops the training when the validation loss has not reached a new minimum for `patience` epochs.
    ///
    /// ```no_run
    /// # use saggar_plugin::*;
    /// # fn f(fit: Fit<'_>, feed: &Feed<'_>) -> Result<()> {
    /// fit.early_stopping(3).epochs(feed, 100)?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn early_stopping(mut self, patience: u64) -> Self {
        self.patience = Some(patience);
        self
    }

    /// Logs a histogram of each parameter after every epoch, `weights/NAME`. The parameters are read from the device for
    /// it, so it takes time if they are large.
    ///
    /// ```no_run
    /// # use saggar_plugin::*;
    /// # fn f(fit: Fit<'_>, feed: &Feed<'_>) -> Result<()> {
    /// fit.log_histograms(true).epochs(feed, 10)?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn log_histograms(mut self, whether: bool) -> Self {
        self.log_histograms = whether;
        self
    }

    /// Trains until `epochs` epochs are complete, including those before an interruption.
    ///
    /// ```no_run
    /// # use saggar_plugin::*;
    /// # fn f(job: &Job, fit: Fit<'_>, data: &Dataset) -> Result<()> {
    /// let epochs = job.param("epochs", 10)?;
    /// fit.epochs(&Feed::new(data, &["image", "label"], 32)?, epochs)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns `UnknownParameter` if the job has a parameter that was not read, `Shards` if the batch cannot be divided
    /// into the job's shards, `Stopped` if the job is stopping, and `Host` if the host refuses a call.
    #[track_caller]
    pub fn epochs(&self, feed: &Feed<'_>, epochs: u64) -> Result<()> {
        self.epochs_of(std::slice::from_ref(feed), epochs)
    }

    /// Trains on several feeds whose batches can have different shapes, such as sentences grouped by length. Each feed
    /// has a separate graph over the same variables. An epoch passes once over all feeds, in an order that is shuffled
    /// in each epoch.
    ///
    /// ```no_run
    /// # use saggar_plugin::*;
    /// # fn f(fit: Fit<'_>, short: &Dataset, long: &Dataset) -> Result<()> {
    /// // `tokens` is int32[16] in one dataset and int32[64] in the other.
    /// let feeds = [Feed::new(short, &["tokens"], 64)?, Feed::new(long, &["tokens"], 16)?];
    /// fit.epochs_of(&feeds, 10)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Fit::epochs`]. Also returns `NoItems` if `feeds` is empty.
    #[track_caller]
    pub fn epochs_of(&self, feeds: &[Feed<'_>], epochs: u64) -> Result<()> {
        self.job.params().check()?;
        self.run(feeds, epochs).at_caller()
    }

    fn run(&self, feeds: &[Feed<'_>], epochs: u64) -> Result<()> {
        let lane = |feed: &Feed<'_>| {
            let batches = feed.batches(feed.training.as_ref(), Some(self.job.seed()))?;
            let (graph, names) = self.training_graph(feed)?;
            Ok((ActiveFeed { batches, graph, steps_per_epoch: feed.steps_per_epoch()? }, names))
        };
        let (lanes, mut names): (Vec<_>, Vec<_>) =
            feeds.iter().map(lane).collect::<Result<Vec<_>>>()?.into_iter().unzip();
        let names = names.pop().ok_or(Error::NoItems)?;
        let validation = HeldOutValidation::new(self, feeds)?;
        if validation.is_none() {
            logging::warn("the dataset has no splits `train` and `validation` or `test`: validation is skipped");
        }
        FitRun { fit: self, active_feeds: lanes, names, epochs }.train(validation.as_ref())?;
        if self.options.average.is_some() {
            exponential_average::copy_to_parameters(self.variables)?;
        }
        Ok(())
    }

    fn evaluation_graph(&self, feed: &Feed<'_>, size: u32) -> Result<Executable> {
        let instead = match self.options.average {
            Some(_) => exponential_average::averages_by_parameter(self.variables)?,
            None => Default::default(),
        };
        let graph = Graph::for_purpose(GraphPurpose { instead, ..GraphPurpose::default() });
        (self.objective)(&graph, &feed.inputs(&graph, size)?)?.build(&graph)
    }
}

/// Reads outputs that are `float32` scalars.
fn read_scalars(outputs: Vec<(String, Tensor)>) -> Result<Vec<(String, f64)>> {
    let values = outputs
        .into_iter()
        .map(|(name, tensor)| Ok((name, tensor.read_f32()?.first().copied().map_or(f64::NAN, f64::from))));
    values.collect()
}

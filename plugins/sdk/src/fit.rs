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

use crate::error::{Error, Result};
use crate::graph::{Executable, Graph, GraphPurpose, Inputs};
use crate::job::Job;
use crate::logging;
use crate::optimizers::Optimizer;
use crate::variables::Variables;
use training_run::{ActiveFeed, FitRun};
use training_step::StepOptions;
use validation::HeldOutValidation;

/// A training: an objective, and an optimiser that minimises it.
///
/// It resumes, checkpoints, validates and reports by itself: metrics every few steps (`loss` and the objective's), and
/// after every epoch their means over it (`epoch/loss`, ...) and over what is held out (`validation/loss`, ...), also as
/// a row of a table in the log. A training that was interrupted ends as one that was not.
pub struct Fit<'a> {
    job: &'a Job,
    variables: &'a Variables,
    optimizer: &'a dyn Optimizer,
    objective: &'a dyn Fn(&Graph, &Inputs) -> Result<Objective>,
    options: StepOptions,
    patience: Option<u64>,
}

impl<'a> Fit<'a> {
    /// Trains the parameters in `variables`. `objective` builds the loss from a batch; it is called for each graph that
    /// is needed, and [`Graph::training`] tells it which sort of graph.
    pub fn new(
        job: &'a Job,
        variables: &'a Variables,
        optimizer: &'a dyn Optimizer,
        objective: &'a dyn Fn(&Graph, &Inputs) -> Result<Objective>,
    ) -> Self {
        Self { job, variables, optimizer, objective, options: StepOptions::default(), patience: None }
    }

    /// Scales gradients down so that their norm is at most `norm`.
    #[must_use]
    pub fn clip_grad_norm(mut self, norm: f64) -> Self {
        self.options.clip = Some(norm);
        self
    }

    /// Adds the gradients of that many batches up before each step of the optimiser, as if they were one batch. What is
    /// left over at the end of an epoch goes into the next epoch's first step.
    #[must_use]
    pub fn gradient_accumulation_steps(mut self, batches: u32) -> Self {
        self.options.accumulate = batches.max(1);
        self
    }

    /// Computes forward and backward in `float16`, over parameters that stay `float32`. The loss is scaled so that small
    /// gradients are not lost; a batch whose gradients are not finite is skipped and the scale halved, and after many
    /// good ones it is doubled. The model casts its inputs to [`Graph::float`]. Source: Micikevicius et al.,
    /// arXiv:1710.03740.
    #[must_use]
    pub fn mixed_precision(mut self, whether: bool) -> Self {
        self.options.half = whether;
        self
    }

    /// Keeps an exponential mean of the parameters, of which each step keeps the share `decay` (0.999, say). Held-out
    /// items are evaluated with the means, and at the end the parameters become the means. Source: Polyak and Juditsky,
    /// SIAM J. Control Optim. 30, 1992, with forgetting.
    #[must_use]
    pub fn exponential_moving_average(mut self, decay: f64) -> Self {
        self.options.average = Some(decay);
        self
    }

    /// Ends the training when the held-out loss has not been lower than its lowest for that many epochs.
    #[must_use]
    pub fn early_stopping(mut self, patience: u64) -> Self {
        self.patience = Some(patience);
        self
    }

    /// Trains until `epochs` have passed, those before an interruption included.
    ///
    /// # Errors
    /// `UnknownParameter` if the job was given one that nobody asked for; `Stopped`; `Host`.
    pub fn epochs(&self, feed: &Feed<'_>, epochs: u64) -> Result<()> {
        self.epochs_of(std::slice::from_ref(feed), epochs)
    }

    /// Trains on several feeds at once, whose batches may have different shapes: sentences in groups of alike lengths. Each
    /// feed has a graph of its own over the same variables, and an epoch passes once over all of them, in an order that
    /// is shuffled anew each time.
    ///
    /// # Errors
    /// As [`Fit::epochs`]; `NoItems` for no feed.
    pub fn epochs_of(&self, feeds: &[Feed<'_>], epochs: u64) -> Result<()> {
        self.job.params().check()?;
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
            logging::warn("the dataset has no parts `train` and `test`: nothing is held out to validate with");
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

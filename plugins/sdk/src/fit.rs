//! The training loop.

mod position;
mod validation;

use crate::bindings::tensors::DataType;
use crate::dataset::{BatchOptions, Batches, Dataset, Field};
use crate::error::{Error, Result};
use crate::graph::{Executable, Graph, Inputs};
use crate::job::Job;
use crate::logging;
use crate::operand::Operand;
use crate::optimizers::{Optimizer, Update, clip_norm};
use crate::tensor::Tensor;
use crate::variables::Variables;
use position::Position;
use validation::Validation;

/// Steps between two step boundaries. Few enough that a training told to stop does so soon.
const STEPS_PER_BOUNDARY: u64 = 10;
/// Steps between two lines of the log.
const STEPS_PER_LINE: u64 = 100;

/// What a training step minimises and what it reports besides.
#[derive(Debug, Clone)]
pub struct Objective {
    /// The loss first, then the metrics.
    outputs: Vec<(String, Operand)>,
}

impl Objective {
    /// Minimises `loss`, an operand of one element that is a mean over the batch.
    pub fn new(loss: Operand) -> Self {
        Self { outputs: vec![("loss".to_owned(), loss)] }
    }

    /// Reports `value` too, an operand of one element that is a mean over the batch.
    #[must_use]
    pub fn metric(mut self, name: &str, value: Operand) -> Self {
        self.outputs.push((name.to_owned(), value));
        self
    }

    fn loss(&self) -> &Operand {
        &self.outputs[0].1
    }

    /// The outputs as `float32` scalars.
    fn build(&self, graph: &Graph) -> Result<Executable> {
        let scalars = self
            .outputs
            .iter()
            .map(|(name, operand)| Ok((name.as_str(), operand.cast(DataType::Float32)?.reshape(&[])?)));
        let scalars: Vec<_> = scalars.collect::<Result<_>>()?;
        graph.build(scalars.iter().map(|(name, operand)| (*name, operand)))
    }
}

/// What a training is fed with: fields of a dataset in batches, and the part held out.
#[derive(Debug)]
pub struct Feed<'a> {
    dataset: &'a Dataset,
    fields: Vec<Field>,
    batch: u32,
    training: Option<String>,
    held_out: Option<String>,
}

impl<'a> Feed<'a> {
    /// Batches of these fields of the dataset's part `train`, with `validation` or else `test` held out. A dataset
    /// without a part `train` is used whole. A batch larger than the part is the part.
    ///
    /// # Errors
    /// `NoSuch` for a field; `NoItems`.
    pub fn new(dataset: &'a Dataset, fields: &[&str], batch: u32) -> Result<Self> {
        let splits = dataset.splits();
        let named = |name: &str| splits.iter().find(|split| *split == name).cloned();
        let training = named("train");
        let held_out = training.as_ref().and_then(|_| named("validation").or_else(|| named("test")));
        let fields = fields.iter().map(|name| dataset.field(name)).collect::<Result<_>>()?;
        let items = dataset.count(training.as_deref())?;
        if items == 0 {
            return Err(Error::NoItems);
        }
        let batch = u32::try_from(items).map_or(batch, |items| batch.min(items)).max(1);
        Ok(Self { dataset, fields, batch, training, held_out })
    }

    /// Steps of one epoch: full batches in the part that is trained on.
    ///
    /// # Errors
    /// `Host` if the dataset cannot be read.
    pub fn steps_per_epoch(&self) -> Result<u64> {
        Ok(self.dataset.count(self.training.as_deref())? / u64::from(self.batch))
    }

    fn inputs(&self, graph: &Graph, size: u32) -> Result<Inputs> {
        graph.inputs(self.fields.iter().map(|field| (field.name.as_str(), &field.item)), size)
    }

    fn batches(&self, split: Option<&String>, shuffle_seed: Option<u64>) -> Result<Batches> {
        let names: Vec<String> = self.fields.iter().map(|field| field.name.clone()).collect();
        let drop_last = shuffle_seed.is_some();
        self.dataset.batches(&names, &BatchOptions { size: self.batch, shuffle_seed, drop_last, split: split.cloned() })
    }
}

/// A training: an objective, and an optimiser that minimises it.
///
/// It resumes, checkpoints, validates and reports by itself: metrics every few steps (`loss` and the objective's) and
/// after every epoch (`validation/loss`, ...), a line of the log every hundred batches.
pub struct Fit<'a> {
    job: &'a Job,
    variables: &'a Variables,
    optimizer: &'a dyn Optimizer,
    objective: &'a dyn Fn(&Graph, &Inputs) -> Result<Objective>,
    clip: Option<f64>,
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
        Self { job, variables, optimizer, objective, clip: None }
    }

    /// Scales gradients down so that their norm is at most `norm`.
    #[must_use]
    pub fn clip_norm(mut self, norm: f64) -> Self {
        self.clip = Some(norm);
        self
    }

    /// Trains until `epochs` have passed, those before an interruption included.
    ///
    /// # Errors
    /// `UnknownParameter` if the job was given one that nobody asked for; `Stopped`; `Diverged`; `Host`.
    pub fn epochs(&self, feed: &Feed<'_>, epochs: u64) -> Result<()> {
        self.job.params().check()?;
        let batches = feed.batches(feed.training.as_ref(), Some(self.job.seed()))?;
        let graph = self.training_graph(feed)?;
        let validation = match &feed.held_out {
            Some(split) => Some(Validation::new(self, feed, split)?),
            None => {
                logging::warn("the dataset has no parts `train` and `test`: nothing is held out to validate with");
                None
            }
        };
        let run = Run { fit: self, batches, graph, steps_per_epoch: feed.steps_per_epoch()?, epochs };
        run.train(validation.as_ref())
    }

    fn training_graph(&self, feed: &Feed<'_>) -> Result<Executable> {
        let graph = Graph::for_training();
        let objective = (self.objective)(&graph, &feed.inputs(&graph, feed.batch)?)?;
        let parameters = self.variables.parameters();
        let values = parameters.iter().map(|variable| graph.variable(variable)).collect::<Result<Vec<_>>>()?;
        let gradients = graph.gradients(objective.loss(), &values.iter().collect::<Vec<_>>())?;
        let mut updates: Vec<Update> = parameters
            .into_iter()
            .zip(values)
            .zip(gradients)
            .map(|((variable, value), gradient)| Update { variable, value, gradient })
            .collect();
        if let Some(norm) = self.clip {
            clip_norm(&mut updates, norm)?;
        }
        self.optimizer.step(&graph, self.variables, &updates)?;
        objective.build(&graph)
    }

    fn evaluation_graph(&self, feed: &Feed<'_>, size: u32) -> Result<Executable> {
        let graph = Graph::new();
        (self.objective)(&graph, &feed.inputs(&graph, size)?)?.build(&graph)
    }
}

/// A training under way.
struct Run<'a> {
    fit: &'a Fit<'a>,
    batches: Batches,
    graph: Executable,
    steps_per_epoch: u64,
    epochs: u64,
}

impl Run<'_> {
    fn train(&self, validation: Option<&Validation<'_>>) -> Result<()> {
        let mut position = match self.fit.job.resume(self.fit.variables, &[&self.batches])? {
            Some((step, state)) => {
                logging::info(&format!("going on from step {step}"));
                Position::from_bytes(&state)?
            }
            None => Position::default(),
        };
        loop {
            if position.validated < position.epoch {
                if let Some(validation) = validation {
                    self.validate(validation, &position)?;
                }
                position.validated = position.epoch;
            }
            if position.epoch >= self.epochs {
                return Ok(());
            }
            self.steps(&mut position)?;
            self.boundary(&position)?;
        }
    }

    /// Trains up to the next step boundary.
    fn steps(&self, position: &mut Position) -> Result<()> {
        let to_line = STEPS_PER_LINE - position.batch % STEPS_PER_LINE;
        let to_end = self.steps_per_epoch.saturating_sub(position.batch);
        let wanted = STEPS_PER_BOUNDARY.min(to_line).min(to_end);
        let (done, outputs) = self.batches.run(&self.graph, wanted as u32)?;
        let outputs = read_scalars(outputs)?;
        position.batch += u64::from(done);
        position.add(u64::from(done), &outputs);
        let step = position.step(self.steps_per_epoch);
        for (name, value) in &outputs {
            if name == "loss" && !value.is_finite() {
                return Err(Error::Diverged { step, loss: *value });
            }
            self.fit.job.metric(step, name, *value);
        }
        self.fit.job.progress(step, self.epochs * self.steps_per_epoch);

        let ended = u64::from(done) < wanted || position.batch >= self.steps_per_epoch;
        if ended || position.batch.is_multiple_of(STEPS_PER_LINE) {
            let means = line(&position.take_means(&outputs));
            let (epoch, batch) = (position.epoch + 1, position.batch);
            logging::info(&format!("epoch {epoch}/{}, batch {batch}/{}: {means}", self.epochs, self.steps_per_epoch));
        }
        if ended {
            // The end of an epoch is passed by asking for the batch after its last one.
            while self.batches.next_batch()?.is_some() {}
            position.epoch += 1;
            position.batch = 0;
        }
        Ok(())
    }

    fn validate(&self, validation: &Validation<'_>, position: &Position) -> Result<()> {
        let means = validation.run(|| self.boundary(position))?;
        logging::info(&format!("epoch {}/{}, held out: {}", position.epoch, self.epochs, line(&means)));
        for (name, value) in means {
            self.fit.job.metric(position.step(self.steps_per_epoch), &format!("validation/{name}"), value);
        }
        Ok(())
    }

    fn boundary(&self, position: &Position) -> Result<()> {
        let step = position.step(self.steps_per_epoch);
        self.fit.job.boundary(step, self.fit.variables, &[&self.batches], &position.to_bytes())
    }
}

/// The values of outputs that are `float32` scalars.
fn read_scalars(outputs: Vec<(String, Tensor)>) -> Result<Vec<(String, f64)>> {
    let values = outputs
        .into_iter()
        .map(|(name, tensor)| Ok((name, tensor.read_f32()?.first().copied().map_or(f64::NAN, f64::from))));
    values.collect()
}

/// `loss 0.1234, accuracy 0.9876`
fn line(means: &[(String, f64)]) -> String {
    let parts: Vec<String> = means.iter().map(|(name, value)| format!("{name} {value:.4}")).collect();
    parts.join(", ")
}

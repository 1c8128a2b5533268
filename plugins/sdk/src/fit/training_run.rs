//! A running training: steps, step boundaries and ends of epochs.

use super::epoch_table::EpochTable;
use super::training_position::TrainingPosition;
use super::validation::HeldOutValidation;
use super::weighted_means::WeightedMeans;
use super::{Fit, STEPS_PER_BOUNDARY, feed_order, read_scalars};
use crate::dataset::Batches;
use crate::error::Result;
use crate::graph::Executable;
use crate::logged::Histogram;
use crate::logging;

/// Bins of the histograms of parameters.
const HISTOGRAM_BINS: u32 = 64;
/// Steps between two lines of the log within an epoch.
const STEPS_PER_LINE: u64 = 100;

/// A feed with its batches and its graph.
pub(super) struct ActiveFeed {
    pub(super) batches: Batches,
    pub(super) graph: Executable,
    pub(super) steps_per_epoch: u64,
}

pub(super) struct FitRun<'a> {
    pub(super) fit: &'a Fit<'a>,
    pub(super) active_feeds: Vec<ActiveFeed>,
    /// Names of the graphs' outputs.
    pub(super) names: Vec<String>,
    pub(super) epochs: u64,
}

impl FitRun<'_> {
    pub(super) fn train(&self, validation: Option<&HeldOutValidation<'_>>) -> Result<()> {
        let mut position = match self.fit.job.resume(self.fit.variables, &self.batches())? {
            Some((step, state)) => {
                logging::info(&format!("resuming from step {step}"));
                TrainingPosition::from_bytes(&state)?
            }
            None => TrainingPosition::default(),
        };
        let mut table = None;
        let mut order = Vec::new();
        loop {
            if position.reported < position.epoch {
                self.end_epoch(&mut position, validation, &mut table)?;
            }
            if position.epoch >= self.epochs || self.should_stop_early(&position) {
                return Ok(());
            }
            if order.is_empty() {
                order = self.epoch_order(position.epoch);
            }
            self.train_to_boundary(&mut position, &order)?;
            if position.batch == 0 {
                order.clear();
            }
            self.reach_boundary(&position)?;
        }
    }

    /// Trains until the next step boundary. `order` is the index of the feed of each step of the epoch.
    fn train_to_boundary(&self, position: &mut TrainingPosition, order: &[usize]) -> Result<()> {
        let to_line = STEPS_PER_LINE - position.batch % STEPS_PER_LINE;
        let to_end = (order.len() as u64).saturating_sub(position.batch);
        let wanted = STEPS_PER_BOUNDARY.min(to_line).min(to_end);
        let mut next = order.iter().skip(position.batch as usize).take(wanted as usize).peekable();
        let mut means = WeightedMeans::default();
        while let Some(&lane) = next.next() {
            let mut steps = 1;
            while next.next_if_eq(&&lane).is_some() {
                steps += 1;
            }
            let lane = &self.active_feeds[lane];
            let (done, outputs) = lane.batches.run(&lane.graph, steps)?;
            let outputs = read_scalars(outputs)?;
            position.add_steps(u64::from(done), &outputs);
            position.batch += u64::from(done);
            means.add(u64::from(done), outputs);
            if done < steps {
                break;
            }
        }
        let done = means.weight();
        self.report(position, &means.finish())?;
        if done < wanted || position.batch >= order.len() as u64 {
            // The host starts the next epoch when the batch after the last one is requested.
            for lane in &self.active_feeds {
                while lane.batches.next_batch()?.is_some() {}
            }
            position.epoch += 1;
            position.batch = 0;
        }
        Ok(())
    }

    /// Reports the means of the outputs over the latest steps.
    fn report(&self, position: &TrainingPosition, outputs: &[(String, f64)]) -> Result<()> {
        let steps_per_epoch = self.steps_per_epoch();
        let step = position.step(steps_per_epoch);
        for (name, value) in outputs {
            // By default, a loss that is not finite ends the attempt at the next step boundary.
            self.fit.job.metric(step, name, *value);
        }
        self.fit.job.progress(step, self.epochs * steps_per_epoch);
        if position.batch.is_multiple_of(STEPS_PER_LINE) {
            let (epoch, batch) = (position.epoch + 1, position.batch);
            let means = format_means(&position.means(&self.names));
            let place = format!("epoch {epoch}/{}, batch {batch}/{steps_per_epoch}", self.epochs);
            logging::info(&format!("{place}: {{samples/s}} samples/s, {means}"));
        }
        Ok(())
    }

    /// Validates and reports the epoch that has ended. Reaches a step boundary after that, so that a job that pauses for
    /// a value of the epoch pauses with the weights that have this value.
    fn end_epoch(
        &self,
        position: &mut TrainingPosition,
        validation: Option<&HeldOutValidation<'_>>,
        table: &mut Option<EpochTable>,
    ) -> Result<()> {
        let held_out = match validation {
            Some(validation) => validation.run(|| self.reach_boundary(position))?,
            None => Vec::new(),
        };
        let means = position.means(&self.names);
        let step = position.step(self.steps_per_epoch());
        for (part, values) in [("epoch", &means), ("validation", &held_out)] {
            for (name, value) in values {
                self.fit.job.metric(step, &format!("{part}/{name}"), *value);
            }
        }
        if self.fit.log_histograms {
            self.log_histograms(step)?;
        }
        let table = table.get_or_insert_with(|| {
            let table = EpochTable::new(&means, &held_out);
            logging::info(&table.head());
            table
        });
        logging::info(&table.row(position.epoch, &means, &held_out));
        let loss = held_out.iter().find(|(name, _)| name == "loss").map(|(_, loss)| *loss);
        position.finish_epoch_report(loss);
        self.reach_boundary(position)
    }

    /// Logs a histogram of each parameter.
    fn log_histograms(&self, step: u64) -> Result<()> {
        for parameter in self.fit.variables.parameters() {
            let name = format!("weights/{}", parameter.name());
            self.fit.job.log_histogram(step, &name, &Histogram::of_variable(&parameter, HISTOGRAM_BINS)?)?;
        }
        Ok(())
    }

    /// Returns whether the validation loss has not decreased for `patience` epochs.
    fn should_stop_early(&self, position: &TrainingPosition) -> bool {
        self.fit.patience.is_some_and(|patience| position.stale >= patience.max(1))
    }

    fn reach_boundary(&self, position: &TrainingPosition) -> Result<()> {
        let step = position.step(self.steps_per_epoch());
        self.fit.job.boundary(step, self.fit.variables, &self.batches(), &position.to_bytes())
    }

    fn batches(&self) -> Vec<&Batches> {
        self.active_feeds.iter().map(|lane| &lane.batches).collect()
    }

    fn steps_per_epoch(&self) -> u64 {
        self.active_feeds.iter().map(|lane| lane.steps_per_epoch).sum()
    }

    /// Returns the index of the feed of each step of an epoch.
    fn epoch_order(&self, epoch: u64) -> Vec<usize> {
        let steps: Vec<u64> = self.active_feeds.iter().map(|lane| lane.steps_per_epoch).collect();
        feed_order::steps_of_epoch(&steps, self.fit.job.seed(), epoch)
    }
}

/// Formats means as `loss 0.1234, accuracy 0.9876`.
fn format_means(means: &[(String, f64)]) -> String {
    let parts: Vec<String> = means.iter().map(|(name, value)| format!("{name} {value:.4}")).collect();
    parts.join(", ")
}

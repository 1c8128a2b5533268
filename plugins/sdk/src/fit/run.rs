//! A training under way: steps, boundaries, ends of epochs.

use super::Fit;
use super::position::Position;
use super::table::Table;
use super::validation::Validation;
use crate::dataset::Batches;
use crate::error::{Error, Result};
use crate::graph::Executable;
use crate::logging;
use crate::tensor::Tensor;

/// Steps between two step boundaries. Few enough that a training told to stop does so soon.
pub(super) const STEPS_PER_BOUNDARY: u64 = 10;
/// Steps between two lines of the log in an epoch that has as many.
const STEPS_PER_LINE: u64 = 1000;

pub(super) struct Run<'a> {
    pub(super) fit: &'a Fit<'a>,
    pub(super) batches: Batches,
    pub(super) graph: Executable,
    /// Names of the graph's outputs.
    pub(super) names: Vec<String>,
    pub(super) steps_per_epoch: u64,
    pub(super) epochs: u64,
}

impl Run<'_> {
    pub(super) fn train(&self, validation: Option<&Validation<'_>>) -> Result<()> {
        let mut position = match self.fit.job.resume(self.fit.variables, &[&self.batches])? {
            Some((step, state)) => {
                logging::info(&format!("going on from step {step}"));
                Position::from_bytes(&state)?
            }
            None => Position::default(),
        };
        let mut table = None;
        loop {
            if position.reported < position.epoch {
                self.end_epoch(&mut position, validation, &mut table)?;
            }
            if position.epoch >= self.epochs || self.gave_up(&position) {
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
        if position.batch.is_multiple_of(STEPS_PER_LINE) {
            let (epoch, batch) = (position.epoch + 1, position.batch);
            let means = line(&position.means(&self.names));
            logging::info(&format!("epoch {epoch}/{}, batch {batch}/{}: {means}", self.epochs, self.steps_per_epoch));
        }
        if u64::from(done) < wanted || position.batch >= self.steps_per_epoch {
            // The end of an epoch is passed by asking for the batch after its last one.
            while self.batches.next_batch()?.is_some() {}
            position.epoch += 1;
            position.batch = 0;
        }
        Ok(())
    }

    /// Validates and reports the epoch that has ended.
    fn end_epoch(
        &self,
        position: &mut Position,
        validation: Option<&Validation<'_>>,
        table: &mut Option<Table>,
    ) -> Result<()> {
        let held_out = match validation {
            Some(validation) => validation.run(|| self.boundary(position))?,
            None => Vec::new(),
        };
        let means = position.means(&self.names);
        let step = position.step(self.steps_per_epoch);
        for (part, values) in [("epoch", &means), ("validation", &held_out)] {
            for (name, value) in values {
                self.fit.job.metric(step, &format!("{part}/{name}"), *value);
            }
        }
        let table = table.get_or_insert_with(|| {
            let table = Table::new(&means, &held_out);
            logging::info(&table.head());
            table
        });
        logging::info(&table.row(position.epoch, &means, &held_out));
        let loss = held_out.iter().find(|(name, _)| name == "loss").map(|(_, loss)| *loss);
        position.report(loss);
        Ok(())
    }

    /// Whether the held-out loss has not fallen for too long.
    fn gave_up(&self, position: &Position) -> bool {
        self.fit.patience.is_some_and(|patience| position.stale >= patience.max(1))
    }

    fn boundary(&self, position: &Position) -> Result<()> {
        let step = position.step(self.steps_per_epoch);
        self.fit.job.boundary(step, self.fit.variables, &[&self.batches], &position.to_bytes())
    }
}

/// The values of outputs that are `float32` scalars.
pub(super) fn read_scalars(outputs: Vec<(String, Tensor)>) -> Result<Vec<(String, f64)>> {
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

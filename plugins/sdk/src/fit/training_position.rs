//! The position of a training: the state of a checkpoint that the host does not store already.

use crate::error::{Error, Result};

/// The position of a training.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct TrainingPosition {
    /// Completed epochs.
    pub(super) epoch: u64,
    /// Completed batches of the current epoch.
    pub(super) batch: u64,
    /// Epochs that were validated and reported.
    pub(super) reported: u64,
    /// Epochs since the validation loss was at its minimum.
    pub(super) stale: u64,
    /// The minimum validation loss.
    lowest: f64,
    /// Steps of the epoch that is reported next, and the sums of the outputs over these steps.
    steps: u64,
    sums: Vec<f64>,
}

impl Default for TrainingPosition {
    fn default() -> Self {
        Self { epoch: 0, batch: 0, reported: 0, stale: 0, lowest: f64::INFINITY, steps: 0, sums: Vec::new() }
    }
}

impl TrainingPosition {
    /// Returns the total number of completed steps.
    pub(super) fn step(&self, steps_per_epoch: u64) -> u64 {
        self.epoch * steps_per_epoch + self.batch
    }

    /// Counts `steps` whose outputs have these means.
    pub(super) fn add_steps(&mut self, steps: u64, means: &[(String, f64)]) {
        self.steps += steps;
        self.sums.resize(means.len().max(self.sums.len()), 0.0);
        for (sum, (_, mean)) in self.sums.iter_mut().zip(means) {
            *sum += mean * steps as f64;
        }
    }

    /// Returns the means of the outputs over the epoch so far.
    pub(super) fn means(&self, names: &[String]) -> Vec<(String, f64)> {
        names.iter().cloned().zip(self.sums.iter().map(|sum| sum / self.steps as f64)).collect()
    }

    /// Records that the epoch was reported, with this validation loss.
    pub(super) fn finish_epoch_report(&mut self, held_out: Option<f64>) {
        self.reported = self.epoch;
        self.steps = 0;
        self.sums.clear();
        match held_out {
            Some(loss) if loss < self.lowest => (self.lowest, self.stale) = (loss, 0),
            Some(_) => self.stale += 1,
            None => {}
        }
    }

    /// Serialises the position as the state of a checkpoint: little-endian numbers of eight bytes.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let counts = [self.epoch, self.batch, self.reported, self.stale, self.lowest.to_bits(), self.steps];
        let words = counts.into_iter().chain(self.sums.iter().map(|sum| sum.to_bits()));
        words.flat_map(u64::to_le_bytes).collect()
    }

    /// Deserialises the state of a checkpoint.
    ///
    /// # Errors
    /// Returns `State` if the bytes are not a position.
    pub(super) fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let (words, rest) = bytes.as_chunks::<8>();
        let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
        match (words.as_slice(), rest) {
            ([epoch, batch, reported, stale, lowest, steps, sums @ ..], []) => Ok(Self {
                epoch: *epoch,
                batch: *batch,
                reported: *reported,
                stale: *stale,
                lowest: f64::from_bits(*lowest),
                steps: *steps,
                sums: sums.iter().map(|sum| f64::from_bits(*sum)).collect(),
            }),
            _ => Err(Error::State { bytes: bytes.len() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outputs(loss: f64, accuracy: f64) -> Vec<(String, f64)> {
        vec![("loss".to_owned(), loss), ("accuracy".to_owned(), accuracy)]
    }

    #[test]
    fn a_training_position_round_trips_through_checkpoint_bytes() {
        let mut position = TrainingPosition { epoch: 2, batch: 30, reported: 1, ..TrainingPosition::default() };
        position.add_steps(10, &outputs(0.5, 0.25));
        let mut resumed = TrainingPosition::from_bytes(&position.to_bytes()).unwrap();
        assert_eq!(resumed, position);
        resumed.add_steps(30, &outputs(0.1, 0.75));
        assert_eq!(resumed.step(44), 118);
        let means = resumed.means(&["loss".to_owned(), "accuracy".to_owned()]);
        assert_eq!(means[0].0, "loss");
        assert!((means[0].1 - 0.2).abs() < 1e-12 && (means[1].1 - 0.625).abs() < 1e-12, "{means:?}");
        resumed.finish_epoch_report(None);
        assert_eq!(resumed, TrainingPosition { epoch: 2, batch: 30, reported: 2, ..TrainingPosition::default() });
    }

    #[test]
    fn epochs_without_improvement_are_counted() {
        let mut position = TrainingPosition::default();
        let mut stale = |loss| {
            position.finish_epoch_report(Some(loss));
            position = TrainingPosition::from_bytes(&position.to_bytes()).unwrap();
            position.stale
        };
        assert_eq!([0.5, 0.6, f64::NAN, 0.4, 0.4].map(&mut stale), [0, 1, 2, 0, 1]);
    }

    #[test]
    fn a_foreign_checkpoint_state_is_refused() {
        assert_eq!(TrainingPosition::from_bytes(&[0; 47]), Err(Error::State { bytes: 47 }));
        assert_eq!(TrainingPosition::from_bytes(&[0; 49]), Err(Error::State { bytes: 49 }));
        assert!(TrainingPosition::from_bytes(&[0; 48]).is_ok());
    }
}

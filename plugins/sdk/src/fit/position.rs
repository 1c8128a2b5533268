//! Where a training is: what its checkpoints carry besides the host's own state.

use crate::error::{Error, Result};

/// Where a training is.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Position {
    /// Epochs completed.
    pub(super) epoch: u64,
    /// Batches done in the epoch under way.
    pub(super) batch: u64,
    /// Epochs whose end was validated.
    pub(super) validated: u64,
    /// Steps since the last line of the log, and the sums of the outputs over them.
    steps: u64,
    sums: Vec<f64>,
}

impl Position {
    /// Steps done in all.
    pub(super) fn step(&self, steps_per_epoch: u64) -> u64 {
        self.epoch * steps_per_epoch + self.batch
    }

    /// Counts `steps` whose outputs had these means.
    pub(super) fn add(&mut self, steps: u64, means: &[(String, f64)]) {
        self.steps += steps;
        self.sums.resize(means.len().max(self.sums.len()), 0.0);
        for (sum, (_, mean)) in self.sums.iter_mut().zip(means) {
            *sum += mean * steps as f64;
        }
    }

    /// The means of the outputs since the last call, named as `names` are.
    pub(super) fn take_means(&mut self, names: &[(String, f64)]) -> Vec<(String, f64)> {
        let steps = std::mem::take(&mut self.steps) as f64;
        let sums = std::mem::take(&mut self.sums);
        names.iter().zip(sums).map(|((name, _), sum)| (name.clone(), sum / steps)).collect()
    }

    /// The position as a checkpoint's state: numbers of eight bytes, little-endian.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let counts = [self.epoch, self.batch, self.validated, self.steps];
        let words = counts.into_iter().chain(self.sums.iter().map(|sum| sum.to_bits()));
        words.flat_map(u64::to_le_bytes).collect()
    }

    /// The position that a checkpoint's state holds.
    ///
    /// # Errors
    /// `State` if it holds something else.
    pub(super) fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let (words, rest) = bytes.as_chunks::<8>();
        let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
        match (words.as_slice(), rest) {
            ([epoch, batch, validated, steps, sums @ ..], []) => Ok(Self {
                epoch: *epoch,
                batch: *batch,
                validated: *validated,
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

    fn means(loss: f64, accuracy: f64) -> Vec<(String, f64)> {
        vec![("loss".to_owned(), loss), ("accuracy".to_owned(), accuracy)]
    }

    #[test]
    fn a_position_survives_a_checkpoint() {
        let mut position = Position { epoch: 2, batch: 30, validated: 1, ..Position::default() };
        position.add(10, &means(0.5, 0.25));
        let mut resumed = Position::from_bytes(&position.to_bytes()).unwrap();
        assert_eq!(resumed, position);
        resumed.add(30, &means(0.1, 0.75));
        assert_eq!(resumed.step(44), 118);
        let taken = resumed.take_means(&means(0.0, 0.0));
        assert!((taken[0].1 - 0.2).abs() < 1e-12 && (taken[1].1 - 0.625).abs() < 1e-12, "{taken:?}");
        assert_eq!(resumed, Position { epoch: 2, batch: 30, validated: 1, ..Position::default() });
    }

    #[test]
    fn another_state_is_refused() {
        assert_eq!(Position::from_bytes(&[0; 31]), Err(Error::State { bytes: 31 }));
        assert_eq!(Position::from_bytes(&[0; 33]), Err(Error::State { bytes: 33 }));
        assert_eq!(Position::from_bytes(&[0; 32]), Ok(Position::default()));
    }
}

//! The predictions that are running, and those that ended a short while ago. Both are bounded; the oldest that ended go
//! first.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::error::PredictionError;
use super::owner::PredictionOwner;
use super::prediction::Prediction;
use crate::limits::{PREDICTIONS_KEPT_BYTES_MAX, PREDICTIONS_KEPT_MAX, PREDICTIONS_KEPT_TIME, PREDICTIONS_RUNNING_MAX};

/// All predictions by owner and identifier.
#[derive(Debug, Default)]
pub(super) struct Store(Mutex<Held>);

#[derive(Debug, Default)]
struct Held {
    /// By [`PredictionOwner::place`].
    by_id: HashMap<String, Arc<Prediction>>,
    running: usize,
    /// Those that ended, in the order in which they did, with their bytes.
    ended: VecDeque<(Arc<Prediction>, usize)>,
    ended_bytes: usize,
}

impl Store {
    // A panic while the lock is held can at worst leave a count too high.
    fn held(&self) -> MutexGuard<'_, Held> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The owner's prediction of this identifier.
    pub(super) fn get(&self, owner: &PredictionOwner, id: &str, now_ms: u64) -> Option<Arc<Prediction>> {
        let mut held = self.held();
        held.forget(now_ms);
        held.by_id.get(&owner.place(id)).cloned()
    }

    /// Adds a prediction that is running.
    ///
    /// # Errors
    /// `TooMany`; `Conflict` where the owner has one of this identifier.
    pub(super) fn add(&self, prediction: Prediction, now_ms: u64) -> Result<Arc<Prediction>, PredictionError> {
        let mut held = self.held();
        held.forget(now_ms);
        if held.running >= PREDICTIONS_RUNNING_MAX {
            return Err(PredictionError::TooMany { running: held.running });
        }
        let place = prediction.owner.place(&prediction.id);
        if held.by_id.contains_key(&place) {
            return Err(PredictionError::Conflict { id: prediction.id });
        }
        let prediction = Arc::new(prediction);
        held.by_id.insert(place, Arc::clone(&prediction));
        held.running += 1;
        Ok(prediction)
    }

    /// The prediction has ended.
    pub(super) fn ended(&self, prediction: &Arc<Prediction>, now_ms: u64) {
        let bytes = prediction.bytes();
        let mut held = self.held();
        held.running = held.running.saturating_sub(1);
        held.ended_bytes += bytes;
        held.ended.push_back((Arc::clone(prediction), bytes));
        held.forget(now_ms);
    }
}

impl Held {
    /// Lets go of what is over its time or past what is kept.
    fn forget(&mut self, now_ms: u64) {
        let kept_ms = u64::try_from(PREDICTIONS_KEPT_TIME.as_millis()).unwrap_or(u64::MAX);
        while let Some((oldest, bytes)) = self.ended.front() {
            let is_old = oldest.completed_ms().is_some_and(|at| at.saturating_add(kept_ms) < now_ms);
            if !is_old && self.ended.len() <= PREDICTIONS_KEPT_MAX && self.ended_bytes <= PREDICTIONS_KEPT_BYTES_MAX {
                return;
            }
            self.by_id.remove(&oldest.owner.place(&oldest.id));
            self.ended_bytes -= bytes;
            self.ended.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::super::prediction::End;
    use super::*;

    fn prediction(id: usize) -> Prediction {
        Prediction::new(
            (PredictionOwner::default(), id.to_string()),
            ("m".to_owned(), 1),
            None,
            &Bytes::from_static(b"1"),
            0,
        )
    }

    fn end(store: &Store, prediction: &Arc<Prediction>, output: &str, now_ms: u64) {
        assert!(prediction.end(End::Succeeded(output.to_owned(), std::time::Duration::ZERO), now_ms));
        store.ended(prediction, now_ms);
    }

    #[test]
    fn what_ended_is_kept_for_a_while_and_a_number_of_them() {
        let store = Store::default();
        for id in 0..PREDICTIONS_KEPT_MAX + 5 {
            let prediction = store.add(prediction(id), 0).unwrap();
            end(&store, &prediction, "1", 10);
        }
        assert!(store.get(&PredictionOwner::default(), "4", 10).is_none());
        assert!(store.get(&PredictionOwner::default(), "5", 10).is_some());
        assert!(matches!(store.add(prediction(5), 10), Err(PredictionError::Conflict { .. })));
        let last = 10 + PREDICTIONS_KEPT_TIME.as_millis() as u64;
        assert!(store.get(&PredictionOwner::default(), "5", last).is_some());
        assert!(store.get(&PredictionOwner::default(), "5", last + 1).is_none());
        assert!(store.held().by_id.is_empty() && store.held().ended_bytes == 0);
    }

    #[test]
    fn large_outputs_push_out_others() {
        let store = Store::default();
        let output = "x".repeat(PREDICTIONS_KEPT_BYTES_MAX / 3);
        let all: Vec<Arc<Prediction>> = (0..4).map(|id| store.add(prediction(id), 0).unwrap()).collect();
        all.iter().for_each(|prediction| end(&store, prediction, &output, 1));
        assert_eq!((0..4).filter(|id| store.get(&PredictionOwner::default(), &id.to_string(), 1).is_some()).count(), 2);
    }

    #[test]
    fn only_so_many_run() {
        let store = Store::default();
        let all: Vec<_> = (0..PREDICTIONS_RUNNING_MAX).map(|id| store.add(prediction(id), 0).unwrap()).collect();
        let one_more = || store.add(prediction(PREDICTIONS_RUNNING_MAX), 0);
        assert!(matches!(one_more(), Err(PredictionError::TooMany { .. })));
        end(&store, &all[0], "1", 1);
        assert!(one_more().is_ok());
        assert!(!all[0].end(End::Canceled, 2), "it is over");
    }
}

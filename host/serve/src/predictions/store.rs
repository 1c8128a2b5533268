//! The predictions that are running, and those that ended a short while ago. Both are bounded; the oldest that ended go
//! first. How long ago that was is told by a clock that only goes forward: one that is set takes nobody's answer away.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

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
    /// Those that ended, in the order in which they did.
    ended: VecDeque<Ended>,
    ended_bytes: usize,
}

#[derive(Debug)]
struct Ended {
    prediction: Arc<Prediction>,
    bytes: usize,
    at: Instant,
}

impl Store {
    // A panic while the lock is held can at worst leave a count too high.
    fn held(&self) -> MutexGuard<'_, Held> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The owner's prediction of this identifier.
    pub(super) fn get(&self, owner: &PredictionOwner, id: &str, now: Instant) -> Option<Arc<Prediction>> {
        let mut held = self.held();
        held.forget(now);
        held.by_id.get(&owner.place(id)).cloned()
    }

    /// Adds a prediction that is running.
    ///
    /// # Errors
    /// `TooMany`; `Conflict` where the owner has one of this identifier.
    pub(super) fn add(&self, prediction: Prediction, now: Instant) -> Result<Arc<Prediction>, PredictionError> {
        let mut held = self.held();
        held.forget(now);
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
    pub(super) fn ended(&self, prediction: &Arc<Prediction>, now: Instant) {
        let bytes = prediction.bytes();
        let mut held = self.held();
        held.running = held.running.saturating_sub(1);
        held.ended_bytes += bytes;
        held.ended.push_back(Ended { prediction: Arc::clone(prediction), bytes, at: now });
        held.forget(now);
    }
}

impl Held {
    /// Lets go of what is over its time or past what is kept.
    fn forget(&mut self, now: Instant) {
        while let Some(Ended { prediction, bytes, at }) = self.ended.front() {
            let is_old = now.saturating_duration_since(*at) > PREDICTIONS_KEPT_TIME;
            if !is_old && self.ended.len() <= PREDICTIONS_KEPT_MAX && self.ended_bytes <= PREDICTIONS_KEPT_BYTES_MAX {
                return;
            }
            self.by_id.remove(&prediction.owner.place(&prediction.id));
            self.ended_bytes -= bytes;
            self.ended.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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

    fn end(store: &Store, prediction: &Arc<Prediction>, output: &str, now: Instant) {
        assert!(prediction.end(End::Succeeded(output.to_owned(), Duration::ZERO), 0));
        store.ended(prediction, now);
    }

    #[test]
    fn what_ended_is_kept_for_a_while_and_a_number_of_them() {
        let (store, now) = (Store::default(), Instant::now());
        for id in 0..PREDICTIONS_KEPT_MAX + 5 {
            let prediction = store.add(prediction(id), now).unwrap();
            end(&store, &prediction, "1", now);
        }
        assert!(store.get(&PredictionOwner::default(), "4", now).is_none());
        assert!(store.get(&PredictionOwner::default(), "5", now).is_some());
        assert!(matches!(store.add(prediction(5), now), Err(PredictionError::Conflict { .. })));
        let last = now + PREDICTIONS_KEPT_TIME;
        assert!(store.get(&PredictionOwner::default(), "5", last).is_some());
        assert!(store.get(&PredictionOwner::default(), "5", last + Duration::from_millis(1)).is_none());
        assert!(store.held().by_id.is_empty() && store.held().ended_bytes == 0);
    }

    #[test]
    fn large_outputs_push_out_others() {
        let (store, now) = (Store::default(), Instant::now());
        let output = "x".repeat(PREDICTIONS_KEPT_BYTES_MAX / 3);
        let all: Vec<Arc<Prediction>> = (0..4).map(|id| store.add(prediction(id), now).unwrap()).collect();
        all.iter().for_each(|prediction| end(&store, prediction, &output, now));
        assert_eq!(
            (0..4).filter(|id| store.get(&PredictionOwner::default(), &id.to_string(), now).is_some()).count(),
            2
        );
    }

    #[test]
    fn only_so_many_run() {
        let (store, now) = (Store::default(), Instant::now());
        let all: Vec<_> = (0..PREDICTIONS_RUNNING_MAX).map(|id| store.add(prediction(id), now).unwrap()).collect();
        let one_more = || store.add(prediction(PREDICTIONS_RUNNING_MAX), now);
        assert!(matches!(one_more(), Err(PredictionError::TooMany { .. })));
        end(&store, &all[0], "1", now);
        assert!(one_more().is_ok());
        assert!(!all[0].end(End::Canceled, 2), "it is over");
    }
}

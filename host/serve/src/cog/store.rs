//! The running and recently finished predictions. Both sets are bounded, and the oldest finished predictions are
//! evicted first. Their age is measured with a monotonic clock, so that setting the system time evicts nothing.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use parking_lot::{Mutex, MutexGuard};

use super::error::PredictionError;
use super::owner::PredictionOwner;
use super::prediction::CogPrediction;
use crate::limits::{
    PREDICTIONS_KEPT_BYTES_MAX, PREDICTIONS_KEPT_MAX, PREDICTIONS_KEPT_TIME_MAX, PREDICTIONS_RUNNING_MAX,
};

/// All predictions, by owner and identifier.
#[derive(Debug, Default)]
pub(super) struct CogPredictionStore(Mutex<CogStoreState>);

#[derive(Debug, Default)]
struct CogStoreState {
    /// Predictions by [`PredictionOwner::store_key`].
    by_id: HashMap<String, Arc<CogPrediction>>,
    running: usize,
    /// Finished predictions, in order of their end.
    finished: VecDeque<FinishedPrediction>,
    finished_bytes: usize,
}

#[derive(Debug)]
struct FinishedPrediction {
    prediction: Arc<CogPrediction>,
    bytes: usize,
    at: Instant,
}

impl CogPredictionStore {
    // A panic while the lock is held can at worst leave a count too high.
    fn lock_state(&self) -> MutexGuard<'_, CogStoreState> {
        self.0.lock()
    }

    /// Returns the owner's prediction of this identifier.
    pub(super) fn get(&self, owner: &PredictionOwner, id: &str, now: Instant) -> Option<Arc<CogPrediction>> {
        let mut held = self.lock_state();
        held.evict_finished(now);
        held.by_id.get(&owner.store_key(id)).cloned()
    }

    /// Checks that a prediction can be added.
    ///
    /// # Errors
    /// Returns `TooMany`.
    pub(super) fn check_space(&self) -> Result<(), PredictionError> {
        let running = self.lock_state().running;
        if running >= PREDICTIONS_RUNNING_MAX { Err(PredictionError::TooMany { running }) } else { Ok(()) }
    }

    /// Adds a running prediction.
    ///
    /// # Errors
    /// Returns `TooMany`, or `Conflict` if the owner has one of this identifier.
    pub(super) fn add(&self, prediction: CogPrediction, now: Instant) -> Result<Arc<CogPrediction>, PredictionError> {
        let mut held = self.lock_state();
        held.evict_finished(now);
        if held.running >= PREDICTIONS_RUNNING_MAX {
            return Err(PredictionError::TooMany { running: held.running });
        }
        let place = prediction.owner.store_key(&prediction.id);
        if held.by_id.contains_key(&place) {
            return Err(PredictionError::Conflict { id: prediction.id });
        }
        let prediction = Arc::new(prediction);
        held.by_id.insert(place, Arc::clone(&prediction));
        held.running += 1;
        Ok(prediction)
    }

    /// Adds a running prediction that the records say is the owner's only one of this identifier.
    pub(super) fn add_shared(&self, prediction: &Arc<CogPrediction>, now: Instant) {
        let mut held = self.lock_state();
        held.evict_finished(now);
        held.by_id.insert(prediction.owner.store_key(&prediction.id), Arc::clone(prediction));
        held.running += 1;
    }

    /// Records that the prediction has finished.
    pub(super) fn mark_finished(&self, prediction: &Arc<CogPrediction>, now: Instant) {
        let bytes = prediction.stored_bytes();
        let mut held = self.lock_state();
        held.running = held.running.saturating_sub(1);
        held.finished_bytes += bytes;
        held.finished.push_back(FinishedPrediction { prediction: Arc::clone(prediction), bytes, at: now });
        held.evict_finished(now);
    }
}

impl CogStoreState {
    /// Evicts finished predictions that are too old or exceed the limits.
    fn evict_finished(&mut self, now: Instant) {
        while let Some(FinishedPrediction { prediction, bytes, at }) = self.finished.front() {
            let is_old = now.saturating_duration_since(*at) > PREDICTIONS_KEPT_TIME_MAX;
            if !is_old
                && self.finished.len() <= PREDICTIONS_KEPT_MAX
                && self.finished_bytes <= PREDICTIONS_KEPT_BYTES_MAX
            {
                return;
            }
            self.by_id.remove(&prediction.owner.store_key(&prediction.id));
            self.finished_bytes -= bytes;
            self.finished.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;

    use super::super::prediction_status::CogPredictionOutcome;
    use super::super::shared_json::SharedJson;
    use super::*;

    fn running_prediction(id: usize) -> CogPrediction {
        CogPrediction::new(
            (PredictionOwner::default(), id.to_string()),
            ("m".to_owned(), 1),
            None,
            &Bytes::from_static(b"1"),
            0,
        )
    }

    fn finish_with_output(store: &CogPredictionStore, prediction: &Arc<CogPrediction>, output: &str, now: Instant) {
        let output = SharedJson::new(output.to_owned()).unwrap();
        assert!(prediction.finish(CogPredictionOutcome::Succeeded(output, Duration::ZERO), 0));
        store.mark_finished(prediction, now);
    }

    #[test]
    fn finished_predictions_are_kept_up_to_a_time_and_a_count() {
        let (store, now) = (CogPredictionStore::default(), Instant::now());
        for id in 0..PREDICTIONS_KEPT_MAX + 5 {
            let prediction = store.add(running_prediction(id), now).unwrap();
            finish_with_output(&store, &prediction, "1", now);
        }
        assert!(store.get(&PredictionOwner::default(), "4", now).is_none());
        assert!(store.get(&PredictionOwner::default(), "5", now).is_some());
        assert!(matches!(store.add(running_prediction(5), now), Err(PredictionError::Conflict { .. })));
        let last = now + PREDICTIONS_KEPT_TIME_MAX;
        assert!(store.get(&PredictionOwner::default(), "5", last).is_some());
        assert!(store.get(&PredictionOwner::default(), "5", last + Duration::from_millis(1)).is_none());
        assert!(store.lock_state().by_id.is_empty() && store.lock_state().finished_bytes == 0);
    }

    #[test]
    fn large_outputs_evict_older_predictions() {
        let (store, now) = (CogPredictionStore::default(), Instant::now());
        let output = format!("\"{}\"", "x".repeat(PREDICTIONS_KEPT_BYTES_MAX / 3));
        let all: Vec<Arc<CogPrediction>> = (0..4).map(|id| store.add(running_prediction(id), now).unwrap()).collect();
        all.iter().for_each(|prediction| finish_with_output(&store, prediction, &output, now));
        assert_eq!(
            (0..4).filter(|id| store.get(&PredictionOwner::default(), &id.to_string(), now).is_some()).count(),
            2
        );
    }

    #[test]
    fn the_number_of_running_predictions_is_limited() {
        let (store, now) = (CogPredictionStore::default(), Instant::now());
        let all: Vec<_> =
            (0..PREDICTIONS_RUNNING_MAX).map(|id| store.add(running_prediction(id), now).unwrap()).collect();
        let one_more = || store.add(running_prediction(PREDICTIONS_RUNNING_MAX), now);
        assert!(matches!(one_more(), Err(PredictionError::TooMany { .. })));
        finish_with_output(&store, &all[0], "1", now);
        assert!(one_more().is_ok());
        assert!(!all[0].finish(CogPredictionOutcome::Canceled, 2), "it is over");
    }
}

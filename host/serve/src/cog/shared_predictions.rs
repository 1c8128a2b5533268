//! Predictions that clients can query on every server of shared records.
//!
//! The server that computes a prediction has it in memory as without other servers, and a row of the records has what the
//! others need. The row decides: a prediction begins if its row could be created, and ends as its row says, which is ended
//! once: by the server that computes it, or before that by another one. A server renews the rows of the predictions that it
//! computes, and so learns which ones were ended elsewhere. Chunks of outputs are events only on the server that computes
//! them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use parking_lot::Mutex;
use saggar_jobs::{JobError, JobService};
use saggar_store::bucket_folders::PREDICTIONS_FOLDER;
use saggar_store::records::{JobRecords, NewPrediction, PredictionKey, RecordedPrediction};
use saggar_store::{ObjectStorage, RecordError, random_hex};
use saggar_telemetry::RepeatedFailure;
use tokio::time::sleep;

use super::error::PredictionError;
use super::owner::PredictionOwner;
use super::prediction::CogPrediction;
use super::prediction_status::CogPredictionOutcome;
use super::snapshot::PredictionSnapshot;
use crate::error::ApiError;
use crate::limits::{
    PREDICTION_POLL_INTERVAL, PREDICTION_RECORDING_TIME_MAX, PREDICTION_RENEWAL_INTERVAL, PREDICTION_ROW_BYTES_MAX,
    PREDICTION_ROWS_MAX, PREDICTIONS_KEPT_TIME_MAX,
};

/// Renewals between two removals of old rows.
const RENEWALS_UNTIL_REMOVAL: u32 = 60;

/// The predictions that this server has in common with others.
#[derive(Debug)]
pub(super) struct SharedPredictions {
    records: Arc<dyn JobRecords>,
    objects: ObjectStorage,
    /// The identifier of this process.
    process: String,
    /// The name of this server.
    server: String,
    running: Mutex<RunningPredictions>,
}

/// The predictions that this process computes and that have a row.
#[derive(Debug, Default)]
struct RunningPredictions {
    by_key: HashMap<PredictionKey, Arc<CogPrediction>>,
    /// Whether a task renews their rows.
    is_renewed: bool,
}

/// How a prediction in the records is to be shown.
struct FoundPrediction {
    row: RecordedPrediction,
    snapshot: PredictionSnapshot,
}

impl SharedPredictions {
    /// Returns the predictions of a server, or `None` if no other server can use its records.
    pub(super) fn of_server(jobs: &JobService, objects: &ObjectStorage) -> Option<SharedPredictions> {
        let records = jobs.records();
        records.is_shared().then(|| SharedPredictions {
            records,
            objects: objects.clone(),
            process: random_hex::<16>(),
            server: jobs.host_name().to_owned(),
            running: Mutex::default(),
        })
    }

    async fn with_records<T: Send + 'static>(
        &self,
        work: impl FnOnce(&dyn JobRecords) -> Result<T, RecordError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let records = Arc::clone(&self.records);
        let done = tokio::task::spawn_blocking(move || work(&*records)).await;
        let done = done.map_err(|error| ApiError::Internal { cause: format!("records of predictions: {error}") })?;
        done.map_err(|error| JobError::from(error).into())
    }

    /// Records that a prediction begins, and renews it from then on. Returns `false` if its owner has one of this identifier.
    ///
    /// # Errors
    /// Returns `Job` if the records cannot be reached.
    pub(super) async fn begin(self: &Arc<Self>, prediction: &Arc<CogPrediction>) -> Result<bool, ApiError> {
        let key = prediction.owner.record_key(&prediction.id);
        let new = NewPrediction {
            key: key.clone(),
            process: self.process.clone(),
            server: self.server.clone(),
            digest: prediction.digest().map(ToString::to_string).unwrap_or_default(),
            content: prediction.snapshot().to_text(),
        };
        if !self.with_records(move |records| records.create_prediction(&new)).await? {
            return Ok(false);
        }
        let mut running = self.running.lock();
        running.by_key.insert(key, Arc::clone(prediction));
        if !std::mem::replace(&mut running.is_renewed, true) {
            tokio::spawn(Arc::clone(self).keep_renewed());
        }
        Ok(true)
    }

    /// Records how a prediction ends, and returns how it has ended: differently if another server was first. If the records
    /// cannot be reached, the end is recorded later, and stays as it is.
    pub(super) async fn settle(
        self: &Arc<Self>,
        prediction: &CogPrediction,
        end: CogPredictionOutcome,
        now_ms: u64,
    ) -> (CogPredictionOutcome, u64) {
        let key = prediction.owner.record_key(&prediction.id);
        if !self.running.lock().by_key.contains_key(&key) {
            return (end, now_ms);
        }
        let ended = prediction.snapshot().with_end(&end, now_ms);
        let recorded = self.record_end(&key, &self.process, &ended).await;
        let settled = match recorded {
            Ok(true) => (end, now_ms),
            Ok(false) => match self.read(&key).await.ok().flatten().and_then(|found| found.snapshot.end()) {
                Some(other) => other,
                None => (end, now_ms),
            },
            Err(error) => {
                tracing::warn!(prediction = prediction.id, %error, "the end of a prediction is not recorded; trying again");
                tokio::spawn(Arc::clone(self).record_end_later(key, ended));
                return (end, now_ms);
            }
        };
        self.running.lock().by_key.remove(&key);
        settled
    }

    async fn record_end_later(self: Arc<Self>, key: PredictionKey, ended: PredictionSnapshot) {
        let began = Instant::now();
        while began.elapsed() < PREDICTION_RECORDING_TIME_MAX {
            sleep(PREDICTION_RENEWAL_INTERVAL).await;
            if self.record_end(&key, &self.process, &ended).await.is_ok() {
                break;
            }
        }
        self.running.lock().by_key.remove(&key);
    }

    /// Ends the row of a prediction of a process. Returns whether it did.
    async fn record_end(
        &self,
        key: &PredictionKey,
        process: &str,
        ended: &PredictionSnapshot,
    ) -> Result<bool, ApiError> {
        let (mut content, mut object) = (ended.to_text(), String::new());
        if content.len() > PREDICTION_ROW_BYTES_MAX {
            object = format!("{PREDICTIONS_FOLDER}/{}", random_hex::<16>());
            self.objects.create(&object, Bytes::from(std::mem::take(&mut content)).into()).await?;
        }
        let (key, process, stored) = (key.clone(), process.to_owned(), object.clone());
        let ended =
            self.with_records(move |records| records.finish_prediction(&key, &process, &content, &stored)).await;
        // After an error it is not known whether the row names the object.
        if matches!(ended, Ok(false)) && !object.is_empty() {
            self.objects.delete(&object).await?;
        }
        ended
    }

    /// Returns a prediction of any server, or `None`. One whose server is gone has failed.
    async fn read(&self, key: &PredictionKey) -> Result<Option<FoundPrediction>, ApiError> {
        let Some(found) = self.read_row(key).await? else { return Ok(None) };
        if !found.row.is_lost {
            return Ok(Some(found));
        }
        let server = &found.row.server;
        let reason = format!("server {server}, which computed the prediction, is gone; send the request again");
        let now_ms = saggar_clock::Clock::now_ms(&saggar_clock::SystemClock);
        let failed = found.snapshot.with_end(&CogPredictionOutcome::Failed(reason), now_ms);
        self.record_end(key, &found.row.process, &failed).await?;
        // Its server may have been faster.
        self.read_row(key).await
    }

    async fn read_row(&self, key: &PredictionKey) -> Result<Option<FoundPrediction>, ApiError> {
        let asked = key.clone();
        let Some(row) = self.with_records(move |records| records.prediction(&asked)).await? else { return Ok(None) };
        let text = match row.object.as_str() {
            "" => Bytes::from(row.content.clone()),
            object => {
                let other_storage = || PredictionError::OtherStorage { id: key.id.clone(), server: row.server.clone() };
                self.objects.find(object).await?.ok_or_else(other_storage)?
            }
        };
        let snapshot = serde_json::from_slice(&text)
            .map_err(|error| ApiError::Internal { cause: format!("the row of prediction {}: {error}", key.id) })?;
        Ok(Some(FoundPrediction { row, snapshot }))
    }

    /// Returns a prediction that this process does not compute, or `None`. It follows its row until it ends or is dropped.
    ///
    /// # Errors
    /// Returns `Job` if the records cannot be reached; an error of the storage.
    pub(super) async fn find(
        self: &Arc<Self>,
        owner: &PredictionOwner,
        id: &str,
    ) -> Result<Option<Arc<CogPrediction>>, ApiError> {
        let key = owner.record_key(id);
        let Some(found) = self.read(&key).await? else { return Ok(None) };
        let digest = found.row.digest.parse().ok();
        let prediction = CogPrediction::from_snapshot((owner.clone(), id.to_owned()), digest, &found.snapshot);
        let prediction = Arc::new(prediction);
        if !prediction.status().is_terminal() {
            tokio::spawn(Arc::clone(self).follow(key, Arc::downgrade(&prediction)));
        }
        Ok(Some(prediction))
    }

    async fn follow(self: Arc<Self>, key: PredictionKey, prediction: std::sync::Weak<CogPrediction>) {
        loop {
            sleep(PREDICTION_POLL_INTERVAL).await;
            let Some(prediction) = prediction.upgrade() else { return };
            match self.read(&key).await {
                Ok(Some(found)) => {
                    if let Some((end, completed_ms)) = found.snapshot.end() {
                        prediction.finish(end, completed_ms);
                        return;
                    }
                }
                Ok(None) => {
                    let reason = "the prediction is not in the records any more".to_owned();
                    prediction.finish(CogPredictionOutcome::Failed(reason), prediction.snapshot().created_ms);
                    return;
                }
                // The client waits until the records can be reached again.
                Err(error) => {
                    tracing::debug!(prediction = key.id, %error, "a prediction of another server is not known")
                }
            }
        }
    }

    /// Cancels a prediction on all servers. Does nothing if it has ended. Returns whether its row exists.
    ///
    /// # Errors
    /// Returns `Job` if the records cannot be reached.
    pub(super) async fn cancel(&self, owner: &PredictionOwner, id: &str, now_ms: u64) -> Result<bool, ApiError> {
        let key = owner.record_key(id);
        let Some(found) = self.read(&key).await? else { return Ok(false) };
        if !found.row.is_over {
            let canceled = found.snapshot.with_end(&CogPredictionOutcome::Canceled, now_ms);
            self.record_end(&key, &found.row.process, &canceled).await?;
        }
        Ok(true)
    }

    /// Returns how a prediction has ended and when, or `None` if it has not.
    ///
    /// # Errors
    /// Returns `Job` if the records cannot be reached.
    pub(super) async fn recorded_end(
        &self,
        owner: &PredictionOwner,
        id: &str,
    ) -> Result<Option<(CogPredictionOutcome, u64)>, ApiError> {
        Ok(self.read(&owner.record_key(id)).await?.and_then(|found| found.snapshot.end()))
    }

    /// Renews the rows of the predictions that this process computes, and ends those that were ended elsewhere, until no
    /// prediction is left. Now and then it removes old rows of all servers.
    async fn keep_renewed(self: Arc<Self>) {
        let failure = RepeatedFailure::new("the rows of predictions are not renewed");
        for at in 0_u32.. {
            sleep(PREDICTION_RENEWAL_INTERVAL).await;
            let before: Vec<_> = {
                let mut running = self.running.lock();
                if running.by_key.is_empty() {
                    running.is_renewed = false;
                    break;
                }
                running.by_key.iter().map(|(key, prediction)| (key.clone(), Arc::clone(prediction))).collect()
            };
            let process = self.process.clone();
            match self.with_records(move |records| records.renew_predictions(&process)).await {
                Ok(alive) => {
                    failure.log(Ok::<_, ApiError>(()));
                    for (key, prediction) in before.into_iter().filter(|(key, _)| !alive.contains(key)) {
                        self.end_as_recorded(&key, &prediction).await;
                    }
                }
                Err(error) => failure.log(Err(error)),
            }
            if at % RENEWALS_UNTIL_REMOVAL == 0 {
                self.remove_old().await;
            }
        }
    }

    /// Ends a prediction whose row was ended by another server.
    async fn end_as_recorded(&self, key: &PredictionKey, prediction: &CogPrediction) {
        if let Ok(Some(found)) = self.read_row(key).await
            && let Some((end, completed_ms)) = found.snapshot.end()
        {
            prediction.finish(end, completed_ms);
        }
    }

    async fn remove_old(&self) {
        let age_ms = u64::try_from(PREDICTIONS_KEPT_TIME_MAX.as_millis()).unwrap_or(u64::MAX);
        let removed =
            self.with_records(move |records| records.remove_old_predictions(age_ms, PREDICTION_ROWS_MAX)).await;
        let objects = removed.unwrap_or_else(|error| {
            tracing::warn!(%error, "old rows of predictions are not removed");
            Vec::new()
        });
        for object in objects {
            if let Err(error) = self.objects.delete(&object).await {
                tracing::warn!(object, %error, "the result of an old prediction is not removed");
            }
        }
    }
}

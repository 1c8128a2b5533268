//! Execution of a batch: concatenates the requests' tensors, computes them once, and splits the outputs. If that fails,
//! each request is computed alone, so that only the faulty requests fail.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use saggar_plugin::{CancelToken, FailureReason, NamedTensor, PluginError, PredictionOptions};
use saggar_telemetry::request_trace::BatchTimes;
use saggar_tensor::{Descriptor, Shape};
use tokio::runtime::Handle;

use super::latency_estimator::LatencyEstimator;
use super::queued_prediction::{ComputedPrediction, QueuedPrediction};
use crate::guest_threads::{self, InPlacePermit};
use crate::limits::IN_PLACE_BATCH_TIME_MAX;
use crate::metrics::statistics::VersionStatistics;
use crate::metrics::version_metrics::VersionMetrics;
use crate::predictor::ModelPredictor;

/// The number of the next batch, so that the batches of all versions have different ones.
static NEXT_BATCH: AtomicU64 = AtomicU64::new(1);

/// Computes the batches of one version.
#[derive(Debug)]
pub(crate) struct BatchExecutor {
    model: String,
    predictor: Arc<dyn ModelPredictor>,
    metrics: Arc<VersionMetrics>,
    statistics: Arc<VersionStatistics>,
    latency: LatencyEstimator,
    runtime: Handle,
}

impl BatchExecutor {
    /// Creates an executor that records its batches in `metrics` and `statistics`. Call it within a runtime, whose
    /// threads compute the batches.
    pub(crate) fn new(
        model: &str,
        predictor: Arc<dyn ModelPredictor>,
        metrics: Arc<VersionMetrics>,
        statistics: Arc<VersionStatistics>,
    ) -> BatchExecutor {
        let (model, latency, runtime) = (model.to_owned(), LatencyEstimator::default(), Handle::current());
        BatchExecutor { model, predictor, metrics, statistics, latency, runtime }
    }

    pub(super) fn metrics(&self) -> &VersionMetrics {
        &self.metrics
    }

    pub(super) fn latency(&self) -> &LatencyEstimator {
        &self.latency
    }

    pub(super) fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Returns whether the model computes several items at once.
    pub(super) fn has_batches(&self) -> bool {
        !self.predictor.signature().batch_sizes.is_empty()
    }

    /// Runs a batch. Runs it on this thread if batches of its size are quick and call no driver, while another thread
    /// serves this thread's connections. Otherwise runs it on a blocking thread. `slot` is dropped when the batch is
    /// done.
    pub(super) fn start_batch(self: &Arc<BatchExecutor>, slot: impl Send + 'static, batch: Vec<QueuedPrediction>) {
        // Dropped here, before the waiting side's timer fires, so that it knows that they were not computed.
        let batch = without_expired(batch);
        let items = batch.iter().map(|waiting| waiting.items).sum();
        let quick = self.latency.is_quick(items)
            && batch.iter().all(|it| it.request.sink.is_none())
            && !self.predictor.calls_driver();
        let Some(place) = quick.then(InPlacePermit::acquire).flatten() else {
            return self.spawn_blocking(slot, move |executor| executor.run_each(executor.run_together(batch, None)));
        };
        // A panic must not cancel the request whose task gathered the batch. It is answered like the others.
        let quickly = || {
            catch_unwind(AssertUnwindSafe(|| self.run_together(batch, Some(IN_PLACE_BATCH_TIME_MAX))))
                .unwrap_or_default()
        };
        let rest = place.run(quickly);
        if !rest.is_empty() {
            self.spawn_blocking(slot, move |executor| executor.run_each(rest));
        }
    }

    /// Runs `work` on a blocking thread, and then drops `slot`.
    fn spawn_blocking(
        self: &Arc<BatchExecutor>,
        slot: impl Send + 'static,
        work: impl FnOnce(&BatchExecutor) + Send + 'static,
    ) {
        let executor = Arc::clone(self);
        guest_threads::spawn(&self.runtime, move || {
            work(&executor);
            drop(slot);
        });
    }

    /// Computes the requests together and answers those that succeed. Returns the others. `limit` is the longest time that
    /// this thread can be occupied, or `None` if it can block.
    fn run_together(&self, batch: Vec<QueuedPrediction>, limit: Option<Duration>) -> Vec<QueuedPrediction> {
        let now = Instant::now();
        let batch = without_expired(batch);
        if batch.is_empty() || (batch.len() == 1 && limit.is_none()) {
            return batch;
        }
        let counts: Vec<usize> = batch.iter().map(|waiting| waiting.items).collect();
        let items = counts.iter().sum();
        let soonest = batch.iter().map(|waiting| waiting.request.until).min().unwrap_or(now);
        // A batch that never ends must leave time to compute its requests alone.
        let left = soonest.saturating_duration_since(now);
        let company = if batch.len() == 1 { left } else { left / 2 };
        let gone: Vec<_> = batch.iter().map(|waiting| Arc::clone(&waiting.cancelled)).collect();
        let all_gone = move || gone.iter().all(|gone| gone.load(Ordering::Acquire));
        let deadline = limit.map_or(company, |limit| limit.min(company));
        let cancel = limit.is_none().then(|| CancelToken::new(all_gone));
        let terms = PredictionOptions { deadline, sink: None, cancel, requires_idle_instance: limit.is_some() };
        let merged = self.merge_inputs(&batch);
        let outputs = self.predict_timed(items, batch.len(), |predictor| predictor.predict(merged, &terms));
        match outputs.and_then(|(outputs, times)| Ok((split_outputs(outputs, &counts)?, times))) {
            Ok((outputs, batch_times)) => {
                let (compute, times) = (batch_times.compute, BatchTimes { began: now, ..batch_times });
                for (waiting, tensors) in batch.into_iter().zip(outputs) {
                    let queue = now.saturating_duration_since(waiting.since);
                    waiting.reply(Ok(ComputedPrediction { tensors, queue, compute, batch: times }));
                }
                Vec::new()
            }
            // A device error is not caused by a request, and a retry would fail again.
            Err(error @ PluginError::Device(_)) if error.reason() != FailureReason::OutOfMemory => {
                fail_all(batch, &error);
                Vec::new()
            }
            Err(error) if batch.len() == 1 && !matches!(error, PluginError::Deadline { .. }) => {
                fail_all(batch, &error);
                Vec::new()
            }
            Err(error) => {
                tracing::debug!(model = self.model, items, %error, "a batch failed: its requests are computed alone");
                batch
            }
        }
    }

    /// Computes each request alone on this thread, which can block.
    fn run_each(&self, batch: Vec<QueuedPrediction>) {
        for mut waiting in batch {
            let now = Instant::now();
            let left = waiting.request.until.saturating_duration_since(now);
            if waiting.is_cancelled() || left.is_zero() {
                continue;
            }
            let gone = Arc::clone(&waiting.cancelled);
            let cancel = CancelToken::new(move || gone.load(Ordering::Acquire));
            let terms = PredictionOptions {
                deadline: waiting.request.limit.min(left),
                sink: waiting.request.sink.take(),
                cancel: Some(cancel),
                requires_idle_instance: false,
            };
            let inputs = std::mem::take(&mut waiting.request.inputs.tensors);
            let queue = now.saturating_duration_since(waiting.since);
            let items = waiting.items;
            let result = self.predict_timed(items, 1, |predictor| predictor.predict(inputs, &terms));
            drop(terms);
            waiting.reply(result.map(|(tensors, times)| {
                let batch = BatchTimes { began: now, ..times };
                ComputedPrediction { tensors, queue, compute: times.compute, batch }
            }));
        }
    }

    /// Runs `predict`, and counts it and records its duration. The batch begins with the call.
    fn predict_timed(
        &self,
        items: usize,
        requests: usize,
        predict: impl FnOnce(&dyn ModelPredictor) -> Result<Vec<NamedTensor>, PluginError>,
    ) -> Result<(Vec<NamedTensor>, BatchTimes), PluginError> {
        let _running = self.metrics.track_in_flight(requests);
        let began = Instant::now();
        let outputs = predict(&*self.predictor);
        let time = began.elapsed();
        self.latency.record(items, time);
        let outputs = outputs?;
        self.metrics.record_execution(items);
        self.statistics.record_execution(items, time);
        let number = NEXT_BATCH.fetch_add(1, Ordering::Relaxed);
        Ok((outputs, BatchTimes { number, requests, items, began, compute_began: began, compute: time }))
    }

    /// Returns the inputs of all requests as one batch. Each request's inputs are in the signature's order.
    fn merge_inputs(&self, batch: &[QueuedPrediction]) -> Vec<NamedTensor> {
        if let [only] = batch {
            return only.request.inputs.tensors.clone();
        }
        let ports = self.predictor.signature().inputs.iter().enumerate();
        let items: usize = batch.iter().map(|waiting| waiting.items).sum();
        ports
            .map(|(at, port)| {
                let parts = || batch.iter().map(|waiting| &waiting.request.inputs.tensors[at]);
                let mut bytes = Vec::with_capacity(parts().map(|part| part.bytes.len()).sum());
                for part in parts() {
                    bytes.extend_from_slice(&part.bytes);
                }
                let dims = [&[items], port.item.shape.dims()].concat();
                // The items fit a batch of the model, whose shape was checked when it was loaded.
                let shape = Shape::new(dims).unwrap_or_else(|_| port.item.shape.clone());
                NamedTensor { name: port.name.clone(), descriptor: Descriptor::new(port.item.dtype, shape), bytes }
            })
            .collect()
    }
}

fn fail_all(batch: Vec<QueuedPrediction>, error: &PluginError) {
    for waiting in batch {
        waiting.reply(Err(error.clone()));
    }
}

/// Drops the requests that are cancelled or past their deadline. The waiting side answers them.
fn without_expired(mut batch: Vec<QueuedPrediction>) -> Vec<QueuedPrediction> {
    let now = Instant::now();
    batch.retain(|waiting| !waiting.is_cancelled() && waiting.request.until > now);
    batch
}

/// Splits the outputs of one batch into those of its requests.
fn split_outputs(outputs: Vec<NamedTensor>, counts: &[usize]) -> Result<Vec<Vec<NamedTensor>>, PluginError> {
    if counts.len() == 1 {
        return Ok(vec![outputs]);
    }
    let items: usize = counts.iter().sum();
    let mut starts = vec![0; outputs.len()];
    let mut parts = Vec::with_capacity(counts.len());
    for &count in counts {
        let part = |(output, start): (&NamedTensor, &mut usize)| {
            let (first, item) = output.descriptor.shape.dims().split_first().unwrap_or((&0, &[]));
            let broken = |given: String| PluginError::BadOutput {
                name: output.name.clone(),
                expected: format!("{items} items"),
                given,
            };
            if *first != items {
                return Err(broken(output.descriptor.to_string()));
            }
            let item_bytes = output.bytes.len() / items;
            let shape = Shape::new([&[count], item].concat()).map_err(|error| broken(error.to_string()))?;
            let bytes = output.bytes[*start * item_bytes..(*start + count) * item_bytes].to_vec();
            *start += count;
            Ok(NamedTensor {
                name: output.name.clone(),
                descriptor: Descriptor::new(output.descriptor.dtype, shape),
                bytes,
            })
        };
        parts.push(outputs.iter().zip(&mut starts).map(part).collect::<Result<Vec<NamedTensor>, _>>()?);
    }
    Ok(parts)
}

//! Batching: predictions of one version wait in a queue, are grouped into batches, and are computed together.

pub(crate) mod batch_executor;
pub(crate) mod batch_queue;
mod fair_queue;
mod latency_estimator;
pub(crate) mod queued_prediction;

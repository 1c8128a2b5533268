//! Running a batch: the requests' tensors put together, computed once, and taken apart again. Where that fails, each
//! request is computed alone, so that only those fail that are at fault.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use saggar_plugin::{CancelToken, PluginError, Terms};
use saggar_tensor::{Descriptor, Shape};

use super::guest_threads::InPlace;
use super::queue::{Computed, Lane, Waiting};
use super::version::Serving;
use crate::limits::QUICK_LIMIT;
use crate::predict::decode::Tensor;

/// Runs a batch: on this thread where batches of its size are quick and call no driver, while another thread serves its
/// connections, else on one that may block.
pub(super) fn start(lane: Lane, batch: Vec<Waiting>) {
    let items = batch.iter().map(|waiting| waiting.items).sum();
    let serving = lane.serving();
    let quick = serving.queue().pace.is_quick(items)
        && batch.iter().all(|it| it.request.sink.is_none())
        && !serving.predictor().calls_driver();
    let Some(place) = quick.then(InPlace::acquire).flatten() else {
        return lane.block(move |lane| {
            let rest = run(lane.serving(), batch, None);
            each(lane.serving(), rest);
        });
    };
    // A panic must not take along the request whose task gathered the batch: like the others, it is told.
    let quickly =
        || catch_unwind(AssertUnwindSafe(|| run(lane.serving(), batch, Some(QUICK_LIMIT)))).unwrap_or_default();
    let rest = place.run(quickly);
    if !rest.is_empty() {
        lane.block(move |lane| each(lane.serving(), rest));
    }
}

/// Computes the requests together, and answers those for which that succeeds. `limit` is how long this thread may be kept;
/// none where it may block. The others are given back.
fn run(serving: &Arc<Serving>, batch: Vec<Waiting>, limit: Option<Duration>) -> Vec<Waiting> {
    let now = Instant::now();
    // Of those whose time is over, the waiting side says so.
    let batch: Vec<Waiting> = batch.into_iter().filter(|it| !it.is_gone() && it.request.until > now).collect();
    if batch.is_empty() || (batch.len() == 1 && limit.is_none()) {
        return batch;
    }
    let counts: Vec<usize> = batch.iter().map(|waiting| waiting.items).collect();
    let items = counts.iter().sum();
    let soonest = batch.iter().map(|waiting| waiting.request.until).min().unwrap_or(now);
    // One that never ends must leave the others the time to be computed alone.
    let left = soonest.saturating_duration_since(now);
    let company = if batch.len() == 1 { left } else { left / 2 };
    let gone: Vec<_> = batch.iter().map(|waiting| Arc::clone(&waiting.gone)).collect();
    let all_gone = move || gone.iter().all(|gone| gone.load(Ordering::Acquire));
    let deadline = limit.map_or(company, |limit| limit.min(company));
    let cancel = limit.is_none().then(|| CancelToken::new(all_gone));
    let terms = Terms { deadline, sink: None, cancel, is_prompt: limit.is_some() };
    let merged = merge(serving, &batch);
    let outputs = timed(serving, items, batch.len(), || serving.predictor().predict(merged, &terms));
    match outputs.and_then(|(outputs, time)| Ok((split(outputs, &counts)?, time))) {
        Ok((outputs, compute)) => {
            for (waiting, tensors) in batch.into_iter().zip(outputs) {
                let queue = now.saturating_duration_since(waiting.since);
                waiting.answer(Ok(Computed { tensors, queue, compute }));
            }
            Vec::new()
        }
        // The device is no request's fault, and it would only fail again.
        Err(error @ PluginError::Device(_)) if error.reason() != "OUT_OF_MEMORY" => {
            answer_all(batch, &error);
            Vec::new()
        }
        Err(error) if batch.len() == 1 && !matches!(error, PluginError::Deadline { .. }) => {
            answer_all(batch, &error);
            Vec::new()
        }
        Err(error) => {
            tracing::debug!(model = serving.model, items, %error, "a batch failed: its requests are computed alone");
            batch
        }
    }
}

fn answer_all(batch: Vec<Waiting>, error: &PluginError) {
    for waiting in batch {
        waiting.answer(Err(error.clone()));
    }
}

/// Computes each request alone, on this thread, which may block.
fn each(serving: &Arc<Serving>, batch: Vec<Waiting>) {
    for mut waiting in batch {
        let now = Instant::now();
        let left = waiting.request.until.saturating_duration_since(now);
        if waiting.is_gone() || left.is_zero() {
            continue;
        }
        let gone = Arc::clone(&waiting.gone);
        let cancel = CancelToken::new(move || gone.load(Ordering::Acquire));
        let terms = Terms {
            deadline: waiting.request.limit.min(left),
            sink: waiting.request.sink.take(),
            cancel: Some(cancel),
            is_prompt: false,
        };
        let inputs = std::mem::take(&mut waiting.request.inputs.tensors);
        let queue = now.saturating_duration_since(waiting.since);
        let items = waiting.items;
        let result = timed(serving, items, 1, || serving.predictor().predict(inputs, &terms));
        drop(terms);
        waiting.answer(result.map(|(tensors, compute)| Computed { tensors, queue, compute }));
    }
}

/// Runs `predict`, and counts and remembers how long it took.
fn timed(
    serving: &Serving,
    items: usize,
    requests: usize,
    predict: impl FnOnce() -> Result<Vec<Tensor>, PluginError>,
) -> Result<(Vec<Tensor>, Duration), PluginError> {
    let _running = serving.series().running(requests);
    let began = Instant::now();
    let outputs = predict();
    let time = began.elapsed();
    serving.queue().pace.took(items, time);
    let outputs = outputs?;
    serving.series().executed(items);
    serving.statistics().executed(items, time);
    Ok((outputs, time))
}

/// The inputs of all requests as one batch. Each request's are in the signature's order.
fn merge(serving: &Serving, batch: &[Waiting]) -> Vec<Tensor> {
    if let [only] = batch {
        return only.request.inputs.tensors.clone();
    }
    let ports = serving.predictor().signature().inputs.iter().enumerate();
    let items: usize = batch.iter().map(|waiting| waiting.items).sum();
    ports
        .map(|(at, port)| {
            let parts = || batch.iter().map(|waiting| &waiting.request.inputs.tensors[at]);
            let mut bytes = Vec::with_capacity(parts().map(|part| part.bytes.len()).sum());
            for part in parts() {
                bytes.extend_from_slice(&part.bytes);
            }
            let dims = [&[items], port.item.shape.dims()].concat();
            // Its items fit a batch of the model, whose shape was checked when it was loaded.
            let shape = Shape::new(dims).unwrap_or_else(|_| port.item.shape.clone());
            Tensor { name: port.name.clone(), descriptor: Descriptor::new(port.item.dtype, shape), bytes }
        })
        .collect()
}

/// The outputs of one batch as those of its requests.
fn split(outputs: Vec<Tensor>, counts: &[usize]) -> Result<Vec<Vec<Tensor>>, PluginError> {
    if counts.len() == 1 {
        return Ok(vec![outputs]);
    }
    let items: usize = counts.iter().sum();
    let mut starts = vec![0; outputs.len()];
    let mut parts = Vec::with_capacity(counts.len());
    for &count in counts {
        let part = |(output, start): (&Tensor, &mut usize)| {
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
            Ok(Tensor { name: output.name.clone(), descriptor: Descriptor::new(output.descriptor.dtype, shape), bytes })
        };
        parts.push(outputs.iter().zip(&mut starts).map(part).collect::<Result<Vec<Tensor>, _>>()?);
    }
    Ok(parts)
}

//! The batch queue of one model version: predictions wait here to be grouped and run in batches.
//!
//! The first request that finds no leader becomes the leader: it yields once, so that requests which have already
//! arrived can join, and then runs the queued requests as a batch. While the model is idle no request waits longer than
//! that. While it is busy, the batch window stays open until the batch is full, the model is idle, `delay_max` has
//! passed, or half of the time to the deadline of one of its requests has passed.
//!
//! The execution of a batch is in [`super::batch_executor`].

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use saggar_plugin::PluginError;
use tokio::sync::{Notify, oneshot};
use tokio::time::timeout_at;

use super::batch_executor::BatchExecutor;
use super::fair_queue::ClientFairQueue;
use super::queued_prediction::{ComputedPrediction, PredictionRequest, PredictionResult, QueuedPrediction};
use crate::error::ServingError;
use crate::metrics::version_metrics::DispatchTrigger;
use crate::request_memory::MemoryCharge;
use crate::serving_policy::BatchPolicy;

/// Queued requests and running batches.
#[derive(Debug)]
pub(crate) struct BatchQueue {
    policy: BatchPolicy,
    state: Mutex<BatchQueueState>,
    /// Maximum number of concurrent bulk requests: all slots but one, so that other requests can run beside them.
    bulk_slots: usize,
    /// Wakes the leader when its reason to wait has ended.
    batch_window_closed: Notify,
    executor: Arc<BatchExecutor>,
}

#[derive(Default)]
struct BatchQueueState {
    waiting: VecDeque<QueuedPrediction>,
    turns: ClientFairQueue,
    /// Bulk requests that are queued, and those that run.
    bulk_waiting: usize,
    bulk_running: usize,
    items: usize,
    tickets: u64,
    /// Number of running batches.
    batches_running: usize,
    /// Whether a leader is about to take a batch.
    has_leader: bool,
    draining: bool,
}

impl std::fmt::Debug for BatchQueueState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BatchQueueState")
            .field("waiting", &self.waiting.len())
            .field("busy", &self.batches_running)
            .finish_non_exhaustive()
    }
}

impl BatchQueue {
    /// Creates an empty queue, whose batches `executor` computes.
    pub(crate) fn new(rules: BatchPolicy, executor: BatchExecutor) -> BatchQueue {
        let rules = BatchPolicy { items_max: rules.items_max.max(1), slots: rules.slots.max(1), ..rules };
        let bulk_lanes = (rules.slots - 1).max(1);
        BatchQueue {
            policy: rules,
            state: Mutex::default(),
            bulk_slots: bulk_lanes,
            batch_window_closed: Notify::new(),
            executor: Arc::new(executor),
        }
    }

    /// Closes the batch window for all requests.
    pub(crate) fn drain(&self) {
        self.lock_state().draining = true;
        self.batch_window_closed.notify_one();
    }

    /// Returns the estimated time until a prediction with `before` predictions ahead of it is done, from the duration
    /// of recent batches. Returns `None` if it need not wait for any of them or nothing is known.
    pub(crate) fn estimate_completion(&self, before: usize) -> Option<Duration> {
        let rounds = u32::try_from(before / self.policy.slots).unwrap_or(u32::MAX);
        let each = self.executor.latency().best_time_per_item(self.policy.items_max).filter(|_| rounds > 0)?;
        Some(each.saturating_mul(rounds.saturating_add(1)))
    }

    // The state is consistent between any two statements that hold the lock.
    fn lock_state(&self) -> MutexGuard<'_, BatchQueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a request and waits for its result. Dropping the future withdraws the request: immediately if it is queued,
    /// at the next dispatch if it is computed alone.
    ///
    /// # Errors
    /// Returns `DeadlineQueued` or `Plugin(Deadline)` if the deadline has passed, and the errors of the plugin.
    pub(crate) async fn enqueue_and_wait(
        self: &Arc<BatchQueue>,
        request: PredictionRequest,
    ) -> Result<(ComputedPrediction, MemoryCharge), ServingError> {
        let (until, limit) = (request.until, request.limit);
        let leaving = CancelOnDrop(Arc::new(AtomicBool::new(false)));
        let (answer, ticket, gathers) = self.enqueue(request, &leaving.0);
        let withdrawing = WithdrawOnDrop { queue: self, ticket: Some(ticket) };
        if gathers {
            LeaderGuard::new(self).run_leader().await;
        }
        let answer = timeout_at(until.into(), answer).await;
        match answer {
            Ok(Ok(result)) => {
                withdrawing.disarm();
                result.map_err(ServingError::from)
            }
            // A batch drops expired requests, possibly a moment before this side's timer fires.
            Ok(Err(_)) if Instant::now() >= until => Err(ServingError::DeadlineQueued { limit }),
            Ok(Err(_)) => Err(ServingError::Internal { cause: "predicting panicked".to_owned() }),
            Err(_) if self.withdraw(ticket) => Err(ServingError::DeadlineQueued { limit }),
            Err(_) => {
                let limit_ms = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
                Err(PluginError::Deadline { during: "predict", limit_ms }.into())
            }
        }
    }

    /// Returns the estimates of batch durations.
    #[cfg(test)]
    pub(crate) fn latency(&self) -> &super::latency_estimator::LatencyEstimator {
        self.executor.latency()
    }

    /// Queues a request. Returns the receiver of its result, its ticket, and whether its task must lead the next batch.
    fn enqueue(
        &self,
        request: PredictionRequest,
        gone: &Arc<AtomicBool>,
    ) -> (oneshot::Receiver<PredictionResult>, u64, bool) {
        let (reply, answer) = oneshot::channel();
        let items = request.inputs.items.unwrap_or(1);
        let queued = Some(self.executor.metrics().track_queued());
        let gone = Arc::clone(gone);
        let is_alone = request.sink.is_some() || !self.executor.has_batches();
        let client = request.charge.client();
        let mut line = self.lock_state();
        line.turns.add_request(client);
        line.bulk_waiting += usize::from(self.is_bulk(items));
        let ticket = line.tickets;
        line.tickets += 1;
        line.items += items;
        line.waiting.push_back(QueuedPrediction {
            request,
            items,
            since: Instant::now(),
            cancelled: gone,
            is_alone,
            reply,
            ticket,
            queued,
        });
        let is_hasty =
            line.waiting.back().is_some_and(|it| self.batch_window_end(it) < it.since + self.policy.delay_max);
        if line.has_leader && (line.items >= self.policy.items_max || is_hasty) {
            self.batch_window_closed.notify_one();
        }
        let gathers = self.needs_leader(&line);
        line.has_leader |= gathers;
        (answer, ticket, gathers)
    }

    /// Returns whether a leader is needed.
    fn needs_leader(&self, line: &BatchQueueState) -> bool {
        let quick = line.waiting.len() - line.bulk_waiting;
        let can_run = quick > 0 || (line.bulk_waiting > 0 && line.bulk_running < self.bulk_slots);
        !line.has_leader && can_run && line.batches_running < self.policy.slots
    }

    /// Returns whether a request of `items` items is a bulk request: larger than one batch, so that it runs as several
    /// in sequence.
    fn is_bulk(&self, items: usize) -> bool {
        items > self.policy.items_max
    }

    /// Removes and returns the next request by fair queueing among those that can run now.
    fn pop_next(
        &self,
        line: &mut BatchQueueState,
        is_wanted: impl Fn(&QueuedPrediction) -> bool,
    ) -> Option<QueuedPrediction> {
        let no_bulk = line.bulk_running >= self.bulk_slots;
        let candidates = line.waiting.iter().enumerate().filter(|(_, it)| !(no_bulk && self.is_bulk(it.items)));
        let at = line.turns.next_position(candidates.map(|(at, it)| (at, it.request.charge.client())))?;
        if !is_wanted(&line.waiting[at]) {
            return None;
        }
        self.remove(line, at, true)
    }

    /// Removes a request, because it is computed or because it was withdrawn.
    fn remove(&self, line: &mut BatchQueueState, at: usize, is_computed: bool) -> Option<QueuedPrediction> {
        let waiting = line.waiting.remove(at)?;
        line.items -= waiting.items;
        line.bulk_waiting -= usize::from(self.is_bulk(waiting.items));
        line.turns.remove_request(waiting.request.charge.client(), if is_computed { waiting.items } else { 0 });
        Some(waiting)
    }

    /// Removes a request that is still queued. Returns false if it is not.
    fn withdraw(&self, ticket: u64) -> bool {
        let mut line = self.lock_state();
        let Some(at) = line.waiting.iter().position(|waiting| waiting.ticket == ticket) else { return false };
        let waiting = self.remove(&mut line, at, false);
        drop(line);
        // Dropping it releases the version, which takes a separate lock.
        drop(waiting);
        true
    }

    /// Returns the end of a request's batch window. The rest of its time is reserved for computing it.
    fn batch_window_end(&self, waiting: &QueuedPrediction) -> Instant {
        let time = waiting.request.until.saturating_duration_since(waiting.since);
        waiting.since + self.policy.delay_max.min(time / 2)
    }

    /// Waits for more requests while the model is busy and the batch is not full.
    async fn wait_for_batch_window(&self) {
        if self.policy.delay_max.is_zero() {
            return;
        }
        loop {
            let until = {
                let line = self.lock_state();
                if line.batches_running == 0 || line.draining || line.items >= self.policy.items_max {
                    return;
                }
                let Some(until) = line.waiting.iter().map(|it| self.batch_window_end(it)).min() else { return };
                until
            };
            if timeout_at(until.into(), self.batch_window_closed.notified()).await.is_err() {
                return;
            }
        }
    }

    /// Removes and returns the next batch and the reason for its dispatch.
    fn take_batch(&self, line: &mut BatchQueueState) -> Option<(Vec<QueuedPrediction>, DispatchTrigger)> {
        let first = self.pop_next(line, |_| true)?;
        let items_max = self.policy.items_max;
        let mut items = first.items;
        let mut batch = vec![first];
        let mut full = items >= items_max;
        if !batch[0].is_alone {
            while let Some(next) = self.pop_next(line, |next| !next.is_alone && items + next.items <= items_max) {
                items += next.items;
                batch.push(next);
            }
            full |= items >= items_max || line.waiting.front().is_some_and(|next| !next.is_alone);
        }
        batch.iter_mut().for_each(|waiting| waiting.queued = None);
        let release = match (full, line.batches_running, line.draining) {
            (true, ..) => DispatchTrigger::Full,
            (_, _, true) => DispatchTrigger::Draining,
            (_, 0, _) => DispatchTrigger::Idle,
            _ => DispatchTrigger::Deadline,
        };
        Some((batch, release))
    }
}

/// The duty to take the next batch. If it is dropped before that, for example because its request was cancelled,
/// another task takes over.
struct LeaderGuard {
    queue: Option<Arc<BatchQueue>>,
    /// Whether a spawned task has the duty, which ends only with the runtime.
    handed_over: bool,
}

impl LeaderGuard {
    fn new(queue: &Arc<BatchQueue>) -> LeaderGuard {
        LeaderGuard { queue: Some(Arc::clone(queue)), handed_over: false }
    }

    /// Gathers a batch and starts it. Runs it in place, in this task, if it is known to be quick.
    async fn run_leader(mut self) {
        // Requests that are ready join first: the runtime polls them and their connections before this task continues.
        tokio::task::yield_now().await;
        if let Some(queue) = &self.queue {
            queue.wait_for_batch_window().await;
        }
        let Some(queue) = self.queue.take() else { return };
        let mut line = queue.lock_state();
        line.has_leader = false;
        let Some((batch, release)) = queue.take_batch(&mut line) else { return };
        line.batches_running += 1;
        let is_bulk = batch.first().is_some_and(|first| queue.is_bulk(first.items));
        line.bulk_running += usize::from(is_bulk);
        let more = queue.needs_leader(&line);
        line.has_leader |= more;
        drop(line);
        if more {
            LeaderGuard::new(&queue).spawn_leader();
        }
        queue.executor.metrics().record_dispatch(release, batch.iter().map(|waiting| waiting.items).sum());
        let executor = Arc::clone(&queue.executor);
        executor.start_batch(BatchSlot { queue, is_bulk }, batch);
    }

    /// Continues in a new task.
    fn spawn_leader(mut self) {
        self.handed_over = true;
        if let Some(queue) = &self.queue {
            let runtime = queue.executor.runtime().clone();
            runtime.spawn(self.run_leader());
        }
    }
}

impl Drop for LeaderGuard {
    fn drop(&mut self) {
        if let Some(queue) = self.queue.take().filter(|_| !self.handed_over) {
            LeaderGuard::new(&queue).spawn_leader();
        }
    }
}

/// The slot of a running batch. Dropping it lets the next batch run.
struct BatchSlot {
    queue: Arc<BatchQueue>,
    is_bulk: bool,
}

impl Drop for BatchSlot {
    fn drop(&mut self) {
        let queue = &self.queue;
        let mut line = queue.lock_state();
        line.batches_running -= 1;
        line.bulk_running -= usize::from(self.is_bulk);
        let wanted = queue.needs_leader(&line);
        line.has_leader |= wanted;
        let idle = line.batches_running == 0 && line.has_leader;
        drop(line);
        if idle {
            queue.batch_window_closed.notify_one();
        }
        if wanted {
            LeaderGuard::new(queue).spawn_leader();
        }
    }
}

/// Marks the request as cancelled when it is dropped, whatever the reason.
struct CancelOnDrop(Arc<AtomicBool>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Removes the request of a client that disconnected from the queue.
struct WithdrawOnDrop<'q> {
    queue: &'q BatchQueue,
    ticket: Option<u64>,
}

impl WithdrawOnDrop<'_> {
    fn disarm(mut self) {
        self.ticket = None;
    }
}

impl Drop for WithdrawOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            self.queue.withdraw(ticket);
        }
    }
}

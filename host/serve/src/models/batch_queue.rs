//! The queue of one model version: predictions wait here for company and go to the model in batches.
//!
//! A request that finds nobody gathering a batch gathers one itself: it steps back once, so that requests which have
//! arrived meanwhile join, and runs what is there. While the model is idle nobody waits longer than that. While it is busy,
//! a batch may wait for company until it is full, the model is idle, `max_delay` has passed, or half of the time that one of
//! its requests has.
//!
//! How a batch is run is in [`batch`](super::batch).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use saggar_plugin::{PieceSink, PluginError};
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};
use tokio::time::timeout_at;

use super::fair_queue::ClientFairQueue;
use super::latency_estimator::LatencyEstimator;
use super::live_version::{LiveVersion, VersionLease};
use super::version_metrics::GaugeGuard;
use super::{batch_executor, guest_threads};
use crate::error::ApiError;
use crate::predict::decode::{PredictionInputs, PredictionTensor};
use crate::request_memory::MemoryCharge;

/// How batches are formed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchPolicy {
    /// Items that go together at most. A request with more goes alone.
    pub items_max: usize,
    /// How long a request may wait for company while the model is busy.
    pub delay_max: Duration,
    /// Batches that run at once.
    pub slots: usize,
}

/// Why a batch went when it did, for the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DispatchTrigger {
    /// No more items would have fitted.
    Full,
    /// One of its requests had waited for long enough.
    Deadline,
    /// The model had nothing else to do.
    Idle,
    /// The version is making way for another.
    Draining,
}

impl DispatchTrigger {
    pub(crate) const ALL: [DispatchTrigger; 4] =
        [DispatchTrigger::Full, DispatchTrigger::Deadline, DispatchTrigger::Idle, DispatchTrigger::Draining];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            DispatchTrigger::Full => "full",
            DispatchTrigger::Deadline => "deadline",
            DispatchTrigger::Idle => "idle",
            DispatchTrigger::Draining => "draining",
        }
    }
}

/// A prediction to be computed.
pub(crate) struct PredictionRequest {
    pub(crate) inputs: PredictionInputs,
    /// When its client gives up, and how long it gave.
    pub(crate) until: Instant,
    pub(crate) limit: Duration,
    /// Where pieces of its outputs go. Such a request goes alone.
    pub(crate) sink: Option<Arc<dyn PieceSink>>,
    pub(crate) lease: Arc<VersionLease>,
    /// The memory of its inputs and outputs.
    pub(crate) charge: MemoryCharge,
}

/// What was computed for a request.
#[derive(Debug)]
pub(crate) struct ComputedPrediction {
    /// In the signature's order.
    pub(crate) tensors: Vec<PredictionTensor>,
    /// How long it waited.
    pub(crate) queue: Duration,
    /// How long its batch took.
    pub(crate) compute: Duration,
}

/// What a request gets: what was computed, with the charge that came with it.
type PredictionResult = Result<(ComputedPrediction, MemoryCharge), PluginError>;

/// A request in the queue, or in a batch.
pub(super) struct QueuedPrediction {
    pub(super) request: PredictionRequest,
    pub(super) items: usize,
    pub(super) since: Instant,
    /// Set when nobody waits for the answer any more.
    pub(super) cancelled: Arc<AtomicBool>,
    reply: oneshot::Sender<PredictionResult>,
    ticket: u64,
    /// Until it is taken into a batch.
    queued: Option<GaugeGuard>,
}

impl QueuedPrediction {
    /// Whether it must not be computed with others.
    fn is_alone(&self) -> bool {
        let signature = self.request.lease.live_version().predictor().signature();
        self.request.sink.is_some() || signature.batch_sizes.is_empty()
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    /// Answers it, and lets go of the version.
    pub(super) fn reply(self, result: Result<ComputedPrediction, PluginError>) {
        let QueuedPrediction { request, reply, .. } = self;
        // One that is gone is not told.
        let _ = reply.send(result.map(|computed| (computed, request.charge)));
    }
}

/// Requests that wait, and batches that run.
#[derive(Debug)]
pub(crate) struct BatchQueue {
    policy: BatchPolicy,
    state: Mutex<BatchQueueState>,
    /// How many bulk requests may run at once: all lanes but one, so that others go on beside them.
    bulk_slots: usize,
    /// Tells whoever waits for company that there is no more reason to.
    batch_window_closed: Notify,
    pub(crate) latency: LatencyEstimator,
    runtime: Handle,
}

#[derive(Default)]
struct BatchQueueState {
    waiting: VecDeque<QueuedPrediction>,
    turns: ClientFairQueue,
    /// Bulk requests among those that wait, and among those that run.
    bulk_waiting: usize,
    bulk_running: usize,
    items: usize,
    tickets: u64,
    /// Batches that run.
    batches_running: usize,
    /// Whether somebody is about to take a batch.
    has_leader: bool,
    draining: bool,
}

impl std::fmt::Debug for BatchQueueState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Line")
            .field("waiting", &self.waiting.len())
            .field("busy", &self.batches_running)
            .finish_non_exhaustive()
    }
}

impl BatchQueue {
    /// An empty queue. To be called within a runtime, which drives it.
    pub(super) fn new(rules: BatchPolicy) -> BatchQueue {
        let rules = BatchPolicy { items_max: rules.items_max.max(1), slots: rules.slots.max(1), ..rules };
        let bulk_lanes = (rules.slots - 1).max(1);
        BatchQueue {
            policy: rules,
            state: Mutex::default(),
            bulk_slots: bulk_lanes,
            batch_window_closed: Notify::new(),
            latency: LatencyEstimator::default(),
            runtime: Handle::current(),
        }
    }

    /// Nothing waits for company any more.
    pub(super) fn drain(&self) {
        self.lock_state().draining = true;
        self.batch_window_closed.notify_one();
    }

    /// How long a prediction takes that has so many before it, by how long batches took lately: none where it need not
    /// wait for any of them, or nothing is known.
    pub(super) fn estimate_completion(&self, before: usize) -> Option<Duration> {
        let rounds = u32::try_from(before / self.policy.slots).unwrap_or(u32::MAX);
        let each = self.latency.best_time_per_item(self.policy.items_max).filter(|_| rounds > 0)?;
        Some(each.saturating_mul(rounds.saturating_add(1)))
    }

    // Every change is whole between any two statements that hold the lock.
    fn lock_state(&self) -> MutexGuard<'_, BatchQueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a request, and says whether its task is to gather the next batch.
    fn enqueue(
        &self,
        request: PredictionRequest,
        gone: &Arc<AtomicBool>,
    ) -> (oneshot::Receiver<PredictionResult>, u64, bool) {
        let (reply, answer) = oneshot::channel();
        let items = request.inputs.items.unwrap_or(1);
        let queued = Some(request.lease.live_version().metrics().track_queued());
        let gone = Arc::clone(gone);
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

    /// Whether somebody must gather a batch.
    fn needs_leader(&self, line: &BatchQueueState) -> bool {
        let quick = line.waiting.len() - line.bulk_waiting;
        let can_run = quick > 0 || (line.bulk_waiting > 0 && line.bulk_running < self.bulk_slots);
        !line.has_leader && can_run && line.batches_running < self.policy.slots
    }

    /// Whether a request of so many items is a bulk request: more than one batch, which are computed one after the other.
    fn is_bulk(&self, items: usize) -> bool {
        items > self.policy.items_max
    }

    /// Takes the next request out whose turn it is, of those that may run now.
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

    /// Takes a request out, to be computed or because it was withdrawn.
    fn remove(&self, line: &mut BatchQueueState, at: usize, is_computed: bool) -> Option<QueuedPrediction> {
        let waiting = line.waiting.remove(at)?;
        line.items -= waiting.items;
        line.bulk_waiting -= usize::from(self.is_bulk(waiting.items));
        line.turns.remove_request(waiting.request.charge.client(), if is_computed { waiting.items } else { 0 });
        Some(waiting)
    }

    /// Takes a request out that has not been computed yet. False where it has.
    fn withdraw(&self, ticket: u64) -> bool {
        let mut line = self.lock_state();
        let Some(at) = line.waiting.iter().position(|waiting| waiting.ticket == ticket) else { return false };
        let waiting = self.remove(&mut line, at, false);
        drop(line);
        // Lets go of the version, which takes a lock of its own.
        drop(waiting);
        true
    }

    /// Until when a request waits for company: the rest of its time is for computing it.
    fn batch_window_end(&self, waiting: &QueuedPrediction) -> Instant {
        let time = waiting.request.until.saturating_duration_since(waiting.since);
        waiting.since + self.policy.delay_max.min(time / 2)
    }

    /// Waits for company while the model is busy and there is room for some.
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

    /// The next batch, and why it goes.
    fn take_batch(&self, line: &mut BatchQueueState) -> Option<(Vec<QueuedPrediction>, DispatchTrigger)> {
        let first = self.pop_next(line, |_| true)?;
        let items_max = self.policy.items_max;
        let mut items = first.items;
        let mut batch = vec![first];
        let mut full = items >= items_max;
        if !batch[0].is_alone() {
            while let Some(next) = self.pop_next(line, |next| !next.is_alone() && items + next.items <= items_max) {
                items += next.items;
                batch.push(next);
            }
            full |= items >= items_max || line.waiting.front().is_some_and(|next| !next.is_alone());
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

/// The duty to take the next batch. Where it is dropped without, as when the request that had it was given up, another
/// task gets it.
struct LeaderGuard {
    serving: Option<Arc<LiveVersion>>,
    /// Whether it is a task's own, which is given up with the runtime alone.
    handed_over: bool,
}

impl LeaderGuard {
    fn new(serving: &Arc<LiveVersion>) -> LeaderGuard {
        LeaderGuard { serving: Some(Arc::clone(serving)), handed_over: false }
    }

    /// Gathers a batch and starts it. Runs it at once, in the place of this task, where that is known to be quick.
    async fn run_leader(mut self) {
        // Whoever is ready to ask joins first: the runtime polls them, and their connections, before this goes on.
        tokio::task::yield_now().await;
        if let Some(serving) = &self.serving {
            serving.queue().wait_for_batch_window().await;
        }
        let Some(serving) = self.serving.take() else { return };
        let queue = serving.queue();
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
            LeaderGuard::new(&serving).spawn_leader();
        }
        serving.metrics().record_dispatch(release, batch.iter().map(|waiting| waiting.items).sum());
        batch_executor::start_batch(BatchSlot { serving: Arc::clone(&serving), is_bulk }, batch);
    }

    /// Has another task do it.
    fn spawn_leader(mut self) {
        self.handed_over = true;
        if let Some(serving) = &self.serving {
            let runtime = serving.queue().runtime.clone();
            runtime.spawn(self.run_leader());
        }
    }
}

impl Drop for LeaderGuard {
    fn drop(&mut self) {
        if let Some(serving) = self.serving.take().filter(|_| !self.handed_over) {
            LeaderGuard::new(&serving).spawn_leader();
        }
    }
}

/// A batch that runs. When it is dropped, the next one may.
pub(super) struct BatchSlot {
    serving: Arc<LiveVersion>,
    is_bulk: bool,
}

impl BatchSlot {
    pub(super) fn live_version(&self) -> &Arc<LiveVersion> {
        &self.serving
    }

    /// Runs `work` on a thread that may block.
    pub(super) fn spawn_blocking(self, work: impl FnOnce(BatchSlot) + Send + 'static) {
        let runtime = self.serving.queue().runtime.clone();
        guest_threads::spawn(&runtime, move || work(self));
    }
}

impl Drop for BatchSlot {
    fn drop(&mut self) {
        let queue = self.serving.queue();
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
            LeaderGuard::new(&self.serving).spawn_leader();
        }
    }
}

/// Says that nobody waits any more, however that came about.
struct CancelOnDrop(Arc<AtomicBool>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Waits for a request's turn and its result. Dropping the future withdraws the request: at once where it waits, at the
/// next dispatch where it is computed alone.
///
/// # Errors
/// `DeadlineQueued` and `Plugin(PredictionDeadline)` where the time is over; whatever the plugin does wrong.
pub(crate) async fn enqueue_and_wait(
    request: PredictionRequest,
) -> Result<(ComputedPrediction, MemoryCharge), ApiError> {
    let (until, limit) = (request.until, request.limit);
    let serving = Arc::clone(request.lease.live_version());
    let leaving = CancelOnDrop(Arc::new(AtomicBool::new(false)));
    let (answer, ticket, gathers) = serving.queue().enqueue(request, &leaving.0);
    let withdrawing = WithdrawOnDrop { serving: &serving, ticket: Some(ticket) };
    if gathers {
        LeaderGuard::new(&serving).run_leader().await;
    }
    let answer = timeout_at(until.into(), answer).await;
    match answer {
        Ok(Ok(result)) => {
            withdrawing.disarm();
            result.map_err(ApiError::from)
        }
        // A batch lets go of those whose time is over, which may be a moment before this side's clock wakes it.
        Ok(Err(_)) if Instant::now() >= until => Err(ApiError::DeadlineQueued { limit }),
        Ok(Err(_)) => Err(ApiError::Internal { cause: "predicting panicked".to_owned() }),
        Err(_) if serving.queue().withdraw(ticket) => Err(ApiError::DeadlineQueued { limit }),
        Err(_) => {
            let limit_ms = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
            Err(PluginError::Deadline { during: "predict", limit_ms }.into())
        }
    }
}

/// Takes a request out of the queue whose client went away.
struct WithdrawOnDrop<'s> {
    serving: &'s Arc<LiveVersion>,
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
            self.serving.queue().withdraw(ticket);
        }
    }
}

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

use super::pace::Pace;
use super::turns::ClientTurns;
use super::version::{Lease, Serving};
use super::version_series::Counted;
use super::{batch, guest_threads};
use crate::error::ApiError;
use crate::memory::MemoryCharge;
use crate::predict::decode::{Inputs, Tensor};

/// How batches are formed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Items that go together at most. A request with more goes alone.
    pub items_max: usize,
    /// How long a request may wait for company while the model is busy.
    pub delay_max: Duration,
    /// Batches that run at once.
    pub lanes: usize,
}

/// Why a batch went when it did, for the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Release {
    /// No more items would have fitted.
    Full,
    /// One of its requests had waited for long enough.
    Deadline,
    /// The model had nothing else to do.
    Idle,
    /// The version is making way for another.
    Draining,
}

impl Release {
    pub(crate) const ALL: [Release; 4] = [Release::Full, Release::Deadline, Release::Idle, Release::Draining];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Release::Full => "full",
            Release::Deadline => "deadline",
            Release::Idle => "idle",
            Release::Draining => "draining",
        }
    }
}

/// A prediction to be computed.
pub(crate) struct Request {
    pub(crate) inputs: Inputs,
    /// When its client gives up, and how long it gave.
    pub(crate) until: Instant,
    pub(crate) limit: Duration,
    /// Where pieces of its outputs go. Such a request goes alone.
    pub(crate) sink: Option<Arc<dyn PieceSink>>,
    pub(crate) lease: Arc<Lease>,
    /// The memory of its inputs and outputs.
    pub(crate) charge: MemoryCharge,
}

/// What was computed for a request.
#[derive(Debug)]
pub(crate) struct Computed {
    /// In the signature's order.
    pub(crate) tensors: Vec<Tensor>,
    /// How long it waited.
    pub(crate) queue: Duration,
    /// How long its batch took.
    pub(crate) compute: Duration,
}

/// What a request gets: what was computed, with the charge that came with it.
type Reply = Result<(Computed, MemoryCharge), PluginError>;

/// A request in the queue, or in a batch.
pub(super) struct Waiting {
    pub(super) request: Request,
    pub(super) items: usize,
    pub(super) since: Instant,
    /// Set when nobody waits for the answer any more.
    pub(super) gone: Arc<AtomicBool>,
    reply: oneshot::Sender<Reply>,
    ticket: u64,
    /// Until it is taken into a batch.
    queued: Option<Counted>,
}

impl Waiting {
    /// Whether it must not be computed with others.
    fn is_alone(&self) -> bool {
        let signature = self.request.lease.serving().predictor().signature();
        self.request.sink.is_some() || signature.batch_sizes.is_empty()
    }

    pub(super) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// Answers it, and lets go of the version.
    pub(super) fn answer(self, result: Result<Computed, PluginError>) {
        let Waiting { request, reply, .. } = self;
        // One that is gone is not told.
        let _ = reply.send(result.map(|computed| (computed, request.charge)));
    }
}

/// Requests that wait, and batches that run.
#[derive(Debug)]
pub(crate) struct Queue {
    rules: Rules,
    line: Mutex<Line>,
    /// How many bulk requests may run at once: all lanes but one, so that others go on beside them.
    bulk_lanes: usize,
    /// Tells whoever waits for company that there is no more reason to.
    stir: Notify,
    pub(crate) pace: Pace,
    runtime: Handle,
}

#[derive(Default)]
struct Line {
    waiting: VecDeque<Waiting>,
    turns: ClientTurns,
    /// Bulk requests among those that wait, and among those that run.
    bulk_waiting: usize,
    bulk_running: usize,
    items: usize,
    tickets: u64,
    /// Batches that run.
    busy: usize,
    /// Whether somebody is about to take a batch.
    gathered: bool,
    draining: bool,
}

impl std::fmt::Debug for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Line").field("waiting", &self.waiting.len()).field("busy", &self.busy).finish_non_exhaustive()
    }
}

impl Queue {
    /// An empty queue. To be called within a runtime, which drives it.
    pub(super) fn new(rules: Rules) -> Queue {
        let rules = Rules { items_max: rules.items_max.max(1), lanes: rules.lanes.max(1), ..rules };
        let bulk_lanes = (rules.lanes - 1).max(1);
        Queue {
            rules,
            line: Mutex::default(),
            bulk_lanes,
            stir: Notify::new(),
            pace: Pace::default(),
            runtime: Handle::current(),
        }
    }

    /// Nothing waits for company any more.
    pub(super) fn drain(&self) {
        self.line().draining = true;
        self.stir.notify_one();
    }

    /// How long a prediction takes that has so many before it, by how long batches took lately: none where it need not
    /// wait for any of them, or nothing is known.
    pub(super) fn time_after(&self, before: usize) -> Option<Duration> {
        let rounds = u32::try_from(before / self.rules.lanes).unwrap_or(u32::MAX);
        let each = self.pace.each(self.rules.items_max).filter(|_| rounds > 0)?;
        Some(each.saturating_mul(rounds.saturating_add(1)))
    }

    // Every change is whole between any two statements that hold the lock.
    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a request, and says whether its task is to gather the next batch.
    fn push(&self, request: Request, gone: &Arc<AtomicBool>) -> (oneshot::Receiver<Reply>, u64, bool) {
        let (reply, answer) = oneshot::channel();
        let items = request.inputs.items.unwrap_or(1);
        let queued = Some(request.lease.serving().series().queued());
        let gone = Arc::clone(gone);
        let client = request.charge.client();
        let mut line = self.line();
        line.turns.arrived(client);
        line.bulk_waiting += usize::from(self.is_bulk(items));
        let ticket = line.tickets;
        line.tickets += 1;
        line.items += items;
        line.waiting.push_back(Waiting { request, items, since: Instant::now(), gone, reply, ticket, queued });
        let is_hasty = line.waiting.back().is_some_and(|it| self.company_until(it) < it.since + self.rules.delay_max);
        if line.gathered && (line.items >= self.rules.items_max || is_hasty) {
            self.stir.notify_one();
        }
        let gathers = self.is_wanted(&line);
        line.gathered |= gathers;
        (answer, ticket, gathers)
    }

    /// Whether somebody must gather a batch.
    fn is_wanted(&self, line: &Line) -> bool {
        let quick = line.waiting.len() - line.bulk_waiting;
        let can_run = quick > 0 || (line.bulk_waiting > 0 && line.bulk_running < self.bulk_lanes);
        !line.gathered && can_run && line.busy < self.rules.lanes
    }

    /// Whether a request of so many items is a bulk request: more than one batch, which are computed one after the other.
    fn is_bulk(&self, items: usize) -> bool {
        items > self.rules.items_max
    }

    /// Takes the next request out whose turn it is, of those that may run now.
    fn pop(&self, line: &mut Line, is_wanted: impl Fn(&Waiting) -> bool) -> Option<Waiting> {
        let no_bulk = line.bulk_running >= self.bulk_lanes;
        let candidates = line.waiting.iter().enumerate().filter(|(_, it)| !(no_bulk && self.is_bulk(it.items)));
        let at = line.turns.next(candidates.map(|(at, it)| (at, it.request.charge.client())))?;
        if !is_wanted(&line.waiting[at]) {
            return None;
        }
        self.remove(line, at, true)
    }

    /// Takes a request out, to be computed or because it was withdrawn.
    fn remove(&self, line: &mut Line, at: usize, is_computed: bool) -> Option<Waiting> {
        let waiting = line.waiting.remove(at)?;
        line.items -= waiting.items;
        line.bulk_waiting -= usize::from(self.is_bulk(waiting.items));
        line.turns.left(waiting.request.charge.client(), if is_computed { waiting.items } else { 0 });
        Some(waiting)
    }

    /// Takes a request out that has not been computed yet. False where it has.
    fn withdraw(&self, ticket: u64) -> bool {
        let mut line = self.line();
        let Some(at) = line.waiting.iter().position(|waiting| waiting.ticket == ticket) else { return false };
        let waiting = self.remove(&mut line, at, false);
        drop(line);
        // Lets go of the version, which takes a lock of its own.
        drop(waiting);
        true
    }

    /// Until when a request waits for company: the rest of its time is for computing it.
    fn company_until(&self, waiting: &Waiting) -> Instant {
        let time = waiting.request.until.saturating_duration_since(waiting.since);
        waiting.since + self.rules.delay_max.min(time / 2)
    }

    /// Waits for company while the model is busy and there is room for some.
    async fn company(&self) {
        if self.rules.delay_max.is_zero() {
            return;
        }
        loop {
            let until = {
                let line = self.line();
                if line.busy == 0 || line.draining || line.items >= self.rules.items_max {
                    return;
                }
                let Some(until) = line.waiting.iter().map(|it| self.company_until(it)).min() else { return };
                until
            };
            if timeout_at(until.into(), self.stir.notified()).await.is_err() {
                return;
            }
        }
    }

    /// The next batch, and why it goes.
    fn take(&self, line: &mut Line) -> Option<(Vec<Waiting>, Release)> {
        let first = self.pop(line, |_| true)?;
        let items_max = self.rules.items_max;
        let mut items = first.items;
        let mut batch = vec![first];
        let mut full = items >= items_max;
        if !batch[0].is_alone() {
            while let Some(next) = self.pop(line, |next| !next.is_alone() && items + next.items <= items_max) {
                items += next.items;
                batch.push(next);
            }
            full |= items >= items_max || line.waiting.front().is_some_and(|next| !next.is_alone());
        }
        batch.iter_mut().for_each(|waiting| waiting.queued = None);
        let release = match (full, line.busy, line.draining) {
            (true, ..) => Release::Full,
            (_, _, true) => Release::Draining,
            (_, 0, _) => Release::Idle,
            _ => Release::Deadline,
        };
        Some((batch, release))
    }
}

/// The duty to take the next batch. Where it is dropped without, as when the request that had it was given up, another
/// task gets it.
struct Gathering {
    serving: Option<Arc<Serving>>,
    /// Whether it is a task's own, which is given up with the runtime alone.
    handed_over: bool,
}

impl Gathering {
    fn new(serving: &Arc<Serving>) -> Gathering {
        Gathering { serving: Some(Arc::clone(serving)), handed_over: false }
    }

    /// Gathers a batch and starts it. Runs it at once, in the place of this task, where that is known to be quick.
    async fn lead(mut self) {
        // Whoever is ready to ask joins first: the runtime polls them, and their connections, before this goes on.
        tokio::task::yield_now().await;
        if let Some(serving) = &self.serving {
            serving.queue().company().await;
        }
        let Some(serving) = self.serving.take() else { return };
        let queue = serving.queue();
        let mut line = queue.line();
        line.gathered = false;
        let Some((batch, release)) = queue.take(&mut line) else { return };
        line.busy += 1;
        let is_bulk = batch.first().is_some_and(|first| queue.is_bulk(first.items));
        line.bulk_running += usize::from(is_bulk);
        let more = queue.is_wanted(&line);
        line.gathered |= more;
        drop(line);
        if more {
            Gathering::new(&serving).hand_over();
        }
        serving.series().released(release, batch.iter().map(|waiting| waiting.items).sum());
        batch::start(Lane { serving: Arc::clone(&serving), is_bulk }, batch);
    }

    /// Has another task do it.
    fn hand_over(mut self) {
        self.handed_over = true;
        if let Some(serving) = &self.serving {
            let runtime = serving.queue().runtime.clone();
            runtime.spawn(self.lead());
        }
    }
}

impl Drop for Gathering {
    fn drop(&mut self) {
        if let Some(serving) = self.serving.take().filter(|_| !self.handed_over) {
            Gathering::new(&serving).hand_over();
        }
    }
}

/// A batch that runs. When it is dropped, the next one may.
pub(super) struct Lane {
    serving: Arc<Serving>,
    is_bulk: bool,
}

impl Lane {
    pub(super) fn serving(&self) -> &Arc<Serving> {
        &self.serving
    }

    /// Runs `work` on a thread that may block.
    pub(super) fn block(self, work: impl FnOnce(Lane) + Send + 'static) {
        let runtime = self.serving.queue().runtime.clone();
        guest_threads::spawn(&runtime, move || work(self));
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        let queue = self.serving.queue();
        let mut line = queue.line();
        line.busy -= 1;
        line.bulk_running -= usize::from(self.is_bulk);
        let wanted = queue.is_wanted(&line);
        line.gathered |= wanted;
        let idle = line.busy == 0 && line.gathered;
        drop(line);
        if idle {
            queue.stir.notify_one();
        }
        if wanted {
            Gathering::new(&self.serving).hand_over();
        }
    }
}

/// Says that nobody waits any more, however that came about.
struct Leaving(Arc<AtomicBool>);

impl Drop for Leaving {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Waits for a request's turn and its result. Dropping the future withdraws the request: at once where it waits, at the
/// next dispatch where it is computed alone.
///
/// # Errors
/// `DeadlineQueued` and `Plugin(Deadline)` where the time is over; whatever the plugin does wrong.
pub(crate) async fn compute(request: Request) -> Result<(Computed, MemoryCharge), ApiError> {
    let (until, limit) = (request.until, request.limit);
    let serving = Arc::clone(request.lease.serving());
    let leaving = Leaving(Arc::new(AtomicBool::new(false)));
    let (answer, ticket, gathers) = serving.queue().push(request, &leaving.0);
    let withdrawing = Withdrawing { serving: &serving, ticket: Some(ticket) };
    if gathers {
        Gathering::new(&serving).lead().await;
    }
    let answer = timeout_at(until.into(), answer).await;
    match answer {
        Ok(Ok(result)) => {
            withdrawing.done();
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
struct Withdrawing<'s> {
    serving: &'s Arc<Serving>,
    ticket: Option<u64>,
}

impl Withdrawing<'_> {
    fn done(mut self) {
        self.ticket = None;
    }
}

impl Drop for Withdrawing<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            self.serving.queue().withdraw(ticket);
        }
    }
}

//! The threads of the CPU device. Work is split into tasks by its shape alone, never by the number of threads, and
//! tasks write disjoint memory. Any number of threads therefore gives the same bits.

mod thread_pool;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use thread_pool::{ThreadPool, WakePolicy};

use super::vector::{VectorSet, set_thread_vectors};
use super::{cancel, thread_scratch};
use saggar_device::cancel::CancelToken;
use saggar_device::error::DeviceError;

/// Operations (an instruction on an element, a multiply-add) below which work is not shared with other threads.
pub(super) const PARALLEL_OPERATIONS_MIN: usize = 1 << 16;
/// Operations of a short program per additional thread.
const HELPER_OPERATIONS: usize = 1 << 20;
/// Time in nanoseconds after a dispatch within which the next one counts as a follow-up, so that more are likely to
/// come.
const FOLLOW_UP_NANOS_MAX: u64 = 50_000;

/// The calling thread and its pool, or the calling thread alone.
#[derive(Debug)]
pub(super) struct CpuThreads {
    pool: Option<Arc<ThreadPool>>,
    wake: WakePolicy,
    count: usize,
    vectors: Option<VectorSet>,
    /// Checked before every task, and inside long ones.
    cancel: CancelToken,
    /// Operations that were run through this value.
    operations: AtomicUsize,
    /// Programs that run now, on these threads or on their callers' threads.
    running: AtomicUsize,
    since: Instant,
    /// Nanoseconds from `since` to the end of the newest program.
    ended: AtomicU64,
}

/// A running program, until it is dropped.
#[derive(Debug)]
pub(super) struct RunningProgram<'a> {
    threads: &'a CpuThreads,
    crowded: bool,
    follows: bool,
}

impl RunningProgram<'_> {
    /// Returns whether other programs occupied at least half of the cores when this one began, so that sharing its
    /// work would take more threads than there are cores.
    pub(super) fn is_crowded(&self) -> bool {
        self.crowded
    }

    /// Returns the threads for a short program of `operations`. Waking a thread takes longer than such a program saves,
    /// so only threads that are awake take part. During a sequence of follow-up dispatches, threads are woken once and
    /// stay awake.
    pub(super) fn threads_for_short_program(&self, operations: usize) -> CpuThreads {
        let team = self.threads.pool.as_ref().filter(|_| !self.crowded);
        if let Some(team) = team
            && self.follows
        {
            team.wake(operations / HELPER_OPERATIONS);
        }
        let team = team.filter(|team| team.is_awake()).cloned();
        CpuThreads { pool: team, wake: WakePolicy::Nobody, ..self.threads.with_operation_counter() }
    }
}

impl Drop for RunningProgram<'_> {
    fn drop(&mut self) {
        thread_scratch::release_scratch(self.threads.count);
        self.threads.running.fetch_sub(1, Ordering::Relaxed);
        self.threads.ended.store(self.threads.elapsed_nanos(), Ordering::Relaxed);
    }
}

impl CpuThreads {
    /// Starts `count` threads, including the caller's, or one per core if `None`. They compute with `vectors`, or the
    /// widest available if `None`.
    ///
    /// # Errors
    /// Returns `Unsupported` if the system cannot start threads.
    pub(super) fn new(count: Option<usize>, vectors: Option<VectorSet>) -> Result<CpuThreads, DeviceError> {
        let cores = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let count = count.unwrap_or_else(cores).clamp(1, THREADS_MAX);
        if count == 1 {
            return Ok(CpuThreads { vectors, ..CpuThreads::single_threaded() });
        }
        let team = ThreadPool::new(count - 1, move || set_thread_vectors(vectors)).map_err(|error| {
            DeviceError::Unsupported {
                device: "cpu".to_owned(),
                kernel: "threads".to_owned(),
                reason: error.to_string(),
            }
        })?;
        Ok(CpuThreads { pool: Some(Arc::new(team)), count, vectors, ..CpuThreads::single_threaded() })
    }

    /// Returns the calling thread alone.
    pub(super) fn single_threaded() -> CpuThreads {
        CpuThreads {
            pool: None,
            wake: WakePolicy::Sleepers,
            count: 1,
            vectors: None,
            cancel: CancelToken::never(),
            operations: AtomicUsize::new(0),
            running: AtomicUsize::new(0),
            since: Instant::now(),
            ended: AtomicU64::new(0),
        }
    }

    /// Returns the same threads with a separate count of operations, for one dispatch.
    pub(super) fn with_operation_counter(&self) -> CpuThreads {
        CpuThreads {
            pool: self.pool.clone(),
            count: self.count,
            vectors: self.vectors,
            ..CpuThreads::single_threaded()
        }
    }

    /// Returns the same threads, which cancel tasks when `cancel` is cancelled.
    pub(super) fn with_cancel(self, cancel: &CancelToken) -> CpuThreads {
        CpuThreads { cancel: cancel.clone(), ..self }
    }

    /// Returns the operations that were run so far.
    pub(super) fn operations(&self) -> usize {
        self.operations.load(Ordering::Relaxed)
    }

    /// Counts a program that begins to run.
    pub(super) fn start_program(&self) -> RunningProgram<'_> {
        let others = self.running.fetch_add(1, Ordering::Relaxed);
        let ended = self.ended.load(Ordering::Relaxed);
        let follows = ended > 0 && self.elapsed_nanos().saturating_sub(ended) <= FOLLOW_UP_NANOS_MAX;
        RunningProgram { threads: self, crowded: 2 * others >= self.count, follows }
    }

    fn elapsed_nanos(&self) -> u64 {
        u64::try_from(self.since.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Returns the number of threads.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Returns the vectors that these threads compute with. A caller computes too, so it must use
    /// [`with_vectors`](super::vector::with_vectors).
    pub(super) fn vectors(&self) -> Option<VectorSet> {
        self.vectors
    }

    /// Runs `f` on every task: on all threads if `operations` (of all tasks together) are worth it, else in order.
    /// Unwinds if the tasks are cancelled.
    pub(super) fn for_each<T: Send>(&self, operations: usize, tasks: Vec<T>, f: impl Fn(T) + Send + Sync) {
        self.operations.fetch_add(operations, Ordering::Relaxed);
        if self.cancel.is_never() || operations < PARALLEL_OPERATIONS_MIN {
            return self.run_all(operations, tasks, f);
        }
        let is_given_up = AtomicBool::new(false);
        self.run_all(operations, tasks, |task| {
            if is_given_up.load(Ordering::Relaxed) || self.cancel.is_cancelled() {
                is_given_up.store(true, Ordering::Relaxed);
            } else {
                cancel::with_token(&self.cancel, || f(task));
            }
        });
        if is_given_up.into_inner() {
            cancel::unwind_cancelled();
        }
    }

    fn run_all<T: Send>(&self, operations: usize, tasks: Vec<T>, f: impl Fn(T) + Send + Sync) {
        match &self.pool {
            Some(team) if tasks.len() > 1 && operations >= PARALLEL_OPERATIONS_MIN => {
                let tasks: Vec<Mutex<Option<T>>> = tasks.into_iter().map(|task| Mutex::new(Some(task))).collect();
                team.for_each(tasks.len(), self.wake, &|index| {
                    let task = tasks[index].lock().take();
                    f(task.expect("the pool runs each task once"));
                });
            }
            Some(_) | None => tasks.into_iter().for_each(f),
        }
    }
}

/// Maximum number of threads. More only add waiting.
const THREADS_MAX: usize = 256;

//! The backend's own threads. Work is cut into tasks by its shape alone, never by the number of threads, and tasks
//! write disjoint memory: so any number of threads gives the same bits.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rayon::iter::{IndexedParallelIterator as _, IntoParallelIterator as _, ParallelIterator as _};

use super::vector::{VectorSet, choose};
use crate::error::DeviceError;

/// Work below this many operations (an element's instruction, a multiply-add) is not worth waking a thread for.
pub(super) const PARALLEL_OPERATIONS_MIN: usize = 1 << 16;

/// A pool, or the caller alone.
#[derive(Debug)]
pub(super) struct Threads {
    pool: Option<Arc<rayon::ThreadPool>>,
    count: usize,
    vectors: Option<VectorSet>,
    /// Operations that were done with this value.
    operations: AtomicUsize,
    /// Programs that run now, on these threads or on their callers'.
    running: AtomicUsize,
}

/// A program that runs, until it is dropped.
#[derive(Debug)]
pub(super) struct Running<'a> {
    running: &'a AtomicUsize,
    crowded: bool,
}

impl Running<'_> {
    /// Whether so many others ran when it began that there would be more threads than cores if each took some.
    pub(super) fn is_crowded(&self) -> bool {
        self.crowded
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.running.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Threads {
    /// `count` threads that compute with `vectors`, none being the widest; no count is the processor's number of cores.
    ///
    /// # Errors
    /// `Unsupported` where the system starts no threads.
    pub(super) fn new(count: Option<usize>, vectors: Option<VectorSet>) -> Result<Threads, DeviceError> {
        let cores = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let count = count.unwrap_or_else(cores).clamp(1, THREADS_MAX);
        if count == 1 {
            return Ok(Threads { vectors, ..Threads::alone() });
        }
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(count)
            .thread_name(|index| format!("saggar-cpu-{index}"))
            .start_handler(move |_| choose(vectors))
            .build()
            .map_err(|error| DeviceError::Unsupported {
                device: "cpu".to_owned(),
                kernel: "threads".to_owned(),
                reason: error.to_string(),
            })?;
        Ok(Threads { pool: Some(Arc::new(pool)), count, vectors, ..Threads::alone() })
    }

    /// The caller alone.
    pub(super) fn alone() -> Threads {
        Threads { pool: None, count: 1, vectors: None, operations: AtomicUsize::new(0), running: AtomicUsize::new(0) }
    }

    /// The same threads, to count the operations of one dispatch.
    pub(super) fn counting(&self) -> Threads {
        Threads { pool: self.pool.clone(), count: self.count, vectors: self.vectors, ..Threads::alone() }
    }

    /// The operations that were done so far.
    pub(super) fn operations(&self) -> usize {
        self.operations.load(Ordering::Relaxed)
    }

    /// Counts a program that begins to run.
    pub(super) fn running(&self) -> Running<'_> {
        let others = self.running.fetch_add(1, Ordering::Relaxed);
        Running { running: &self.running, crowded: 2 * others >= self.count }
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// What they compute with, and a caller that computes in their place must: [`under`](super::vector::under).
    pub(super) fn vectors(&self) -> Option<VectorSet> {
        self.vectors
    }

    /// Runs `f` where [`Threads::each`] need not wake the pool first.
    pub(super) fn enter<R: Send>(&self, f: impl FnOnce() -> R + Send) -> R {
        match &self.pool {
            Some(pool) => pool.install(f),
            None => f(),
        }
    }

    /// Runs `f` on every task: at once where `operations` (of all tasks together) are worth it, else in order.
    pub(super) fn each<T: Send>(&self, operations: usize, tasks: Vec<T>, f: impl Fn(T) + Send + Sync) {
        self.operations.fetch_add(operations, Ordering::Relaxed);
        match &self.pool {
            Some(pool) if tasks.len() > 1 && operations >= PARALLEL_OPERATIONS_MIN => {
                pool.install(|| tasks.into_par_iter().with_max_len(1).for_each(f));
            }
            Some(_) | None => tasks.into_iter().for_each(f),
        }
    }
}

/// More threads than this only add waiting.
const THREADS_MAX: usize = 256;

//! A thread pool for tasks of a calling thread. A kernel takes some ten microseconds, less than waking a thread, and
//! the next one begins immediately. So the caller works too, and an idle pool thread (helper) spins for a while before
//! it sleeps.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

/// Time that an idle helper spins before it sleeps: longer than the gap between two kernels, and between follow-up
/// dispatches.
const IDLE_MAX: Duration = Duration::from_micros(100);
/// Checks of a spinning thread before it yields its core.
const SPINS_PER_YIELD: usize = 64;
/// Yields of a caller that waits for its last tasks, before it sleeps.
const YIELDS_MAX: usize = 256;

/// A pool of helpers, which are joined when it is dropped.
#[derive(Debug)]
pub(super) struct ThreadPool {
    shared: Arc<PoolState>,
    helpers: Vec<JoinHandle<()>>,
}

/// Whether sleeping helpers are woken for a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WakePolicy {
    /// Wake as many as there are tasks for.
    Sleepers,
    /// Wake none: only helpers that are awake take part.
    Nobody,
}

#[derive(Debug, Default)]
struct PoolState {
    /// Jobs that can have untaken tasks.
    jobs: Mutex<Vec<Arc<ParallelJob>>>,
    /// Changes with every job, and when the pool ends. Written under the lock.
    jobs_posted: AtomicUsize,
    /// Number of sleeping helpers. Written under the lock.
    asleep: AtomicUsize,
    wake: Condvar,
    /// Written and read under the lock.
    ended: AtomicBool,
}

impl ThreadPool {
    /// Starts `count` helpers, each of which calls `begin` first.
    ///
    /// # Errors
    /// Returns the system's error if it cannot start threads.
    pub(super) fn new(count: usize, begin: impl Fn() + Clone + Send + 'static) -> std::io::Result<ThreadPool> {
        let mut team = ThreadPool { shared: Arc::default(), helpers: Vec::with_capacity(count) };
        for index in 0..count {
            let (shared, begin) = (Arc::clone(&team.shared), begin.clone());
            let builder = std::thread::Builder::new().name(format!("saggar-cpu-{index}"));
            team.helpers.push(builder.spawn(move || {
                begin();
                shared.run_helper(index + 1);
            })?);
        }
        Ok(team)
    }

    /// Returns whether any helper would take part in a job without being woken.
    pub(super) fn is_awake(&self) -> bool {
        self.shared.asleep.load(Ordering::Relaxed) < self.helpers.len()
    }

    /// Wakes up to `count` helpers for jobs that are about to come.
    pub(super) fn wake(&self, count: usize) {
        let asleep = self.shared.asleep.load(Ordering::Relaxed);
        for _ in 0..count.min(self.helpers.len()).min(asleep) {
            self.shared.wake.notify_one();
        }
    }

    /// Calls `run` once with each number below `tasks`, on this thread and on helpers. Returns when all calls have
    /// returned. If a call panics, the panic resumes here when the others have returned.
    pub(super) fn for_each(&self, tasks: usize, wake: WakePolicy, run: &(dyn Fn(usize) + Sync)) {
        let job = Arc::new(ParallelJob::new(tasks, self.helpers.len() + 1, run));
        let asleep = {
            let mut jobs = self.shared.lock_jobs();
            jobs.push(Arc::clone(&job));
            self.shared.jobs_posted.fetch_add(1, Ordering::Relaxed);
            self.shared.asleep.load(Ordering::Relaxed)
        };
        if wake == WakePolicy::Sleepers {
            for _ in 0..asleep.min(tasks - 1) {
                self.shared.wake.notify_one();
            }
        }
        job.run_tasks(0);
        self.shared.lock_jobs().retain(|other| !Arc::ptr_eq(other, &job));
        job.wait_until_done();
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        {
            let _jobs = self.shared.lock_jobs();
            self.shared.ended.store(true, Ordering::Relaxed);
            self.shared.jobs_posted.fetch_add(1, Ordering::Relaxed);
        }
        self.shared.wake.notify_all();
        for helper in self.helpers.drain(..) {
            // A helper can drop the pool itself, with the last handle in its last task. It cannot join itself.
            if helper.thread().id() != std::thread::current().id() {
                let _ = helper.join();
            }
        }
    }
}

impl PoolState {
    /// The list stays valid if a thread panics, so poison is ignored.
    fn lock_jobs(&self) -> MutexGuard<'_, Vec<Arc<ParallelJob>>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs the loop of a helper.
    fn run_helper(&self, member: usize) {
        loop {
            let (job, seen) = {
                let jobs = self.lock_jobs();
                // Must be checked under the lock. Otherwise the pool could end between this check and the read of
                // `jobs_posted`, and the helper would take that change for a known job and sleep through it.
                if self.ended.load(Ordering::Relaxed) {
                    return;
                }
                (jobs.iter().find(|job| job.has_tasks()).cloned(), self.jobs_posted.load(Ordering::Relaxed))
            };
            match job {
                Some(job) => job.run_tasks(member),
                None => self.wait_for_job(seen),
            }
        }
    }

    /// Spins for a while for a job after those `seen`, then sleeps until there is one.
    fn wait_for_job(&self, seen: usize) {
        let since = Instant::now();
        while since.elapsed() < IDLE_MAX {
            for _ in 0..SPINS_PER_YIELD {
                if self.jobs_posted.load(Ordering::Relaxed) != seen {
                    return;
                }
                std::hint::spin_loop();
            }
            std::thread::yield_now();
        }
        let jobs = self.lock_jobs();
        if self.jobs_posted.load(Ordering::Relaxed) == seen {
            self.asleep.fetch_add(1, Ordering::Relaxed);
            // A spurious wake-up only makes it spin for a while and sleep again.
            drop(self.wake.wait(jobs));
            self.asleep.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Numbered tasks that a caller waits for.
struct ParallelJob {
    tasks: usize,
    /// A share of adjacent tasks per thread. A thread begins with its own share, so that data that one kernel left in
    /// its core's cache is reused by the next one.
    shares: Vec<JobShare>,
    /// Tasks that have returned.
    done: AtomicUsize,
    run: BorrowedTask,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    caller: Thread,
}

/// Some tasks of a job, on a separate cache line.
#[repr(align(64))]
struct JobShare {
    /// The next untaken task, if it is below `end`.
    next: AtomicUsize,
    end: usize,
}

impl std::fmt::Debug for ParallelJob {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ParallelJob").field("tasks", &self.tasks).finish_non_exhaustive()
    }
}

impl ParallelJob {
    fn new(tasks: usize, members: usize, run: &(dyn Fn(usize) + Sync)) -> ParallelJob {
        let count = members.min(tasks);
        let share = |at: usize| JobShare { next: AtomicUsize::new(at * tasks / count), end: (at + 1) * tasks / count };
        ParallelJob {
            tasks,
            shares: (0..count).map(share).collect(),
            done: AtomicUsize::new(0),
            run: BorrowedTask::new(run),
            panic: Mutex::default(),
            caller: std::thread::current(),
        }
    }

    fn has_tasks(&self) -> bool {
        self.shares.iter().any(|share| share.next.load(Ordering::Relaxed) < share.end)
    }

    /// Runs tasks until none is untaken: first the thread's own share, then the others.
    fn run_tasks(&self, member: usize) {
        let own = member % self.shares.len();
        let (others, mine) = self.shares.split_at(own);
        for share in mine.iter().chain(others) {
            while share.next.load(Ordering::Relaxed) < share.end {
                let task = share.next.fetch_add(1, Ordering::Relaxed);
                if task < share.end {
                    self.run_task(task);
                }
            }
        }
    }

    fn run_task(&self, task: usize) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.run.call(task))) {
            self.panic.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(panic);
        }
        if self.done.fetch_add(1, Ordering::AcqRel) + 1 == self.tasks {
            self.caller.unpark();
        }
    }

    /// Waits for the tasks that other threads took.
    fn wait_until_done(&self) {
        let mut offers = 0;
        while self.done.load(Ordering::Acquire) < self.tasks {
            for _ in 0..SPINS_PER_YIELD {
                if self.done.load(Ordering::Acquire) == self.tasks {
                    break;
                }
                std::hint::spin_loop();
            }
            if offers == YIELDS_MAX {
                std::thread::park();
            } else {
                std::thread::yield_now();
                offers += 1;
            }
        }
        if let Some(panic) = self.panic.lock().unwrap_or_else(PoisonError::into_inner).take() {
            resume_unwind(panic);
        }
    }
}

/// A caller's task function, without the lifetime of its borrows.
struct BorrowedTask(*const (dyn Fn(usize) + Sync));

#[expect(unsafe_code, reason = "pool threads outlive the call whose borrows they use")]
// SAFETY: the function is `Sync`, so it can be called from any thread. `call` ensures that it is still alive.
unsafe impl Send for BorrowedTask {}
#[expect(unsafe_code, reason = "pool threads outlive the call whose borrows they use")]
// SAFETY: as for `Send`.
unsafe impl Sync for BorrowedTask {}

impl BorrowedTask {
    #[expect(unsafe_code, reason = "pool threads outlive the call whose borrows they use")]
    fn new<'a>(run: &'a (dyn Fn(usize) + Sync + 'a)) -> BorrowedTask {
        // SAFETY: only the lifetime changes, and a raw pointer does not promise validity.
        BorrowedTask(unsafe {
            std::mem::transmute::<*const (dyn Fn(usize) + Sync + 'a), *const (dyn Fn(usize) + Sync + 'static)>(run)
        })
    }

    /// Calls the function. The task must be taken from the job and not be counted as done yet.
    #[expect(unsafe_code, reason = "pool threads outlive the call whose borrows they use")]
    fn call(&self, task: usize) {
        // SAFETY: `ThreadPool::for_each`, which borrows it, returns only when all of a job's tasks are done; this one
        // is not.
        unsafe { (*self.0)(task) }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;

    fn thread_pool(helpers: usize) -> ThreadPool {
        ThreadPool::new(helpers, || {}).unwrap()
    }

    #[test]
    fn every_task_runs_once_whether_helpers_sleep_or_not() {
        for helpers in [0, 1, 3] {
            let team = thread_pool(helpers);
            for round in 0..200 {
                let wake = if round % 3 == 0 { WakePolicy::Sleepers } else { WakePolicy::Nobody };
                let runs: Vec<AtomicU32> = (0..round % 17 + 1).map(|_| AtomicU32::new(0)).collect();
                team.for_each(runs.len(), wake, &|task| {
                    runs[task].fetch_add(1, Ordering::Relaxed);
                });
                assert!(runs.iter().all(|runs| runs.load(Ordering::Relaxed) == 1), "{helpers} helpers, round {round}");
            }
        }
    }

    #[test]
    fn concurrent_callers_and_nested_jobs_share_the_helpers() {
        let team = thread_pool(2);
        let total = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        team.for_each(5, WakePolicy::Sleepers, &|_| {
                            team.for_each(3, WakePolicy::Sleepers, &|_| {
                                total.fetch_add(1, Ordering::Relaxed);
                            });
                        });
                    }
                });
            }
        });
        assert_eq!(total.into_inner(), 4 * 50 * 5 * 3);
    }

    #[test]
    fn a_task_panic_reaches_the_caller_and_helpers_keep_running() {
        let team = thread_pool(2);
        for _ in 0..20 {
            let ran = AtomicU32::new(0);
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                team.for_each(8, WakePolicy::Sleepers, &|task| {
                    ran.fetch_add(1, Ordering::Relaxed);
                    assert!(task != 5, "task five");
                });
            }));
            let panic = outcome.unwrap_err();
            assert_eq!(panic.downcast_ref::<&str>(), Some(&"task five"));
            assert_eq!(ran.into_inner(), 8);
        }
    }

    #[test]
    fn dropping_the_pool_joins_helpers_in_any_state() {
        for round in 0..3000 {
            let team = thread_pool(2);
            if round % 2 == 0 {
                team.for_each(3, WakePolicy::Sleepers, &|_| {});
            }
            // Some pools end while helpers start, some while they spin, some while they go to sleep.
            for _ in 0..round % 300 {
                std::hint::spin_loop();
            }
        }
    }

    #[test]
    fn sleeping_helpers_are_woken_for_a_job() {
        let team = thread_pool(1);
        let here = std::thread::current().id();
        for _ in 0..20 {
            while team.is_awake() {
                std::thread::yield_now();
            }
            // The caller waits in its task for the helper, so the helper must be woken.
            let other = AtomicBool::new(false);
            team.for_each(2, WakePolicy::Sleepers, &|_| {
                if std::thread::current().id() != here {
                    other.store(true, Ordering::Relaxed);
                }
                while !other.load(Ordering::Relaxed) {
                    std::thread::yield_now();
                }
            });
            assert!(other.into_inner());
        }
    }
}

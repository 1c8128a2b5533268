//! Long computations at a lower scheduling priority than request handling.

use std::panic::resume_unwind;
use std::thread;

/// Wraps `work` so that it runs on a new thread with a lower scheduling priority. The calling thread, which must be
/// allowed to block, waits for it. A panic of `work` is propagated to the caller.
pub(crate) fn at_low_priority<A: Sync + ?Sized, T: Send>(
    work: impl FnOnce(&A) -> T + Send,
) -> impl FnOnce(&A) -> T + Send {
    move |argument| {
        let run = || {
            // Linux sets the niceness of the calling thread. Other systems would set that of the whole process.
            #[cfg(target_os = "linux")]
            let _ = rustix::process::nice(saggar_plugin::limits::BACKGROUND_NICENESS);
            work(argument)
        };
        thread::scope(|scope| scope.spawn(run).join()).unwrap_or_else(|panic| resume_unwind(panic))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_runs_on_another_thread_and_its_result_comes_back() {
        let here = thread::current().id();
        let there = at_low_priority(|text: &str| (text.len(), thread::current().id()))("four");
        assert_eq!(there.0, 4);
        assert_ne!(there.1, here);
    }

    #[test]
    #[should_panic(expected = "a mistake")]
    fn a_panic_reaches_the_caller() {
        at_low_priority(|()| -> () { panic!("a mistake") })(&());
    }
}

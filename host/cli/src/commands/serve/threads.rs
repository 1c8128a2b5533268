//! Checks, before a server starts, that the system lets it have its threads. A thread that cannot be started later
//! breaks whatever needed it.

use std::io;
use std::sync::mpsc;
use std::thread;

/// The threads of a server without requests and jobs, plus some for these.
const THREADS_MIN: usize = 24;

/// Starts [`THREADS_MIN`] threads at once, and ends them.
///
/// # Errors
/// Returns how many threads could be started, and the system's error for the next one.
pub(super) fn check_thread_limit() -> Result<(), (usize, io::Error)> {
    let mut waiting = Vec::with_capacity(THREADS_MIN);
    let mut refused = None;
    for at in 0..THREADS_MIN {
        let (end, released) = mpsc::channel::<()>();
        // Waits until its channel is dropped.
        match thread::Builder::new().name("trial".to_owned()).stack_size(64 << 10).spawn(move || _ = released.recv()) {
            Ok(thread) => waiting.push((end, thread)),
            Err(error) => {
                refused = Some((at, error));
                break;
            }
        }
    }
    for (end, thread) in waiting {
        drop(end);
        // The thread cannot panic.
        let _ = thread.join();
    }
    refused.map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_usual_system_allows_enough_threads() {
        assert!(super::check_thread_limit().is_ok());
    }
}

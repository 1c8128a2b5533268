//! Whether the system lets a server have its threads, looked at before it begins. A thread that cannot be started later is
//! the end of whatever needed it: a server that has few is half a server.

use std::io;
use std::sync::mpsc;
use std::thread;

/// Threads that a server without requests and jobs has, and some for these.
const THREADS_MIN: usize = 24;

/// Starts so many threads at once, and ends them.
///
/// # Errors
/// How many could be started, and what the system said of the next one.
pub(super) fn check_thread_limit() -> Result<(), (usize, io::Error)> {
    let mut waiting = Vec::with_capacity(THREADS_MIN);
    let mut refused = None;
    for at in 0..THREADS_MIN {
        let (end, told) = mpsc::channel::<()>();
        // Waits until its channel is dropped.
        match thread::Builder::new().name("trial".to_owned()).stack_size(64 << 10).spawn(move || _ = told.recv()) {
            Ok(thread) => waiting.push((end, thread)),
            Err(error) => {
                refused = Some((at, error));
                break;
            }
        }
    }
    for (end, thread) in waiting {
        drop(end);
        // It cannot panic.
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

//! The thread that requests histories, so that a slow one does not delay the screen.

use std::io;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

use crate::prometheus_history::{SeriesHistory, fetch_history};
use crate::transport::{ServerTransport, TransportError};

/// The thread, and the time that it has requested.
pub(crate) struct HistoryThread {
    requests: SyncSender<(u64, u64)>,
    covered_from_ms: Option<u64>,
}

impl HistoryThread {
    /// Starts the thread. It passes each history to `pass`, until that returns `false`.
    pub(crate) fn start(
        prometheus: Box<dyn ServerTransport>,
        hosts: Vec<String>,
        pass: impl Fn(Result<SeriesHistory, TransportError>) -> bool + Send + 'static,
    ) -> io::Result<HistoryThread> {
        let (requests, received) = sync_channel(1);
        let fetch = move || {
            while let Ok(times) = received.recv() {
                if !pass(fetch_history(&*prometheus, &hosts, times)) {
                    return;
                }
            }
        };
        thread::Builder::new().name("history".to_owned()).spawn(fetch)?;
        Ok(HistoryThread { requests, covered_from_ms: None })
    }

    /// Requests the time from `start_ms` to what was requested already, at first to `now_ms`. Does nothing if there is no
    /// such time, or if the thread is busy.
    pub(crate) fn request_from(&mut self, start_ms: u64, now_ms: u64) {
        let end = self.covered_from_ms.unwrap_or(now_ms);
        if start_ms < end && self.requests.try_send((start_ms, end)).is_ok() {
            self.covered_from_ms = Some(start_ms);
        }
    }
}

//! Polls servers in parallel: one thread for each, so that one that does not answer delays no other.

use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;

use crate::documents::{HostDocument, RefreshDocument};
use crate::host_source::{HostSample, HostSource};
use crate::poll_request::PollRequest;
use crate::series_name::SeriesSelection;

/// Receives what the threads read. Called from their threads.
pub(crate) trait SampleSink: Clone + Send + 'static {
    /// Takes what was read of the server at a position. Returns whether it is still needed.
    fn send(&self, host: usize, sample: HostSample) -> bool;
}

/// The thread of a server.
struct HostThread {
    url: String,
    requests: SyncSender<PollRequest>,
    is_busy: bool,
    is_pending: bool,
    latest: HostDocument,
}

/// The threads of all servers, and the refresh that they work on.
pub(crate) struct HostPoller {
    threads: Vec<HostThread>,
    is_open: bool,
}

impl HostPoller {
    /// Starts a thread for each source, with its URL.
    pub(crate) fn start(sources: Vec<(String, HostSource)>, sink: &impl SampleSink) -> std::io::Result<HostPoller> {
        let mut threads = Vec::new();
        for (host, (url, source)) in sources.into_iter().enumerate() {
            let (requests, received) = sync_channel(1);
            let sink = sink.clone();
            thread::Builder::new()
                .name(format!("poll-{host}"))
                .spawn(move || poll_host(host, source, &received, &sink))?;
            let latest = HostDocument { host: url.clone(), ..HostDocument::default() };
            threads.push(HostThread { url, requests, is_busy: false, is_pending: false, latest });
        }
        Ok(HostPoller { threads, is_open: false })
    }

    /// Begins a refresh. A server that has not answered the one before is left out.
    pub(crate) fn begin(&mut self, selection: &SeriesSelection, since_ms: u64) {
        self.is_open = true;
        for (host, thread) in self.threads.iter_mut().enumerate() {
            thread.is_pending = false;
            if thread.is_busy {
                continue;
            }
            let request = PollRequest { host, selection: selection.clone(), since_ms };
            thread.is_pending = !matches!(thread.requests.try_send(request), Err(TrySendError::Disconnected(_)));
            thread.is_busy = thread.is_pending;
        }
    }

    /// Records that a server answered.
    pub(crate) fn record(&mut self, host: usize, document: &HostDocument) {
        if let Some(thread) = self.threads.get_mut(host) {
            (thread.is_busy, thread.is_pending) = (false, false);
            thread.latest.clone_from(document);
        }
    }

    /// Returns whether a refresh is open and every server has answered that was asked.
    pub(crate) fn is_complete(&self) -> bool {
        self.is_open && self.threads.iter().all(|thread| !thread.is_pending)
    }

    /// Ends the refresh, if one is open, and returns what it found. Servers that have not answered are stated.
    pub(crate) fn finish(&mut self, at_ms: u64) -> Option<RefreshDocument> {
        if !std::mem::take(&mut self.is_open) {
            return None;
        }
        let document = |thread: &HostThread| match thread.is_busy {
            false => thread.latest.clone(),
            true => HostDocument {
                host: thread.url.clone(),
                error: Some("no answer yet".to_owned()),
                ..HostDocument::default()
            },
        };
        Some(RefreshDocument { at_ms, hosts: self.threads.iter().map(document).collect() })
    }
}

fn poll_host(host: usize, mut source: HostSource, requests: &Receiver<PollRequest>, sink: &impl SampleSink) {
    while let Ok(request) = requests.recv() {
        if !sink.send(host, source.poll(&request)) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::Sender;

    use super::*;
    use crate::transport::{ServerTransport, TransportError};

    #[derive(Clone)]
    struct ChannelSink(Sender<(usize, HostSample)>);

    impl SampleSink for ChannelSink {
        fn send(&self, host: usize, sample: HostSample) -> bool {
            self.0.send((host, sample)).is_ok()
        }
    }

    /// Answers once the test lets it.
    struct GatedTransport(&'static str, Receiver<()>);

    impl ServerTransport for GatedTransport {
        fn url(&self) -> &str {
            self.0
        }

        fn get(&self, path: &str, _: &[(&str, &str)]) -> Result<String, TransportError> {
            let _ = self.1.recv();
            match path {
                "/metrics" => Ok(String::new()),
                _ => Ok("{}".to_owned()),
            }
        }
    }

    #[test]
    fn a_server_that_does_not_answer_delays_no_other() {
        let (open_a, gate_a) = std::sync::mpsc::channel();
        let (open_b, gate_b) = std::sync::mpsc::channel();
        let source = |url: &'static str, gate| (url.to_owned(), HostSource::new(Box::new(GatedTransport(url, gate))));
        let (sender, samples) = std::sync::mpsc::channel();
        let sources = vec![source("http://a", gate_a), source("http://b", gate_b)];
        let mut poller = HostPoller::start(sources, &ChannelSink(sender)).unwrap();
        let selection = SeriesSelection::new(Vec::new());
        drop(open_b);
        for at_ms in [1, 2] {
            poller.begin(&selection, 0);
            let (host, sample) = samples.recv().unwrap();
            poller.record(host, &sample.document);
            assert_eq!((host, poller.is_complete()), (1, at_ms == 2), "the first server is asked once");
            let refresh = poller.finish(at_ms).unwrap();
            let answered: Vec<bool> = refresh.hosts.iter().map(|host| host.answered).collect();
            assert_eq!((refresh.at_ms, answered), (at_ms, vec![false, true]));
            assert_eq!(refresh.hosts[0].error.as_deref(), Some("no answer yet"));
        }
        drop(open_a);
        let (host, sample) = samples.recv().unwrap();
        poller.record(host, &sample.document);
        poller.begin(&selection, 0);
        for _ in 0..2 {
            let (host, sample) = samples.recv().unwrap();
            poller.record(host, &sample.document);
        }
        assert!(poller.is_complete() && poller.finish(3).unwrap().hosts.iter().all(|host| host.answered));
        assert_eq!(poller.finish(4), None);
    }
}

//! Sends spans to a collector. Spans wait in a bounded queue, and a thread posts them, so that a collector that is down,
//! slow or refuses them costs nothing but spans. What is dropped is counted by reason, and a collector's first failure in
//! a row is logged.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use saggar_metrics::{IntCounter, MetricsRegistry};

use crate::otlp_messages::encode_request;
use crate::span::FinishedSpan;
use crate::tracing_config::TracingConfig;

/// The queue of spans. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct SpanExporter {
    shared: Arc<SpanExporterShared>,
}

#[derive(Debug)]
struct SpanExporterShared {
    queue: Mutex<SpanQueue>,
    wake: Condvar,
    drained: Condvar,
    queue_max: usize,
    batch_max: usize,
    dropped_full: IntCounter,
}

#[derive(Debug, Default)]
struct SpanQueue {
    spans: Vec<FinishedSpan>,
    is_sending: bool,
    /// Whether to send at once instead of waiting for more.
    is_flushing: bool,
}

impl SpanExporter {
    /// Starts the thread that sends spans.
    pub(crate) fn start(config: TracingConfig, metrics: &MetricsRegistry) -> std::io::Result<SpanExporter> {
        let dropped = |reason| metrics.families.trace_spans_dropped.with_label_values(&[reason]);
        let shared = Arc::new(SpanExporterShared {
            queue: Mutex::default(),
            wake: Condvar::new(),
            drained: Condvar::new(),
            queue_max: config.queue_max,
            batch_max: config.batch_max,
            dropped_full: dropped("queue_full"),
        });
        let agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .proxy(None)
            .timeout_global(Some(config.timeout))
            .user_agent(concat!("saggar/", env!("CARGO_PKG_VERSION")));
        let mut sender = SpanSender {
            agent: ureq::Agent::new_with_config(agent.build()),
            exported: metrics.families.trace_spans_exported.with_label_values(&[] as &[&str]),
            dropped_refused: dropped("refused"),
            dropped_unreachable: dropped("unreachable"),
            is_failing: false,
            config,
        };
        let exporter = SpanExporter { shared: Arc::clone(&shared) };
        let send = move || loop {
            let batch = shared.next_batch(sender.config.delay);
            sender.send(&batch);
            let mut queue = shared.queue.lock();
            queue.is_sending = false;
            if queue.spans.is_empty() {
                queue.is_flushing = false;
                shared.drained.notify_all();
            }
        };
        std::thread::Builder::new().name("spans".to_owned()).spawn(send)?;
        Ok(exporter)
    }

    /// Queues spans. Never waits. Spans beyond the queue's size are dropped.
    pub(crate) fn push(&self, spans: impl IntoIterator<Item = FinishedSpan>) {
        let shared = &self.shared;
        let mut queue = shared.queue.lock();
        let mut dropped = 0;
        for span in spans {
            match queue.spans.len() < shared.queue_max {
                true => queue.spans.push(span),
                false => dropped += 1,
            }
        }
        let is_due = queue.spans.len() >= shared.batch_max;
        drop(queue);
        shared.dropped_full.inc_by(dropped);
        if is_due {
            shared.wake.notify_one();
        }
    }

    /// Sends what waits, and returns when that is done or after `time`.
    pub(crate) fn flush(&self, time: Duration) {
        let until = Instant::now() + time;
        let mut queue = self.shared.queue.lock();
        queue.is_flushing = true;
        self.shared.wake.notify_one();
        while !queue.spans.is_empty() || queue.is_sending {
            if self.shared.drained.wait_until(&mut queue, until).timed_out() {
                return;
            }
        }
    }
}

impl SpanExporterShared {
    /// Waits until a batch is full, or for `delay` after the last one, and takes it. It is not empty.
    fn next_batch(&self, delay: Duration) -> Vec<FinishedSpan> {
        let mut queue = self.queue.lock();
        let mut due = Instant::now() + delay;
        loop {
            let is_due = Instant::now() >= due || queue.spans.len() >= self.batch_max || queue.is_flushing;
            if !queue.spans.is_empty() && is_due {
                queue.is_sending = true;
                let count = queue.spans.len().min(self.batch_max);
                return queue.spans.drain(..count).collect();
            }
            if Instant::now() >= due {
                due = Instant::now() + delay;
            }
            self.wake.wait_until(&mut queue, due);
        }
    }
}

/// Posts batches.
struct SpanSender {
    agent: ureq::Agent,
    config: TracingConfig,
    exported: IntCounter,
    dropped_refused: IntCounter,
    dropped_unreachable: IntCounter,
    is_failing: bool,
}

impl SpanSender {
    /// Posts a batch. It is not sent again if that fails: newer spans wait behind it, and time has passed already.
    fn send(&mut self, batch: &[FinishedSpan]) {
        let count = batch.len() as u64;
        let mut post = self.agent.post(&self.config.url).header("content-type", "application/x-protobuf");
        for (name, value) in &self.config.headers {
            post = post.header(name, value);
        }
        let problem = match post.send(encode_request(&self.config.resource, batch)) {
            Ok(answer) if answer.status().is_success() => {
                self.exported.inc_by(count);
                self.is_failing = false;
                return;
            }
            Ok(answer) => {
                self.dropped_refused.inc_by(count);
                format!("it answered {}", answer.status().as_u16())
            }
            Err(error) => {
                self.dropped_unreachable.inc_by(count);
                error.to_string()
            }
        };
        if !std::mem::replace(&mut self.is_failing, true) {
            tracing::warn!(url = self.config.url, problem, "the collector takes no spans; they are dropped");
        }
    }
}

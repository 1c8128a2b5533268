//! Reports the usage of an attempt to the supervisor at intervals.

use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Instant;

use saggar_device::Meter;

use super::channel::EventChannel;
use super::metering::UsageCounters;
use super::ranks::RankGroup;
use crate::limits::USAGE_INTERVAL;
use crate::protocol::{WorkerEvent, WorkerUsage};

/// The thread that reports usage.
#[derive(Debug)]
pub(super) struct UsageReporter {
    stop: mpsc::Sender<()>,
    thread: Option<JoinHandle<()>>,
}

impl UsageReporter {
    /// Reports usage, including that of `group`, every [`USAGE_INTERVAL`] until the reporter is finished, and then once
    /// more.
    pub(super) fn start(
        channel: EventChannel,
        meter: Meter,
        spending: Arc<UsageCounters>,
        began: Instant,
        group: Option<Arc<RankGroup>>,
    ) -> UsageReporter {
        let (stop, stopped) = mpsc::channel::<()>();
        let report = move || loop {
            let ended = stopped.recv_timeout(USAGE_INTERVAL) != Err(mpsc::RecvTimeoutError::Timeout);
            let own = WorkerUsage {
                gpu_seconds: meter.busy_time().as_secs_f64(),
                wall_seconds: began.elapsed().as_secs_f64(),
                gpu_bytes: if ended { 0 } else { meter.bytes() },
                gpu_bytes_peak: meter.peak_bytes(),
                dispatches: meter.dispatches(),
                submissions: meter.submissions(),
                ..WorkerUsage::default()
            };
            let others = group.as_ref().map(|group| group.usage()).unwrap_or_default();
            channel.send(&WorkerEvent::Usage(others.into_iter().fold(spending.apply_to(own), combine_usage)));
            if ended {
                return;
            }
        };
        let thread = std::thread::Builder::new().name("usage".to_owned()).spawn(report);
        UsageReporter { stop, thread: thread.ok() }
    }

    /// Sends the last report and waits for it.
    pub(super) fn finish(self) {
        drop(self.stop);
        if let Some(thread) = self.thread {
            let _ = thread.join();
        }
    }
}

/// Combines the usage of two processes that work at the same time on the same samples.
fn combine_usage(one: WorkerUsage, other: WorkerUsage) -> WorkerUsage {
    WorkerUsage {
        gpu_seconds: one.gpu_seconds + other.gpu_seconds,
        gpu_bytes: one.gpu_bytes + other.gpu_bytes,
        gpu_bytes_peak: one.gpu_bytes_peak + other.gpu_bytes_peak,
        dispatches: one.dispatches + other.dispatches,
        submissions: one.submissions + other.submissions,
        ..one
    }
}

//! Sends lines of the audit log to the records that servers have in common.
//!
//! A thread writes the lines in batches, in their order, and tries again while the database is away. The file of the audit log
//! has every line before that. Lines beyond [`AUDIT_LINES_WAITING_MAX`], and lines that wait when the process ends, are only
//! in the file, which the server's log says.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use saggar_store::records::{AuditRecords, NewAuditRow};

use crate::limits::{AUDIT_LINES_WAITING_MAX, AUDIT_RETRY_INTERVAL};

/// Lines of one transaction.
const BATCH_LINES_MAX: usize = 256;

/// What the thread is asked to do.
enum AuditOrder {
    /// Record a line, whose action was at this time.
    Record(Instant, NewAuditRow),
    /// Answer after the lines before this.
    Flush(SyncSender<()>),
}

/// The lines that are sent to the records.
#[derive(Debug)]
pub(super) struct SharedAuditLines {
    orders: SyncSender<AuditOrder>,
    records: Arc<dyn AuditRecords>,
    /// Lines that were not sent since the last message about it.
    dropped: AtomicU64,
}

impl SharedAuditLines {
    /// Starts the thread.
    ///
    /// # Errors
    /// Returns an I/O error if the system cannot start a thread.
    pub(super) fn start(records: Arc<dyn AuditRecords>) -> std::io::Result<SharedAuditLines> {
        let (orders, receiver) = sync_channel(AUDIT_LINES_WAITING_MAX);
        let writer = Arc::clone(&records);
        std::thread::Builder::new().name("audit".to_owned()).spawn(move || write_lines(&receiver, &*writer))?;
        Ok(SharedAuditLines { orders, records, dropped: AtomicU64::new(0) })
    }

    pub(super) fn records(&self) -> &dyn AuditRecords {
        &*self.records
    }

    /// Sends a line. It stays in the file alone if too many wait.
    pub(super) fn send(&self, row: NewAuditRow) {
        let sent = self.orders.try_send(AuditOrder::Record(Instant::now(), row));
        if sent.is_err() {
            if self.dropped.fetch_add(1, Ordering::Relaxed) == 0 {
                tracing::error!(
                    waiting = AUDIT_LINES_WAITING_MAX,
                    "the database is away for too long: lines of the audit log are only in the file audit.log of this server"
                );
            }
            return;
        }
        let dropped = self.dropped.swap(0, Ordering::Relaxed);
        if dropped > 0 {
            tracing::error!(dropped, "lines of the audit log are only in the file audit.log of this server");
        }
    }

    /// Waits until all lines are recorded, for a time at most. Returns whether they are.
    pub(super) fn flush(&self, max: Duration) -> bool {
        let (done, wait) = sync_channel(1);
        self.orders.try_send(AuditOrder::Flush(done)).is_ok() && wait.recv_timeout(max).is_ok()
    }
}

/// Records lines until their sender is gone.
fn write_lines(orders: &Receiver<AuditOrder>, records: &dyn AuditRecords) {
    let (mut batch, mut flushes) = (Vec::new(), Vec::new());
    let mut is_failing = false;
    loop {
        if is_failing {
            // What arrives meanwhile stays in the queue, which is bounded.
            std::thread::sleep(AUDIT_RETRY_INTERVAL);
        } else {
            let Ok(order) = orders.recv() else { return };
            take_order(order, &mut batch, &mut flushes);
            while batch.len() < BATCH_LINES_MAX
                && let Ok(order) = orders.try_recv()
            {
                take_order(order, &mut batch, &mut flushes);
            }
        }
        is_failing = !record_batch(&mut batch, records, is_failing);
        if !is_failing {
            for done in flushes.drain(..) {
                // The thread that waited may have given up.
                let _: Result<(), _> = SyncSender::try_send(&done, ());
            }
        }
    }
}

fn take_order(order: AuditOrder, batch: &mut Vec<(Instant, NewAuditRow)>, flushes: &mut Vec<SyncSender<()>>) {
    match order {
        AuditOrder::Record(at, row) => batch.push((at, row)),
        AuditOrder::Flush(done) => flushes.push(done),
    }
}

/// Records lines and empties the batch. Returns whether it did.
fn record_batch(batch: &mut Vec<(Instant, NewAuditRow)>, records: &dyn AuditRecords, was_failing: bool) -> bool {
    if batch.is_empty() {
        return true;
    }
    let aged = |(at, row): &(Instant, NewAuditRow)| {
        let age_ms = u64::try_from(at.elapsed().as_millis()).unwrap_or(u64::MAX);
        NewAuditRow { age_ms, ..row.clone() }
    };
    let rows: Vec<NewAuditRow> = batch.iter().map(aged).collect();
    match records.record_audit(&rows) {
        Ok(()) => {
            if was_failing {
                tracing::info!("the audit log is recorded in the database again");
            }
            batch.clear();
            true
        }
        Err(error) => {
            if !was_failing {
                tracing::error!(%error, "the audit log is not recorded in the database; its lines are in audit.log, and wait");
            }
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;
    use saggar_store::RecordError;
    use saggar_store::records::{AuditFilter, RecordedAuditRow};

    use super::*;

    /// Records that fail for the first tries.
    #[derive(Debug, Default)]
    struct FailingRecords {
        failures_left: Mutex<u32>,
        rows: Mutex<Vec<NewAuditRow>>,
    }

    impl AuditRecords for FailingRecords {
        fn record_audit(&self, rows: &[NewAuditRow]) -> Result<(), RecordError> {
            let mut left = self.failures_left.lock();
            if *left > 0 {
                *left -= 1;
                return Err(RecordError::NoSuchJob { job: "any error".to_owned() });
            }
            self.rows.lock().extend_from_slice(rows);
            Ok(())
        }

        fn audit_lines(&self, _: &AuditFilter) -> Result<Vec<RecordedAuditRow>, RecordError> {
            Ok(Vec::new())
        }
    }

    #[test]
    fn lines_are_recorded_once_and_in_order_after_failures() {
        let records = Arc::new(FailingRecords { failures_left: Mutex::new(2), ..FailingRecords::default() });
        let lines = SharedAuditLines::start(Arc::clone(&records) as _).unwrap();
        for at in 0..1000 {
            lines.send(NewAuditRow { subject: at.to_string(), ..NewAuditRow::default() });
        }
        assert!(lines.flush(Duration::from_secs(60)));
        let subjects: Vec<String> = records.rows.lock().iter().map(|row| row.subject.clone()).collect();
        assert_eq!(subjects, (0..1000).map(|at| at.to_string()).collect::<Vec<_>>());
        assert!(records.rows.lock()[0].age_ms >= 2 * AUDIT_RETRY_INTERVAL.as_millis() as u64);
    }
}

//! Writes to the records under the attempt's lease.

use std::sync::Arc;
use std::time::{Duration, Instant};

use saggar_store::bucket_usage::BucketCount;
use saggar_store::error::RecordError;
use saggar_store::records::{JobLease, JobRecords, MeetingPoint, PendingPublication, StateReason};

use super::AttemptRecorder;
use crate::error::JobError;
use crate::limits::LEASE_UNSURE_MAX;

/// Time between two tries of a write while the database of several servers cannot be reached.
const DATABASE_RETRY_INTERVAL: Duration = Duration::from_secs(1);

impl AttemptRecorder {
    /// Records an event of the attempt.
    pub(super) async fn record_note(&self, kind: &'static str, text: String) -> Result<(), JobError> {
        let now_ms = self.shared.clock.now_ms();
        self.with_lease(move |records, lease| records.record_attempt_event(lease, kind, &text, now_ms)).await
    }

    /// Records where the ranks of other hosts reach rank 0.
    pub(super) async fn record_meeting_point(&mut self, point: MeetingPoint) -> Result<(), JobError> {
        self.log(&format!("rank 0 waits at {} for the ranks of other hosts", point.address));
        self.with_lease(move |records, lease| records.set_meeting_point(lease, &point)).await
    }

    /// Notes a heartbeat of the worker, after which the next renewal of the lease is reported to it.
    pub(crate) fn record_heartbeat(&self, heartbeat: u64) {
        self.shared.leases.record_heartbeat(&self.lease.job, heartbeat);
    }

    /// Returns if the attempt may publish this version, or write an output without a version. Renews its lease.
    ///
    /// # Errors
    /// `Records` with `Fenced` if another server owns the job.
    pub(crate) async fn permit_write(&self, publication: Option<PendingPublication>) -> Result<(), JobError> {
        self.with_lease(move |records, lease| match &publication {
            Some(publication) => records.register_publication(lease, publication),
            None => records.renew_for_write(lease),
        })
        .await
    }

    /// Records that a version that the attempt was permitted to publish is visible.
    pub(super) async fn confirm_publication(&self, model: &str, version: u64) -> Result<(), JobError> {
        if !self.shared.records.is_shared() {
            return Ok(());
        }
        let model = model.to_owned();
        self.with_lease(move |records, _| records.confirm_publication(&model, version)).await
    }

    /// Returns the newest count of the bytes in the bucket, or `None` if they do not count.
    pub(crate) fn bucket_count(&self) -> Option<BucketCount> {
        self.shared.bucket_count()
    }

    /// Returns the reason of a request to stop the job, or `None` if there is no request.
    pub(crate) async fn stop_reason(&self) -> Result<Option<StateReason>, JobError> {
        self.with_lease(|records, lease| records.get(&lease.job).map(|job| job.stop)).await
    }

    /// Runs a function on the records with the attempt's lease. While the database of several servers cannot be reached, the
    /// attempt waits for it as long as its worker does.
    pub(super) async fn with_lease<T: Send + 'static>(
        &self,
        write: impl Fn(&dyn JobRecords, &JobLease) -> Result<T, RecordError> + Send + Sync + 'static,
    ) -> Result<T, JobError> {
        let (write, began) = (Arc::new(write), Instant::now());
        loop {
            let (write, lease) = (Arc::clone(&write), self.lease.clone());
            let written = self.shared.with_records(move |records| write(records, &lease)).await;
            let Err(JobError::Records(error @ RecordError::Database { .. })) = written else { return written };
            let waits = self.shared.records.is_shared() && !self.shared.is_closing();
            if !waits || began.elapsed() >= LEASE_UNSURE_MAX {
                return Err(JobError::Records(error));
            }
            tracing::warn!(job = %self.name, %error, "the attempt cannot be recorded; trying again");
            tokio::time::sleep(DATABASE_RETRY_INTERVAL).await;
        }
    }
}

//! What an attempt waits for before it makes something visible: it must own its job, by its lease and by the server's records.

use std::sync::Arc;

use super::channel::{EventChannel, WorkerControl};
use super::lease_guard::end_fenced;
use super::permission_client::PermissionClient;
use crate::protocol::AttemptConfig;

/// Lets an attempt write while it owns its job.
#[derive(Clone, Debug)]
pub(super) struct WriteFence {
    control: Arc<WorkerControl>,
    /// `None` if nobody else can own the job.
    permissions: Option<PermissionClient>,
}

impl WriteFence {
    /// Returns the fence of an attempt.
    pub(super) fn new(start: &AttemptConfig, channel: &EventChannel, control: &Arc<WorkerControl>) -> WriteFence {
        let permissions = PermissionClient::of_attempt(start.renews_lease, channel, control);
        WriteFence { control: Arc::clone(control), permissions }
    }

    /// Waits until the lease is certain and the server permits a write. Ends the process if another server owns the job.
    pub(super) fn wait(&self) {
        self.control.lease.wait_until_sure();
        if self.permissions.as_ref().is_some_and(|client| !client.request(None)) {
            end_if_refused(&self.control);
        }
    }
}

/// Ends the process if another server owns the job.
pub(super) fn end_if_refused(control: &WorkerControl) {
    if control.permissions.is_refused() {
        end_fenced(&"another server owns the job now");
    }
}

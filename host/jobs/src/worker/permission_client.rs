//! Asks the server for permissions to make something visible.

use std::io;
use std::sync::Arc;

use saggar_store::StoreError;
use saggar_store::models::PublicationFence;
use saggar_store::records::PendingPublication;

use super::channel::{EventChannel, WorkerControl};
use crate::protocol::WorkerEvent;

/// Asks the server for permissions.
#[derive(Clone, Debug)]
pub(super) struct PermissionClient {
    channel: EventChannel,
    control: Arc<WorkerControl>,
}

impl PermissionClient {
    /// Returns the client of an attempt, or `None` if nobody else can own its job.
    pub(super) fn of_attempt(
        renews_lease: bool,
        channel: &EventChannel,
        control: &Arc<WorkerControl>,
    ) -> Option<PermissionClient> {
        renews_lease.then(|| PermissionClient { channel: channel.clone(), control: Arc::clone(control) })
    }

    /// Asks for a permission, to publish or to write an output. Returns whether it was granted.
    pub(super) fn request(&self, publication: Option<PendingPublication>) -> bool {
        let request = self.control.permissions.next_request();
        self.channel.send(&WorkerEvent::PermissionRequested { request, publication });
        self.control.permissions.wait_for_grant(request)
    }
}

impl PublicationFence for PermissionClient {
    fn register(&self, publication: &PendingPublication) -> Result<(), StoreError> {
        if self.request(Some(publication.clone())) {
            return Ok(());
        }
        let reason = "another server owns the job, so the version is not published";
        Err(StoreError::io(&publication.model)(io::Error::new(io::ErrorKind::PermissionDenied, reason)))
    }
}

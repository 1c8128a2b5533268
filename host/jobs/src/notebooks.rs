//! The notebooks that run now. Nothing of this is recorded: after a restart of the server, the next attempt's worker says
//! where its notebook answers.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::OnceLock;

use parking_lot::Mutex;
use saggar_notebook::NotebookToken;

use crate::JobService;

/// The queue of notebooks. If the server's configuration has no such queue, notebooks are refused.
pub const NOTEBOOK_QUEUE: &str = "notebooks";

/// Where a running notebook answers requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotebookAddress {
    /// Its Unix socket.
    pub socket: PathBuf,
    /// The token that requests need.
    pub token: NotebookToken,
}

/// The running notebooks, by the name of their job, and the server that they use.
#[derive(Debug, Default)]
pub(crate) struct RunningNotebooks {
    addresses: Mutex<HashMap<String, NotebookAddress>>,
    server_url: OnceLock<String>,
}

impl RunningNotebooks {
    pub(crate) fn add(&self, job: &str, address: NotebookAddress) {
        self.addresses.lock().insert(job.to_owned(), address);
    }

    pub(crate) fn remove(&self, job: &str) {
        self.addresses.lock().remove(job);
    }

    pub(crate) fn server_url(&self) -> Option<String> {
        self.server_url.get().cloned()
    }
}

impl JobService {
    /// Returns where the notebook of the job with this name answers, or `None` if it does not run.
    pub fn running_notebook(&self, job: &str) -> Option<NotebookAddress> {
        self.shared.notebooks.addresses.lock().get(job).cloned()
    }

    /// Returns whether this server runs notebooks.
    pub fn allows_notebooks(&self) -> bool {
        self.scheduler_config().queues.contains_key(NOTEBOOK_QUEUE)
    }

    /// Sets the address by which notebooks reach this server. Only the first call has an effect.
    pub fn set_server_url(&self, url: String) {
        let _ = self.shared.notebooks.server_url.set(url);
    }
}

//! An object store for code that blocks its thread, on threads of a runtime and others.

use std::sync::mpsc;

use tokio::runtime::Handle;

use super::ObjectStorage;
use crate::error::StoreError;

/// An object store whose requests are driven by a runtime. Cheap to clone.
#[derive(Clone, Debug)]
pub struct BlockingObjects {
    objects: ObjectStorage,
    runtime: Handle,
}

impl BlockingObjects {
    /// Returns the store. `runtime` drives its requests. It needs a thread that does not call these methods, because the
    /// calling thread is blocked meanwhile.
    pub fn new(objects: ObjectStorage, runtime: Handle) -> BlockingObjects {
        BlockingObjects { objects, runtime }
    }

    /// Returns the store without its runtime.
    pub fn storage(&self) -> &ObjectStorage {
        &self.objects
    }

    /// Waits for work on the object store. Unlike `Handle::block_on`, it can be called in asynchronous tasks, such as those
    /// that write logs.
    ///
    /// # Errors
    /// Returns the error of `work`; `Interrupted` if the runtime ends meanwhile.
    pub(crate) fn wait<T: Send + 'static, W: Future<Output = Result<T, StoreError>> + Send + 'static>(
        &self,
        work: impl FnOnce(ObjectStorage) -> W,
    ) -> Result<T, StoreError> {
        let (sender, receiver) = mpsc::sync_channel(1);
        let work = work(self.objects.clone());
        self.runtime.spawn(async move {
            let _ = sender.send(work.await);
        });
        receiver.recv().unwrap_or_else(|_| Err(StoreError::Interrupted { name: self.objects.address().to_owned() }))
    }
}

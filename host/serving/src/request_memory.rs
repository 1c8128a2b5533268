//! The memory budget of requests: bodies as they arrive, their decompressed and decoded forms, queued inputs, outputs,
//! and responses that the client has not read yet.
//!
//! Bytes are charged before they are allocated, to the account of the client's key and to the whole budget. An account
//! can hold as much as is free at that moment, so that one client gets at most half of the budget, two get a third
//! each, and a new client always finds free memory. Source: Choudhury and Hahne, Dynamic queue length thresholds for
//! shared-memory packet switches, IEEE/ACM Transactions on Networking 6(2), 1998, with a factor of 1.
//!
//! The memory of models on devices is not counted here but in `device::memory_budget`.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout_at;

use crate::error::ServingError;
use crate::limits::{MEMORY_ACCOUNTS_KEPT_MAX, MEMORY_WAIT_MAX};

/// The memory budget of a server's requests. Clones share it.
#[derive(Clone, Debug)]
pub struct RequestMemoryBudget(Arc<RequestMemoryState>);

#[derive(Debug)]
struct RequestMemoryState {
    limit_bytes: u64,
    used_bytes: AtomicU64,
    /// Notified whenever bytes are released.
    released: Notify,
    /// The account of clients of this machine without a key, which send most requests to a local server.
    local: ClientMemoryAccount,
    accounts: Mutex<HashMap<ClientKey, ClientMemoryAccount>>,
}

/// The client that memory is charged to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ClientKey {
    /// All clients without a key that arrive in this way, such as through the same kind of listener.
    Shared(&'static str),
    /// The holder of the key of this name.
    Key(Arc<str>),
}

/// The account of one client. Clones share it.
#[derive(Clone, Debug)]
struct ClientMemoryAccount(Arc<ClientMemoryUsage>);

#[derive(Debug)]
struct ClientMemoryUsage {
    used_bytes: AtomicU64,
    /// One permit for each thread that can decompress, decode or compress for this client at the same time.
    threads: Arc<Semaphore>,
}

/// Bytes charged to an account until this is dropped.
#[derive(Debug)]
pub struct MemoryCharge {
    budget: RequestMemoryBudget,
    account: ClientMemoryAccount,
    bytes: u64,
}

/// Identifies a client as long as something is charged to its account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClientId(pub(crate) usize);

impl ClientMemoryAccount {
    fn new() -> ClientMemoryAccount {
        let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        ClientMemoryAccount(Arc::new(ClientMemoryUsage {
            used_bytes: AtomicU64::new(0),
            threads: Arc::new(Semaphore::new(threads)),
        }))
    }
}

impl RequestMemoryBudget {
    /// Creates a budget of `limit_bytes` for all clients together.
    pub fn new(limit_bytes: u64) -> RequestMemoryBudget {
        RequestMemoryBudget(Arc::new(RequestMemoryState {
            limit_bytes,
            used_bytes: AtomicU64::new(0),
            released: Notify::new(),
            local: ClientMemoryAccount::new(),
            accounts: Mutex::default(),
        }))
    }

    /// Returns the bytes that are charged now.
    pub fn used_bytes(&self) -> u64 {
        self.0.used_bytes.load(Ordering::Relaxed)
    }

    /// Returns the most bytes that one client can ever hold.
    fn share_bytes(&self) -> u64 {
        self.0.limit_bytes / 2
    }

    /// Returns an empty charge to this client's account. `None` is a client of this machine without a key.
    pub fn charge_for_client(&self, client: Option<ClientKey>) -> MemoryCharge {
        let account = client.map_or_else(|| self.0.local.clone(), |client| self.account(client));
        MemoryCharge { budget: self.clone(), account, bytes: 0 }
    }

    fn account(&self, client: ClientKey) -> ClientMemoryAccount {
        let mut accounts = self.0.accounts.lock();
        if let Some(account) = accounts.get(&client) {
            return account.clone();
        }
        if accounts.len() >= MEMORY_ACCOUNTS_KEPT_MAX {
            // Keys are created and revoked. An account without references is equivalent to a new one.
            accounts.retain(|_, account| Arc::strong_count(&account.0) > 1);
        }
        accounts.entry(client).or_insert_with(ClientMemoryAccount::new).clone()
    }

    /// Charges `bytes` more to `account` if they fit. Returns whether they did.
    fn try_add(&self, account: &ClientMemoryAccount, bytes: u64) -> bool {
        let used = self.0.used_bytes.fetch_add(bytes, Ordering::AcqRel).saturating_add(bytes);
        let held = account.0.used_bytes.fetch_add(bytes, Ordering::AcqRel).saturating_add(bytes);
        let fits = self.0.limit_bytes.checked_sub(used).is_some_and(|free_bytes| held <= free_bytes);
        if !fits {
            // Waiters are not notified: their attempts would fail, and they would notify each other forever.
            self.subtract(account, bytes);
        }
        fits
    }

    fn release(&self, account: &ClientMemoryAccount, bytes: u64) {
        self.subtract(account, bytes);
        self.0.released.notify_waiters();
    }

    fn subtract(&self, account: &ClientMemoryAccount, bytes: u64) {
        account.0.used_bytes.fetch_sub(bytes, Ordering::AcqRel);
        self.0.used_bytes.fetch_sub(bytes, Ordering::AcqRel);
    }
}

impl MemoryCharge {
    /// Returns the charged bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns an empty charge to the same account.
    pub fn empty_charge(&self) -> MemoryCharge {
        MemoryCharge { budget: self.budget.clone(), account: self.account.clone(), bytes: 0 }
    }

    /// Moves all charged bytes into the returned charge.
    pub fn take(&mut self) -> MemoryCharge {
        let empty = self.empty_charge();
        std::mem::replace(self, empty)
    }

    /// Returns the client that the bytes are charged to.
    pub(crate) fn client(&self) -> ClientId {
        ClientId(Arc::as_ptr(&self.account.0).addr())
    }

    /// Sets the charge to `bytes`, more or fewer than now, if they fit immediately. Otherwise changes nothing and
    /// returns false.
    pub fn try_resize(&mut self, bytes: u64) -> bool {
        if bytes > self.bytes && !self.budget.try_add(&self.account, bytes - self.bytes) {
            return false;
        }
        if bytes < self.bytes {
            self.budget.release(&self.account, self.bytes - bytes);
        }
        self.bytes = bytes;
        true
    }

    /// Sets the charge to `bytes`. Waits for others to release memory, for at most `MEMORY_WAIT_MAX` and not past
    /// `until`.
    ///
    /// # Errors
    /// Returns `MemoryShare` if `bytes` exceeds the most that one client can ever hold, and `MemoryFull` if the wait
    /// timed out.
    pub async fn resize(&mut self, bytes: u64, until: Option<Instant>) -> Result<(), ServingError> {
        if self.try_resize(bytes) {
            return Ok(());
        }
        let share_bytes = self.budget.share_bytes();
        if bytes > share_bytes {
            return Err(ServingError::MemoryShare { bytes, share_bytes });
        }
        let latest = Instant::now() + MEMORY_WAIT_MAX;
        let latest = until.map_or(latest, |until| until.min(latest));
        let budget = self.budget.clone();
        loop {
            let released = budget.0.released.notified();
            tokio::pin!(released);
            // Registered before the attempt, so that no release after it is missed.
            released.as_mut().enable();
            if self.try_resize(bytes) {
                return Ok(());
            }
            if timeout_at(latest.into(), released).await.is_err() {
                return Err(ServingError::MemoryFull);
            }
        }
    }

    /// Sets the charge like [`MemoryCharge::resize`], from a blocking thread.
    ///
    /// # Errors
    /// Returns the errors of [`MemoryCharge::resize`].
    pub fn resize_blocking(&mut self, bytes: u64, runtime: &Handle) -> Result<(), ServingError> {
        if self.try_resize(bytes) { Ok(()) } else { runtime.block_on(self.resize(bytes, None)) }
    }

    /// Acquires the permit to decompress, decode or compress on a separate thread. Each client has as many permits as
    /// there are cores. The permit moves into the work, which can outlive an abandoned request.
    ///
    /// # Errors
    /// Returns `MemoryFull` if other requests of the same client hold all permits for `MEMORY_WAIT_MAX`.
    pub async fn acquire_thread(&self) -> Result<OwnedSemaphorePermit, ServingError> {
        let threads = Arc::clone(&self.account.0.threads);
        let permit = tokio::time::timeout(MEMORY_WAIT_MAX, threads.acquire_owned()).await;
        permit.ok().and_then(Result::ok).ok_or(ServingError::MemoryFull)
    }
}

impl Drop for MemoryCharge {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.budget.release(&self.account, self.bytes);
        }
    }
}

#[cfg(test)]
mod tests;

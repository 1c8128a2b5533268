//! The memory that clients' bytes may take: bodies as they arrive, what they are expanded and decoded to, inputs that wait
//! in a queue, outputs, and answers that are not taken yet.
//!
//! Whoever is about to allocate charges the bytes first, to the account of the client's key and to the whole budget. An
//! account may hold as much as is free at that moment, so that one client gets half of the budget at most, two a third
//! each, and a newcomer always finds room. Source: Choudhury and Hahne, Dynamic queue length thresholds for shared-memory
//! packet switches, IEEE/ACM Transactions on Networking 6(2), 1998, with a factor of 1.
//!
//! Memory of models on devices is not counted here: `device::memory_budget` does that.

mod memory_estimate;
mod response_charge;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use axum::http::Extensions;
use tokio::runtime::Handle;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout_at;

use crate::access::Principal;
use crate::error::ApiError;
use crate::limits::{MEMORY_ACCOUNTS_KEPT_MAX, MEMORY_WAIT_MAX};

pub(crate) use memory_estimate::{decode_bytes_max, prediction_bytes_max};
pub(crate) use response_charge::{ResponseCharge, charge_response};

/// The budget of a server. Clones share it.
#[derive(Clone, Debug)]
pub struct RequestMemoryBudget(Arc<RequestMemoryState>);

#[derive(Debug)]
struct RequestMemoryState {
    limit_bytes: u64,
    used_bytes: AtomicU64,
    /// Notified whenever bytes are released.
    released: Notify,
    /// Of clients without a key, by far the most requests of a server on one machine.
    local: ClientMemoryAccount,
    accounts: Mutex<HashMap<Principal, ClientMemoryAccount>>,
}

/// What one client holds. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct ClientMemoryAccount(Arc<ClientMemoryUsage>);

#[derive(Debug)]
struct ClientMemoryUsage {
    used_bytes: AtomicU64,
    /// One permit for each thread that may expand, decode or compress for this client at a time.
    threads: Arc<Semaphore>,
}

/// Bytes charged to an account until this is dropped.
#[derive(Debug)]
pub(crate) struct MemoryCharge {
    budget: RequestMemoryBudget,
    account: ClientMemoryAccount,
    bytes: u64,
}

/// Tells clients apart as long as something is charged to them.
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
    /// A budget of `limit_bytes` for all clients together.
    pub fn new(limit_bytes: u64) -> RequestMemoryBudget {
        RequestMemoryBudget(Arc::new(RequestMemoryState {
            limit_bytes,
            used_bytes: AtomicU64::new(0),
            released: Notify::new(),
            local: ClientMemoryAccount::new(),
            accounts: Mutex::default(),
        }))
    }

    /// Bytes that are charged now.
    pub fn used_bytes(&self) -> u64 {
        self.0.used_bytes.load(Ordering::Relaxed)
    }

    /// The most that one client can ever hold.
    fn share_bytes(&self) -> u64 {
        self.0.limit_bytes / 2
    }

    /// An empty charge to the account of the client whose request has these extensions.
    pub(crate) fn charge_for_request(&self, extensions: &Extensions) -> MemoryCharge {
        self.charge_for_client(extensions.get::<Principal>())
    }

    /// An empty charge to this client's account; `None` is a client without a key.
    pub(crate) fn charge_for_client(&self, who: Option<&Principal>) -> MemoryCharge {
        let account = who.map_or_else(|| self.0.local.clone(), |who| self.account(who));
        MemoryCharge { budget: self.clone(), account, bytes: 0 }
    }

    fn account(&self, who: &Principal) -> ClientMemoryAccount {
        let mut accounts = self.0.accounts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(account) = accounts.get(who) {
            return account.clone();
        }
        if accounts.len() >= MEMORY_ACCOUNTS_KEPT_MAX {
            // Keys come and go; an account that nothing holds on to is as good as a new one.
            accounts.retain(|_, account| Arc::strong_count(&account.0) > 1);
        }
        accounts.entry(who.clone()).or_insert_with(ClientMemoryAccount::new).clone()
    }

    /// Whether `bytes` more were charged to `account`.
    fn try_add(&self, account: &ClientMemoryAccount, bytes: u64) -> bool {
        let used = self.0.used_bytes.fetch_add(bytes, Ordering::AcqRel).saturating_add(bytes);
        let held = account.0.used_bytes.fetch_add(bytes, Ordering::AcqRel).saturating_add(bytes);
        let fits = self.0.limit_bytes.checked_sub(used).is_some_and(|free_bytes| held <= free_bytes);
        if !fits {
            // Nobody is notified: those who wait would only try in vain, and notify each other for ever.
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
    /// Bytes that are charged.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// An empty charge to the same account.
    pub(crate) fn empty_charge(&self) -> MemoryCharge {
        MemoryCharge { budget: self.budget.clone(), account: self.account.clone(), bytes: 0 }
    }

    /// Takes all that is charged out of it.
    pub(crate) fn take(&mut self) -> MemoryCharge {
        let empty = self.empty_charge();
        std::mem::replace(self, empty)
    }

    /// Whose bytes they are.
    pub(crate) fn client(&self) -> ClientId {
        ClientId(Arc::as_ptr(&self.account.0).addr())
    }

    /// Charges `bytes` in all, more or fewer than now, if there is room for them at once. Otherwise nothing changes.
    pub(crate) fn try_resize(&mut self, bytes: u64) -> bool {
        if bytes > self.bytes && !self.budget.try_add(&self.account, bytes - self.bytes) {
            return false;
        }
        if bytes < self.bytes {
            self.budget.release(&self.account, self.bytes - bytes);
        }
        self.bytes = bytes;
        true
    }

    /// Charges `bytes` in all. Waits for others to release theirs, at most for `MEMORY_WAIT_MAX`, which ends earlier at
    /// `until`.
    ///
    /// # Errors
    /// `MemoryShare` where one client can never hold that many; `MemoryFull` where the time passed.
    pub(crate) async fn resize(&mut self, bytes: u64, until: Option<Instant>) -> Result<(), ApiError> {
        if self.try_resize(bytes) {
            return Ok(());
        }
        let share_bytes = self.budget.share_bytes();
        if bytes > share_bytes {
            return Err(ApiError::MemoryShare { bytes, share_bytes });
        }
        let latest = Instant::now() + MEMORY_WAIT_MAX;
        let latest = until.map_or(latest, |until| until.min(latest));
        let budget = self.budget.clone();
        loop {
            let released = budget.0.released.notified();
            tokio::pin!(released);
            // Registered before the look, so that nothing released after it is missed.
            released.as_mut().enable();
            if self.try_resize(bytes) {
                return Ok(());
            }
            if timeout_at(latest.into(), released).await.is_err() {
                return Err(ApiError::MemoryFull);
            }
        }
    }

    /// As [`MemoryCharge::resize`], for a thread that may block.
    ///
    /// # Errors
    /// As [`MemoryCharge::resize`].
    pub(crate) fn resize_blocking(&mut self, bytes: u64, runtime: &Handle) -> Result<(), ApiError> {
        if self.try_resize(bytes) { Ok(()) } else { runtime.block_on(self.resize(bytes, None)) }
    }

    /// The right to expand, decode or compress on a thread of its own. Each client has as many as there are cores. It
    /// goes with the work, which an abandoned request leaves behind.
    ///
    /// # Errors
    /// `MemoryFull` where others of the same client keep all of them for `MEMORY_WAIT_MAX`.
    pub(crate) async fn acquire_thread(&self) -> Result<OwnedSemaphorePermit, ApiError> {
        let threads = Arc::clone(&self.account.0.threads);
        let permit = tokio::time::timeout(MEMORY_WAIT_MAX, threads.acquire_owned()).await;
        permit.ok().and_then(Result::ok).ok_or(ApiError::MemoryFull)
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

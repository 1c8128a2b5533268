//! The active keys of the key file, which is watched while the server runs, with their usage.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Instant;

use parking_lot::{Mutex, RwLock};
use saggar_clock::Clock;
use saggar_store::RecordError;
use saggar_store::keys::{FileStamp, KeyFile, KeyRecord, KeyUsage, KeyUsageFile, key_id};
use saggar_store::records::{HostKind, HostRecord, HostState, JobRecords, KeyRequests};
use saggar_telemetry::RepeatedFailure;

use super::AccessError;
use super::rate_limiter::KeyRateLimiter;
use super::visibility::ProjectScope;

/// An active key and its usage.
#[derive(Debug)]
pub(super) struct ActiveKey {
    pub(super) record: KeyRecord,
    pub(super) name: Arc<str>,
    pub(super) scope: ProjectScope,
    limiter: Arc<KeyRateLimiter>,
}

/// The content of the key file when it was last read.
#[derive(Debug, Default)]
struct KeyringSnapshot {
    /// `None` before the first read.
    stamp: Option<FileStamp>,
    holders: HashMap<String, Arc<ActiveKey>>,
}

/// The usage of keys on all servers of shared records.
#[derive(Debug)]
struct SharedUsage {
    records: Arc<dyn JobRecords>,
    /// How many servers answer requests, this one included.
    servers: AtomicU32,
    failure: RepeatedFailure,
}

/// The active keys.
#[derive(Debug)]
pub(super) struct Keyring {
    file: KeyFile,
    usage: KeyUsageFile,
    clock: Arc<dyn Clock>,
    began: Instant,
    snapshot: RwLock<Arc<KeyringSnapshot>>,
    is_refresh_failing: AtomicBool,
    /// The usage of all servers; `None` if the records have one server.
    shared: Option<SharedUsage>,
    /// Held while the file is read, so that old content never replaces new content.
    reading: Mutex<()>,
}

impl Keyring {
    pub(super) fn new(file: KeyFile, usage: KeyUsageFile, clock: Arc<dyn Clock>) -> Keyring {
        let known = RwLock::default();
        let keyring = Keyring {
            file,
            usage,
            clock,
            began: Instant::now(),
            snapshot: known,
            is_refresh_failing: AtomicBool::new(false),
            shared: None,
            reading: Mutex::default(),
        };
        keyring.reload();
        keyring
    }

    /// Counts the requests of all servers of these records.
    pub(super) fn with_shared_usage(self, records: Arc<dyn JobRecords>) -> Keyring {
        let failure =
            RepeatedFailure::new("the requests of keys on other servers are not known, and each server counts its own");
        Keyring { shared: Some(SharedUsage { records, servers: AtomicU32::new(1), failure }), ..self }
    }

    pub(super) fn file(&self) -> &KeyFile {
        &self.file
    }

    fn snapshot(&self) -> Arc<KeyringSnapshot> {
        Arc::clone(&self.snapshot.read())
    }

    /// Fetches keys that other servers have changed, and reloads the file if it has changed. Can wait for the database. If
    /// it cannot be reached, the keys that are known stay valid, and the error is logged once.
    pub(super) fn refresh(&self) {
        let refreshed = self.file.refresh();
        let was_failing = self.is_refresh_failing.swap(refreshed.is_err(), Ordering::Relaxed);
        match refreshed {
            Err(error) if !was_failing => {
                tracing::error!(%error, "keys cannot be fetched from the database; the known keys stay valid");
            }
            Ok(()) if was_failing => tracing::info!("keys are fetched from the database again"),
            Err(_) | Ok(()) => {}
        }
        self.reload();
    }

    /// Reloads the file if it has changed. If it cannot be read, keeps the keys and logs the error once.
    pub(super) fn reload(&self) {
        let _reading = self.reading.lock();
        let before = self.snapshot();
        let stamp = self.file.stamp();
        if before.stamp == Some(stamp) {
            return;
        }
        let holders = match self.file.read() {
            Ok(records) => self.build_active_keys(&before, records),
            Err(error) => {
                tracing::error!(%error, "the key file cannot be read; the previous keys stay active");
                before.holders.clone()
            }
        };
        let known = Arc::new(KeyringSnapshot { stamp: Some(stamp), holders });
        *self.snapshot.write() = known;
    }

    fn build_active_keys(&self, before: &KeyringSnapshot, records: Vec<KeyRecord>) -> HashMap<String, Arc<ActiveKey>> {
        // The saved usage is only read at the start.
        let saved = if before.stamp.is_none() { self.read_saved_usage() } else { BTreeMap::new() };
        let holder = |record: KeyRecord| {
            // An unchanged key keeps its `ActiveKey`, so that its streams continue when another key changes.
            if let Some(holder) = before.holders.get(&record.id).filter(|holder| holder.record == record) {
                return (record.id, Arc::clone(holder));
            }
            let spent = match before.holders.get(&record.id) {
                Some(holder) => Arc::clone(&holder.limiter),
                None => Arc::new(KeyRateLimiter::new(saved.get(&record.id).copied().unwrap_or_default())),
            };
            let (name, sight) = (Arc::from(record.name.as_str()), ProjectScope::from_key(&record));
            (record.id.clone(), Arc::new(ActiveKey { record, name, scope: sight, limiter: spent }))
        };
        records.into_iter().map(holder).collect()
    }

    fn read_saved_usage(&self) -> BTreeMap<String, KeyUsage> {
        self.usage.read().unwrap_or_else(|error| {
            tracing::warn!(%error, "the saved usage of keys cannot be read: quotas start at 0");
            BTreeMap::new()
        })
    }

    /// Returns the active key with this text. A key that was just created is accepted immediately.
    pub(super) fn authenticate(&self, text: &str) -> Result<Arc<ActiveKey>, AccessError> {
        let id = key_id(text).ok_or(AccessError::UnknownKey)?;
        let look = || self.snapshot().holders.get(id).cloned();
        let holder = look().or_else(|| {
            self.reload();
            look()
        });
        let holder = holder.filter(|holder| holder.record.matches_secret(text)).ok_or(AccessError::UnknownKey)?;
        if holder.record.is_expired(self.clock.now_ms()) {
            return Err(AccessError::ExpiredKey { name: holder.record.name.clone() });
        }
        Ok(holder)
    }

    /// Counts a request against the rate limit and the quota. One that the rate limit refuses does not count against
    /// the quota.
    pub(super) fn count_request(&self, holder: &ActiveKey) -> Result<(), AccessError> {
        let name = || holder.record.name.clone();
        if let Some(rate) = holder.record.rate {
            let now_ns = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX / 2);
            let refuse = |retry_seconds| AccessError::Rate { name: name(), rate: rate.to_string(), retry_seconds };
            let servers = self.shared.as_ref().map_or(1, |shared| shared.servers.load(Ordering::Relaxed));
            holder.limiter.take_token(rate, servers, now_ns).map_err(refuse)?;
        }
        if let Some(quota) = holder.record.quota {
            let refuse = |retry_seconds| AccessError::Quota { name: name(), quota: quota.to_string(), retry_seconds };
            holder.limiter.count_against_quota(quota, self.clock.now_ms()).map_err(refuse)?;
        }
        Ok(())
    }

    /// Returns every key, oldest first, with its usage in the current quota period.
    pub(super) fn list_keys(&self) -> Vec<(KeyRecord, u64)> {
        let now_ms = self.clock.now_ms();
        let used = |holder: &ActiveKey| holder.record.requests_used(holder.limiter.quota_used(), now_ms);
        let known = self.snapshot();
        let mut keys: Vec<_> = known.holders.values().map(|holder| (holder.record.clone(), used(holder))).collect();
        keys.sort_by(|(a, _), (b, _)| (a.created_ms, &a.name).cmp(&(b.created_ms, &b.name)));
        keys
    }

    /// Saves the usage if it has changed.
    pub(super) fn save_usage(&self) {
        let known = self.snapshot();
        if known.holders.values().filter(|holder| holder.limiter.take_unsaved()).count() == 0 {
            return;
        }
        let used = known.holders.iter().map(|(id, holder)| (id.clone(), holder.limiter.quota_used())).collect();
        if let Err(error) = self.usage.write(&used) {
            tracing::warn!(%error, "the usage of keys cannot be saved");
        }
    }

    /// Adds the requests since the last time to those of the other servers, reads the sums, and counts the servers. While the
    /// database is away, each server goes on with what it knows. Can wait for the database.
    pub(super) fn share_usage(&self) {
        if let Some(shared) = &self.shared {
            shared.failure.log(self.exchange_usage(shared));
        }
    }

    fn exchange_usage(&self, shared: &SharedUsage) -> Result<(), RecordError> {
        let hosts = shared.records.hosts()?;
        let is_live = |host: &&HostRecord| host.offer.kind == HostKind::Server && host.state != HostState::Lost;
        let servers = u32::try_from(hosts.iter().filter(is_live).count()).unwrap_or(u32::MAX);
        shared.servers.store(servers.max(1), Ordering::Relaxed);
        let (known, now_ms) = (self.snapshot(), self.clock.now_ms());
        let limited = |holder: &Arc<ActiveKey>| holder.record.quota.map(|quota| (Arc::clone(holder), quota));
        let unshared_usage: Vec<_> = known
            .holders
            .values()
            .filter_map(limited)
            .map(|(holder, quota)| (holder.limiter.take_unshared(quota, now_ms), holder))
            .collect();
        let added = unshared_usage.iter().map(|(KeyUsage { since_ms, requests }, holder)| KeyRequests {
            key_id: holder.record.id.clone(),
            since_ms: *since_ms,
            requests: *requests,
        });
        let sums = shared.records.add_key_requests(&added.collect::<Vec<_>>()).inspect_err(|_| {
            unshared_usage.iter().for_each(|(usage, holder)| holder.limiter.return_unshared(*usage));
        })?;
        for KeyRequests { key_id, since_ms, requests } in sums {
            if let Some(holder) = known.holders.get(&key_id) {
                holder.limiter.set_shared(KeyUsage { since_ms, requests });
            }
        }
        Ok(())
    }
}

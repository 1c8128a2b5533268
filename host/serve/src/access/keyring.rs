//! The keys that are good now: the file's, followed while the server runs, with what each used.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Instant;

use saggar_store::clock::Clock;
use saggar_store::keys::{FileStamp, KeyFile, KeyRecord, KeyUsage, KeyUsageFile, key_id};

use super::AccessError;
use super::rate_limiter::KeyRateLimiter;
use super::visibility::ProjectScope;

/// A key, and what was used of it.
#[derive(Debug)]
pub(super) struct ActiveKey {
    pub(super) record: KeyRecord,
    pub(super) name: Arc<str>,
    pub(super) scope: ProjectScope,
    limiter: Arc<KeyRateLimiter>,
}

/// What the file said when it was last read.
#[derive(Debug, Default)]
struct KeyringSnapshot {
    /// None before the first look.
    stamp: Option<FileStamp>,
    holders: HashMap<String, Arc<ActiveKey>>,
}

/// The keys that are good now.
#[derive(Debug)]
pub(super) struct Keyring {
    file: KeyFile,
    usage: KeyUsageFile,
    clock: Arc<dyn Clock>,
    began: Instant,
    snapshot: RwLock<Arc<KeyringSnapshot>>,
    /// Held while the file is read, so that an old content never replaces a new one.
    reading: Mutex<()>,
}

impl Keyring {
    pub(super) fn new(file: KeyFile, usage: KeyUsageFile, clock: Arc<dyn Clock>) -> Keyring {
        let known = RwLock::default();
        let keyring = Keyring { file, usage, clock, began: Instant::now(), snapshot: known, reading: Mutex::default() };
        keyring.reload();
        keyring
    }

    pub(super) fn file(&self) -> &KeyFile {
        &self.file
    }

    fn snapshot(&self) -> Arc<KeyringSnapshot> {
        Arc::clone(&self.snapshot.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes over what the file says, if it changed. One that cannot be read changes nothing, and is told of once.
    pub(super) fn reload(&self) {
        let _reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.snapshot();
        let stamp = self.file.stamp();
        if before.stamp == Some(stamp) {
            return;
        }
        let holders = match self.file.read() {
            Ok(records) => self.build_active_keys(&before, records),
            Err(error) => {
                tracing::error!(%error, "keys stay as they were");
                before.holders.clone()
            }
        };
        let known = Arc::new(KeyringSnapshot { stamp: Some(stamp), holders });
        *self.snapshot.write().unwrap_or_else(PoisonError::into_inner) = known;
    }

    fn build_active_keys(&self, before: &KeyringSnapshot, records: Vec<KeyRecord>) -> HashMap<String, Arc<ActiveKey>> {
        // At the start, what was used is what was saved.
        let saved = if before.stamp.is_none() { self.read_saved_usage() } else { BTreeMap::new() };
        let holder = |record: KeyRecord| {
            // The same holder as long as its key is the same: streams go on where another key was made.
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
            tracing::warn!(%error, "what keys used is not known: their quotas begin anew");
            BTreeMap::new()
        })
    }

    /// The holder of the key with this text. One that was made a moment ago is good at once.
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

    /// Counts a request. One that its rate refuses is not counted to its quota.
    pub(super) fn count_request(&self, holder: &ActiveKey) -> Result<(), AccessError> {
        let name = || holder.record.name.clone();
        if let Some(rate) = holder.record.rate {
            let now_ns = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX / 2);
            let refuse = |retry_seconds| AccessError::Rate { name: name(), rate: rate.to_string(), retry_seconds };
            holder.limiter.take_token(rate, now_ns).map_err(refuse)?;
        }
        if let Some(quota) = holder.record.quota {
            let refuse = |retry_seconds| AccessError::Quota { name: name(), quota: quota.to_string(), retry_seconds };
            holder.limiter.count_against_quota(quota, self.clock.now_ms()).map_err(refuse)?;
        }
        Ok(())
    }

    /// Every key, oldest first, with what it used in its quota's present time.
    pub(super) fn list_keys(&self) -> Vec<(KeyRecord, u64)> {
        let now_ms = self.clock.now_ms();
        let used = |holder: &ActiveKey| holder.record.requests_used(holder.limiter.quota_used(), now_ms);
        let known = self.snapshot();
        let mut keys: Vec<_> = known.holders.values().map(|holder| (holder.record.clone(), used(holder))).collect();
        keys.sort_by(|(a, _), (b, _)| (a.created_ms, &a.name).cmp(&(b.created_ms, &b.name)));
        keys
    }

    /// Writes down what was used, if anything was since the last time.
    pub(super) fn save_usage(&self) {
        let known = self.snapshot();
        if known.holders.values().filter(|holder| holder.limiter.take_unsaved()).count() == 0 {
            return;
        }
        let used = known.holders.iter().map(|(id, holder)| (id.clone(), holder.limiter.quota_used())).collect();
        if let Err(error) = self.usage.write(&used) {
            tracing::warn!(%error, "what keys used is not saved");
        }
    }
}

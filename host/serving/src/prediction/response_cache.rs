//! A cache of one version's responses to repeated requests, with LRU eviction. It is dropped with its version, so that
//! no response outlives the version that gave it. Disabled unless a model's configuration enables it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use saggar_plugin::NamedTensor;
use saggar_store::digest::{Digest, Sha256Hasher};

use super::prediction_inputs::PredictionInputs;

/// The key of a request: the SHA-256 of its inputs, because the inputs are untrusted.
pub(crate) type ResponseCacheKey = Digest;

/// Approximate bytes of an entry beside its tensors' elements.
const ENTRY_OVERHEAD_BYTES: usize = 512;

/// Responses by the key of their inputs, within a limit in bytes.
#[derive(Debug)]
pub(crate) struct ResponseCache {
    bytes_max: usize,
    entries: Mutex<ResponseCacheEntries>,
}

#[derive(Debug, Default)]
struct ResponseCacheEntries {
    by_key: HashMap<ResponseCacheKey, CachedResponse>,
    /// Keys by the time of their last use.
    by_use: BTreeMap<u64, ResponseCacheKey>,
    uses: u64,
    bytes: usize,
}

#[derive(Debug)]
struct CachedResponse {
    tensors: Arc<Vec<NamedTensor>>,
    used: u64,
    bytes: usize,
}

impl ResponseCache {
    pub(crate) fn new(bytes_max: usize) -> ResponseCache {
        ResponseCache { bytes_max, entries: Mutex::default() }
    }

    /// Returns the key of these inputs.
    pub(crate) fn key(inputs: &PredictionInputs) -> ResponseCacheKey {
        let mut hasher = Sha256Hasher::new();
        hasher.update_u64(inputs.items.map_or(0, |items| items as u64 + 1));
        // The tensors are in the signature's order. Their types and shapes are fixed except for the number of items.
        for tensor in &inputs.tensors {
            hasher.update_field(&tensor.bytes);
        }
        hasher.finish()
    }

    /// Returns the cached response to these inputs, if there is one.
    pub(crate) fn get(&self, key: &ResponseCacheKey) -> Option<Arc<Vec<NamedTensor>>> {
        let mut entries = self.lock_entries();
        let ResponseCacheEntries { by_key, by_use, uses, .. } = &mut *entries;
        let entry = by_key.get_mut(key)?;
        *uses += 1;
        by_use.remove(&entry.used);
        by_use.insert(*uses, *key);
        entry.used = *uses;
        Some(Arc::clone(&entry.tensors))
    }

    /// Inserts a response, and evicts the least recently used ones if there is no space.
    pub(crate) fn insert(&self, key: ResponseCacheKey, tensors: &[NamedTensor]) {
        let bytes = ENTRY_OVERHEAD_BYTES + tensors.iter().map(|tensor| tensor.bytes.len()).sum::<usize>();
        if bytes > self.bytes_max {
            return;
        }
        let tensors = Arc::new(tensors.to_vec());
        let mut entries = self.lock_entries();
        let ResponseCacheEntries { by_key, by_use, uses, bytes: held } = &mut *entries;
        *uses += 1;
        if let Some(old) = by_key.insert(key, CachedResponse { tensors, used: *uses, bytes }) {
            by_use.remove(&old.used);
            *held -= old.bytes;
        }
        by_use.insert(*uses, key);
        *held += bytes;
        while *held > self.bytes_max {
            let Some((_, oldest)) = by_use.pop_first() else { break };
            if let Some(entry) = by_key.remove(&oldest) {
                *held -= entry.bytes;
            }
        }
    }

    // Every change is complete before the lock is released.
    fn lock_entries(&self) -> MutexGuard<'_, ResponseCacheEntries> {
        self.entries.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use saggar_tensor::{DType, Descriptor, Shape};

    fn tensors(bytes: &[u8]) -> Vec<NamedTensor> {
        let descriptor = Descriptor::new(DType::U8, Shape::new([1, bytes.len()]).unwrap());
        vec![NamedTensor { name: "x".to_owned(), descriptor, bytes: bytes.to_vec() }]
    }

    fn key(byte: u8, items: Option<usize>) -> ResponseCacheKey {
        ResponseCache::key(&PredictionInputs { tensors: tensors(&[byte]), items, warnings: Vec::new() })
    }

    #[test]
    fn different_inputs_have_different_cache_keys() {
        assert_eq!(key(1, None), key(1, None));
        assert_ne!(key(1, None), key(2, None));
        assert_ne!(key(1, None), key(1, Some(1)), "a batch of one is answered otherwise");
    }

    #[test]
    fn the_least_recently_used_response_is_evicted_first() {
        let cache = ResponseCache::new(2 * (ENTRY_OVERHEAD_BYTES + 1));
        cache.insert(key(1, None), &tensors(&[1]));
        cache.insert(key(2, None), &tensors(&[2]));
        assert!(cache.get(&key(1, None)).is_some());
        cache.insert(key(3, None), &tensors(&[3]));
        assert!(cache.get(&key(2, None)).is_none(), "the other was used since");
        assert_eq!(*cache.get(&key(1, None)).unwrap(), tensors(&[1]));
        cache.insert(key(1, None), &tensors(&[9]));
        assert_eq!(*cache.get(&key(1, None)).unwrap(), tensors(&[9]));
        assert_eq!(cache.lock_entries().bytes, 2 * (ENTRY_OVERHEAD_BYTES + 1));
        cache.insert(key(4, None), &tensors(&[0; 4096]));
        assert!(cache.get(&key(4, None)).is_none(), "larger than all of it");
        let entries = cache.lock_entries();
        assert_eq!(entries.by_key.len(), entries.by_use.len());
    }
}

//! Versions as they lie on the disk.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use saggar_store::digest::{Digest, Hasher};
use saggar_store::error::ModelError;
use saggar_store::limits::MANIFEST_BYTES_MAX;
use saggar_store::models::{Found, MANIFEST_FILE, Manifest, Models};
use saggar_store::regular_file;

use super::version::Origin;

/// What a directory's files look like without reading them: names, sizes, times and inodes, links followed.
pub(super) type Fingerprint = Digest;

/// A version on disk.
#[derive(Clone, Debug)]
pub(super) struct OnDisk {
    pub(super) found: Found,
    pub(super) fingerprint: Fingerprint,
    pub(super) origin: Option<Origin>,
}

/// Every model with a directory, and its versions.
pub(super) fn scan(models: &Models) -> Result<BTreeMap<String, BTreeMap<u64, OnDisk>>, ModelError> {
    let mut all: BTreeMap<String, BTreeMap<u64, OnDisk>> =
        models.names()?.into_iter().map(|name| (name, BTreeMap::new())).collect();
    for found in models.scan()? {
        let fingerprint = fingerprint(&found.dir);
        let manifest = regular_file::read(&found.dir.join(MANIFEST_FILE), MANIFEST_BYTES_MAX).ok();
        let origin = manifest.and_then(|text| serde_json::from_slice(&text).ok()).map(origin);
        all.entry(found.name.clone()).or_default().insert(found.version, OnDisk { found, fingerprint, origin });
    }
    Ok(all)
}

/// Where a version comes from.
pub(super) fn origin(manifest: Manifest) -> Origin {
    let Manifest { plugin, weights, created_ms, source_job, metrics, .. } = manifest;
    Origin { plugin, weights, created_ms, source_job, metrics }
}

/// A directory or file that cannot be looked at counts as empty: it looks different once it can be.
fn fingerprint(dir: &Path) -> Fingerprint {
    let mut files: Vec<_> = fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    files.sort();
    let mut hasher = Hasher::new();
    for file in files {
        hasher.update_field(file.as_os_str().as_encoded_bytes());
        if let Ok(meta) = fs::metadata(&file) {
            for number in [meta.len(), meta.ino(), meta.dev(), meta.mtime() as u64, meta.mtime_nsec() as u64] {
                hasher.update_u64(number);
            }
        }
    }
    hasher.finish()
}

/// A message without the path of the version's directory, which is this machine's own matter.
pub(super) fn without_dir(message: &str, found: &Found) -> String {
    message.replace(&format!("{}/", found.dir.display()), "")
}

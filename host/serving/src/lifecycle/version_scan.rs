//! Scanning of the versions on disk.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use saggar_store::digest::{Digest, Sha256Hasher};
use saggar_store::error::ModelError;
use saggar_store::limits::MANIFEST_BYTES_MAX;
use saggar_store::models::{MANIFEST_FILE, ModelManifest, ModelRegistry, ScannedVersion};
use saggar_store::regular_file;

use crate::version_origin::VersionOrigin;

/// A fingerprint of a directory's files without reading them: names, sizes, times and inodes. Links are followed.
pub(crate) type VersionFingerprint = Digest;

/// A version on disk.
#[derive(Clone, Debug)]
pub(crate) struct FingerprintedVersion {
    pub(crate) found: ScannedVersion,
    pub(crate) fingerprint: VersionFingerprint,
    pub(crate) origin: Option<VersionOrigin>,
}

/// Returns every model that has a directory, with its versions.
pub(crate) fn scan_models(
    models: &ModelRegistry,
) -> Result<BTreeMap<String, BTreeMap<u64, FingerprintedVersion>>, ModelError> {
    let mut all: BTreeMap<String, BTreeMap<u64, FingerprintedVersion>> =
        models.names()?.into_iter().map(|name| (name, BTreeMap::new())).collect();
    for found in models.scan()? {
        let fingerprint = directory_fingerprint(&found.dir);
        let manifest = regular_file::read(&found.dir.join(MANIFEST_FILE), MANIFEST_BYTES_MAX).ok();
        let origin = manifest.and_then(|text| serde_json::from_slice(&text).ok()).map(origin_from_manifest);
        all.entry(found.name.clone())
            .or_default()
            .insert(found.version, FingerprintedVersion { found, fingerprint, origin });
    }
    Ok(all)
}

/// Returns a version's origin from its manifest.
pub(crate) fn origin_from_manifest(manifest: ModelManifest) -> VersionOrigin {
    let ModelManifest { plugin, weights, created_ms, source_job, metrics, .. } = manifest;
    VersionOrigin { plugin, weights, created_ms, source_job, metrics }
}

/// Returns the fingerprint of a directory. Unreadable directories and files count as empty, so that the fingerprint
/// changes once they can be read.
fn directory_fingerprint(dir: &Path) -> VersionFingerprint {
    let mut files: Vec<_> = fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    files.sort();
    let mut hasher = Sha256Hasher::new();
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

/// Removes the path of the version's directory from a message, because clients must not see this machine's paths.
pub(crate) fn redact_directory(message: &str, found: &ScannedVersion) -> String {
    message.replace(&format!("{}/", found.dir.display()), "")
}

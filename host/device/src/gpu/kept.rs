//! What the driver has compiled, kept in a file from one process to the next: a pipeline that was made before is made again
//! without its compiler.
//!
//! A driver reads its own data and trusts it. So a file carries a digest of what is in it, and one that is damaged, or of
//! another adapter or driver, is left aside and written anew.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use sha2::{Digest as _, Sha256};

/// What a file begins with.
const MAGIC: &[u8; 8] = b"saggarP1";
/// Bytes of the digest after it.
const DIGEST_BYTES: usize = 32;
/// A larger file is neither read nor written.
const BYTES_MAX: usize = 256 << 20;

/// A driver's compiled shaders and their file.
#[derive(Debug)]
pub(super) struct Kept {
    cache: wgpu::PipelineCache,
    file: PathBuf,
    /// Pipelines made so far, and how many of them the file has.
    made: AtomicU64,
    saved: AtomicU64,
}

impl Kept {
    /// Those of this adapter in `directory`; none where its driver gives none away, or the directory cannot be made.
    #[expect(unsafe_code, reason = "a driver trusts the data that its caller vouches for")]
    pub(super) fn open(device: &wgpu::Device, adapter: &wgpu::AdapterInfo, directory: &Path) -> Option<Kept> {
        if !device.features().contains(wgpu::Features::PIPELINE_CACHE) {
            return None;
        }
        let file = directory.join(wgpu::util::pipeline_cache_key(adapter)?);
        if let Err(error) = std::fs::create_dir_all(directory) {
            tracing::warn!(directory = %directory.display(), %error, "compiled shaders are not kept");
            return None;
        }
        let data = match read(&file) {
            Ok(data) => data,
            Err(error) => {
                tracing::warn!(file = %file.display(), %error, "kept shaders are not usable; they are compiled anew");
                None
            }
        };
        let descriptor = wgpu::PipelineCacheDescriptor { label: Some("saggar"), data: data.as_deref(), fallback: true };
        // SAFETY: the data is what this driver gave to a process of ours, by its digest; wgpu compares the adapter and the
        // driver that it is for.
        let cache = unsafe { device.create_pipeline_cache(&descriptor) };
        Some(Kept { cache, file, made: AtomicU64::new(0), saved: AtomicU64::new(0) })
    }

    /// For pipelines.
    pub(super) fn cache(&self) -> &wgpu::PipelineCache {
        &self.cache
    }

    /// One more pipeline was made.
    pub(super) fn more(&self) {
        self.made.fetch_add(1, Ordering::AcqRel);
    }

    /// Writes the file if there are pipelines that it may not have. Processes that do so at the same time lose only what the
    /// others had compiled.
    pub(super) fn save(&self) {
        let made = self.made.load(Ordering::Acquire);
        if self.saved.swap(made, Ordering::AcqRel) == made {
            return;
        }
        let Some(data) = self.cache.get_data().filter(|data| data.len() <= BYTES_MAX) else { return };
        if let Err(error) = write(&self.file, &data) {
            tracing::warn!(file = %self.file.display(), %error, "compiled shaders are not kept");
        }
    }
}

/// What is in a file; none where there is no file.
fn read(file: &Path) -> io::Result<Option<Vec<u8>>> {
    let damaged = |what: &str| Err(io::Error::new(io::ErrorKind::InvalidData, what.to_owned()));
    let mut bytes = match std::fs::metadata(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
        Ok(metadata) if metadata.len() > BYTES_MAX as u64 => return damaged("it is too large"),
        Ok(_) => std::fs::read(file)?,
    };
    let Some((head, data)) = bytes.split_at_checked(MAGIC.len() + DIGEST_BYTES) else {
        return damaged("it is too short");
    };
    let (magic, digest) = head.split_at(MAGIC.len());
    if magic != MAGIC || digest != Sha256::digest(data).as_slice() {
        return damaged("it is not what was written");
    }
    Ok(Some(bytes.split_off(MAGIC.len() + DIGEST_BYTES)))
}

/// Writes what a driver has compiled, with its digest.
fn write(file: &Path, data: &[u8]) -> io::Result<()> {
    replace(file, &[&MAGIC[..], Sha256::digest(data).as_slice(), data].concat())
}

/// Replaces a file in one step.
pub(super) fn replace(file: &Path, bytes: &[u8]) -> io::Result<()> {
    let own = file.with_extension(format!("{}.new", std::process::id()));
    std::fs::write(&own, bytes).and_then(|()| std::fs::rename(&own, file)).inspect_err(|_| {
        // It may not be there.
        let _ = std::fs::remove_file(&own);
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_gives_back_what_was_written_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("kept");
        assert_eq!(read(&file).unwrap(), None);
        write(&file, b"what a driver says").unwrap();
        assert_eq!(read(&file).unwrap().as_deref(), Some(&b"what a driver says"[..]));
        let whole = std::fs::read(&file).unwrap();
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            std::fs::write(&file, &damaged).unwrap();
            assert!(read(&file).is_err(), "byte {at}");
            std::fs::write(&file, &whole[..at]).unwrap();
            assert!(read(&file).is_err(), "cut at {at}");
        }
        assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 1, "what is written is renamed");
    }
}

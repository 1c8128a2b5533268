//! The pipeline cache: the driver's compiled shaders in a file, so that later processes create the same pipelines
//! without running its compiler.
//!
//! A driver trusts the data it reads back. Therefore only this process's user can enter the directory. A file is read
//! only if it belongs to this user and no other user can write to it. It holds a digest of its data and of the adapter
//! and driver it is for. A file that fails any check is ignored and rewritten.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use sha2::{Digest as _, Sha256};

/// The first bytes of a cache file.
const MAGIC: &[u8; 8] = b"saggarP1";
/// Length of the digest that follows `MAGIC`, in bytes.
const DIGEST_BYTES: usize = 32;
/// Size limit of a cache file, in bytes; a larger file is neither read nor written.
const BYTES_MAX: usize = 256 << 20;

/// A wgpu pipeline cache and the file that stores it.
#[derive(Debug)]
pub(super) struct PipelineCacheFile {
    cache: wgpu::PipelineCache,
    file: PathBuf,
    /// Names of the adapter and the driver; part of the file's digest.
    key: String,
    /// Bytes of the file that were passed to the driver.
    #[cfg(test)]
    loaded_bytes: usize,
    /// Pipelines created so far, and how many of them are in the file.
    created_pipelines: AtomicU64,
    saved_pipelines: AtomicU64,
}

impl PipelineCacheFile {
    /// Opens the cache of this adapter in `directory`. Returns `None` if the driver does not support pipeline caches or
    /// the directory cannot be created.
    #[expect(unsafe_code, reason = "a driver trusts the data that its caller vouches for")]
    pub(super) fn open(
        device: &wgpu::Device,
        adapter: &wgpu::AdapterInfo,
        directory: &Path,
    ) -> Option<PipelineCacheFile> {
        if !device.features().contains(wgpu::Features::PIPELINE_CACHE) {
            return None;
        }
        let name = wgpu::util::pipeline_cache_key(adapter)?;
        let file = directory.join(&name);
        let key = cache_key(&name, adapter);
        if let Err(error) = create_private_directory(directory) {
            tracing::warn!(directory = %directory.display(), %error, "the pipeline cache directory is not usable");
            return None;
        }
        let data = match read_verified(&file, &key) {
            Ok(data) => data,
            Err(error) => {
                tracing::warn!(file = %file.display(), %error, "the pipeline cache is invalid; shaders are recompiled");
                None
            }
        };
        let descriptor = wgpu::PipelineCacheDescriptor { label: Some("saggar"), data: data.as_deref(), fallback: true };
        // SAFETY: when the file was opened, it belonged to this process's user and no other user could write to it
        // (`is_private`). Its digest matches the data and the names of this adapter and driver. So the data is complete
        // and was written by a driver for a process of this user, unless another program of the same user forged it.
        // wgpu also compares the adapter and the driver's own cache key.
        let cache = unsafe { device.create_pipeline_cache(&descriptor) };
        Some(PipelineCacheFile {
            cache,
            file,
            key,
            #[cfg(test)]
            loaded_bytes: data.map_or(0, |data| data.len()),
            created_pipelines: AtomicU64::new(0),
            saved_pipelines: AtomicU64::new(0),
        })
    }

    /// Returns the cache to create pipelines with.
    pub(super) fn cache(&self) -> &wgpu::PipelineCache {
        &self.cache
    }

    /// Counts a pipeline that was created.
    pub(super) fn count_created_pipeline(&self) {
        self.created_pipelines.fetch_add(1, Ordering::AcqRel);
    }

    /// Writes the file if pipelines were created since it was last written. If several processes save at the same time,
    /// the last write wins and the others' new pipelines are lost.
    pub(super) fn save(&self) {
        let made = self.created_pipelines.load(Ordering::Acquire);
        if self.saved_pipelines.swap(made, Ordering::AcqRel) == made {
            return;
        }
        let Some(data) = self.cache.get_data().filter(|data| MAGIC.len() + DIGEST_BYTES + data.len() <= BYTES_MAX)
        else {
            return;
        };
        if let Err(error) = write_with_digest(&self.file, &self.key, &data) {
            tracing::warn!(file = %self.file.display(), %error, "cannot write the pipeline cache file");
        }
    }
}

/// Returns the names of the file, adapter and driver that a cache file is valid for.
fn cache_key(name: &str, adapter: &wgpu::AdapterInfo) -> String {
    format!("{name}\n{}\n{}\n{}", adapter.name, adapter.driver, adapter.driver_info)
}

/// Returns the verified data of a cache file, or `None` if the file does not exist.
fn read_verified(file: &Path, key: &str) -> io::Result<Option<Vec<u8>>> {
    let damaged = |what: &str| Err(io::Error::new(io::ErrorKind::InvalidData, what.to_owned()));
    let mut file = match File::open(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    if !is_private(&file)? {
        return damaged("other users can write to it, or it belongs to another user");
    }
    if file.metadata()?.len() > BYTES_MAX as u64 {
        return damaged("it is too large");
    }
    let mut bytes = Vec::new();
    Read::by_ref(&mut file).take(BYTES_MAX as u64).read_to_end(&mut bytes)?;
    let Some((head, data)) = bytes.split_at_checked(MAGIC.len() + DIGEST_BYTES) else {
        return damaged("it is too short");
    };
    let (magic, digest) = head.split_at(MAGIC.len());
    if magic != MAGIC || digest != compute_digest(key, data) {
        return damaged("its header or digest does not match");
    }
    Ok(Some(bytes.split_off(MAGIC.len() + DIGEST_BYTES)))
}

/// Writes the driver's cache data with its digest.
fn write_with_digest(file: &Path, key: &str, data: &[u8]) -> io::Result<()> {
    replace_file(file, &[&MAGIC[..], &compute_digest(key, data), data].concat())
}

/// Returns the digest of cache data for an adapter and driver.
fn compute_digest(key: &str, data: &[u8]) -> [u8; DIGEST_BYTES] {
    let digest = Sha256::new().chain_update((key.len() as u64).to_le_bytes()).chain_update(key).chain_update(data);
    digest.finalize().into()
}

/// Creates a directory that only its owner can enter, or removes the access of other users from an existing one.
fn create_private_directory(directory: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};

        builder.mode(0o700).create(directory)?;
        if fs::metadata(directory)?.mode() & 0o077 != 0 {
            fs::set_permissions(directory, fs::Permissions::from_mode(0o700))?;
        }
        Ok(())
    }
    #[cfg(not(unix))]
    builder.create(directory)
}

/// Returns whether an open file belongs to this process's user and no other user can write to it.
#[cfg(unix)]
fn is_private(file: &File) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt;

    let (metadata, own) = (file.metadata()?, rustix::process::geteuid().as_raw());
    Ok(metadata.is_file() && metadata.uid() == own && metadata.mode() & 0o022 == 0)
}

#[cfg(not(unix))]
fn is_private(_: &File) -> io::Result<bool> {
    Ok(false)
}

/// Replaces a file atomically with one that only its owner can read.
pub(super) fn replace_file(file: &Path, bytes: &[u8]) -> io::Result<()> {
    let own = file.with_extension(format!("{}.new", std::process::id()));
    let mut options = File::options();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let written = options.open(&own).and_then(|mut new| new.write_all(bytes));
    written.and_then(|()| fs::rename(&own, file)).inspect_err(|_| {
        // The temporary file may not exist.
        let _ = fs::remove_file(&own);
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::Meter;
    use crate::tests::squares_program;
    use crate::wgpu_device::block_on;
    use crate::{GpuOptions, enumerate_adapters, open_with};

    /// Returns the outputs that the first adapter computes with its cache in this directory.
    fn compute_with_cache_dir(directory: &Path) -> Vec<Vec<u8>> {
        let gpu = open_with(0, GpuOptions { cache_dir: Some(directory), ..GpuOptions::default() }).unwrap();
        let meter = Meter::unlimited();
        let executable = gpu.load(Arc::new(squares_program(&*gpu)), &meter).unwrap();
        let x = gpu.allocate(&executable.program().inputs[0].descriptor, &meter).unwrap();
        let numbers: Vec<f32> = (0..64_u8).map(f32::from).collect();
        gpu.write(&x, bytemuck::cast_slice(&numbers)).unwrap();
        let outputs = executable.dispatch(&[x], &[]).unwrap();
        outputs.iter().map(|output| gpu.read(output).unwrap()).collect()
    }

    #[test]
    fn a_corrupt_or_foreign_pipeline_cache_is_not_passed_to_the_driver() {
        let found = enumerate_adapters();
        let Some(adapter) = found.first().filter(|it| it.features().contains(wgpu::Features::PIPELINE_CACHE)) else {
            assert!(std::env::var_os("REQUIRE_GPU").is_none(), "no adapter with a cache, and REQUIRE_GPU is set");
            return println!("SKIP: no adapter, or its driver has no pipeline cache");
        };
        let directory = tempfile::tempdir().unwrap();
        let required_features = wgpu::Features::PIPELINE_CACHE;
        let descriptor = wgpu::DeviceDescriptor { required_features, ..Default::default() };
        let (device, _queue) = block_on(adapter.request_device(&descriptor)).unwrap();
        let info = adapter.get_info();
        let given = || PipelineCacheFile::open(&device, &info, directory.path()).unwrap().loaded_bytes;
        assert_eq!(given(), 0, "the cache file does not exist yet");
        let expected = compute_with_cache_dir(directory.path());

        let name = wgpu::util::pipeline_cache_key(&info).unwrap();
        let (file, key) = (directory.path().join(&name), cache_key(&name, &info));
        let whole = std::fs::read(&file).unwrap();
        let data = &whole[MAGIC.len() + DIGEST_BYTES..];
        assert_eq!(given(), data.len());
        let flipped = |at: usize| [&whole[..at], &[whole[at] ^ 1], &whole[at + 1..]].concat();
        let other = |key: String| {
            write_with_digest(&file, &key, data).unwrap();
            std::fs::read(&file).unwrap()
        };
        let newer = wgpu::AdapterInfo { driver_info: format!("{} of tomorrow", info.driver_info), ..info.clone() };
        let cases = [
            ("empty", Vec::new()),
            ("cut", whole[..whole.len() - 1].to_vec()),
            ("of another form", flipped(0)),
            ("with another digest", flipped(MAGIC.len())),
            ("damaged at its beginning", flipped(whole.len() - data.len())),
            ("damaged at its end", flipped(whole.len() - 1)),
            ("another version's of the driver", other(cache_key(&name, &newer))),
            ("another adapter's", other(cache_key("another", &info))),
        ];
        for (what, bytes) in cases {
            std::fs::write(&file, bytes).unwrap();
            assert_eq!(given(), 0, "a file that is {what} is not used");
            assert_eq!(compute_with_cache_dir(directory.path()), expected, "{what}");
            assert!(given() > 0, "a file that was {what} is rewritten");
        }

        // A valid file whose data lacks this driver's header: wgpu does not pass it to the driver.
        write_with_digest(&file, &key, &[0x5a; 4096]).unwrap();
        assert_eq!(compute_with_cache_dir(directory.path()), expected);
    }

    #[test]
    fn a_cache_file_round_trips_and_any_damage_is_detected() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("kept");
        assert_eq!(read_verified(&file, "an adapter").unwrap(), None);
        write_with_digest(&file, "an adapter", b"what a driver says").unwrap();
        assert_eq!(read_verified(&file, "an adapter").unwrap().as_deref(), Some(&b"what a driver says"[..]));
        let whole = std::fs::read(&file).unwrap();
        assert!(read_verified(&file, "another adapter").is_err());
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            std::fs::write(&file, &damaged).unwrap();
            assert!(read_verified(&file, "an adapter").is_err(), "byte {at}");
            std::fs::write(&file, &whole[..at]).unwrap();
            assert!(read_verified(&file, "an adapter").is_err(), "cut at {at}");
        }
        assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 1, "the temporary file is renamed");
    }

    #[cfg(unix)]
    #[test]
    fn a_cache_file_that_other_users_can_write_is_rejected() {
        use std::os::unix::fs::PermissionsExt;

        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("shaders");
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let set = |path: &Path, mode| std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
        create_private_directory(&directory).unwrap();
        assert_eq!(mode(&directory), 0o700);
        set(&directory, 0o777);
        create_private_directory(&directory).unwrap();
        assert_eq!(mode(&directory), 0o700, "access of other users is removed");

        let file = directory.join("kept");
        write_with_digest(&file, "an adapter", b"what a driver says").unwrap();
        assert_eq!(mode(&file), 0o600);
        for open in [0o620, 0o602] {
            set(&file, open);
            let refused = read_verified(&file, "an adapter").unwrap_err().to_string();
            assert!(refused.contains("other users can write"), "{open:o}: {refused}");
        }
        set(&file, 0o644);
        assert!(read_verified(&file, "an adapter").unwrap().is_some(), "read access of other users is harmless");
    }
}

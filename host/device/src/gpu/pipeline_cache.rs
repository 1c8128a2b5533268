//! What the driver has compiled, kept in a file from one process to the next: a pipeline that was made before is made again
//! without its compiler.
//!
//! A driver reads its own data and trusts it. So the directory is for this process's user alone, a file is read only if it
//! is this user's and nobody else may write to it, and it carries a digest of what is in it and of the adapter and driver
//! that it is for. One that is off in any way is left aside and written anew.

use std::fs::{self, File};
use std::io::{self, Read, Write};
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
pub(super) struct PipelineCacheFile {
    cache: wgpu::PipelineCache,
    file: PathBuf,
    /// The adapter and the driver, in the file's digest.
    key: String,
    /// Bytes of the file that the driver was given.
    #[cfg(test)]
    loaded_bytes: usize,
    /// Pipelines made so far, and how many of them the file has.
    created_pipelines: AtomicU64,
    saved_pipelines: AtomicU64,
}

impl PipelineCacheFile {
    /// Those of this adapter in `directory`; none where its driver gives none away, or the directory cannot be made.
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
            tracing::warn!(directory = %directory.display(), %error, "compiled shaders are not kept");
            return None;
        }
        let data = match read_verified(&file, &key) {
            Ok(data) => data,
            Err(error) => {
                tracing::warn!(file = %file.display(), %error, "kept shaders are not usable; they are compiled anew");
                None
            }
        };
        let descriptor = wgpu::PipelineCacheDescriptor { label: Some("saggar"), data: data.as_deref(), fallback: true };
        // SAFETY: the data comes from a file that, as it was opened, belonged to this process's user and that nobody else
        // may write to (`is_private`), and its digest is the one that was written with it, for an adapter and a driver of
        // these names: so it is whole, and what a driver gave to a process of this user, unless another program of the same
        // user forged it. wgpu compares the adapter and the driver's own key for its caches as well.
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

    /// For pipelines.
    pub(super) fn cache(&self) -> &wgpu::PipelineCache {
        &self.cache
    }

    /// One more pipeline was made.
    pub(super) fn count_created_pipeline(&self) {
        self.created_pipelines.fetch_add(1, Ordering::AcqRel);
    }

    /// Writes the file if there are pipelines that it may not have. Processes that do so at the same time lose only what the
    /// others had compiled.
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
            tracing::warn!(file = %self.file.display(), %error, "compiled shaders are not kept");
        }
    }
}

/// What a file of this name is for.
fn cache_key(name: &str, adapter: &wgpu::AdapterInfo) -> String {
    format!("{name}\n{}\n{}\n{}", adapter.name, adapter.driver, adapter.driver_info)
}

/// What is in a file; none where there is no file.
fn read_verified(file: &Path, key: &str) -> io::Result<Option<Vec<u8>>> {
    let damaged = |what: &str| Err(io::Error::new(io::ErrorKind::InvalidData, what.to_owned()));
    let mut file = match File::open(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    if !is_private(&file)? {
        return damaged("others may write to it, or it belongs to another user");
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
        return damaged("it is not what was written");
    }
    Ok(Some(bytes.split_off(MAGIC.len() + DIGEST_BYTES)))
}

/// Writes what a driver has compiled, with its digest.
fn write_with_digest(file: &Path, key: &str, data: &[u8]) -> io::Result<()> {
    replace_file(file, &[&MAGIC[..], &compute_digest(key, data), data].concat())
}

/// The digest of data that is for an adapter and a driver.
fn compute_digest(key: &str, data: &[u8]) -> [u8; DIGEST_BYTES] {
    let digest = Sha256::new().chain_update((key.len() as u64).to_le_bytes()).chain_update(key).chain_update(data);
    digest.finalize().into()
}

/// Makes a directory that only its owner may enter, or closes one to others.
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

/// Whether an open file belongs to this process's user, and nobody else may write to it.
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

/// Replaces a file in one step, by one that only its owner may read.
pub(super) fn replace_file(file: &Path, bytes: &[u8]) -> io::Result<()> {
    let own = file.with_extension(format!("{}.new", std::process::id()));
    let mut options = File::options();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let written = options.open(&own).and_then(|mut new| new.write_all(bytes));
    written.and_then(|()| fs::rename(&own, file)).inspect_err(|_| {
        // It may not be there.
        let _ = fs::remove_file(&own);
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::Meter;
    use crate::gpu::context::block_on;
    use crate::gpu::tests::squares_program;
    use crate::gpu::{GpuOptions, enumerate_adapters, open_with};

    /// What the first adapter computes with its cache in this directory.
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
            return println!("SKIP: no adapter, or its driver gives nothing away");
        };
        let directory = tempfile::tempdir().unwrap();
        let required_features = wgpu::Features::PIPELINE_CACHE;
        let descriptor = wgpu::DeviceDescriptor { required_features, ..Default::default() };
        let (device, _queue) = block_on(adapter.request_device(&descriptor)).unwrap();
        let info = adapter.get_info();
        let given = || PipelineCacheFile::open(&device, &info, directory.path()).unwrap().loaded_bytes;
        assert_eq!(given(), 0, "there is none yet");
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

        // An intact file whose data lacks this driver's header: wgpu does not pass it to the driver.
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
        assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 1, "what is written is renamed");
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
        assert_eq!(mode(&directory), 0o700, "a directory that was open is closed");

        let file = directory.join("kept");
        write_with_digest(&file, "an adapter", b"what a driver says").unwrap();
        assert_eq!(mode(&file), 0o600);
        for open in [0o620, 0o602] {
            set(&file, open);
            let refused = read_verified(&file, "an adapter").unwrap_err().to_string();
            assert!(refused.contains("others may write"), "{open:o}: {refused}");
        }
        set(&file, 0o644);
        assert!(read_verified(&file, "an adapter").unwrap().is_some(), "reading harms nobody");
    }
}

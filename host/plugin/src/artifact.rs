//! An on-disk cache of precompiled plugins. Compiling takes up to seconds; loading compiled code takes microseconds.
//!
//! The cached files are native code and are trusted, so only files that this cache wrote are loaded. The directory
//! belongs to this process's user alone, and each opened file must belong to this user and be writable by nobody else.
//! A file contains a digest of its content and the key it was written for: the component, the engine's version and
//! settings, and the processor's features. An invalid file is deleted and the component is compiled again.

use std::fs::{self, File};
use std::hash::{Hash, Hasher};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use saggar_store::Digest;
use sha2::{Digest as _, Sha256};
use wasmtime::Engine;
use wasmtime::component::Component;

use crate::compiler::frame::AnswerPayload;
use crate::error::PluginError;
use crate::limits::{ARTIFACT_BYTES_MAX, ARTIFACTS_MAX};

const MAGIC: &[u8; 8] = b"SAGGARPC";
/// Version of the file's header. The engine's version is part of the key.
const FORMAT_VERSION: u32 = 1;
const HEADER_BYTES: usize = 8 + 4 + 32 + 8 + 32;

/// A directory of precompiled plugins for one engine.
#[derive(Debug)]
pub(crate) struct ArtifactCache {
    dir: PathBuf,
    /// Digest of everything except the component that the machine code depends on.
    engine: Digest,
    written: AtomicU64,
}

/// A freshly compiled component.
pub(crate) struct CompiledComponent {
    pub(crate) component: Component,
    /// Its serialized form, if the compiler returned that.
    pub(crate) precompiled_bytes: Option<Vec<u8>>,
}

impl CompiledComponent {
    /// Loads the code that a compile child returned.
    ///
    /// # Errors
    /// `Engine` if this process's engine refuses the code.
    pub(crate) fn from_compile_child(engine: &Engine, code: AnswerPayload) -> Result<CompiledComponent, PluginError> {
        let component = deserialize(engine, TrustedArtifact(code.bytes()));
        let refused = |_| PluginError::engine("the output of a compile child does not match this engine");
        Ok(CompiledComponent { component: component.map_err(refused)?, precompiled_bytes: Some(code.into_bytes()) })
    }
}

/// Reasons why a cache file is not loaded.
#[derive(Debug)]
enum ArtifactLoadError {
    Absent,
    Invalid(&'static str),
}

impl ArtifactCache {
    /// Opens the cache in `dir/plugins`, which is created if missing.
    ///
    /// # Errors
    /// If the directory cannot be written, or other users can write to it.
    pub(crate) fn open(dir: &Path, engine: &Engine) -> io::Result<ArtifactCache> {
        let dir = dir.join("plugins");
        private_dir(&dir)?;
        let mut hasher = StableHasher(Sha256::new());
        engine.precompile_compatibility_hash().hash(&mut hasher);
        cpu_features().hash(&mut hasher);
        let engine = Digest::of(&hasher.0.finalize());
        Ok(ArtifactCache { dir, engine, written: AtomicU64::new(0) })
    }

    /// Returns the component with this digest: loaded from the cache, or compiled and then cached.
    ///
    /// # Errors
    /// The errors of `compile`. Errors of the cache are only logged: they cost time but do not fail the call.
    pub(crate) fn get_or_compile(
        &self,
        engine: &Engine,
        digest: &Digest,
        compile: impl FnOnce() -> Result<CompiledComponent, PluginError>,
    ) -> Result<Component, PluginError> {
        let key = self.artifact_key(digest);
        let path = self.artifact_path(&key);
        match self.load(engine, &path, &key) {
            Ok(component) => return Ok(component),
            Err(ArtifactLoadError::Absent) => {}
            Err(ArtifactLoadError::Invalid(reason)) => {
                tracing::warn!(file = %path.display(), reason, "discarded a precompiled plugin");
                let _ = fs::remove_file(&path);
            }
        }
        let CompiledComponent { component, precompiled_bytes: code } = compile()?;
        let code = code.map_or_else(|| component.serialize().map_err(io::Error::other), Ok);
        let written = code.and_then(|code| self.write(&path, &key, &code));
        if let Err(error) = written {
            tracing::warn!(file = %path.display(), %error, "cannot cache a precompiled plugin");
        }
        Ok(component)
    }

    fn artifact_key(&self, digest: &Digest) -> Digest {
        Digest::of(&[&self.engine.bytes()[..], digest.bytes()].concat())
    }

    fn artifact_path(&self, key: &Digest) -> PathBuf {
        self.dir.join(format!("{key}.cwasm"))
    }

    fn load(&self, engine: &Engine, path: &Path, key: &Digest) -> Result<Component, ArtifactLoadError> {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(ArtifactLoadError::Absent),
            Err(_) => return Err(ArtifactLoadError::Invalid("it cannot be opened")),
        };
        if !is_private(&file) {
            return Err(ArtifactLoadError::Invalid("other users can write to it, or it belongs to another user"));
        }
        let mut bytes = Vec::new();
        file.take(ARTIFACT_BYTES_MAX)
            .read_to_end(&mut bytes)
            .map_err(|_| ArtifactLoadError::Invalid("it cannot be read"))?;
        deserialize(engine, verify_payload(&bytes, key).map_err(ArtifactLoadError::Invalid)?)
    }

    /// Writes a temporary file and renames it. A file at `path` is therefore complete or, after a crash, refused by its
    /// digest.
    fn write(&self, path: &Path, key: &Digest, payload: &[u8]) -> io::Result<()> {
        let number = self.written.fetch_add(1, Ordering::Relaxed);
        let draft = self.dir.join(format!("draft-{}-{number}", std::process::id()));
        let mut file = private_file(&draft)?;
        file.write_all(&encode_header(key, payload))?;
        file.write_all(payload)?;
        file.sync_all()?;
        fs::rename(&draft, path)?;
        self.prune()
    }

    /// Deletes the oldest files past [`ARTIFACTS_MAX`].
    fn prune(&self) -> io::Result<()> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.dir)? {
            let entry = entry?;
            files.push((entry.metadata()?.modified()?, entry.path()));
        }
        files.sort();
        let surplus = files.len().saturating_sub(ARTIFACTS_MAX);
        files.iter().take(surplus).try_for_each(|(_, path)| match fs::remove_file(path) {
            // Another process can prune at the same time.
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        })
    }
}

fn encode_header(key: &Digest, payload: &[u8]) -> Vec<u8> {
    let mut header = Vec::with_capacity(HEADER_BYTES);
    header.extend(MAGIC);
    header.extend(FORMAT_VERSION.to_le_bytes());
    header.extend(key.bytes());
    header.extend((payload.len() as u64).to_le_bytes());
    header.extend(Digest::of(payload).bytes());
    header
}

/// Returns the payload of a file whose header, length and digest match what this cache writes for `key`; otherwise what
/// is wrong.
fn verify_payload<'a>(bytes: &'a [u8], key: &Digest) -> Result<TrustedArtifact<'a>, &'static str> {
    let Some((head, payload)) = bytes.split_at_checked(HEADER_BYTES) else { return Err("it is too short") };
    if head == encode_header(key, payload) {
        return Ok(TrustedArtifact(payload));
    }
    Err(match () {
        () if head[..8] != *MAGIC => "it is another kind of file",
        () if head[8..12] != FORMAT_VERSION.to_le_bytes() => "it has another format",
        () if head[12..44] != *key.bytes() => "it was made by another engine or for another processor",
        () if head[44..52] != (payload.len() as u64).to_le_bytes() => "it was cut off",
        () => "its digest is wrong",
    })
}

/// Bytes that [`verify_payload`] has accepted, or that a compile child returned.
struct TrustedArtifact<'a>(&'a [u8]);

#[expect(unsafe_code, reason = "wasmtime trusts precompiled code, and this is our own")]
fn deserialize(engine: &Engine, payload: TrustedArtifact<'_>) -> Result<Component, ArtifactLoadError> {
    // SAFETY: the bytes are the output of `Component::serialize` or `Engine::precompile_component` of an engine of this
    // version and settings. They come from one of two sources. The first is a file that, when it was opened, belonged
    // to this process's user and that no other user can write to (`is_private`); a user who can replace the directories
    // above it still cannot create such a file. A `TrustedArtifact` proves that the digest in the file matches the
    // bytes under this engine's key, so code damaged by a crash or a disk error is not run. The digest does not protect
    // against other programs of this user. The second source is a pipe from a child that this process started from its
    // own program (`AnswerPayload`). The child compiles but does not run its input, and sends a digest. In both cases
    // the bytes are in memory and cannot change after the check.
    unsafe { Component::deserialize(engine, payload.0) }
        .map_err(|_| ArtifactLoadError::Invalid("the engine refuses it"))
}

/// Creates a directory that only its owner can enter, and checks that the owner is this process's user.
#[cfg(unix)]
fn private_dir(dir: &Path) -> io::Result<()> {
    use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};

    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    if fs::symlink_metadata(dir)?.file_type().is_symlink() {
        return Err(io::Error::other("the directory is a symbolic link"));
    }
    if fs::metadata(dir)?.mode() & 0o077 != 0 {
        // Other users could write to it before, so its files are not trusted: remove them.
        for entry in fs::read_dir(dir)? {
            fs::remove_file(entry?.path())?;
        }
        fs::set_permissions(dir, fs::Permissions::from_mode(0o700))?;
    }
    // A new file belongs to the process's user, so its owner is that user's id.
    let probe = dir.join(format!("draft-{}-probe", std::process::id()));
    let own = private_file(&probe)?.metadata()?.uid();
    fs::remove_file(&probe)?;
    if fs::metadata(dir)?.uid() != own {
        return Err(io::Error::other("the directory belongs to another user"));
    }
    Ok(())
}

#[cfg(not(unix))]
fn private_dir(_: &Path) -> io::Result<()> {
    Err(io::Error::other("this system has no owner and permissions of directories to check"))
}

/// Returns whether an open file belongs to this process's user and no other user can write to it.
#[cfg(unix)]
fn is_private(file: &File) -> bool {
    use std::os::unix::fs::MetadataExt;

    let own = rustix::process::geteuid().as_raw();
    file.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.uid() == own && metadata.mode() & 0o022 == 0)
}

#[cfg(not(unix))]
fn is_private(_: &File) -> bool {
    false
}

/// Creates a file that only its owner can read, replacing any file with this name.
fn private_file(path: &Path) -> io::Result<File> {
    let _ = fs::remove_file(path);
    let mut options = File::options();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Returns the processor's features that generated code can use: code must not run on a processor that lacks some of
/// them.
fn cpu_features() -> Vec<&'static str> {
    let mut features = vec![std::env::consts::ARCH, std::env::consts::OS];
    #[cfg(target_arch = "x86_64")]
    {
        macro_rules! detect {
            ($($feature:tt)*) => { $(if is_x86_feature_detected!($feature) { features.push($feature); })* };
        }
        detect!("sse3" "ssse3" "sse4.1" "sse4.2" "popcnt" "avx" "avx2" "fma" "bmi1" "bmi2" "lzcnt" "cmpxchg16b"
            "avx512bitalg" "avx512dq" "avx512f" "avx512vl" "avx512vbmi");
    }
    features
}

/// SHA-256 as a [`Hasher`]: `Hash` implementations feed it the same bytes in every process of one build.
struct StableHasher(Sha256);

impl Hasher for StableHasher {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(&self) -> u64 {
        let digest = self.0.clone().finalize();
        u64::from_le_bytes([digest[0], digest[1], digest[2], digest[3], digest[4], digest[5], digest[6], digest[7]])
    }
}

#[cfg(test)]
mod tests;

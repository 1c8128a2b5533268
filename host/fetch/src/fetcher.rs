//! The client that fetches.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use saggar_store::digest::Sha256Hasher;
use saggar_store::{Digest, StoreError};
use serde::{Deserialize, Serialize};
use ureq::http::header::{CONTENT_LENGTH, LOCATION};
use ureq::unversioned::resolver::DefaultResolver;
use ureq::unversioned::transport::DefaultConnector;
use ureq::{Agent, Body};

use crate::address_rule::{PrivateAddressError, PublicResolver};
use crate::error::FetchError;
use crate::limits::{
    CONNECT_TIME_MAX, FETCH_TIME_MAX, FETCHES_MAX, PIECE_BYTES, REDIRECTS_MAX, RESPONSE_TIME_MAX, URL_BYTES_MAX,
};
use crate::url_prefix::{UrlPrefix, redirect_target};

/// What can be fetched.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FetchPolicy {
    /// Prefixes of the URLs. Empty disables fetching.
    pub allowed: Vec<UrlPrefix>,
    /// Whether names of hosts can resolve to private addresses.
    pub allow_private: bool,
}

impl Serialize for UrlPrefix {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for UrlPrefix {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<UrlPrefix, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// A file to fetch.
#[derive(Clone, Copy, Debug)]
pub struct FetchRequest<'a> {
    /// Its URL.
    pub url: &'a str,
    /// Its SHA-256.
    pub sha256: &'a Digest,
    /// Its maximum size in bytes.
    pub bytes_max: u64,
}

/// Fetches files by a policy.
#[derive(Clone, Debug)]
pub struct RemoteFetcher {
    policy: FetchPolicy,
    /// Refuses names of private addresses.
    public: Agent,
    /// Connects to any address.
    private: Agent,
    running: Arc<AtomicUsize>,
}

/// A fetched file whose digest was verified. It is removed when this is dropped.
#[derive(Debug)]
pub struct FetchedFile {
    path: PathBuf,
    bytes: u64,
}

impl FetchedFile {
    fn new_in(dir: &Path, sha256: &Digest) -> FetchedFile {
        static COUNTER: AtomicUsize = AtomicUsize::new(0);
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        FetchedFile { path: dir.join(format!("{sha256}.{}.{number}", std::process::id())), bytes: 0 }
    }

    /// Returns the path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the size in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Creates an empty folder beside the file, for its content. It is removed with the file.
    ///
    /// # Errors
    /// Returns `Store`.
    pub fn create_folder(&self) -> Result<PathBuf, FetchError> {
        let folder = self.folder();
        fs::create_dir(&folder).map_err(StoreError::io(&folder))?;
        Ok(folder)
    }

    fn folder(&self) -> PathBuf {
        self.path.with_added_extension("files")
    }
}

impl Drop for FetchedFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
        let _ = fs::remove_dir_all(self.folder());
    }
}

/// Removes files of processes that were killed while they fetched.
fn remove_abandoned(dir: &Path) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let age = entry.metadata().and_then(|data| data.modified()).ok().and_then(|at| at.elapsed().ok());
        if age.is_some_and(|age| age > 2 * FETCH_TIME_MAX) {
            let _ = fs::remove_file(entry.path());
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// One of the fetches that run at once.
struct RunningFetch<'a>(&'a AtomicUsize);

impl RunningFetch<'_> {
    fn start(running: &AtomicUsize) -> Result<RunningFetch<'_>, FetchError> {
        let add = |count: usize| (count < FETCHES_MAX).then_some(count + 1);
        match running.fetch_update(Ordering::AcqRel, Ordering::Acquire, add) {
            Ok(_) => Ok(RunningFetch(running)),
            Err(_) => Err(FetchError::Busy),
        }
    }
}

impl Drop for RunningFetch<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl RemoteFetcher {
    /// Returns a client with this policy.
    pub fn new(policy: FetchPolicy) -> RemoteFetcher {
        let config = || {
            Agent::config_builder()
                .http_status_as_error(false)
                .max_redirects(0)
                .max_redirects_will_error(false)
                .proxy(None)
                .timeout_connect(Some(CONNECT_TIME_MAX))
                .timeout_recv_response(Some(RESPONSE_TIME_MAX))
                .timeout_global(Some(FETCH_TIME_MAX))
                .user_agent(concat!("saggar/", env!("CARGO_PKG_VERSION")))
                .build()
        };
        RemoteFetcher {
            policy,
            public: Agent::with_parts(config(), DefaultConnector::default(), PublicResolver::default()),
            private: Agent::with_parts(config(), DefaultConnector::default(), DefaultResolver::default()),
            running: Arc::default(),
        }
    }

    /// Checks that the policy allows a URL, without a request.
    ///
    /// # Errors
    /// Returns `Disabled`, `BadUrl` or `NotAllowed`.
    pub fn check(&self, url: &str) -> Result<(), FetchError> {
        self.allowing_prefix(url).map(drop)
    }

    /// Returns the URL's parts, and the prefix that allows it.
    fn allowing_prefix(&self, url: &str) -> Result<(UrlPrefix, &UrlPrefix), FetchError> {
        let bad = |reason: &dyn std::fmt::Display| FetchError::BadUrl {
            url: url.split(['?', '#']).next().unwrap_or_default().chars().take(URL_BYTES_MAX).collect(),
            reason: reason.to_string(),
        };
        let parsed = UrlPrefix::of_url(url).map_err(|error| bad(&error))?;
        if self.policy.allowed.is_empty() {
            return Err(FetchError::Disabled { url: parsed.to_string() });
        }
        match self.policy.allowed.iter().find(|allowed| allowed.allows(&parsed)) {
            Some(allowed) => Ok((parsed, allowed)),
            None => {
                let allowed: Vec<String> = self.policy.allowed.iter().map(ToString::to_string).collect();
                Err(FetchError::NotAllowed { url: parsed.to_string(), allowed: allowed.join(", ") })
            }
        }
    }

    /// Fetches a file into the directory `dir`, which is created if it does not exist. Blocks. At most [`FETCHES_MAX`]
    /// fetches of this client and its clones run at once.
    ///
    /// # Errors
    /// Every [`FetchError`].
    pub fn fetch(&self, request: &FetchRequest<'_>, dir: &Path) -> Result<FetchedFile, FetchError> {
        self.check(request.url)?;
        let _running = RunningFetch::start(&self.running)?;
        fs::create_dir_all(dir).map_err(StoreError::io(dir))?;
        remove_abandoned(dir);
        let (url, body) = self.open(request)?;
        let mut file = FetchedFile::new_in(dir, request.sha256);
        file.bytes = write_verified(request, &url, body, &file.path)?;
        tracing::info!(url, bytes = file.bytes, sha256 = %request.sha256, "fetched");
        Ok(file)
    }

    /// Follows redirects to the response with the file. Returns its URL without the query.
    fn open(&self, request: &FetchRequest<'_>) -> Result<(String, Body), FetchError> {
        let mut target = request.url.to_owned();
        for _ in 0..=REDIRECTS_MAX {
            let (parsed, prefix) = self.allowing_prefix(&target)?;
            let is_private_allowed = self.policy.allow_private || prefix.names_an_address();
            let agent = if is_private_allowed { &self.private } else { &self.public };
            let url = parsed.to_string();
            let response = agent.get(&target).call().map_err(|error| connection_error(&url, error))?;
            let header = |name| response.headers().get(name).and_then(|value| value.to_str().ok());
            match response.status().as_u16() {
                200 => {
                    let length: Option<u64> = header(CONTENT_LENGTH).and_then(|length| length.parse().ok());
                    if length.is_some_and(|length| length > request.bytes_max) {
                        return Err(FetchError::TooLarge { url, bytes_max: request.bytes_max });
                    }
                    return Ok((url, response.into_body()));
                }
                status @ (301 | 302 | 303 | 307 | 308) => match header(LOCATION) {
                    Some(location) => target = redirect_target(&parsed, location),
                    None => return Err(FetchError::Status { url, status }),
                },
                status => return Err(FetchError::Status { url, status }),
            }
        }
        let url = UrlPrefix::of_url(request.url).map_or_else(|_| String::new(), |url| url.to_string());
        Err(FetchError::Redirects { url })
    }
}

fn connection_error(url: &str, error: ureq::Error) -> FetchError {
    let private = match &error {
        ureq::Error::Other(other) => other.downcast_ref::<PrivateAddressError>().copied(),
        _ => None,
    };
    match private {
        Some(PrivateAddressError(address)) => FetchError::PrivateAddress { url: url.to_owned(), address },
        None => FetchError::Connection { url: url.to_owned(), reason: error.to_string() },
    }
}

/// Writes the body durably. The size is counted while it is read, because a server can send more than it announces.
fn write_verified(request: &FetchRequest<'_>, url: &str, body: Body, path: &Path) -> Result<u64, FetchError> {
    let mut file = File::create_new(path).map_err(StoreError::io(path))?;
    let (mut reader, mut hasher) = (body.into_reader(), Sha256Hasher::new());
    let (mut piece, mut bytes) = (vec![0; PIECE_BYTES], 0_u64);
    loop {
        let read = reader.read(&mut piece);
        let read = read.map_err(|error| FetchError::Connection { url: url.to_owned(), reason: error.to_string() })?;
        if read == 0 {
            break;
        }
        bytes += read as u64;
        if bytes > request.bytes_max {
            return Err(FetchError::TooLarge { url: url.to_owned(), bytes_max: request.bytes_max });
        }
        hasher.update(&piece[..read]);
        file.write_all(&piece[..read]).map_err(StoreError::io(path))?;
    }
    let found = hasher.finish();
    if found != *request.sha256 {
        return Err(FetchError::WrongDigest { url: url.to_owned(), found, expected: *request.sha256 });
    }
    file.sync_all().map_err(StoreError::io(path))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests;

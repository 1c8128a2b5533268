//! TLS: handshakes, and certificates that are reloaded while the server runs.
//!
//! A pair of files counts as changed when its bytes differ, whether the files were written in place, renamed, or
//! replaced behind a symbolic link. It is loaded once two successive polls read the same bytes, so that half-written
//! files are not judged.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use saggar_serving::shutdown::wait_for_shutdown;
use saggar_store::{Digest, regular_file};
use thiserror::Error;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::http::HttpVersion;
use super::peekable_stream::{PeekableStream, set_no_delay};
use crate::error::plain_http_on_tls_response;
use crate::limits::{CERTIFICATE_BYTES_MAX, CERTIFICATE_POLL, HEAD_BYTES_MAX};

/// Why certificates cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The path of the file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A file that is not PEM, or lacks the required item.
    #[error("{}: no {what} in PEM form: {reason}", path.display())]
    Pem {
        /// The path of the file.
        path: PathBuf,
        /// The required item.
        what: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// A certificate and key that cannot be used, or do not match.
    #[error("{} and {}: {source}", certificate.display(), key.display())]
    Refused {
        /// The path of the certificates.
        certificate: PathBuf,
        /// The path of the key.
        key: PathBuf,
        /// The error of rustls.
        source: rustls::Error,
    },
}

/// A certificate and its key, reloaded when their files change. Clones share them.
#[derive(Clone, Debug)]
pub struct TlsCertificates {
    shared: Arc<CertificateState>,
}

impl PartialEq for TlsCertificates {
    fn eq(&self, other: &TlsCertificates) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }
}

#[derive(Debug)]
struct CertificateState {
    certificate: PathBuf,
    key: PathBuf,
    current: RwLock<Arc<ServerConfig>>,
    loaded: RwLock<Digest>,
}

/// The contents of both files.
struct CertificateFiles {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl TlsCertificates {
    /// Loads a certificate chain, the server's certificate first, and its key, both in PEM form.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read or used.
    pub fn load(certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Result<TlsCertificates, TlsError> {
        let (certificate, key) = (certificate.into(), key.into());
        let pair = CertificateFiles::read(&certificate, &key)?;
        let config = pair.config(&certificate, &key)?;
        let (current, loaded) = (RwLock::new(Arc::new(config)), RwLock::new(pair.digest()));
        Ok(TlsCertificates { shared: Arc::new(CertificateState { certificate, key, current, loaded }) })
    }

    fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.shared.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Loads new files until the server stops. Files that cannot be used are logged once, and the previous certificate
    /// stays in use.
    pub(crate) async fn watch_files(self, shutdown: watch::Receiver<bool>) {
        self.watch_files_every(CERTIFICATE_POLL, shutdown).await;
    }

    pub(crate) async fn watch_files_every(self, every: Duration, mut shutdown: watch::Receiver<bool>) {
        let mut ticks = interval(every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut look = CertificateWatch::default();
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = wait_for_shutdown(&mut shutdown) => return,
            }
            let certificates = self.clone();
            let looked = tokio::task::spawn_blocking(move || {
                look.poll(&certificates);
                look
            });
            // A poll that panicked is logged by the panic hook; the next one starts from the default state.
            look = looked.await.unwrap_or_default();
        }
    }
}

/// The state of watching the files.
#[derive(Debug, Default)]
struct CertificateWatch {
    /// The digest of the files at the last poll.
    last: Option<Digest>,
    /// The error logged last.
    reported: Option<String>,
}

impl CertificateWatch {
    fn poll(&mut self, certificates: &TlsCertificates) {
        let shared = &certificates.shared;
        let pair = match CertificateFiles::read(&shared.certificate, &shared.key) {
            Ok(pair) => pair,
            Err(error) => return self.report_once(&error),
        };
        let digest = pair.digest();
        if digest == *shared.loaded.read().unwrap_or_else(PoisonError::into_inner) {
            self.reported = None;
            self.last = None;
            return;
        }
        if self.last.replace(digest) != Some(digest) {
            return;
        }
        match pair.config(&shared.certificate, &shared.key) {
            Ok(config) => {
                *shared.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(config);
                *shared.loaded.write().unwrap_or_else(PoisonError::into_inner) = digest;
                self.reported = None;
                tracing::info!(certificate = %shared.certificate.display(), "new TLS certificate loaded");
            }
            Err(error) => self.report_once(&error),
        }
    }

    fn report_once(&mut self, error: &TlsError) {
        let text = error.to_string();
        if self.reported.as_ref() != Some(&text) {
            tracing::error!(error = text, "the new TLS certificate is refused; the previous one stays in use");
            self.reported = Some(text);
        }
    }
}

impl CertificateFiles {
    fn read(certificate: &Path, key: &Path) -> Result<CertificateFiles, TlsError> {
        let read = |path: &Path| {
            let refuse = |source| TlsError::Io { path: path.to_owned(), source };
            regular_file::read(path, CERTIFICATE_BYTES_MAX).map_err(refuse)
        };
        Ok(CertificateFiles { certificate: read(certificate)?, key: read(key)? })
    }

    fn digest(&self) -> Digest {
        let mut hasher = saggar_store::Sha256Hasher::new();
        hasher.update_field(&self.certificate);
        hasher.update_field(&self.key);
        hasher.finish()
    }

    fn config(&self, certificate: &Path, key: &Path) -> Result<ServerConfig, TlsError> {
        let bad = |path: &Path, what, reason: String| TlsError::Pem { path: path.to_owned(), what, reason };
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(&self.certificate)
            .collect::<Result<_, _>>()
            .map_err(|error| bad(certificate, "certificate", error.to_string()))?;
        if chain.is_empty() {
            return Err(bad(certificate, "certificate", "the file contains none".to_owned()));
        }
        let private =
            PrivateKeyDer::from_pem_slice(&self.key).map_err(|error| bad(key, "private key", error.to_string()))?;
        let refuse = |source| TlsError::Refused { certificate: certificate.to_owned(), key: key.to_owned(), source };
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(refuse)?
            .with_no_client_auth()
            .with_single_cert(chain, private)
            .map_err(refuse)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }
}

/// Does the handshake and returns the negotiated HTTP version, or `None` if the client speaks plain HTTP, which is
/// answered with an error.
pub(super) async fn accept_tls(
    stream: TcpStream,
    certificates: &TlsCertificates,
    patience: Duration,
) -> io::Result<Option<(TlsStream<PeekableStream<TcpStream>>, HttpVersion)>> {
    set_no_delay(&stream)?;
    let mut first = [0];
    let looked = stream.peek(&mut first).await?;
    // A handshake begins with byte 22, a request with its method.
    if looked == 1 && first[0].is_ascii_alphabetic() {
        return reject_plain_http(stream).await.map(|()| None);
    }
    let opened = TlsAcceptor::from(certificates.config()).accept(PeekableStream::new(stream, patience)).await?;
    let agreed = opened.get_ref().1.alpn_protocol();
    let version = if agreed == Some(b"h2") { HttpVersion::Two } else { HttpVersion::One };
    Ok(Some((opened, version)))
}

async fn reject_plain_http(mut stream: TcpStream) -> io::Result<()> {
    stream.write_all(&plain_http_on_tls_response()).await?;
    stream.shutdown().await?;
    // Closing a connection with unread bytes resets it, and the response would be lost.
    let mut dropped = vec![0; HEAD_BYTES_MAX];
    while timeout(Duration::from_secs(1), stream.read(&mut dropped)).await.is_ok_and(|read| read.is_ok_and(|n| n > 0)) {
    }
    Ok(())
}

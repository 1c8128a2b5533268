//! The certificates of authorities that a client of TLS trusts: the public ones, and those in a file in PEM form.

use std::path::{Path, PathBuf};

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use thiserror::Error;

/// Why a file has no certificates to trust.
#[derive(Debug, Error)]
#[error("{}: {reason}; expected certificates in PEM form", path.display())]
pub struct CertificateFileError {
    path: PathBuf,
    reason: String,
}

/// Returns the public authorities.
pub fn public_authorities() -> RootCertStore {
    RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() }
}

/// Returns the authorities in a file.
///
/// # Errors
/// Fails if the file cannot be read or has no certificate.
pub fn authorities_in(path: &Path) -> Result<RootCertStore, CertificateFileError> {
    let mut roots = RootCertStore::empty();
    add_authorities(&mut roots, path)?;
    Ok(roots)
}

/// Adds the authorities in a file.
///
/// # Errors
/// Fails if the file cannot be read or has no certificate.
pub(crate) fn add_authorities(roots: &mut RootCertStore, path: &Path) -> Result<(), CertificateFileError> {
    let refuse = |reason: String| CertificateFileError { path: path.to_owned(), reason };
    let mut is_empty = true;
    for certificate in CertificateDer::pem_file_iter(path).map_err(|error| refuse(error.to_string()))? {
        let certificate = certificate.map_err(|error| refuse(error.to_string()))?;
        roots.add(certificate).map_err(|error| refuse(error.to_string()))?;
        is_empty = false;
    }
    if is_empty { Err(refuse("there is no certificate".to_owned())) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_certificates_is_refused_with_its_name() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ca.pem");
        for text in [None, Some(""), Some("-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n")] {
            if let Some(text) = text {
                std::fs::write(&path, text).unwrap();
            }
            let message = authorities_in(&path).unwrap_err().to_string();
            assert!(message.contains("ca.pem") && message.contains("PEM form"), "{message}");
        }
        assert!(!public_authorities().is_empty());
    }
}

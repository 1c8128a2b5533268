//! Where the API server is, and what identifies this process to it: the service account of its pod, or files.

use std::fmt;
use std::path::{Path, PathBuf};

use saggar_project::KubernetesPoolSection;
use thiserror::Error;
use ureq::tls::{Certificate, PemItem, RootCerts, parse_pem};

/// Where a pod finds its token and the authorities of the API server.
const SERVICE_ACCOUNT_DIR: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// The access to an API server.
#[derive(Clone, PartialEq, Eq)]
pub struct ClusterAccess {
    /// The URL of the API server, without a `/` at its end.
    pub server: String,
    /// The file with the token, which is read for each request, because the system renews it. `None` for an API server that
    /// asks for none.
    pub token_file: Option<PathBuf>,
    /// The file with certificate authorities to trust. `None` for the public ones.
    pub ca_file: Option<PathBuf>,
}

/// Why an API server cannot be reached with the given settings.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum AccessError {
    /// There are no settings, and this is no pod.
    #[error(
        "no API server: outside of a cluster, `kubernetes` needs api_server, and usually token_file and ca_file; in a pod, \
         set automountServiceAccountToken"
    )]
    NoServer,
    /// A file cannot be used.
    #[error("{}: {reason}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
}

impl ClusterAccess {
    /// Returns the access that a pool names, or else that of this pod. `directory` is that of the project file, which paths
    /// are relative to, and `variable` returns an environment variable.
    ///
    /// # Errors
    /// `NoServer`.
    pub fn of_pool(
        pool: &KubernetesPoolSection,
        directory: &Path,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<ClusterAccess, AccessError> {
        let named = |file: &Option<String>| file.as_ref().map(|file| directory.join(file));
        if let Some(server) = &pool.api_server {
            let server = server.trim_end_matches('/').to_owned();
            return Ok(ClusterAccess { server, token_file: named(&pool.token_file), ca_file: named(&pool.ca_file) });
        }
        let (host, port) = (variable("KUBERNETES_SERVICE_HOST"), variable("KUBERNETES_SERVICE_PORT"));
        let (Some(host), Some(port)) = (host, port) else { return Err(AccessError::NoServer) };
        // An IPv6 address needs brackets in a URL.
        let host = if host.contains(':') { format!("[{host}]") } else { host };
        let in_pod = |name: &str| Some(Path::new(SERVICE_ACCOUNT_DIR).join(name));
        Ok(ClusterAccess {
            server: format!("https://{host}:{port}"),
            token_file: named(&pool.token_file).or_else(|| in_pod("token")),
            ca_file: named(&pool.ca_file).or_else(|| in_pod("ca.crt")),
        })
    }

    /// Reads the token.
    ///
    /// # Errors
    /// `File`.
    pub(crate) fn read_token(&self) -> Result<Option<String>, AccessError> {
        let Some(path) = &self.token_file else { return Ok(None) };
        let token = std::fs::read_to_string(path).map_err(|error| file_error(path, error))?;
        let token = token.trim();
        if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(file_error(path, "expected a token, and nothing else"));
        }
        Ok(Some(token.to_owned()))
    }

    /// Reads the authorities to trust.
    ///
    /// # Errors
    /// `File`.
    pub(crate) fn read_authorities(&self) -> Result<RootCerts, AccessError> {
        let Some(path) = &self.ca_file else { return Ok(RootCerts::WebPki) };
        let pem = std::fs::read(path).map_err(|error| file_error(path, error))?;
        let mut certificates: Vec<Certificate<'static>> = Vec::new();
        for item in parse_pem(&pem) {
            if let PemItem::Certificate(certificate) = item.map_err(|error| file_error(path, error))? {
                certificates.push(certificate);
            }
        }
        if certificates.is_empty() {
            return Err(file_error(path, "no certificate in PEM form"));
        }
        Ok(RootCerts::new_with_certs(&certificates))
    }
}

impl fmt::Debug for ClusterAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterAccess").field("server", &self.server).finish_non_exhaustive()
    }
}

fn file_error(path: &Path, reason: impl fmt::Display) -> AccessError {
    AccessError::File { path: path.to_owned(), reason: reason.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubernetes_engine::tests::pool;

    #[test]
    fn a_pod_finds_its_api_server_and_others_need_a_setting() {
        let none = |_: &str| None;
        assert_eq!(ClusterAccess::of_pool(&pool(), Path::new(""), &none), Err(AccessError::NoServer));
        let in_pod = |host: &'static str| {
            move |name: &str| match name {
                "KUBERNETES_SERVICE_HOST" => Some(host.to_owned()),
                "KUBERNETES_SERVICE_PORT" => Some("443".to_owned()),
                _ => None,
            }
        };
        let access = ClusterAccess::of_pool(&pool(), Path::new(""), &in_pod("10.96.0.1")).unwrap();
        assert_eq!(access.server, "https://10.96.0.1:443");
        assert!(access.token_file.unwrap().ends_with("serviceaccount/token"));
        let access = ClusterAccess::of_pool(&pool(), Path::new(""), &in_pod("fd00::1")).unwrap();
        assert_eq!(access.server, "https://[fd00::1]:443");
        let named = KubernetesPoolSection {
            api_server: Some("https://10.0.0.1:6443/".to_owned()),
            token_file: Some("token".to_owned()),
            ..pool()
        };
        let access = ClusterAccess::of_pool(&named, Path::new("/etc/saggar"), &none).unwrap();
        assert_eq!(access.server, "https://10.0.0.1:6443");
        assert_eq!((access.token_file, access.ca_file), (Some("/etc/saggar/token".into()), None));
    }

    #[test]
    fn files_that_cannot_be_used_are_named() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("file");
        let (token_file, ca_file) = (Some(file.clone()), Some(file.clone()));
        let access = ClusterAccess { server: String::new(), token_file, ca_file };
        let reason = access.read_token().unwrap_err().to_string();
        assert!(reason.contains("file: No such file"), "{reason}");
        std::fs::write(&file, "\n").unwrap();
        let reason = access.read_token().unwrap_err().to_string();
        assert!(reason.contains("expected a token"), "{reason}");
        let reason = access.read_authorities().unwrap_err().to_string();
        assert!(reason.contains("no certificate in PEM form"), "{reason}");
        std::fs::write(&file, "abc\n").unwrap();
        assert_eq!(access.read_token(), Ok(Some("abc".to_owned())));
    }
}

//! The server under load: its address, its certificate, and the connections to it.

use std::path::Path;
use std::sync::Arc;

use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use saggar_store::certificates::{authorities_in, public_authorities};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;
use ureq::http::header::{AUTHORIZATION, HOST, USER_AGENT};
use ureq::http::{HeaderMap, HeaderValue, Uri};

use super::load_connection::LoadConnection;
use crate::args::BenchProtocol;
use crate::exit::CliError;
use crate::server::ServerAddress;

/// The server under load.
pub(super) struct LoadTarget {
    host: String,
    port: u16,
    /// The URL before the paths, without a slash at its end.
    base: String,
    /// The path that the URL itself has.
    base_path: String,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    protocol: BenchProtocol,
    /// The headers of every request.
    headers: HeaderMap,
}

impl LoadTarget {
    /// Returns the server at an address, to be asked by this protocol.
    ///
    /// # Errors
    /// Fails if the URL, the key or the certificates are invalid.
    pub(super) fn new(address: &ServerAddress, protocol: BenchProtocol) -> Result<LoadTarget, CliError> {
        let url = address.host().trim_end_matches('/');
        let invalid = |reason: &str| {
            CliError::invalid(format!("{url}: {reason}"))
                .with_hint("expected a URL such as http://127.0.0.1:5000: --host URL")
        };
        let uri: Uri = url.parse().map_err(|error| invalid(&format!("{error}")))?;
        let is_tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(invalid("it begins with neither http:// nor https://")),
        };
        let host = uri.host().ok_or_else(|| invalid("it names no host"))?;
        // The brackets of an IPv6 address belong to the URL.
        let name = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let authority = uri.authority().map(|authority| authority.as_str()).unwrap_or(host);
        let mut headers = HeaderMap::new();
        headers.insert(USER_AGENT, HeaderValue::from_static("saggar-bench"));
        if protocol != BenchProtocol::Grpc {
            headers.insert(HOST, HeaderValue::from_str(authority).map_err(|error| invalid(&error.to_string()))?);
        }
        if let Some((key, _)) = &address.key {
            let mut bearer = HeaderValue::from_str(&format!("Bearer {}", key.trim()))
                .map_err(|_| CliError::invalid("the key contains characters that an HTTP header cannot carry"))?;
            bearer.set_sensitive(true);
            headers.insert(AUTHORIZATION, bearer);
        }
        let tls = is_tls.then(|| {
            let server = ServerName::try_from(name.clone()).map_err(|error| invalid(&error.to_string()))?;
            let ca = address.ca.as_ref().map(|(file, _)| file.as_path());
            Ok::<_, CliError>((TlsConnector::from(Arc::new(client_config(ca, protocol)?)), server))
        });
        let base_path = uri.path().trim_end_matches('/').to_owned();
        let port = uri.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        Ok(LoadTarget { host: name, port, base: url.to_owned(), base_path, tls: tls.transpose()?, protocol, headers })
    }

    /// Returns the headers of every request.
    pub(super) fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// Returns the request target for a path: with the server's URL in HTTP/2, as it requires, else the path alone.
    pub(super) fn request_uri(&self, path: &str) -> Uri {
        let uri = match self.protocol {
            BenchProtocol::Grpc => format!("{}{path}", self.base),
            BenchProtocol::Json | BenchProtocol::Binary => format!("{}{path}", self.base_path),
        };
        uri.parse().expect("the URL and the path are valid")
    }

    /// Opens a connection: HTTP/2 for gRPC, else HTTP/1.1.
    ///
    /// # Errors
    /// Returns the reason as text.
    pub(super) async fn connect(&self) -> Result<LoadConnection, String> {
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await.map_err(|error| error.to_string())?;
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        match &self.tls {
            None => self.handshake(stream).await,
            Some((connector, name)) => {
                let stream = connector.connect(name.clone(), stream).await.map_err(|error| error.to_string())?;
                self.handshake(stream).await
            }
        }
    }

    async fn handshake<S>(&self, stream: S) -> Result<LoadConnection, String>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let stream = TokioIo::new(stream);
        // The tasks end with their connections; a request that fails reports why.
        match self.protocol {
            BenchProtocol::Grpc => {
                let (sender, connection) =
                    http2::handshake(TokioExecutor::new(), stream).await.map_err(|error| error.to_string())?;
                tokio::spawn(connection);
                Ok(LoadConnection::Http2(sender))
            }
            BenchProtocol::Json | BenchProtocol::Binary => {
                let (sender, connection) = http1::handshake(stream).await.map_err(|error| error.to_string())?;
                tokio::spawn(connection);
                Ok(LoadConnection::Http1(sender))
            }
        }
    }
}

/// Returns the configuration of TLS that trusts the certificates in the file `ca`, or the public authorities.
fn client_config(ca: Option<&Path>, protocol: BenchProtocol) -> Result<ClientConfig, CliError> {
    let roots = match ca {
        None => public_authorities(),
        Some(file) => authorities_in(file).map_err(|error| CliError::invalid(error.to_string()))?,
    };
    let mut config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = match protocol {
        BenchProtocol::Grpc => vec![b"h2".to_vec()],
        BenchProtocol::Json | BenchProtocol::Binary => vec![b"http/1.1".to_vec()],
    };
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::run::layers::ConfigSource;

    fn target(url: &str, protocol: BenchProtocol) -> Result<LoadTarget, CliError> {
        let host = Some((url.to_owned(), ConfigSource::Flag));
        LoadTarget::new(&ServerAddress { host, ..ServerAddress::default() }, protocol)
    }

    #[test]
    fn a_server_is_addressed_by_its_url() {
        let plain = target("http://127.0.0.1:5000/", BenchProtocol::Json).unwrap();
        assert_eq!((plain.host.as_str(), plain.port, plain.tls.is_none()), ("127.0.0.1", 5000, true));
        assert_eq!(plain.request_uri("/v2"), "/v2");
        let proxied = target("https://[::1]/saggar", BenchProtocol::Grpc).unwrap();
        assert_eq!((proxied.host.as_str(), proxied.port, proxied.tls.is_some()), ("::1", 443, true));
        assert_eq!(proxied.request_uri("/v2"), "https://[::1]/saggar/v2");
        for url in ["ftp://localhost", "localhost:5000", "http://"] {
            assert!(target(url, BenchProtocol::Json).is_err(), "{url}");
        }
    }
}

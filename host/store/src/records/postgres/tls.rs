//! Encrypted connections: rustls below the client of PostgreSQL.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::TlsConnector;

use super::settings::CertificateTrust;
use crate::certificates::{authorities_in, public_authorities};

type BoxedError = Box<dyn std::error::Error + Send + Sync>;

/// Encrypts connections.
#[derive(Clone, Debug)]
pub(super) struct TlsSetup {
    config: Arc<ClientConfig>,
}

impl TlsSetup {
    /// Reads the certificates of authorities.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or has no certificate.
    pub(super) fn new(trust: &CertificateTrust) -> Result<TlsSetup, BoxedError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier: Arc<dyn ServerCertVerifier> = match trust {
            CertificateTrust::Any => Arc::new(AnyCertificate { provider: Arc::clone(&provider) }),
            CertificateTrust::PublicAuthorities => verifier_of(public_authorities(), &provider)?,
            CertificateTrust::AuthoritiesOf(path) => {
                let roots = authorities_in(path).map_err(|error| format!("sslrootcert: {error}"))?;
                verifier_of(roots, &provider)?
            }
        };
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_no_client_auth();
        Ok(TlsSetup { config: Arc::new(config) })
    }
}

/// Returns a verifier that trusts these authorities.
fn verifier_of(roots: RootCertStore, provider: &Arc<CryptoProvider>) -> Result<Arc<WebPkiServerVerifier>, BoxedError> {
    Ok(WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider)).build()?)
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> MakeTlsConnect<S> for TlsSetup {
    type Stream = EncryptedStream<S>;
    type TlsConnect = HostTls;
    type Error = BoxedError;

    fn make_tls_connect(&mut self, host: &str) -> Result<HostTls, BoxedError> {
        let host = ServerName::try_from(host.to_owned())?;
        Ok(HostTls { connector: TlsConnector::from(Arc::clone(&self.config)), host })
    }
}

/// Encrypts one connection to a host.
pub(super) struct HostTls {
    connector: TlsConnector,
    host: ServerName<'static>,
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> TlsConnect<S> for HostTls {
    type Stream = EncryptedStream<S>;
    type Error = BoxedError;
    type Future = Pin<Box<dyn Future<Output = Result<EncryptedStream<S>, BoxedError>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        Box::pin(async move {
            let host = self.host.to_str().into_owned();
            let connected = self.connector.connect(self.host, stream).await;
            Ok(EncryptedStream(connected.map_err(|error| explain_refusal(&host, error))?))
        })
    }
}

/// Adds what to do about a certificate that was refused.
fn explain_refusal(host: &str, error: io::Error) -> BoxedError {
    let reason = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let Some(rustls::Error::InvalidCertificate(reason)) = reason else { return error.into() };
    let fix = match reason {
        CertificateError::UnknownIssuer => {
            "no authority that is trusted has signed it: add sslrootcert=FILE to the URL, with the certificate of its \
             authority in PEM form"
                .to_owned()
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            format!("it is not for the host {host}: use a name in the URL that the certificate has")
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "it has expired: renew it on the database's server".to_owned()
        }
        other => other.to_string(),
    };
    format!("the certificate of the database's server is refused: {fix}").into()
}

/// An encrypted connection.
pub(super) struct EncryptedStream<S>(tokio_rustls::client::TlsStream<S>);

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for EncryptedStream<S> {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for EncryptedStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for EncryptedStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

/// Accepts every certificate, for `sslmode=require`: nobody can read the connection by listening, but who answers is not
/// checked.
#[derive(Debug)]
struct AnyCertificate {
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _host: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

//! The keys of TLS between ranks on several hosts. Rank 0 makes a key pair for each attempt; the others know the digest of its
//! public key from the records and accept no other key. The public key is sent as such (RFC 7250), so there is no certificate
//! whose names or dates would have to be valid.

use std::sync::Arc;

use ring::rand::SystemRandom;
use ring::signature::Ed25519KeyPair;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{
    CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime,
};
use rustls::server::AlwaysResolvesServerRawPublicKeys;
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, ServerConfig, SignatureScheme};
use saggar_store::Digest;

/// The key pair of rank 0 for one attempt.
#[derive(Debug)]
pub(super) struct RankKey {
    pub(super) config: Arc<ServerConfig>,
    /// The SHA-256 of the public key.
    pub(super) digest: Digest,
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

impl RankKey {
    /// Makes a new key pair.
    ///
    /// # Errors
    /// Fails if the system has no random numbers.
    pub(super) fn generate() -> Result<RankKey, Error> {
        let pair = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).map_err(|_| Error::FailedToGetRandomBytes)?;
        let pair = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(pair.as_ref().to_vec()));
        let signing = provider().key_provider.load_private_key(pair)?;
        let public = signing.public_key().map(|key| key.to_vec());
        let public = public.ok_or_else(|| Error::General("the key has no public part".to_owned()))?;
        let digest = Digest::of(&public);
        let key = Arc::new(CertifiedKey::new(vec![CertificateDer::from(public)], signing));
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(key)));
        // A rank connects once, so it resumes no session.
        config.send_tls13_tickets = 0;
        Ok(RankKey { config: Arc::new(config), digest })
    }
}

/// Returns the configuration of a rank that connects to the owner of the public key with this digest, and to nobody else.
///
/// # Errors
/// Fails if the library has no usable algorithms.
pub(super) fn client_config(digest: Digest) -> Result<Arc<ClientConfig>, Error> {
    let verifier = PinnedKey { digest, algorithms: provider().signature_verification_algorithms };
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    config.enable_sni = false;
    Ok(Arc::new(config))
}

/// Accepts one public key.
#[derive(Debug)]
struct PinnedKey {
    digest: Digest,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for PinnedKey {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        // With raw public keys the first certificate is the public key.
        if Digest::of(end_entity) == self.digest {
            Ok(ServerCertVerified::assertion())
        } else {
            Err(CertificateError::ApplicationVerificationFailure.into())
        }
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("ranks speak TLS 1.3 only".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let key = SubjectPublicKeyInfoDer::from(cert.as_ref());
        verify_tls13_signature_with_raw_key(message, &key, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

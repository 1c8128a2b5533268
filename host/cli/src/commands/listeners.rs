//! The addresses of `saggar serve`, and whether they require keys.

use saggar_clock::{Clock, SystemClock};
use saggar_serve::{ServerListener, TlsCertificates};
use saggar_store::KeyFile;

use crate::args::{ListenAddress, ServeArgs};
use crate::exit::{self, CliError};

/// Checks that a server that listens beyond this machine has a key, and reads the TLS certificate. Both happen before
/// slow work starts.
pub(crate) fn check_exposure(args: &ServeArgs, keys: &KeyFile) -> Result<Option<TlsCertificates>, CliError> {
    let records = keys.read().map_err(|error| CliError::new(exit::UNEXPECTED, "keys", error.to_string()))?;
    let now_ms = SystemClock.now_ms();
    let any = records.iter().any(|key| !key.is_expired(now_ms));
    if let Some(ListenAddress::Tcp(address)) = args.addr.iter().find(|address| address.is_public())
        && !any
        && !args.insecure
    {
        let message =
            format!("{address} can be reached from other machines, but there is no API key, so nobody could use it");
        let hint = "create one with `saggar key create NAME --scope predict`, listen on 127.0.0.1, or add --insecure if \
                    everybody who can reach it is allowed to do everything";
        return Err(CliError::invalid(message).with_hint(hint));
    }
    if args.require_keys && !any {
        tracing::warn!("keys are required but no key exists: create one with `saggar key create NAME --scope predict`");
    }
    let (Some(certificate), Some(key)) = (&args.tls_cert, &args.tls_key) else { return Ok(None) };
    let certificates = TlsCertificates::load(certificate, key);
    certificates.map(Some).map_err(|error| CliError::invalid(format!("no TLS: {error}")))
}

/// Opens all listeners.
pub(crate) async fn open_listeners(
    args: &ServeArgs,
    certificates: Option<TlsCertificates>,
) -> Result<Vec<ServerListener>, CliError> {
    let mut listeners = Vec::with_capacity(args.addr.len());
    for address in &args.addr {
        let public = address.is_public();
        let guarded = args.require_keys || (public && !args.insecure);
        if public && guarded && certificates.is_none() {
            tracing::warn!("keys and answers travel unencrypted; --tls-cert and --tls-key encrypt them");
        }
        let listener = match address {
            ListenAddress::Tcp(address) => {
                ServerListener::tcp(*address, certificates.clone(), guarded).await.map_err(|error| {
                    let message = format!("cannot listen on {address}: {error}");
                    CliError::new(exit::CONFLICT, "address", message)
                        .with_hint("another server may be there; --addr takes another address")
                })
            }
            ListenAddress::Unix(path) => ServerListener::unix(path, guarded).map_err(|error| {
                let message = format!("cannot listen on unix:{}: {error}", path.display());
                CliError::new(exit::CONFLICT, "address", message)
            }),
        };
        listeners.push(listener?);
    }
    Ok(listeners)
}

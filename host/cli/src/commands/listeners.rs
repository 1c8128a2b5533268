//! The addresses of `saggar serve`, and whether they require keys.

use saggar_clock::{Clock, SystemClock};
use saggar_serve::{ServerListener, TlsCertificates};
use saggar_store::KeyFile;

use super::systemd_sockets::SystemdSocket;
use crate::args::{ListenAddress, ServeArgs};
use crate::exit::{self, CliError};

/// Checks that a server that listens beyond this machine has a key, and reads the TLS certificate. Both happen before
/// slow work starts.
pub(crate) fn check_exposure(
    args: &ServeArgs,
    inherited: &[SystemdSocket],
    keys: &KeyFile,
) -> Result<Option<TlsCertificates>, CliError> {
    let records = keys.read().map_err(|error| CliError::new(exit::UNEXPECTED, "keys", error.to_string()))?;
    let now_ms = SystemClock.now_ms();
    let any = records.iter().any(|key| !key.is_expired(now_ms));
    let given = args.addr.iter().filter(|address| address.is_public()).filter_map(|address| match address {
        ListenAddress::Tcp(address) => Some(*address),
        ListenAddress::Unix(_) | ListenAddress::Systemd => None,
    });
    if let Some(address) = given.chain(inherited.iter().filter_map(SystemdSocket::public_address)).next()
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
    inherited: Vec<SystemdSocket>,
    certificates: Option<TlsCertificates>,
) -> Result<Vec<ServerListener>, CliError> {
    let requires_key = |public: bool| {
        let guarded = args.require_keys || (public && !args.insecure);
        if public && guarded && certificates.is_none() {
            tracing::warn!("keys and answers travel unencrypted; --tls-cert and --tls-key encrypt them");
        }
        guarded
    };
    let mut listeners = Vec::with_capacity(args.addr.len());
    for socket in inherited {
        let guarded = requires_key(socket.public_address().is_some());
        listeners.push(socket.listen(certificates.clone(), guarded)?);
    }
    for address in &args.addr {
        let guarded = requires_key(address.is_public());
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
            ListenAddress::Systemd => continue,
        };
        listeners.push(listener?);
    }
    Ok(listeners)
}

//! The URL of a database: host, user, database, and how the connection is encrypted.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

use crate::error::RecordError;
use crate::limits::{POSTGRES_CONNECT_MS_MAX, POSTGRES_SILENCE_MS_MAX};

/// Settings of connections.
#[derive(Clone, Debug)]
pub(super) struct ConnectionSettings {
    /// The settings without encryption.
    pub(super) config: Config,
    /// The database for messages: the URL without its password and its parameters.
    pub(super) name: String,
    /// How the server's certificate is checked, if the connection is encrypted.
    pub(super) trust: CertificateTrust,
}

/// How the certificate of a server is checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CertificateTrust {
    /// Any certificate: the connection is encrypted, and who answers is not checked.
    Any,
    /// Certificates for the host's name, of the public authorities.
    PublicAuthorities,
    /// Certificates for the host's name, of the authorities in a PEM file.
    AuthoritiesOf(PathBuf),
}

impl ConnectionSettings {
    /// Parses `postgres://USER@HOST:PORT/DATABASE?sslmode=...`.
    ///
    /// # Errors
    /// Returns `Database`, without the password.
    pub(super) fn parse(url: &str) -> Result<ConnectionSettings, RecordError> {
        let name = name_without_password(url);
        let wrong = |text: String| RecordError::Database { database: name.clone(), source: text.into() };
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        let (mut mode, mut authorities, mut others) = (None, None, Vec::new());
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            match parameter.split_once('=') {
                Some(("sslmode", value)) => mode = Some(value),
                Some(("sslrootcert", value)) => authorities = Some(PathBuf::from(value)),
                _ => others.push(parameter),
            }
        }
        let rest = if others.is_empty() { base.to_owned() } else { format!("{base}?{}", others.join("&")) };
        let mut config = Config::from_str(&rest).map_err(|error| wrong(error_chain(&error)))?;
        let is_local = config.get_hosts().iter().all(|host| match host {
            Host::Unix(_) => true,
            Host::Tcp(name) => matches!(name.as_str(), "localhost" | "127.0.0.1" | "::1"),
        });
        let verified = authorities.map_or(CertificateTrust::PublicAuthorities, CertificateTrust::AuthoritiesOf);
        let (mode, trust) = match mode {
            Some("disable") => (SslMode::Disable, CertificateTrust::Any),
            None | Some("prefer") if is_local => (SslMode::Disable, CertificateTrust::Any),
            None | Some("prefer") => (SslMode::Prefer, CertificateTrust::Any),
            Some("require") if verified == CertificateTrust::PublicAuthorities => {
                (SslMode::Require, CertificateTrust::Any)
            }
            Some("require" | "verify-full") => (SslMode::Require, verified),
            Some(other) => {
                let expected = "expected disable, prefer, require or verify-full";
                return Err(wrong(format!("sslmode: `{other:.40}` is not known; {expected}")));
            }
        };
        config.ssl_mode(mode).connect_timeout(Duration::from_millis(POSTGRES_CONNECT_MS_MAX.into()));
        if config.get_application_name().is_none() {
            config.application_name("saggar");
        }
        // A server that is gone without a word is noticed in this time.
        let silence = Duration::from_millis(POSTGRES_SILENCE_MS_MAX.into());
        config.keepalives(true).keepalives_idle(silence / 3).keepalives_interval(silence / 6).keepalives_retries(4);
        config.tcp_user_timeout(silence);
        Ok(ConnectionSettings { config, name, trust })
    }
}

/// Returns an error with its causes: those of the client name only the step that failed.
pub(super) fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        cause = inner.source();
    }
    text
}

/// Returns the URL without its password and its parameters, which can contain one too.
fn name_without_password(url: &str) -> String {
    let base = url.split('?').next().unwrap_or_default();
    let Some((scheme, rest)) = base.split_once("://") else { return "postgres".to_owned() };
    // A password can contain a slash or an `@` that is not escaped.
    let Some((user, place)) = rest.rsplit_once('@') else { return base.to_owned() };
    format!("{scheme}://{}@{place}", user.split(':').next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> ConnectionSettings {
        ConnectionSettings::parse(url).unwrap()
    }

    #[test]
    fn encryption_follows_the_url_and_the_host() {
        let check = |url: &str, mode: SslMode, trust: CertificateTrust| {
            let settings = parse(url);
            assert_eq!((settings.config.get_ssl_mode(), settings.trust), (mode, trust), "{url}");
        };
        check("postgres://a@localhost/d", SslMode::Disable, CertificateTrust::Any);
        check("postgres://a@127.0.0.1:1/d?sslmode=prefer", SslMode::Disable, CertificateTrust::Any);
        check("postgresql://a@db/d", SslMode::Prefer, CertificateTrust::Any);
        check("postgres://a@db/d?sslmode=disable", SslMode::Disable, CertificateTrust::Any);
        check("postgres://a@db/d?sslmode=require", SslMode::Require, CertificateTrust::Any);
        check("postgres://a@db/d?sslmode=verify-full", SslMode::Require, CertificateTrust::PublicAuthorities);
        let file = CertificateTrust::AuthoritiesOf("/ca.pem".into());
        check("postgres://a@db/d?sslmode=require&sslrootcert=/ca.pem", SslMode::Require, file.clone());
        check("postgres://a@db/d?sslrootcert=/ca.pem&sslmode=verify-full", SslMode::Require, file);
        let error = ConnectionSettings::parse("postgres://a:secret@db/d?sslmode=verify-ca").unwrap_err().to_string();
        assert!(error.contains("verify-full") && error.contains("postgres://a@db/d") && !error.contains("secret"));
    }

    #[test]
    fn names_contain_no_password() {
        for url in ["postgres://ci:se/cr@et@db:5433/saggar?sslmode=disable", "postgres://ci@db:5433/saggar?password=x"]
        {
            assert_eq!(name_without_password(url), "postgres://ci@db:5433/saggar");
        }
        assert_eq!(name_without_password("postgres://db/saggar"), "postgres://db/saggar");
    }
}

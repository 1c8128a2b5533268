//! The address of the server: from a flag, the environment, the user's configuration, or the default on this machine.

use std::path::{Path, PathBuf};

use crate::args::Cli;
use crate::client::ApiClient;
use crate::commands::run::layers::ConfigSource;
use crate::exit::{self, CliError};
use crate::project::{self, non_empty_env_var};

/// The default URL of a server.
pub(crate) const DEFAULT_SERVER_URL: &str = "http://127.0.0.1:5000";

/// The address and credentials of a server, each with its source; `None` if not configured.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServerAddress {
    /// The server's URL.
    pub(crate) host: Option<(String, ConfigSource)>,
    /// Every URL of the command line or the environment.
    pub(crate) hosts: Vec<String>,
    pub(crate) key: Option<(String, ConfigSource)>,
    /// The file with the CA certificates to trust.
    pub(crate) ca: Option<(PathBuf, ConfigSource)>,
}

impl ServerAddress {
    /// Reads flags and the environment, then the user's configuration, whose paths are relative to its directory.
    ///
    /// # Errors
    /// Fails if the configuration is invalid.
    pub(crate) fn from_cli(cli: &Cli) -> Result<ServerAddress, CliError> {
        let user = project::user_config()?;
        let beside = |path: String| match project::user_config_file() {
            Some(file) => file.with_file_name(path),
            None => PathBuf::from(path),
        };
        let ca = cli.ca.as_ref().map(|path| path.display().to_string());
        Ok(ServerAddress {
            host: value_with_source(cli.host.first(), "SAGGAR_HOST")
                .or(user.host.map(|host| (host, ConfigSource::User))),
            hosts: cli.host.iter().filter(|host| !host.is_empty()).cloned().collect(),
            key: value_with_source(cli.key.as_ref(), "SAGGAR_API_KEY"),
            ca: value_with_source(ca.as_ref(), "SAGGAR_CA")
                .map(|(path, source)| (PathBuf::from(path), source))
                .or(user.ca.map(|path| (beside(path), ConfigSource::User))),
        })
    }

    pub(crate) fn host(&self) -> &str {
        self.host.as_ref().map_or(DEFAULT_SERVER_URL, |(host, _)| host)
    }

    /// Returns whether the command line or the environment sets the URL.
    pub(crate) fn is_explicit(&self) -> bool {
        matches!(self.host, Some((_, ConfigSource::Flag | ConfigSource::Environment(_))))
    }

    /// Returns a client of the server.
    ///
    /// # Errors
    /// Fails if the key or the certificates are invalid.
    pub(crate) fn client(&self) -> Result<ApiClient, CliError> {
        self.client_of(self.host())
    }

    /// Returns a client of another server that accepts the same key.
    ///
    /// # Errors
    /// Fails if the key or the certificates are invalid.
    pub(crate) fn client_of(&self, host: &str) -> Result<ApiClient, CliError> {
        let key = self.key.as_ref().map(|(key, _)| key.as_str());
        ApiClient::new(host, key, self.ca_file())
    }

    /// Returns the file with the CA certificates to trust.
    pub(crate) fn ca_file(&self) -> Option<&Path> {
        self.ca.as_ref().map(|(ca, _)| ca.as_path())
    }

    /// Checks that the command line has at most one URL.
    ///
    /// # Errors
    /// There are several.
    pub(crate) fn require_one_host(&self) -> Result<(), CliError> {
        if self.hosts.len() < 2 {
            return Ok(());
        }
        let message = format!("--host is given {} times, and this command asks one server", self.hosts.len());
        Err(CliError::new(exit::USAGE, "several_hosts", message).with_hint("`saggar top` shows several servers"))
    }
}

/// Returns the value of a flag or its variable, with its source. If both have the same text, the source is the
/// variable.
fn value_with_source(value: Option<&String>, variable: &'static str) -> Option<(String, ConfigSource)> {
    let value = value.filter(|value| !value.is_empty())?;
    let source = match non_empty_env_var(variable) {
        Some(text) if &text == value => ConfigSource::Environment(variable),
        _ => ConfigSource::Flag,
    };
    Some((value.clone(), source))
}

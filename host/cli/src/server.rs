//! Which server commands talk to: a flag, the environment, the user's configuration, or the one on this machine.

use std::path::PathBuf;

use crate::args::Cli;
use crate::client::Client;
use crate::commands::run::layers::Source;
use crate::exit::Failure;
use crate::project::{self, environment};

/// Where a server is when nobody says where.
pub(crate) const LOCAL: &str = "http://127.0.0.1:5000";

/// A server, and what it is asked with; each with who says it, and none where nobody does.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServerAddress {
    /// Its address.
    pub(crate) said: Option<(String, Source)>,
    pub(crate) key: Option<(String, Source)>,
    /// The file with the certificates that vouch for it.
    pub(crate) ca: Option<(PathBuf, Source)>,
}

impl ServerAddress {
    /// What flags and the environment say, then the user's configuration, whose paths are relative to its directory.
    ///
    /// # Errors
    /// The configuration is not valid.
    pub(crate) fn of(cli: &Cli) -> Result<ServerAddress, Failure> {
        let user = project::user_config()?;
        let beside = |path: String| match project::user_config_file() {
            Some(file) => file.with_file_name(path),
            None => PathBuf::from(path),
        };
        let ca = cli.ca.as_ref().map(|path| path.display().to_string());
        Ok(ServerAddress {
            said: given(cli.host.as_ref(), "SAGGAR_HOST").or(user.host.map(|host| (host, Source::User))),
            key: given(cli.key.as_ref(), "SAGGAR_API_KEY"),
            ca: given(ca.as_ref(), "SAGGAR_CA")
                .map(|(path, source)| (PathBuf::from(path), source))
                .or(user.ca.map(|path| (beside(path), Source::User))),
        })
    }

    pub(crate) fn host(&self) -> &str {
        self.said.as_ref().map_or(LOCAL, |(host, _)| host)
    }

    /// Whether the command line or the environment names it.
    pub(crate) fn is_given(&self) -> bool {
        matches!(self.said, Some((_, Source::Flag | Source::Environment(_))))
    }

    /// A client of it.
    ///
    /// # Errors
    /// The key or the certificates are none.
    pub(crate) fn client(&self) -> Result<Client, Failure> {
        let (key, ca) = (self.key.as_ref(), self.ca.as_ref());
        Client::new(self.host(), key.map(|(key, _)| key.as_str()), ca.map(|(ca, _)| ca.as_path()))
    }
}

/// What a flag or the variable of this name said, if it said something: the same text in both is the variable's.
fn given(value: Option<&String>, variable: &'static str) -> Option<(String, Source)> {
    let value = value.filter(|value| !value.is_empty())?;
    let source = match environment(variable) {
        Some(text) if &text == value => Source::Environment(variable),
        _ => Source::Flag,
    };
    Some((value.clone(), source))
}

//! Which server commands talk to: a flag, the environment, the user's configuration, or the one on this machine.

use std::path::PathBuf;

use crate::args::Cli;
use crate::exit::Failure;
use crate::project;

/// Where a server is when nobody says where.
pub(crate) const LOCAL: &str = "http://127.0.0.1:5000";

/// A server, and what it is asked with.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServerAddress {
    /// Its address, where somebody said one.
    pub(crate) said: Option<String>,
    pub(crate) key: Option<String>,
    pub(crate) ca: Option<PathBuf>,
}

impl ServerAddress {
    /// What flags and the environment say, then the user's configuration.
    ///
    /// # Errors
    /// The configuration is not valid.
    pub(crate) fn of(cli: &Cli) -> Result<ServerAddress, Failure> {
        let user = match (&cli.host, &cli.ca) {
            (Some(_), _) => Default::default(),
            (None, _) => project::user_config()?,
        };
        Ok(ServerAddress {
            said: cli.host.clone().filter(|host| !host.is_empty()).or(user.host),
            key: cli.key.clone(),
            ca: cli.ca.clone().or(user.ca.map(PathBuf::from)),
        })
    }

    pub(crate) fn host(&self) -> &str {
        self.said.as_deref().unwrap_or(LOCAL)
    }
}

//! Arguments of a server whose records are in a database that other servers use too.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

use clap::Args;

/// The variable with the URL of the database, which processes of jobs do not get.
pub(crate) const DATABASE_URL_VARIABLE: &str = saggar_jobs::launcher::DATABASE_URL_VARIABLE;

#[derive(Clone, Debug, Default, Args)]
pub(crate) struct DatabaseArgs {
    /// Keep the records of jobs in this database of PostgreSQL, which other servers can use at the same time:
    /// postgres://USER:PASSWORD@HOST:5432/DATABASE?sslmode=verify-full. The environment variable keeps the password out
    /// of the list of processes.
    #[arg(long, env = DATABASE_URL_VARIABLE, hide_env_values = true, value_name = "URL")]
    pub(crate) database: Option<DatabaseUrl>,
    /// The name of this server among those of the database [default: the host's name with a part that stays the same].
    #[arg(long, env = "SAGGAR_SERVER_NAME", requires = "database", value_name = "NAME")]
    pub(crate) name: Option<String>,
}

impl DatabaseArgs {
    /// Returns whether a database is given. An empty variable counts as absent.
    pub(crate) fn is_set(&self) -> bool {
        self.database.as_ref().is_some_and(|url| !url.is_empty())
    }
}

/// The URL of a database. Its `Debug` text does not contain it, because it can contain a password.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct DatabaseUrl(String);

impl DatabaseUrl {
    /// Returns whether it is that of an empty variable, which counts as absent.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the URL if it is one of PostgreSQL. An error names it nowhere.
    pub(crate) fn as_postgres(&self) -> Result<&str, String> {
        let is_postgres = ["postgres://", "postgresql://"].iter().any(|scheme| self.0.starts_with(scheme));
        if is_postgres {
            return Ok(&self.0);
        }
        Err("--database: expected a URL such as postgres://USER@HOST:5432/DATABASE".to_owned())
    }
}

impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DatabaseUrl(..)")
    }
}

/// Accepts every text: an error of the command line would print it.
impl FromStr for DatabaseUrl {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<DatabaseUrl, Infallible> {
        Ok(DatabaseUrl(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_other_databases_are_refused_without_being_printed() {
        let url = |text: &str| text.parse::<DatabaseUrl>().unwrap();
        assert_eq!(url("postgresql://a:secret@db/d").as_postgres(), Ok("postgresql://a:secret@db/d"));
        for text in ["mysql://a:secret@db/d", "/state/saggar.db", "postgres:a:secret@db"] {
            let error = url(text).as_postgres().unwrap_err();
            assert!(error.contains("postgres://") && !error.contains("secret"), "{error}");
        }
        assert!(!format!("{:?}", url("postgres://a:secret@db/d")).contains("secret"));
    }
}

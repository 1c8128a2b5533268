//! Arguments of `saggar migrate`.

use std::convert::Infallible;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;

use super::database::DatabaseUrl;

#[derive(Debug, Args)]
pub(crate) struct MigrateArgs {
    /// Where the state is: a state directory, or a database and a bucket [default: SAGGAR_DATABASE_URL and SAGGAR_OBJECTS].
    #[arg(long, num_args = 1..=2, value_names = ["DIR|DATABASE", "OBJECTS"])]
    pub(crate) from: Vec<MigrationAddress>,
    /// Where it is copied to, in the same form. A directory must not exist, or be empty; a database and a bucket must have no
    /// data of saggar.
    #[arg(long, num_args = 1..=2, value_names = ["DIR|DATABASE", "OBJECTS"])]
    pub(crate) to: Vec<MigrationAddress>,
}

/// An address of the command line. Its `Debug` text does not contain it, because it can contain a password.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct MigrationAddress(String);

impl MigrationAddress {
    /// Returns the address of a database, if it has the form of one.
    pub(crate) fn as_database(&self) -> Option<DatabaseUrl> {
        let url: Result<DatabaseUrl, Infallible> = self.0.parse();
        url.ok().filter(|url| url.as_postgres().is_ok())
    }

    /// Returns the address of a bucket, if it has the form of one.
    pub(crate) fn as_objects(&self) -> Option<&str> {
        self.0.starts_with("s3://").then_some(&self.0)
    }

    /// Returns the path of a directory, if it has the form of one.
    pub(crate) fn as_directory(&self) -> Option<PathBuf> {
        (!self.0.contains("://")).then(|| PathBuf::from(&self.0))
    }
}

impl fmt::Debug for MigrationAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MigrationAddress(..)")
    }
}

/// Accepts every text: an error of the command line would print it.
impl FromStr for MigrationAddress {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<MigrationAddress, Infallible> {
        Ok(MigrationAddress(text.to_owned()))
    }
}

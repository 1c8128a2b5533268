//! Servers with one database and one bucket.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::s3::{MotoServer, s3_address, s3_variables};
use crate::{PostgresServer, ServerProcess, binary};

/// A database, a bucket, and the state directories of servers that use both.
#[derive(Debug)]
pub struct BucketCluster {
    /// The database.
    pub database: PostgresServer,
    /// The bucket.
    pub store: MotoServer,
    directory: TempDir,
}

impl BucketCluster {
    /// Returns a cluster without servers, or `None` if PostgreSQL or moto is not installed and not required.
    pub fn start() -> Option<BucketCluster> {
        let (database, store) = (PostgresServer::start()?, MotoServer::start()?);
        let directory = tempfile::tempdir().expect("a directory for temporary files");
        Some(BucketCluster { database, store, directory })
    }

    /// Starts the server of this name with further arguments.
    pub fn start_server(&self, name: &str, arguments: &[&str]) -> ServerProcess {
        self.start_server_at(name, self.store.port(), arguments)
    }

    /// Starts the server of this name, which reaches the bucket at this port.
    pub fn start_server_at(&self, name: &str, store_port: u16, arguments: &[&str]) -> ServerProcess {
        let home = self.home(name);
        std::fs::create_dir_all(&home).expect("the directory is writable");
        let mut command = Command::new(binary());
        command.args(["serve", "--addr", "127.0.0.1:0", "--device", "cpu", "--name", name, "--home"]).arg(&home);
        command.args(arguments);
        command.env("SAGGAR_DATABASE_URL", self.database.url()).env("SAGGAR_OBJECTS", s3_address("lab"));
        command.envs(s3_variables(store_port)).env_remove("AWS_SESSION_TOKEN").env_remove("AWS_CA_BUNDLE");
        ServerProcess::from_command(command, &home)
    }

    /// Returns the state directory of the server of this name.
    pub fn home(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Returns the directory of all state directories.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }
}

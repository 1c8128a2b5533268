//! Hosts in network namespaces with one database and one bucket, and a server on this machine that runs no jobs.

use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

use crate::s3::{MotoServer, s3_address, s3_variables};
use crate::workers::WorkerProcess;
use crate::{NetworkHosts, PostgresServer, ServerProcess, TcpForwarder, binary, create_key, enter_own_network};

/// The hosts, which reach the database and the bucket through the network, and the server that observes them.
#[derive(Debug)]
pub struct NetworkCluster {
    /// The server on this machine.
    pub observer: ServerProcess,
    /// A key of that server with all rights over jobs and models.
    pub key: String,
    /// The environment of servers that use the database and the bucket.
    pub variables: Vec<(&'static str, String)>,
    /// The hosts.
    pub network: NetworkHosts,
    root: TempDir,
    _store: MotoServer,
    _database: PostgresServer,
}

impl NetworkCluster {
    /// Returns `None` if something that it needs is not installed and not required, or if the calling test has run in its own
    /// network.
    ///
    /// # Panics
    /// If something does not start.
    pub fn start(hosts: u8) -> Option<NetworkCluster> {
        if !enter_own_network() {
            return None;
        }
        let (database, store) = (PostgresServer::start()?, MotoServer::start()?);
        let (network, root) = (NetworkHosts::create(hosts), tempfile::tempdir().expect("a directory"));
        let gateway = network.gateway();
        let port = database.url().rsplit([':', '/']).nth(1).and_then(|port| port.parse().ok()).expect("a port");
        let there = format!("{gateway}:{}", TcpForwarder::start(gateway, port).port());
        let mut variables = s3_variables(store.port()).to_vec();
        variables.retain(|(name, _)| *name != "AWS_ENDPOINT_URL");
        let endpoint = format!("http://{gateway}:{}", TcpForwarder::start(gateway, store.port()).port());
        variables.extend([
            ("AWS_ENDPOINT_URL", endpoint),
            ("SAGGAR_OBJECTS", s3_address("cluster")),
            ("SAGGAR_DATABASE_URL", database.url().replace(&format!("127.0.0.1:{port}"), &there)),
        ]);
        let home = root.path().join("observer");
        std::fs::create_dir(&home).expect("the directory is new");
        let key = create_key(&home, &["boss", "--scope", "admin,jobs:write,jobs:read,predict,models:write"]);
        let mut command = Command::new(binary());
        command.args(["serve", "--jobs", "0", "--device", "cpu", "--name", "observer"]);
        command.args(["--addr", &format!("{gateway}:0"), "--home"]).arg(&home).envs(variables.clone());
        let observer = ServerProcess::from_command(command, &home).with_key(&key);
        let (_store, _database) = (store, database);
        Some(NetworkCluster { observer, key, variables, network, root, _store, _database })
    }

    /// Returns the state directory of a host, which exists.
    ///
    /// # Panics
    /// If it cannot be created.
    pub fn home(&self, at: u8) -> PathBuf {
        let home = self.root.path().join(format!("host-{at}"));
        std::fs::create_dir_all(&home).expect("the directory is writable");
        home
    }

    /// Starts the worker `host-AT`, which joins the server of this machine.
    pub fn start_worker(&self, at: u8) -> WorkerProcess {
        let home = self.home(at);
        let mut command = self.network.command(at, &binary());
        command.args(["worker", "join", self.observer.url(), "--key", &self.key, "--device", "cpu"]);
        command.args(["--name", &format!("host-{at}"), "--home"]).arg(&home);
        WorkerProcess::spawn(command, &home)
    }
}

//! Shared code of the end-to-end tests: the real binary, a server of it on a free port that ends with the test, the
//! reference plugins, and HTTP requests.

pub mod api_description;
mod bucket_cluster;
mod cgroup;
mod collector;
pub mod component;
mod declared_inputs;
mod dev_process;
mod file_server;
mod guests;
mod http;
mod inference_clients;
mod jobs;
mod keys;
pub mod kubernetes_api;
mod logged_items;
mod mounts;
mod network;
mod network_cluster;
pub mod notebooks;
pub mod onnx;
pub mod pipelines;
pub mod postgres;
mod process;
pub mod s3;
mod server;
pub mod slurm;
mod sources;
mod sweeps;
mod terminal;
pub mod webnn;
pub mod workers;

pub use bucket_cluster::BucketCluster;
pub use cgroup::MemoryGroup;
pub use collector::{CollectedRequest, TraceCollector};
pub use declared_inputs::check_declared_input_of_mlp;
pub use dev_process::{DEV_WAIT_TIMEOUT, DevProcess};
pub use file_server::file_server;
pub use guests::{build_plugin, guest, lenet, plugin};
pub use http::{HttpPayload, HttpResponse, request};
pub use inference_clients::{client_output, publish_echo, run_inference_client, serve_inference_models};
pub use jobs::SteadyJob;
pub use keys::create_key;
pub use logged_items::check_logged_items_of_mlp;
pub use mounts::unshare_command;
pub use network::{NetworkHosts, TcpForwarder, enter_own_network};
pub use network_cluster::NetworkCluster;
pub use postgres::PostgresServer;
pub use process::{
    child_processes, command_as_user, kill_9, lower_priority, memory_kib, processes_of, worker_processes,
};
pub use server::{ServerProcess, binary, copy_version, series_value};
pub use sources::{relative_path, source_files};
pub use sweeps::{create_sweep, wait_for_sweep};
pub use terminal::TerminalProcess;

use std::path::PathBuf;

/// Returns the project's root.
pub fn root() -> PathBuf {
    let tests = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    tests.parent().map(PathBuf::from).unwrap_or(tests)
}

/// Returns a file or folder of the shared test data, which is beside the project. Prints SKIP and returns `None` if it
/// does not exist.
pub fn shared(path: &str) -> Option<PathBuf> {
    let path = root().join("../shared").join(path);
    if path.exists() {
        return Some(path);
    }
    #[expect(clippy::print_stdout, reason = "a skipped test says so")]
    {
        println!("SKIP: {} is not here", path.display());
    }
    None
}

//! `saggar bench`: what a plugin does on the devices of this machine, measured in this process, without a server.
//!
//! The plugin runs as a worker would run it, and nothing of it is kept. Devices are measured one after the other; one that
//! is not there, or fails, is said and leaves the others alone.

mod data;
mod device;
mod infer;
mod profile;
mod trace;
mod train;

use std::path::Path;

use saggar_plugin::{Host, HostConfig};
use saggar_store::Home;

use crate::args::Bench;
use crate::exit::{self, Failure};
use crate::output::Output;

pub(crate) fn bench(args: &Bench, output: Output) -> Result<i32, Failure> {
    match args {
        Bench::Train(args) => train::train(args, output),
        Bench::Infer(args) => infer::infer(args, output),
    }
}

/// The state directory, if there is one at this place.
fn home(path: &Path) -> Result<Option<Home>, Failure> {
    let open = || Home::open(path).map_err(|error| Failure::invalid(error.to_string()));
    path.is_dir().then(open).transpose()
}

/// What runs plugins; it keeps what it compiles in the state directory, if there is one.
fn host(home: Option<&Home>) -> Result<Host, Failure> {
    let cache_dir = home.map(Home::cache);
    Host::new(HostConfig { cache_dir, ..HostConfig::default() }).map_err(|error| device::plugin_failure(&error))
}

/// A component's bytes.
fn component(path: &Path) -> Result<Vec<u8>, Failure> {
    std::fs::read(path)
        .map_err(|error| Failure::new(exit::NOT_FOUND, "no_plugin", format!("{}: {error}", path.display())))
}

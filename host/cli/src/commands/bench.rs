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

use saggar_plugin::{PluginEngine, PluginEngineConfig};
use saggar_store::StateDir;

use crate::args::BenchCommand;
use crate::exit::{self, CliError};
use crate::output::CliOutput;

pub(crate) fn bench(args: &BenchCommand, output: CliOutput) -> Result<i32, CliError> {
    match args {
        BenchCommand::Train(args) => train::train(args, output),
        BenchCommand::Infer(args) => infer::infer(args, output),
    }
}

/// The state directory, if there is one at this place.
fn open_state_dir(path: &Path) -> Result<Option<StateDir>, CliError> {
    let open = || StateDir::open(path).map_err(|error| CliError::invalid(error.to_string()));
    path.is_dir().then(open).transpose()
}

/// What runs plugins; it keeps what it compiles in the state directory, if there is one.
fn plugin_host(home: Option<&StateDir>) -> Result<PluginEngine, CliError> {
    let cache_dir = home.map(StateDir::cache);
    PluginEngine::new(PluginEngineConfig { cache_dir, ..PluginEngineConfig::default() })
        .map_err(|error| device::plugin_error(&error))
}

/// A component's bytes.
fn read_component(path: &Path) -> Result<Vec<u8>, CliError> {
    std::fs::read(path)
        .map_err(|error| CliError::new(exit::NOT_FOUND, "no_plugin", format!("{}: {error}", path.display())))
}

//! `saggar worker`: hosts that only run jobs.

mod drain;
mod host;
mod host_settings;
mod join;
pub(super) mod listing;
mod locked_home;
mod single_attempt;

use crate::args::WorkerCommand;
use crate::client::ApiClient;
use crate::exit::CliError;
use crate::output::CliOutput;

/// Runs a command and returns its exit code.
pub(crate) fn worker(command: &WorkerCommand, client: &ApiClient, output: CliOutput) -> Result<i32, CliError> {
    match command {
        WorkerCommand::Join(args) => join::join(args, client).map(|()| 0),
        WorkerCommand::Run(args) => single_attempt::run(args, output),
        WorkerCommand::Drain(args) => drain::drain(args, client, output).map(|()| 0),
        WorkerCommand::Host(args) => host::run(args).map(|()| 0),
        WorkerCommand::Attempt(args) => super::serve::run_worker(args),
    }
}

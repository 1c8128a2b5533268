//! `saggar manual`: writes manual pages, one per command.

use crate::args::{self, ManualArgs};
use crate::exit::CliError;

pub(crate) fn manual(args: &ManualArgs) -> Result<(), CliError> {
    let written = clap_mangen::generate_to(args::command(), &args.directory);
    written.map_err(|error| CliError::invalid(format!("{}: {error}", args.directory.display())))
}

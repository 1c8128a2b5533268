//! Arguments of `saggar verify`.

use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    /// The answer with its headers, as `saggar predict --save FILE` and `curl -i` write it.
    pub(crate) file: PathBuf,
    /// Compute the answer again with the version that made it, and compare.
    #[arg(long, requires = "input")]
    pub(crate) recompute: bool,
    /// An input of the prediction, as for `saggar predict`. Can be given several times.
    #[arg(short, long, requires = "recompute", value_name = "NAME=VALUE|NAME=@FILE")]
    pub(crate) input: Vec<String>,
}

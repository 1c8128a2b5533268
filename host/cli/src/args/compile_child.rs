//! The options of `saggar compile-child`.

use std::path::PathBuf;

use clap::Args;
use saggar_plugin::compiler;

#[derive(Debug, Args)]
pub(crate) struct CompileChildArgs {
    /// What to make.
    #[arg(value_parser = clap::builder::PossibleValuesParser::new(compiler::KINDS))]
    pub(crate) kind: String,
    /// Bytes that it may allocate.
    #[arg(long)]
    pub(crate) memory_bytes: u64,
    /// Seconds that its threads may compute together.
    #[arg(long)]
    pub(crate) cpu_seconds: u64,
    /// Where compiled components are kept.
    #[arg(long)]
    pub(crate) cache: Option<PathBuf>,
}

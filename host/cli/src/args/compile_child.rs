//! The options of `saggar compile-child`.

use std::path::PathBuf;

use clap::Args;
use saggar_plugin::compiler;

#[derive(Debug, Args)]
pub(crate) struct CompileChildArgs {
    /// What to compile.
    #[arg(value_parser = clap::builder::PossibleValuesParser::new(compiler::KINDS))]
    pub(crate) kind: String,
    /// Maximum bytes that the process can allocate.
    #[arg(long)]
    pub(crate) memory_bytes: u64,
    /// Maximum CPU seconds of all threads together.
    #[arg(long)]
    pub(crate) cpu_seconds: u64,
    /// The cache directory of compiled components.
    #[arg(long)]
    pub(crate) cache: Option<PathBuf>,
}

//! What the parent and a compile child agree on: the child's command line and the headers of requests and answers.

use std::path::PathBuf;
use std::time::Duration;

use saggar_store::checkpoint::VariableKind;
use saggar_tensor::Descriptor;
use serde::{Deserialize, Serialize};

/// The hidden subcommand that starts a child; its argument is one of [`KINDS`].
pub const SUBCOMMAND: &str = "compile-child";
/// The option for the number of bytes that the child can allocate.
pub const MEMORY_FLAG: &str = "--memory-bytes";
/// The option for the processor time of all its threads together, in seconds.
pub const CPU_FLAG: &str = "--cpu-seconds";
/// The option for the directory of compiled components.
pub const CACHE_FLAG: &str = "--cache";
/// The kinds of request that a child accepts.
pub const KINDS: [&str; 3] = [COMPONENT, IMPORT, GRAPH];

pub(super) const COMPONENT: &str = "component";
pub(super) const IMPORT: &str = "import";
pub(super) const GRAPH: &str = "graph";

/// The options that a compile child is started with.
#[derive(Clone, Debug)]
pub struct ChildOptions {
    /// One of [`KINDS`].
    pub kind: String,
    /// Bytes that it can allocate in addition to what it starts with.
    pub memory_bytes: u64,
    /// Processor time of all its threads together, in seconds.
    pub cpu_seconds: u64,
    /// Directory of the cache of compiled components.
    pub cache_dir: Option<PathBuf>,
}

/// The first part of an import request; the component and the file follow.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ImportRequestHeader {
    pub(super) options: String,
    pub(super) time: Duration,
}

/// The first part of an import answer, after its length; the variables' elements follow in order.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ImportAnswerHeader {
    pub(super) config: String,
    pub(super) variables: Vec<VariableHeader>,
}

/// A variable without its elements.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct VariableHeader {
    pub(super) name: String,
    pub(super) kind: VariableKind,
    pub(super) descriptor: Descriptor,
    pub(super) bytes: u64,
}

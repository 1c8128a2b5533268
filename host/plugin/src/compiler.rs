//! Compilation in child processes. A server compiles untrusted input in child processes, one for each component, model
//! file and large graph. Their memory, time and number are limited, and a child that exceeds a limit is killed.
//! Processes that do not serve other clients compile in-process.
//!
//! A child is the same program with a hidden subcommand ([`SUBCOMMAND`]). It reads its request from
//! standard input and writes its answer to standard output ([`frame`]). It has no environment, opens no files except
//! the cache of compiled components, and exits when its standard input is closed.

mod child_main;
mod child_process;
pub(crate) mod children;
pub(crate) mod frame;
mod graph;
mod protocol;
mod refusal;
mod resource_limits;
mod slots;

pub use child_main::run_child;
pub use protocol::{CACHE_FLAG, CPU_FLAG, ChildOptions, KINDS, MEMORY_FLAG, SUBCOMMAND};

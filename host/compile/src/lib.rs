//! From a verified graph to a program: simplify, fuse, schedule, plan memory, and write kernels as WGSL text.
//!
//! Pure: no I/O, no GPU, no clock. Passes run in the order of [`compile`]; devices execute [`Program`]s.

#![deny(clippy::wildcard_enum_match_arm)]

pub mod check;
pub mod cost;
mod destinations;
pub mod error;
pub mod expr;
mod fuse;
mod label;
mod layout;
pub mod limits;
pub mod memory;
mod order;
mod plan;
pub mod program;
pub mod reference;
mod schedule;
mod simplify;
pub mod stages;
pub mod target;
mod text;
mod values;
pub mod wgsl;

use std::collections::BTreeSet;

use saggar_tensor::{Graph, Interrupt, NodeId, Port, VerifiedGraph};

pub use error::CompileError;
use limits::PINNED_ROUNDS_MAX;
use program::Kernel;
pub use program::Program;
pub use stages::{Stages, stages};
pub use target::Target;

/// The program that computes `graph` on `target`. Equal graphs and targets give equal programs.
///
/// # Errors
/// `Unsupported` if the target lacks a data type that the graph needs; `ValueTooLarge` for a tensor past the target's
/// largest allocation.
///
/// # Panics
/// If the target allows fewer than [`limits::KERNEL_VALUES_MIN`] values a kernel.
pub fn compile(graph: &VerifiedGraph, target: &Target) -> Result<Program, CompileError> {
    compile_interruptible(graph, target, &Interrupt::never())
}

/// As [`compile`], until `interrupt` comes: every pass looks at it at short intervals.
///
/// # Errors
/// As [`compile`]; `Interrupted`.
///
/// # Panics
/// As [`compile`].
pub fn compile_interruptible(
    graph: &VerifiedGraph,
    target: &Target,
    interrupt: &Interrupt<'_>,
) -> Result<Program, CompileError> {
    passes(graph, target, interrupt, &mut |_, _| {})
}

/// The passes in their order. `look` sees what is scheduled, and the graph that it is about, before memory is planned.
fn passes(
    graph: &VerifiedGraph,
    target: &Target,
    interrupt: &Interrupt<'_>,
    look: &mut dyn FnMut(&Graph, &[fuse::Draft]),
) -> Result<Program, CompileError> {
    assert!(target.kernel_values_max >= limits::KERNEL_VALUES_MIN, "{target:?} allows too few values a kernel");
    let simple = simplify::simplify(graph, interrupt)?;
    let mut laid = match target.channels_last {
        true => layout::channels_last(simple, interrupt)?,
        false => layout::channels_first(simple),
    };
    let destinations = destinations::destinations(&mut laid.graph);
    let claims = destinations.claims();
    let mut pinned = BTreeSet::new();
    let nodes = laid.graph.nodes.len();
    let mut round = 0;
    loop {
        let drafts = fuse::fuse(&laid, &claims, &pinned, target, interrupt)?;
        let scheduled = schedule::schedule(&mut laid.graph, &destinations, drafts, &pinned, interrupt)?;
        let refused = scheduled.refused.clone();
        look(&laid.graph, &scheduled.drafts);
        let program = Program { outputs: outputs(graph), ..plan::plan(&laid.graph, scheduled, target, interrupt)? };
        // A variable that cannot be updated in place is one value more in its kernel than fusion has counted.
        let is_too_wide = |kernel: &Kernel| kernel.body.values() > target.values_max(&kernel.body);
        if refused.is_subset(&pinned) || !program.kernels.iter().any(is_too_wide) {
            check::check(&program, target, interrupt)?;
            return Ok(program);
        }
        pinned.extend(refused);
        if round >= PINNED_ROUNDS_MAX {
            pinned.extend(claims.assigned.values());
        }
        // The next round begins without the copies that this one's schedule has added.
        laid.graph.nodes.truncate(nodes);
        round += 1;
    }
}

fn outputs(graph: &Graph) -> Vec<Port> {
    let port =
        |(name, node): &(String, NodeId)| Port { name: name.clone(), descriptor: graph.descriptor(*node).clone() };
    graph.outputs.iter().map(port).collect()
}

#[cfg(test)]
mod chain_tests;
#[cfg(test)]
mod equivalence_tests;
#[cfg(test)]
mod golden_tests;
#[cfg(test)]
mod scaling_tests;

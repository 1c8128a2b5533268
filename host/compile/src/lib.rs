//! The compiler: turns a verified graph into a program. It simplifies the graph, fuses operators into kernels,
//! schedules the kernels, and assigns buffers.
//!
//! Pure: no I/O, no GPU, no clock. [`compile`] runs the passes in their order; devices execute [`Program`]s. What a
//! device runs for a kernel, such as the text of a shader, is made in the device's crate.

#![deny(clippy::wildcard_enum_match_arm)]

mod buffer_assignment;
pub mod check;
pub mod cost;
pub mod error;
mod fuse;
mod kernel_values;
mod label;
mod layout;
pub mod limits;
pub mod memory_report;
pub mod optimization;
mod output_materialization;
pub mod program;
mod schedule;
mod simplify;
pub mod stages;
pub mod target;
mod text;
mod topological_order;

use std::collections::BTreeSet;

use saggar_tensor::{Graph, GraphPort, InterruptCheck, NodeId, VerifiedGraph};

pub use error::CompileError;
use limits::PINNED_ROUNDS_MAX;
pub use optimization::{DisabledOptimizations, Optimization, OptimizationScope, UnknownOptimizationError};
use program::Kernel;
pub use program::Program;
pub use stages::{CompileStages, compile_stages};
pub use target::CompileTarget;

/// Compiles `graph` for `target`. Equal graphs and targets give equal programs.
///
/// # Errors
/// Returns `Unsupported` if the target lacks a data type that the graph needs, and `ValueTooLarge` if a tensor exceeds
/// the target's largest allocation.
///
/// # Panics
/// Panics if the target allows fewer than [`limits::KERNEL_VALUES_MIN`] values per kernel.
pub fn compile(graph: &VerifiedGraph, target: &CompileTarget) -> Result<Program, CompileError> {
    compile_interruptible(graph, target, &InterruptCheck::never())
}

/// Compiles as [`compile`] does, and stops when `interrupt` fires: every pass polls it at short intervals.
///
/// # Errors
/// As [`compile`], and `Interrupted`.
///
/// # Panics
/// As [`compile`].
pub fn compile_interruptible(
    graph: &VerifiedGraph,
    target: &CompileTarget,
    interrupt: &InterruptCheck<'_>,
) -> Result<Program, CompileError> {
    run_passes(graph, target, interrupt, &mut |_, _| {})
}

/// Runs the passes in order. Calls `look` with the scheduled kernels and their graph before buffers are assigned.
fn run_passes(
    graph: &VerifiedGraph,
    target: &CompileTarget,
    interrupt: &InterruptCheck<'_>,
    look: &mut dyn FnMut(&Graph, &[fuse::KernelDraft]),
) -> Result<Program, CompileError> {
    assert!(target.kernel_values_max >= limits::KERNEL_VALUES_MIN, "{target:?} allows too few values per kernel");
    let simple = simplify::simplify(graph, target.without, interrupt)?;
    let mut graph_with_layout = match target.channels_last {
        true => layout::with_channels_last(simple, interrupt)?,
        false => layout::with_channels_first(simple),
    };
    let destinations = output_materialization::materialize_outputs(&mut graph_with_layout.graph);
    let claims = destinations.required_nodes();
    let mut pinned = BTreeSet::new();
    let nodes = graph_with_layout.graph.nodes.len();
    let mut round = 0;
    loop {
        let drafts = fuse::fuse(&graph_with_layout, &claims, &pinned, target, interrupt)?;
        let scheduled =
            schedule::schedule_kernels(&mut graph_with_layout.graph, &destinations, drafts, &pinned, interrupt)?;
        let refused = scheduled.copied_variables.clone();
        look(&graph_with_layout.graph, &scheduled.drafts);
        let program = Program {
            outputs: output_ports(graph),
            ..buffer_assignment::assign_buffers(&graph_with_layout.graph, scheduled, target, interrupt)?
        };
        // A variable that cannot be updated in place adds one value to its kernel, which fusion did not count.
        let is_too_wide = |kernel: &Kernel| kernel.body.value_count() > kernel.body.values_max(target);
        if refused.is_subset(&pinned) || !program.kernels.iter().any(is_too_wide) {
            check::check(&program, target, interrupt)?;
            return Ok(program);
        }
        pinned.extend(refused);
        if round >= PINNED_ROUNDS_MAX {
            pinned.extend(claims.assigned.values());
        }
        // Remove the copies that this round's schedule added before the next round begins.
        graph_with_layout.graph.nodes.truncate(nodes);
        round += 1;
    }
}

fn output_ports(graph: &Graph) -> Vec<GraphPort> {
    let port =
        |(name, node): &(String, NodeId)| GraphPort { name: name.clone(), descriptor: graph.descriptor(*node).clone() };
    graph.outputs.iter().map(port).collect()
}

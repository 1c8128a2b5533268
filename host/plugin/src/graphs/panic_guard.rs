//! Catches panics of the compiler: a graph that causes one gets an error that names the graph, and the worker
//! continues.

use std::panic::{AssertUnwindSafe, catch_unwind};

use saggar_compile::{CompileError, Program};
use saggar_tensor::Graph;

use crate::guest_error_code::GuestErrorCode;
use crate::host_error::HostError;

/// Maximum number of labels in the message.
const LABELS_MAX: usize = 8;

/// Runs `compile`, which compiles `graph` and does nothing else.
///
/// # Errors
/// The compiler's errors; if it panics, an internal error with the number of nodes and the first labels.
pub(super) fn catch_compiler_panic(
    graph: &Graph,
    compile: impl FnOnce() -> Result<Program, CompileError>,
) -> Result<Program, HostError> {
    // Unwind safe: state that a panic leaves inconsistent is dropped with it.
    if let Ok(program) = catch_unwind(AssertUnwindSafe(compile)) {
        return Ok(program?);
    }
    let nodes = graph.nodes.len();
    let labels: Vec<&str> = graph.nodes.iter().filter_map(|node| node.label.as_deref()).take(LABELS_MAX).collect();
    let labels =
        if labels.is_empty() { "without labels".to_owned() } else { format!("labelled {}", labels.join(", ")) };
    tracing::error!(nodes, labels, "the compiler panicked");
    let message = format!("the compiler panicked on a graph of {nodes} nodes, {labels}; the host's log says where");
    Err(HostError::new(GuestErrorCode::Internal, message))
}

#[cfg(test)]
mod tests {
    use saggar_tensor::{DType, Descriptor, GraphBuilder, Shape};

    use super::*;

    #[test]
    fn a_compiler_panic_becomes_an_error_that_names_the_graph() {
        let mut builder = GraphBuilder::new();
        let x = builder.input("x", Descriptor::new(DType::F32, Shape::new([4]).unwrap())).unwrap();
        builder.label(x, "pixels").unwrap();
        let graph = builder.finish();
        let fault = catch_compiler_panic(&graph, || panic!("a broken promise")).unwrap_err();
        let HostError::Answer(error) = fault else { panic!("{fault:?}") };
        assert_eq!(error.code, GuestErrorCode::Internal);
        assert!(error.message.contains("1 nodes, labelled pixels"), "{}", error.message);
    }
}

//! Any text is refused as a graph, or read, verified or refused, and printed as it was read.

use saggar_tensor::text::{parse, print};
use saggar_tensor::verify;

/// Reads, prints and verifies a text.
///
/// # Panics
/// Where the statement above does not hold.
pub(crate) fn check(text: &str) {
    let Ok(graph) = parse(text) else { return };
    let printed = print(&graph);
    let again = parse(&printed).expect("what was printed reads back");
    assert_eq!(print(&again), printed);
    let _ = verify(graph);
}

//! Checks that any text is refused as a graph, or parsed, then verified or refused, and that its printed form parses to
//! the same graph.

use saggar_tensor::text::{parse, print};
use saggar_tensor::verify;

/// Parses, prints and verifies a text.
///
/// # Panics
/// If the printed form of a graph does not parse to the same graph.
pub(crate) fn check(text: &str) {
    let Ok(graph) = parse(text) else { return };
    let printed = print(&graph);
    let again = parse(&printed).expect("what was printed reads back");
    assert_eq!(print(&again), printed);
    let _ = verify(graph);
}

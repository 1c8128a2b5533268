//! Any text is refused as a graph, or read, verified or refused, and printed as it was read.
#![no_main]

use libfuzzer_sys::fuzz_target;
use saggar_tensor::text::{parse, print};
use saggar_tensor::verify;

fuzz_target!(|text: &str| {
    let Ok(graph) = parse(text) else { return };
    let printed = print(&graph);
    let again = parse(&printed).expect("what was printed reads back");
    assert_eq!(print(&again), printed);
    let _ = verify(graph);
});

//! Generated graphs with inputs for them: what property tests of gradients, of the compiler and of devices run.
//!
//! [`cases`] has at least one small graph for every primitive, data type and edge case; [`graph`] composes primitives at
//! random, and [`tangle`] few of them in graphs of which much is read at once. Everything follows from the seed. Values are chosen so that small numeric differences between devices cannot
//! change an integer: comparisons, rounding and indices work on values that are the same on every device.

mod attention;
mod contract;
mod convolution;
mod draft;
mod elementwise;
mod index;
mod movement;
mod network;
mod ordinal;
mod reduce;
mod source;
mod tangle;
mod values;
mod wide;

use crate::graph::NodeId;
use crate::interp::Value;
use crate::{GraphBuilder, VerifiedGraph, verify};

pub use attention::{Attention, MASKS, Mask, attention};
use draft::Draft;
pub use network::graph;
pub use ordinal::{OPS, ordinal};
pub use tangle::tangle;
pub use values::Random;

/// A graph, and values for its inputs and variables in the graph's order.
#[derive(Clone, Debug)]
pub struct Case {
    /// What is tried, for messages.
    pub name: String,
    /// The graph, which may be extended (by gradients, say) before it is verified.
    pub builder: GraphBuilder,
    /// One value for each input.
    pub inputs: Vec<Value>,
    /// One value for each variable.
    pub variables: Vec<Value>,
    /// The inputs' nodes.
    pub input_nodes: Vec<NodeId>,
    /// The outputs' nodes.
    pub output_nodes: Vec<NodeId>,
    /// Whether outputs are differentiable in the float inputs at these values, with no kink within 0.01.
    pub smooth: bool,
}

impl Case {
    /// The graph, verified.
    pub fn verified(&self) -> VerifiedGraph {
        verify(self.builder.clone().finish()).expect("generated graphs are valid")
    }
}

/// Small graphs of one primitive each, every primitive at least once (tested by [`ordinal`]).
pub fn cases(seed: u64) -> Vec<Case> {
    let random = &mut Random::new(seed);
    let mut cases = Vec::new();
    source::cases(random, &mut cases);
    elementwise::cases(random, &mut cases);
    reduce::cases(random, &mut cases);
    movement::cases(random, &mut cases);
    contract::cases(random, &mut cases);
    convolution::cases(random, &mut cases);
    index::cases(random, &mut cases);
    wide::cases(&mut cases);
    cases
}

#[cfg(test)]
mod tests {
    use super::{OPS, cases, graph, ordinal, tangle};

    #[test]
    fn every_primitive_has_a_case() {
        let mut seen = [false; OPS];
        for case in cases(1) {
            for node in &case.verified().graph().nodes {
                seen[ordinal(&node.op)] = true;
            }
        }
        let missing: Vec<usize> = (0..OPS).filter(|&op| !seen[op]).collect();
        assert!(missing.is_empty(), "no case for ordinals {missing:?}");
    }

    #[test]
    fn the_seed_decides_everything() {
        for seed in 0..50 {
            let (first, second) = (graph(seed), graph(seed));
            assert_eq!(first.verified(), second.verified());
            assert_eq!(first.inputs, second.inputs);
            assert_eq!(first.variables, second.variables);
            assert_eq!(tangle(seed).verified(), tangle(seed).verified());
        }
        let names = |seed| cases(seed).into_iter().map(|case| case.name).collect::<Vec<_>>();
        assert_eq!(names(1), names(2), "cases have stable names");
    }
}

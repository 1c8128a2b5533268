//! Test cases and a reference executor, for tests of gradients, of the compiler and of devices, and for fuzz targets.
//! No other crate depends on this one, except for its tests.
//!
//! [`primitive_cases`] has at least one small graph for every primitive, data type and edge case. [`random_graph()`]
//! composes primitives at random. [`high_fan_in_graph`] composes a few of them into graphs in which many values are
//! read at once. Everything follows from the seed. Values are chosen so that small numeric differences between devices
//! cannot change an integer: comparisons, rounding and indices work on values that are the same on every device.
//!
//! [`reference`] runs compiled programs slowly and compares them with the interpreter of `tensor`.

#![deny(clippy::wildcard_enum_match_arm)]

mod attention;
mod case_builder;
mod contract;
mod convolution;
mod elementwise;
mod high_fan_in;
mod index;
mod movement;
mod random_graph;
mod reduce;
pub mod reference;
mod source;
mod values;
mod wide_integer;

use saggar_tensor::graph::NodeId;
use saggar_tensor::interp::InterpTensor;
use saggar_tensor::{GraphBuilder, VerifiedGraph, verify};

pub use attention::{ATTENTION_SIZES, AttentionConfig, MASKS, MaskKind, attention_case};
use case_builder::CaseBuilder;
pub use high_fan_in::high_fan_in_graph;
pub use random_graph::random_graph;
pub use values::CaseRng;

/// A graph, and values for its inputs and variables in the graph's order.
#[derive(Clone, Debug)]
pub struct GraphCase {
    /// Description of the case, for messages.
    pub name: String,
    /// The graph, which can be extended (by gradients, for example) before it is verified.
    pub builder: GraphBuilder,
    /// Values of the inputs.
    pub inputs: Vec<InterpTensor>,
    /// Values of the variables.
    pub variables: Vec<InterpTensor>,
    /// The inputs' nodes.
    pub input_nodes: Vec<NodeId>,
    /// The outputs' nodes.
    pub output_nodes: Vec<NodeId>,
    /// Whether outputs are differentiable with respect to the float inputs at these values, with no kink within 0.01.
    pub smooth: bool,
}

impl GraphCase {
    /// Returns the verified graph.
    pub fn verified_graph(&self) -> VerifiedGraph {
        verify(self.builder.clone().finish()).expect("generated graphs are valid")
    }
}

/// Returns small graphs of one primitive each, every primitive at least once.
pub fn primitive_cases(seed: u64) -> Vec<GraphCase> {
    let random = &mut CaseRng::new(seed);
    let mut cases = Vec::new();
    source::cases(random, &mut cases);
    elementwise::cases(random, &mut cases);
    reduce::cases(random, &mut cases);
    movement::cases(random, &mut cases);
    contract::cases(random, &mut cases);
    convolution::cases(random, &mut cases);
    index::cases(random, &mut cases);
    wide_integer::cases(&mut cases);
    cases
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use saggar_tensor::op::{IndexOp, Op};

    use super::{high_fan_in_graph, primitive_cases, random_graph};

    /// Returns the operator's name, and how it combines elements if the name does not say it.
    fn primitive(op: &Op) -> String {
        match op.as_index() {
            Some(IndexOp::Scatter { combine, .. }) => format!("scatter {}", combine.name()),
            Some(_) | None => op.name().to_owned(),
        }
    }

    #[test]
    fn every_primitive_has_a_case() {
        let mut missing: BTreeSet<String> = Op::prototypes().iter().map(primitive).collect();
        for case in primitive_cases(1) {
            for node in &case.verified_graph().graph().nodes {
                missing.remove(&primitive(&node.op));
            }
        }
        assert!(missing.is_empty(), "no case for {missing:?}");
    }

    #[test]
    fn cases_are_deterministic_for_a_seed() {
        for seed in 0..50 {
            let (first, second) = (random_graph(seed), random_graph(seed));
            assert_eq!(first.verified_graph(), second.verified_graph());
            assert_eq!(first.inputs, second.inputs);
            assert_eq!(first.variables, second.variables);
            assert_eq!(high_fan_in_graph(seed).verified_graph(), high_fan_in_graph(seed).verified_graph());
        }
        let names = |seed| primitive_cases(seed).into_iter().map(|case| case.name).collect::<Vec<_>>();
        assert_eq!(names(1), names(2), "cases have stable names");
    }
}

//! Every operator that a plugin can call, and every composite, has its gradient compared with central differences, or
//! reports by name that it has none. The names come from the plugin interface and from `nn`: a new operator fails here
//! until it has an entry.

#![allow(clippy::unwrap_used, reason = "a test's panic names the place")]

#[path = "../differences/mod.rs"]
mod differences;

mod convolution_and_pooling;
mod elementwise;
mod index;
mod layers;
mod movement;
mod recurrent;
mod reduce;
mod without_gradient;

use saggar_tensor::NodeResult;
use std::collections::BTreeSet;

use saggar_tensor::interp::InterpTensor;
use saggar_tensor::op::{BinaryOp, UnaryOp};
use saggar_tensor::{DType, Descriptor, GraphBuilder, GraphError, NodeId, Shape};
use saggar_testgen::{CaseRng, GraphCase};

type OperatorFn = fn(&mut GraphBuilder, &[NodeId]) -> NodeResult;
/// Name of the operator and, after a comma, of the case; shapes of its float operands; the function that builds the
/// graph.
type OperatorEntry = (&'static str, &'static [&'static [usize]], OperatorFn);

const INTERFACE: &str = include_str!("../../../../wit/graphs.wit");
const COMPOSITES: &str = include_str!("../../src/nn.rs");

/// Methods of the builder that are not operators.
const NO_OPERATORS: [&str; 9] =
    ["input", "constant", "scalar", "fill", "iota", "variable", "gradients", "assign", "build"];

/// Operators whose operands are all integers. Each gets a float and must refuse it.
const OF_INTEGERS: [(&str, OperatorFn); 3] = [
    ("one-hot", |g, x| saggar_tensor::nn::one_hot(g, x[0], 3, DType::F32)),
    ("random-uniform", |g, x| saggar_tensor::nn::uniform(g, Shape::new([2])?, x[0], 1, [0.0, 1.0])),
    ("random-normal", |g, x| saggar_tensor::nn::normal(g, Shape::new([2])?, x[0], 1)),
];

/// Names of composites that the interface spells differently, or that are modes of one operator there.
const SPELLINGS: [(&str, &str); 7] = [
    ("cross-entropy", "softmax-cross-entropy"),
    ("linear-function", "linear"),
    ("normal", "random-normal"),
    ("pad-edge", "pad"),
    ("pad-reflection", "pad"),
    ("pad-symmetric", "pad"),
    ("uniform", "random-uniform"),
];

fn entries() -> impl Iterator<Item = &'static OperatorEntry> {
    let families = [
        elementwise::ENTRIES,
        index::ENTRIES,
        layers::ENTRIES,
        movement::ENTRIES,
        recurrent::ENTRIES,
        reduce::ENTRIES,
        convolution_and_pooling::ENTRIES,
    ];
    families.into_iter().flatten()
}

/// Returns the operator of an entry's name.
fn operator_name(name: &str) -> &str {
    name.split(',').next().unwrap_or(name)
}

/// Returns the names of the interface's `graph-builder` methods.
fn interface_methods() -> BTreeSet<String> {
    let (_, resource) = INTERFACE.split_once("resource graph-builder {").expect("the interface has the builder");
    let (resource, _) = resource.split_once("\n  }").expect("a resource ends");
    let name = |line: &str| {
        let (name, rest) = line.trim().split_once(": ")?;
        let is_method = rest.starts_with("func") || rest.starts_with("static func");
        is_method.then(|| name.trim_start_matches('%').to_owned())
    };
    resource.lines().filter_map(name).collect()
}

/// Returns the names of the functions that `nn` exports, in the interface's spelling.
fn composite_names() -> BTreeSet<String> {
    let exports = COMPOSITES.split("pub use ").skip(1).filter_map(|rest| rest.split(';').next());
    let names = exports.flat_map(|export| export.split(['{', '}', ',', ':']).map(str::trim));
    let modules = |name: &str| COMPOSITES.contains(&format!("pub use {name}::"));
    let is_function = |name: &&str| name.starts_with(|first: char| first.is_ascii_lowercase());
    let exported: Vec<&str> = names.filter(is_function).collect();
    // A module and its function can share a name, which then occurs twice.
    let count = |name: &str| exported.iter().filter(|other| **other == name).count();
    exported.iter().filter(|name| !modules(name) || count(name) > 1).map(|name| name.replace('_', "-")).collect()
}

#[test]
fn every_elementwise_primitive_is_a_method_of_the_interface() {
    let methods = interface_methods();
    let names = UnaryOp::WITHOUT_ATTRIBUTES.iter().map(|op| op.name());
    let names = names.chain(BinaryOp::ALL.iter().map(|op| op.name())).chain(["cast", "where"]);
    let missing: Vec<&str> = names.filter(|name| !methods.contains(*name)).collect();
    assert!(missing.is_empty(), "primitives without a method of `graph-builder`: {missing:?}");
}

#[test]
fn every_operator_has_a_gradient_entry() {
    let mut tried: BTreeSet<&str> = entries().map(|(name, ..)| operator_name(name)).collect();
    tried.extend(without_gradient::ENTRIES.iter().map(|(name, ..)| operator_name(name)));
    tried.extend(OF_INTEGERS.iter().map(|(name, _)| *name));
    let methods = interface_methods();
    assert!(methods.len() > 100 && methods.contains("lstm-cell"), "{methods:?}");
    let without = |name: &&String| !tried.contains(name.as_str()) && !NO_OPERATORS.contains(&name.as_str());
    let missing: Vec<&String> = methods.iter().filter(without).collect();
    assert!(missing.is_empty(), "operators of the interface without an entry: {missing:?}");
    let composites = composite_names();
    assert!(composites.len() > 60 && composites.contains("linear"), "{composites:?}");
    let spelt = |name: &str| {
        let found = SPELLINGS.iter().find(|(ours, _)| *ours == name);
        found.map_or(name.to_owned(), |(_, interface)| (*interface).to_owned())
    };
    let missing: Vec<&String> = composites.iter().filter(|name| !tried.contains(&*spelt(name))).collect();
    assert!(missing.is_empty(), "composites without an entry: {missing:?}");
    let unknown = |name: &&&str| !methods.contains(**name) && !composites.contains(**name);
    let unknown: Vec<&&str> = tried.iter().filter(unknown).collect();
    assert!(unknown.is_empty(), "entries of operators that do not exist: {unknown:?}");
}

/// Returns a graph with float inputs of these shapes and one output.
fn operator_case(name: &str, shapes: &[&[usize]], build: OperatorFn, dtype: DType, random: &mut CaseRng) -> GraphCase {
    let mut builder = GraphBuilder::new();
    let (mut inputs, mut input_nodes) = (Vec::new(), Vec::new());
    for (position, dims) in shapes.iter().enumerate() {
        let shape = Shape::new(*dims).unwrap();
        let numbers: Vec<f64> = (0..shape.elements()).map(|_| random.float(-2.0, 2.0)).collect();
        let descriptor = Descriptor::new(dtype, shape.clone());
        input_nodes.push(builder.input(&format!("x{position}"), descriptor).unwrap());
        inputs.push(InterpTensor::from_numbers(dtype, shape, &numbers).unwrap());
    }
    let output = build(&mut builder, &input_nodes).unwrap_or_else(|error| panic!("{name}: {error}"));
    builder.output("y", output).unwrap();
    let (variables, output_nodes) = (Vec::new(), vec![output]);
    GraphCase { name: name.to_owned(), builder, inputs, variables, input_nodes, output_nodes, smooth: true }
}

#[test]
fn operator_gradients_match_finite_differences() {
    let mut random = CaseRng::new(5);
    for (name, shapes, build) in entries() {
        let case = operator_case(name, shapes, *build, DType::F32, &mut random);
        assert!(case.builder.descriptor(case.output_nodes[0]).dtype.is_float(), "{name} gives no float");
        differences::check_gradients(name, &case, 1);
    }
}

/// In half precision, composites convert to single precision and back: the conversions have gradients too.
#[test]
fn f16_operator_gradients_match_finite_differences() {
    let mut random = CaseRng::new(6);
    for (name, shapes, build) in entries() {
        let case = operator_case(name, shapes, *build, DType::F16, &mut random);
        differences::check_gradients(&format!("{name}, float16"), &case, 1);
    }
}

#[test]
fn integer_operators_refuse_floats() {
    for (name, build) in OF_INTEGERS {
        let mut g = GraphBuilder::new();
        let x = g.input("x", Descriptor::new(DType::F32, Shape::new([4]).unwrap())).unwrap();
        let error = build(&mut g, &[x]).unwrap_err();
        assert!(matches!(error, GraphError::DType { .. }), "{name}: {error}");
    }
}

/// Returns constant numbers, in the float type of `like`, or in another float type if `like` is not a float.
fn floats(g: &mut GraphBuilder, dims: &[usize], numbers: &[f64], like: NodeId) -> NodeResult {
    constant(g, g.descriptor(like).dtype, dims, numbers)
}

fn ints(g: &mut GraphBuilder, dims: &[usize], numbers: &[f64]) -> NodeResult {
    constant(g, DType::I32, dims, numbers)
}

fn constant(g: &mut GraphBuilder, dtype: DType, dims: &[usize], numbers: &[f64]) -> NodeResult {
    let value = InterpTensor::from_numbers(dtype, Shape::new(dims)?, numbers)?;
    g.constant(value.descriptor().clone(), value.to_bytes())
}

/// Returns all elements of these nodes, concatenated.
fn concat_flat(g: &mut GraphBuilder, nodes: &[NodeId]) -> NodeResult {
    let flat = nodes.iter().map(|&node| {
        let count = g.descriptor(node).shape.elements();
        g.reshape(node, &[count])
    });
    let flat: Vec<NodeId> = flat.collect::<Result<_, _>>()?;
    g.concat(&flat, 0)
}

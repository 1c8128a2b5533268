//! Compares gradients with central differences.

use saggar_tensor::grad::gradients;
use saggar_tensor::interp::{InterpElements, InterpPrecision, InterpTensor, evaluate_with};
use saggar_tensor::{GraphBuilder, NodeId, VerifiedGraph, verify};
use saggar_testgen::{CaseRng, GraphCase};

/// Step of the differences: their error is of order STEP^2 from curvature and 1e-16 / STEP from rounding.
const STEP: f64 = 1e-4;
/// Largest allowed difference, relative to the larger of 1 and the slope. Third derivatives of the cases reach a few
/// hundred, and STEP^2 / 6 times that is about 1e-6.
const TOLERANCE: f64 = 2e-5;
/// Number of elements checked per operand.
const ELEMENTS_MAX: usize = 24;

/// Checks the gradient of the case's first output, weighted at random, with respect to every float input. With `order`
/// 2, checks the gradient of the weighted sum of those gradients.
pub(crate) fn check_gradients(name: &str, case: &GraphCase, order: usize) {
    let mut random = CaseRng::new(77);
    let mut builder = case.builder.clone();
    let wrt: Vec<NodeId> = float_inputs(&builder, case).into_iter().map(|(_, node)| node).collect();
    if !builder.descriptor(case.output_nodes[0]).dtype.is_float() {
        return;
    }
    let mut loss = weighted_sum(&mut builder, &mut random, &case.output_nodes[..1]);
    for _ in 1..order {
        let found = gradients(&mut builder, loss, &wrt).unwrap_or_else(|error| panic!("{name}: {error}"));
        loss = weighted_sum(&mut builder, &mut random, &found);
    }
    let found = gradients(&mut builder, loss, &wrt).unwrap_or_else(|error| panic!("{name}: {error}"));
    let losses = graph_with_outputs(builder.clone(), &[loss]);
    let slopes = graph_with_outputs(builder.clone(), &found);
    let slopes = evaluate_outputs(&slopes, &case.inputs, case);
    for ((position, _), slope) in float_inputs(&builder, case).into_iter().zip(slopes) {
        let numbers = case.inputs[position].to_f64_numbers();
        assert_eq!(slope.descriptor(), case.inputs[position].descriptor(), "{name}");
        for element in choose_elements(&mut random, numbers.len()) {
            let at = |delta: f64| {
                let mut moved = numbers.clone();
                moved[element] += delta;
                let mut inputs = case.inputs.clone();
                inputs[position] =
                    InterpTensor::from_exact_numbers(inputs[position].descriptor().clone(), moved).unwrap();
                evaluate_outputs(&losses, &inputs, case)[0].to_f64_numbers()[0]
            };
            let difference = (at(STEP) - at(-STEP)) / (2.0 * STEP);
            let gradient = slope.to_f64_numbers()[element];
            let error = (gradient - difference).abs() / difference.abs().max(1.0);
            assert!(
                error < TOLERANCE,
                "{name}: input {position} element {element}: gradient {gradient}, differences {difference}"
            );
        }
    }
}

/// Returns positions and nodes of float inputs.
fn float_inputs(builder: &GraphBuilder, case: &GraphCase) -> Vec<(usize, NodeId)> {
    let float = |(_, node): &(usize, NodeId)| builder.descriptor(*node).dtype.is_float();
    case.input_nodes.iter().copied().enumerate().filter(float).collect()
}

/// Returns the sum over all elements of `nodes`, each times a random constant, so that no symmetry hides a wrong slope.
fn weighted_sum(g: &mut GraphBuilder, random: &mut CaseRng, nodes: &[NodeId]) -> NodeId {
    let mut total = None;
    for &node in nodes {
        let descriptor = g.descriptor(node).clone();
        let weights: Vec<f64> = (0..descriptor.shape.elements()).map(|_| random.float(-1.0, 1.0)).collect();
        let weights = InterpTensor::new(descriptor.clone(), InterpElements::Float(weights)).unwrap();
        let weights = g.constant(descriptor.clone(), weights.to_bytes()).unwrap();
        let product = g.mul(node, weights).unwrap();
        let axes: Vec<usize> = (0..descriptor.shape.rank()).collect();
        let sum = g.reduce_sum(product, &axes, false).unwrap();
        // Operands of a case have one float data type, but the result of a conversion has another.
        let sum = g.cast(sum, saggar_tensor::DType::F32).unwrap();
        total = Some(match total {
            Some(total) => g.add(total, sum).unwrap(),
            None => sum,
        });
    }
    total.expect("there is something to differentiate")
}

fn graph_with_outputs(builder: GraphBuilder, nodes: &[NodeId]) -> VerifiedGraph {
    let mut graph = builder.finish();
    graph.outputs = nodes.iter().enumerate().map(|(position, &node)| (format!("o{position}"), node)).collect();
    verify(graph).unwrap()
}

fn evaluate_outputs(graph: &VerifiedGraph, inputs: &[InterpTensor], case: &GraphCase) -> Vec<InterpTensor> {
    evaluate_with(graph, inputs, &mut case.variables.clone(), InterpPrecision::Exact).unwrap()
}

fn choose_elements(random: &mut CaseRng, count: usize) -> Vec<usize> {
    let mut order = random.permutation(count);
    order.truncate(ELEMENTS_MAX);
    order
}

//! Checks every gradient rule, and every composite's gradient, against central differences in f64.

#![allow(clippy::unwrap_used, reason = "a test's panic names the place")]

mod differences;

use differences::check_gradients;
use saggar_tensor::grad::gradients;
use saggar_tensor::op::{ConvolutionOp, Op, Pool2d, PoolKind, Scalar, UnaryOp};
use saggar_tensor::{DType, Descriptor, GraphBuilder, GraphError, NodeId, Shape, verify};
use saggar_testgen::primitive_cases;

#[test]
fn primitive_gradients_match_finite_differences() {
    for seed in 0..4 {
        let mut checked = 0;
        for case in primitive_cases(seed).into_iter().filter(|case| case.smooth) {
            check_gradients(&format!("{} (seed {seed})", case.name), &case, 1);
            checked += 1;
        }
        assert!(checked > 150, "only {checked} cases are smooth");
    }
}

/// Second-order gradients work because the rules emit primitives that have rules.
#[test]
fn second_order_gradients_match_finite_differences() {
    // Max pooling has no second-order rule.
    let once = |name: &str| name.starts_with("max-pool2d");
    for case in primitive_cases(9).into_iter().filter(|case| case.smooth && !once(&case.name)) {
        check_gradients(&format!("{}, twice", case.name), &case, 2);
    }
}

fn float(dims: &[usize]) -> Descriptor {
    Descriptor::new(DType::F32, Shape::new(dims).unwrap())
}

fn sum(g: &mut GraphBuilder, x: NodeId) -> NodeId {
    let axes: Vec<usize> = (0..g.descriptor(x).shape.rank()).collect();
    g.reduce_sum(x, &axes, false).unwrap()
}

#[test]
fn a_loss_must_be_one_float() {
    let mut g = GraphBuilder::new();
    let x = g.input("x", float(&[2])).unwrap();
    let n = g.input("n", Descriptor::new(DType::I32, Shape::scalar())).unwrap();
    assert!(matches!(gradients(&mut g, x, &[x]), Err(GraphError::LossNotScalar { .. })));
    assert!(matches!(gradients(&mut g, n, &[x]), Err(GraphError::LossNotScalar { .. })));
    let loss = sum(&mut g, x);
    assert!(matches!(gradients(&mut g, loss, &[n]), Err(GraphError::DType { .. })));
    assert!(matches!(gradients(&mut g, loss, &[NodeId(99)]), Err(GraphError::UnknownNode { id: 99, .. })));
    assert!(matches!(gradients(&mut g, NodeId(99), &[x]), Err(GraphError::UnknownNode { id: 99, .. })));
}

#[test]
fn unrelated_nodes_get_zero_gradients() {
    let mut g = GraphBuilder::new();
    let x = g.input("x", float(&[3])).unwrap();
    let other = g.input("other", float(&[2, 2])).unwrap();
    let rounded = g.floor(x).unwrap();
    let stopped = g.stop_gradient(x).unwrap();
    let both = g.add(rounded, stopped).unwrap();
    let loss = sum(&mut g, both);
    let late = g.exp(other).unwrap();
    let found = gradients(&mut g, loss, &[x, other, late]).unwrap();
    for (gradient, wrt) in found.into_iter().zip([x, other, late]) {
        assert_eq!(g.descriptor(gradient), g.descriptor(wrt));
        let node = g.graph().node(gradient);
        assert_eq!(node.op, Op::Source(saggar_tensor::op::SourceOp::Fill(Scalar::Float(0.0))));
    }
    verify(g.finish()).unwrap();
}

/// Only nodes between loss and operand are visited. An operator without a rule is an error, with its name, only on that
/// path.
#[test]
fn an_operator_without_a_gradient_is_named_in_the_error() {
    let pool = Pool2d { window: [2, 2], padding: [0; 4], strides: [2, 2], dilations: [1, 1] };
    let mut g = GraphBuilder::new();
    let x = g.input("x", float(&[1, 1, 4, 4])).unwrap();
    let dy = g.input("dy", float(&[1, 1, 2, 2])).unwrap();
    let dx = g.add_node(Op::Convolution(ConvolutionOp::MaxPool2dGrad(pool)), &[x, dy]).unwrap();
    g.label(dx, "pooled back").unwrap();
    let loss = sum(&mut g, dx);
    gradients(&mut g, loss, &[x]).unwrap();
    let error = gradients(&mut g, loss, &[dy]).unwrap_err();
    assert_eq!(*error.kind(), GraphError::NoGradient { op: "max-pool2d-grad" });
    assert_eq!(error.place(), Some("pooled back"));
}

/// Equal elements share the adjoint of a maximum; max pooling gives it to the first.
#[test]
fn equal_operands_share_the_gradient_of_a_maximum() {
    use saggar_tensor::interp::{InterpTensor, evaluate};
    let mut g = GraphBuilder::new();
    let x = g.input("x", float(&[1, 1, 2, 2])).unwrap();
    let largest = g.reduce_max(x, &[2, 3], false).unwrap();
    let loss = sum(&mut g, largest);
    let shared = gradients(&mut g, loss, &[x]).unwrap()[0];
    let pool = Pool2d { window: [2, 2], padding: [0; 4], strides: [1, 1], dilations: [1, 1] };
    let pooled = g.pool2d(x, PoolKind::Max, pool).unwrap();
    let loss = sum(&mut g, pooled);
    let first = gradients(&mut g, loss, &[x]).unwrap()[0];
    let negative = g.add_node(Op::Unary(UnaryOp::Neg), &[x]).unwrap();
    let smaller = g.max(x, negative).unwrap();
    let loss = sum(&mut g, smaller);
    let halves = gradients(&mut g, loss, &[x]).unwrap()[0];
    for (name, node) in [("shared", shared), ("first", first), ("halves", halves)] {
        g.output(name, node).unwrap();
    }
    let value =
        InterpTensor::from_numbers(DType::F32, Shape::new([1, 1, 2, 2]).unwrap(), &[0.0, 3.0, -1.0, 3.0]).unwrap();
    let outputs = evaluate(&verify(g.finish()).unwrap(), &[value], &mut []).unwrap();
    assert_eq!(outputs[0].to_f64_numbers(), [0.0, 0.5, 0.0, 0.5]);
    assert_eq!(outputs[1].to_f64_numbers(), [0.0, 1.0, 0.0, 0.0]);
    // At 0 both operands are equal: half of 1 minus half of 1.
    assert_eq!(outputs[2].to_f64_numbers(), [0.0, 1.0, -1.0, 1.0]);
}

/// For random combinations of primitives, gradients exist, pass verification, and evaluate to the shapes of their
/// nodes.
#[test]
fn random_graphs_have_gradients() {
    use saggar_tensor::interp::evaluate;
    use saggar_testgen::random_graph;
    let mut nonzero = 0;
    for seed in 0..150 {
        let case = random_graph(seed);
        let mut g = case.builder.clone();
        let float = |g: &GraphBuilder, node: &NodeId| g.descriptor(*node).dtype.is_float();
        let wrt: Vec<NodeId> = case.input_nodes.iter().copied().filter(|node| float(&g, node)).collect();
        let Some(output) = case.output_nodes.iter().copied().find(|node| float(&g, node)) else { continue };
        let loss = sum(&mut g, output);
        let found = match gradients(&mut g, loss, &wrt) {
            Ok(found) => found,
            Err(error) if matches!(error.kind(), GraphError::GradientCut { .. }) => {
                assert!(error.place().is_some(), "seed {seed}");
                continue;
            }
            Err(error) => panic!("seed {seed}: {error}"),
        };
        for (position, &gradient) in found.iter().enumerate() {
            g.output(&format!("gradient {position}"), gradient).unwrap();
        }
        let verified = verify(g.finish()).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let outputs = evaluate(&verified, &case.inputs, &mut case.variables.clone()).unwrap();
        for (gradient, &node) in outputs[case.output_nodes.len()..].iter().zip(&wrt) {
            assert_eq!(gradient.descriptor(), verified.graph().descriptor(node), "seed {seed}");
            nonzero += usize::from(gradient.to_f64_numbers().iter().any(|number| *number != 0.0));
        }
    }
    assert!(nonzero > 80, "{nonzero} gradients are not zero");
}

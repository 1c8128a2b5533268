use saggar_tensor::interp::{InterpTensor, evaluate};
use saggar_tensor::op::{MovementOp, Pool2d, PoolKind, ReduceKind, Scalar};
use saggar_tensor::{DType, Descriptor, GraphBuilder, InterruptCheck, NodeId, Op, Shape, VerifiedGraph, verify};

use super::simplify;
use crate::optimization::DisabledOptimizations;

fn check(build: impl FnOnce(&mut GraphBuilder, NodeId) -> NodeId, expected: &[&str]) {
    let mut builder = GraphBuilder::new();
    let x = builder.input("x", Descriptor::new(DType::F32, Shape::new([2, 3]).unwrap())).unwrap();
    let y = build(&mut builder, x);
    builder.output("y", y).unwrap();
    let graph =
        simplify(&verify(builder.finish()).unwrap(), DisabledOptimizations::NONE, &InterruptCheck::never()).unwrap();
    let found: Vec<&str> = graph.nodes.iter().map(|node| node.op.name()).collect();
    assert_eq!(found, expected);
}

fn fill(builder: &mut GraphBuilder, value: f64) -> NodeId {
    builder.fill(Descriptor::new(DType::F32, Shape::new([2, 3]).unwrap()), Scalar::Float(value)).unwrap()
}

#[test]
fn identity_operators_are_removed() {
    check(
        |b, x| {
            let one = fill(b, 1.0);
            let x = b.mul(x, one).unwrap();
            let x = b.transpose(x, &[0, 1]).unwrap();
            let x = b.reshape(x, &[6]).unwrap();
            let x = b.reshape(x, &[2, 3]).unwrap();
            b.cast(x, DType::F32).unwrap()
        },
        &["input"],
    );
}

#[test]
fn adding_positive_zero_is_kept_because_it_changes_negative_zero() {
    check(
        |b, x| {
            let zero = fill(b, 0.0);
            b.add(x, zero).unwrap()
        },
        &["input", "fill", "add"],
    );
    check(
        |b, x| {
            let zero = fill(b, -0.0);
            b.add(x, zero).unwrap()
        },
        &["input"],
    );
}

#[test]
fn equal_nodes_are_merged_and_dead_nodes_removed() {
    check(
        |b, x| {
            b.exp(x).unwrap();
            let first = b.tanh(x).unwrap();
            let second = b.tanh(x).unwrap();
            b.add(first, second).unwrap()
        },
        &["input", "tanh", "add"],
    );
}

#[test]
fn a_reduction_of_an_empty_tensor_becomes_a_fill() {
    check(
        |b, x| {
            let nothing = b.narrow(x, 1, 3, 0).unwrap();
            b.reduce(ReduceKind::Max, nothing, &[1], true).unwrap()
        },
        &["fill"],
    );
}

#[test]
fn long_concatenations_become_trees_without_empty_operands() {
    let mut builder = GraphBuilder::new();
    let x = builder.input("x", Descriptor::new(DType::F32, Shape::new([2, 3]).unwrap())).unwrap();
    let nothing = builder.narrow(x, 0, 0, 0).unwrap();
    let y = builder.concat(&[x, x, x, nothing, x, x, x], 0).unwrap();
    builder.output("y", y).unwrap();
    let graph =
        simplify(&verify(builder.finish()).unwrap(), DisabledOptimizations::NONE, &InterruptCheck::never()).unwrap();
    for node in &graph.nodes {
        if let Op::Movement(MovementOp::Concat { .. }) = node.op {
            assert!(node.inputs.len() <= crate::limits::CONCAT_OPERANDS_MAX);
        }
    }
    assert_eq!(graph.descriptor(graph.outputs[0].1).shape.dims(), [12, 3]);
    assert_eq!(graph.nodes.iter().filter(|node| node.op.name() == "concat").count(), 3);
}

#[test]
fn the_relu_gradient_reads_the_result_instead_of_the_operand() {
    let mut builder = GraphBuilder::new();
    let x = builder.input("x", Descriptor::new(DType::F32, Shape::new([2, 3]).unwrap())).unwrap();
    let z = builder.exp(x).unwrap();
    let y = saggar_tensor::nn::relu(&mut builder, z).unwrap();
    let sum = builder.reduce_sum(y, &[0, 1], false).unwrap();
    let slope = saggar_tensor::grad::gradients(&mut builder, sum, &[z]).unwrap();
    builder.output("y", y).unwrap();
    builder.output("slope", slope[0]).unwrap();
    let graph =
        simplify(&verify(builder.finish()).unwrap(), DisabledOptimizations::NONE, &InterruptCheck::never()).unwrap();
    let z = graph.nodes.iter().position(|node| node.op.name() == "exp").unwrap();
    let readers: Vec<&str> =
        graph.nodes.iter().filter(|node| node.inputs.contains(&NodeId(z as u32))).map(|n| n.op.name()).collect();
    assert_eq!(readers, ["lesser-or-equal", "where"], "only the ReLU reads its operand");
}

/// Returns the operators of the simplified `relu(max-pool2d(tanh(x)))`; `more` can use the nodes of tanh and pool.
fn simplify_relu_of_max_pool(pool: Pool2d, more: impl FnOnce(&mut GraphBuilder, [NodeId; 2])) -> Vec<&'static str> {
    simplify_relu_with_zero(pool, 0.0, more)
}

/// As [`simplify_relu_of_max_pool`], with `zero` as the ReLU's zero.
fn simplify_relu_with_zero(
    pool: Pool2d,
    zero: f64,
    more: impl FnOnce(&mut GraphBuilder, [NodeId; 2]),
) -> Vec<&'static str> {
    let mut builder = GraphBuilder::new();
    let x = builder.input("x", Descriptor::new(DType::F32, Shape::new([1, 2, 6, 6]).unwrap())).unwrap();
    let x = builder.tanh(x).unwrap();
    let largest = builder.pool2d(x, PoolKind::Max, pool).unwrap();
    let zero = builder.fill(builder.descriptor(largest).clone(), Scalar::Float(zero)).unwrap();
    let condition = builder.less_or_equal(largest, zero).unwrap();
    let y = builder.select(condition, zero, largest).unwrap();
    builder.output("y", y).unwrap();
    more(&mut builder, [x, largest]);
    let before = verify(builder.finish()).unwrap();
    let graph = simplify(&before, DisabledOptimizations::NONE, &InterruptCheck::never()).unwrap();
    // NaN, both zeros, values whose tanh is -1 and 1, and windows without positive elements.
    let values = [f64::NAN, -0.0, 0.0, f64::NEG_INFINITY, f64::INFINITY, -1.5, 0.5];
    let values: Vec<f64> = (0..72).map(|at| if at < 36 { values[at * at % 7] } else { -1.0 }).collect();
    let x = InterpTensor::from_numbers(DType::F32, Shape::new([1, 2, 6, 6]).unwrap(), &values).unwrap();
    let bytes = |graph: &VerifiedGraph| -> Vec<Vec<u8>> {
        evaluate(graph, std::slice::from_ref(&x), &mut []).unwrap().iter().map(InterpTensor::to_bytes).collect()
    };
    assert_eq!(bytes(&before), bytes(&verify(graph.clone()).unwrap()));
    graph.nodes.iter().map(|node| node.op.name()).collect()
}

#[test]
fn relu_moves_before_max_pool_if_nothing_else_reads_the_pool() {
    let plain = Pool2d { window: [2, 2], padding: [0; 4], strides: [2, 2], dilations: [1, 1] };
    let before = ["input", "tanh", "fill", "lesser-or-equal", "where", "max-pool2d"];
    let after = ["input", "tanh", "max-pool2d", "fill", "lesser-or-equal", "where"];
    assert_eq!(simplify_relu_of_max_pool(plain, |_, _| {}), before);
    assert_eq!(simplify_relu_with_zero(plain, -0.0, |_, _| {}), before);
    assert_eq!(simplify_relu_of_max_pool(Pool2d { padding: [1; 4], ..plain }, |_, _| {}), before);
    assert_eq!(simplify_relu_of_max_pool(Pool2d { dilations: [2, 2], ..plain }, |_, _| {}), before);
    // All taps of a dilated window can be padding, and padding is not zero.
    assert_eq!(simplify_relu_of_max_pool(Pool2d { padding: [2; 4], dilations: [7, 7], ..plain }, |_, _| {}), after);
    for read in 0..2 {
        let nodes = simplify_relu_of_max_pool(plain, |b, nodes| b.output("more", nodes[read]).unwrap());
        assert_eq!(nodes, after, "the pooled value or the maxima are outputs");
    }
    let gradient = simplify_relu_of_max_pool(plain, |b, [x, largest]| {
        let sum = b.reduce_sum(largest, &[0, 1, 2, 3], false).unwrap();
        let slope = saggar_tensor::grad::gradients(b, sum, &[x]).unwrap();
        b.output("slope", slope[0]).unwrap();
    });
    assert_eq!(gradient[..6], after, "a gradient also reads them: {gradient:?}");
}

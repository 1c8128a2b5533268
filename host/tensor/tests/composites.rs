//! Composites: values compared with hand-computed ones, and gradients where naive formulas fail.

#![allow(clippy::unwrap_used, reason = "a test's panic names the place")]

use saggar_tensor::interp::{InterpTensor, evaluate};
use saggar_tensor::nn::{self, Pool2dOptions, PoolRounding};
use saggar_tensor::{DType, GraphBuilder, GraphError, NodeId, Shape, verify};
use saggar_testgen::{CaseRng, GraphCase};

type CompositeFn = fn(&mut GraphBuilder, &[NodeId]) -> Result<NodeId, GraphError>;

fn floats(dims: &[usize], numbers: &[f64]) -> InterpTensor {
    InterpTensor::from_numbers(DType::F32, Shape::new(dims).unwrap(), numbers).unwrap()
}

fn ints(dtype: DType, numbers: &[f64]) -> InterpTensor {
    InterpTensor::from_numbers(dtype, Shape::new([numbers.len()]).unwrap(), numbers).unwrap()
}

fn composite_case(name: &str, inputs: Vec<InterpTensor>, build: CompositeFn) -> GraphCase {
    let mut builder = GraphBuilder::new();
    let input_nodes: Vec<NodeId> = inputs
        .iter()
        .enumerate()
        .map(|(position, value)| builder.input(&format!("x{position}"), value.descriptor().clone()).unwrap())
        .collect();
    let output = build(&mut builder, &input_nodes).unwrap_or_else(|error| panic!("{name}: {error}"));
    builder.output("y", output).unwrap();
    let (variables, output_nodes) = (Vec::new(), vec![output]);
    GraphCase { name: name.to_owned(), builder, inputs, variables, input_nodes, output_nodes, smooth: true }
}

fn evaluate_composite(inputs: Vec<InterpTensor>, build: CompositeFn) -> InterpTensor {
    let case = composite_case("values", inputs, build);
    evaluate(&case.verified_graph(), &case.inputs, &mut []).unwrap().remove(0)
}

#[track_caller]
fn assert_close(got: &InterpTensor, dims: &[usize], expected: &[f64]) {
    assert_eq!(got.descriptor().shape.dims(), dims);
    for (got, expected) in got.to_f64_numbers().iter().zip(expected) {
        let error = (got - expected).abs();
        assert!(got == expected || error <= 2e-6 * expected.abs().max(1.0), "{got} is not {expected}");
    }
    assert_eq!(got.to_f64_numbers().len(), expected.len());
}

#[test]
fn activations_are_finite_at_extremes() {
    let x = || vec![floats(&[5], &[-200.0, -1.0, 0.0, 1.0, 200.0])];
    let e = std::f64::consts::E;
    assert_close(
        &evaluate_composite(x(), |g, x| nn::sigmoid(g, x[0])),
        &[5],
        &[0.0, 1.0 / (1.0 + e), 0.5, e / (1.0 + e), 1.0],
    );
    assert_close(
        &evaluate_composite(x(), |g, x| nn::softplus(g, x[0])),
        &[5],
        &[0.0, (1.0 + 1.0 / e).ln(), 2f64.ln(), (1.0 + e).ln(), 200.0],
    );
    assert_close(&evaluate_composite(x(), |g, x| nn::elu(g, x[0], 2.0)), &[5], &[-2.0, 2.0 / e - 2.0, 0.0, 1.0, 200.0]);
    assert_close(
        &evaluate_composite(x(), |g, x| nn::hard_swish(g, x[0])),
        &[5],
        &[0.0, -1.0 / 3.0, 0.0, 2.0 / 3.0, 200.0],
    );
    assert_close(
        &evaluate_composite(x(), |g, x| nn::gelu(g, x[0])),
        &[5],
        &[0.0, -0.158655254, 0.0, 0.841344746, 200.0],
    );
    let integers = evaluate_composite(vec![ints(DType::I8, &[-128.0, 5.0])], |g, x| nn::relu(g, x[0]));
    assert_eq!(integers.to_f64_numbers(), [0.0, 5.0]);
    let nan = evaluate_composite(vec![floats(&[1], &[f64::NAN])], |g, x| nn::relu(g, x[0]));
    assert!(nan.to_f64_numbers()[0].is_nan());
}

/// Gradients are finite where a naive formula would overflow, and correct at 0.
#[test]
fn gradients_are_finite_at_extremes() {
    let builds: [(CompositeFn, [f64; 3]); 5] = [
        (|g, x| nn::sigmoid(g, x[0]), [0.0, 0.25, 0.0]),
        (|g, x| nn::softplus(g, x[0]), [0.0, 0.5, 1.0]),
        (|g, x| nn::elu(g, x[0], 1.0), [0.0, 1.0, 1.0]),
        (|g, x| nn::softsign(g, x[0]), [1.0 / 90601.0, 1.0, 1.0 / 90601.0]),
        (|g, x| nn::relu(g, x[0]), [0.0, 0.0, 1.0]),
    ];
    for (build, expected) in builds {
        let mut g = GraphBuilder::new();
        let input = floats(&[3], &[-300.0, 0.0, 300.0]);
        let x = g.input("x", input.descriptor().clone()).unwrap();
        let y = build(&mut g, &[x]).unwrap();
        let loss = g.reduce_sum(y, &[0], false).unwrap();
        let dx = saggar_tensor::grad::gradients(&mut g, loss, &[x]).unwrap()[0];
        g.output("dx", dx).unwrap();
        let outputs = evaluate(&verify(g.finish()).unwrap(), &[input], &mut []).unwrap();
        assert_close(&outputs[0], &[3], &expected);
    }
}

#[test]
fn softmax_rows_sum_to_1() {
    let mut random = CaseRng::new(3);
    for size in [1, 2, 7] {
        let numbers: Vec<f64> = (0..4 * size).map(|_| random.float(-30.0, 30.0)).collect();
        let moved: Vec<f64> = numbers.iter().map(|number| number + 64.0).collect();
        let build: CompositeFn = |g, x| nn::softmax(g, x[0], 1);
        let shares = evaluate_composite(vec![floats(&[4, size], &numbers)], build);
        let same = evaluate_composite(vec![floats(&[4, size], &moved)], build);
        for (row, same) in shares.to_f64_numbers().chunks(size).zip(same.to_f64_numbers().chunks(size)) {
            assert!((row.iter().sum::<f64>() - 1.0).abs() < 1e-6);
            assert!(row.iter().zip(same).all(|(a, b)| *a >= 0.0 && (a - b).abs() < 2e-5));
        }
    }
    let one_sided =
        evaluate_composite(vec![floats(&[1, 3], &[1e4, 0.0, f64::NEG_INFINITY])], |g, x| nn::softmax(g, x[0], 1));
    assert_close(&one_sided, &[1, 3], &[1.0, 0.0, 0.0]);
}

#[test]
fn cross_entropy_matches_hand_computed_values() {
    let cost: CompositeFn = |g, x| nn::cross_entropy(g, x[0], x[1]);
    // Equal logits cost ln 3, whatever the label.
    assert_close(
        &evaluate_composite(vec![floats(&[2, 3], &[1.0; 6]), ints(DType::I64, &[0.0, 2.0])], cost),
        &[],
        &[3f64.ln()],
    );
    let (a, b) = ((1.0 + 2f64.exp()).ln(), (1.0 + (-2f64).exp()).ln());
    let logits = floats(&[2, 2], &[0.0, 2.0, 0.0, 2.0]);
    assert_close(&evaluate_composite(vec![logits, ints(DType::U8, &[0.0, 1.0])], cost), &[], &[(a + b) / 2.0]);
    // An impossible other class has zero loss, as does a label out of range.
    let logits = floats(&[2, 2], &[0.0, f64::NEG_INFINITY, 0.0, 0.0]);
    assert_close(&evaluate_composite(vec![logits, ints(DType::I32, &[0.0, 2.0])], cost), &[], &[0.0]);
    let logits = floats(&[3, 2], &[0.0, 1.0, 1.0, 0.0, 2.0, 2.0]);
    let share = evaluate_composite(vec![logits, ints(DType::U8, &[1.0, 1.0, 0.0])], |g, x| nn::accuracy(g, x[0], x[1]));
    assert_close(&share, &[], &[2.0 / 3.0]);
    let hot = evaluate_composite(vec![ints(DType::I32, &[1.0, -1.0, 3.0])], |g, x| nn::one_hot(g, x[0], 3, DType::F16));
    assert_close(&hot, &[3, 3], &[0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
}

#[test]
fn invalid_labels_are_refused() {
    let mut g = GraphBuilder::new();
    let logits = g.input("logits", floats(&[3, 2], &[0.0; 6]).descriptor().clone()).unwrap();
    let few = g.input("few", ints(DType::U8, &[0.0; 2]).descriptor().clone()).unwrap();
    let wide = g.input("wide", floats(&[3], &[0.0; 3]).descriptor().clone()).unwrap();
    assert!(matches!(nn::cross_entropy(&mut g, logits, few), Err(GraphError::Dimension { .. })));
    assert!(matches!(nn::cross_entropy(&mut g, logits, wide), Err(GraphError::DType { .. })));
    assert!(matches!(nn::cross_entropy(&mut g, wide, wide), Err(GraphError::Rank { .. })));
    assert!(matches!(nn::accuracy(&mut g, logits, NodeId(77)), Err(GraphError::UnknownNode { .. })));
}

#[test]
fn reductions_match_hand_computed_values() {
    let x = || vec![floats(&[2, 3], &[3.0, -4.0, 0.0, 1.0, 2.0, 3.0])];
    assert_close(&evaluate_composite(x(), |g, x| nn::reduce_mean(g, x[0], &[1], true)), &[2, 1], &[-1.0 / 3.0, 2.0]);
    assert_close(&evaluate_composite(x(), |g, x| nn::reduce_l1(g, x[0], &[1], false)), &[2], &[7.0, 6.0]);
    assert_close(&evaluate_composite(x(), |g, x| nn::reduce_l2(g, x[0], &[1], false)), &[2], &[5.0, 14f64.sqrt()]);
    let big = || vec![floats(&[3], &[1000.0, 1000.0, f64::NEG_INFINITY])];
    assert_close(
        &evaluate_composite(big(), |g, x| nn::reduce_log_sum_exp(g, x[0], &[0], false)),
        &[],
        &[1000.0 + 2f64.ln()],
    );
    let none = evaluate_composite(vec![floats(&[2, 0], &[])], |g, x| nn::reduce_log_sum_exp(g, x[0], &[1], false));
    assert_eq!(none.to_f64_numbers(), [f64::NEG_INFINITY; 2]);
    let none = evaluate_composite(vec![floats(&[2, 0], &[])], |g, x| nn::reduce_mean(g, x[0], &[1], false));
    assert!(none.to_f64_numbers().iter().all(|mean| mean.is_nan()));
}

#[test]
fn normalised_rows_have_mean_0_and_variance_1() {
    let x = vec![floats(&[2, 4], &[1.0, 2.0, 3.0, 4.0, -10.0, 0.0, 0.0, 10.0])];
    let y = evaluate_composite(x, |g, x| nn::layer_normalization(g, x[0], None, None, &[1], 0.0));
    for row in y.to_f64_numbers().chunks(4) {
        assert!(row.iter().sum::<f64>().abs() < 1e-6);
        assert!((row.iter().map(|x| x * x).sum::<f64>() / 4.0 - 1.0).abs() < 1e-6);
    }
    let inputs = vec![floats(&[2, 2], &[1.0, 2.0, 3.0, 4.0]), floats(&[2], &[1.0, 2.0]), floats(&[2], &[4.0, 1.0])];
    let y = evaluate_composite(inputs, |g, x| {
        nn::batch_normalization(g, x[0], [x[1], x[2]], Some(x[1]), Some(x[2]), 1, 0.0)
    });
    assert_close(&y, &[2, 2], &[4.0, 1.0, 5.0, 5.0]);
}

#[test]
fn pooling_matches_hand_computed_values() {
    let x = || vec![floats(&[1, 1, 3, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0])];
    let ceil: CompositeFn = |g, x| {
        let (window, strides, rounding) = (Some([2, 2]), [2, 2], PoolRounding::Ceil);
        nn::average_pool2d(g, x[0], Pool2dOptions { window, strides, rounding, ..Pool2dOptions::default() })
    };
    assert_close(&evaluate_composite(x(), ceil), &[1, 1, 2, 2], &[3.0, 4.5, 7.5, 9.0]);
    // A window that would begin after the image is omitted even when rounding up.
    let apart: CompositeFn = |g, x| {
        let (window, strides, rounding) = (Some([1, 1]), [3, 2], PoolRounding::Ceil);
        nn::max_pool2d(g, x[0], Pool2dOptions { window, strides, rounding, ..Pool2dOptions::default() })
    };
    assert_close(&evaluate_composite(x(), apart), &[1, 1, 1, 2], &[1.0, 3.0]);
    let padded: CompositeFn = |g, x| {
        let (window, padding) = (Some([2, 2]), [1, 0, 1, 0]);
        nn::average_pool2d(g, x[0], Pool2dOptions { window, padding, ..Pool2dOptions::default() })
    };
    assert_close(&evaluate_composite(x(), padded), &[1, 1, 3, 3], &[1.0, 1.5, 2.5, 2.5, 3.0, 4.0, 5.5, 6.0, 7.0]);
}

#[test]
fn padding_matches_hand_computed_values() {
    let x = || vec![floats(&[3], &[1.0, 2.0, 3.0])];
    assert_close(
        &evaluate_composite(x(), |g, x| nn::pad_edge(g, x[0], &[2], &[1])),
        &[6],
        &[1.0, 1.0, 1.0, 2.0, 3.0, 3.0],
    );
    assert_close(
        &evaluate_composite(x(), |g, x| nn::pad_reflection(g, x[0], &[2], &[1])),
        &[6],
        &[3.0, 2.0, 1.0, 2.0, 3.0, 2.0],
    );
    let mut g = GraphBuilder::new();
    let x = g.input("x", floats(&[3], &[0.0; 3]).descriptor().clone()).unwrap();
    assert!(matches!(nn::pad_reflection(&mut g, x, &[3], &[0]), Err(GraphError::AttributeRange { .. })));
    assert!(matches!(nn::split(&mut g, x, &[1, 1], 0), Err(GraphError::AttributeRange { .. })));
    assert!(matches!(nn::split(&mut g, x, &[3], 1), Err(GraphError::AxisOutOfRange { .. })));
}

#[test]
fn random_numbers_follow_their_distribution() {
    let key = || vec![ints(DType::U32, &[7.0, 0.0, 1.0, 0.0])];
    let normal = evaluate_composite(key(), |g, x| nn::normal(g, Shape::new([100, 100])?, x[0], 3)).to_f64_numbers();
    let moment = |power: i32| normal.iter().map(|x| x.powi(power)).sum::<f64>() / 1e4;
    // Standard errors of the four moments are 0.01, 0.014, 0.039 and 0.098.
    assert!(moment(1).abs() < 0.04 && (moment(2) - 1.0).abs() < 0.06, "{} {}", moment(1), moment(2));
    assert!(moment(3).abs() < 0.16 && (moment(4) - 3.0).abs() < 0.4, "{} {}", moment(3), moment(4));
    let uniform =
        evaluate_composite(key(), |g, x| nn::uniform(g, Shape::new([10000])?, x[0], 3, [-3.0, 5.0])).to_f64_numbers();
    assert!(uniform.iter().all(|x| (-3.0..5.0).contains(x)));
    assert!((uniform.iter().sum::<f64>() / 1e4 - 1.0).abs() < 0.1);
    let ones = || vec![floats(&[10000], &[1.0; 10000]), ints(DType::U32, &[7.0, 0.0, 1.0, 0.0])];
    let dropped = evaluate_composite(ones(), |g, x| nn::dropout(g, x[0], 0.2, x[1], 9)).to_f64_numbers();
    let zeros = dropped.iter().filter(|x| **x == 0.0).count();
    assert!((1850..2150).contains(&zeros), "{zeros}");
    assert!(dropped.iter().all(|x| *x == 0.0 || *x == 1.25));
    assert_eq!(evaluate_composite(ones(), |g, x| nn::dropout(g, x[0], 0.0, x[1], 9)).to_f64_numbers(), [1.0; 10000]);
    assert_eq!(evaluate_composite(ones(), |g, x| nn::dropout(g, x[0], 1.0, x[1], 9)).to_f64_numbers(), [0.0; 10000]);
}

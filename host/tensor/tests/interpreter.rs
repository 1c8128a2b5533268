//! The meaning of operators, on values computed by hand.

#![allow(clippy::unwrap_used, reason = "a test's panic names the place")]

use saggar_tensor::interp::{InterpElements, InterpPrecision, InterpTensor, evaluate, evaluate_op};
use saggar_tensor::op::{
    BinaryOp, ContractOp, Conv2d, ConvolutionOp, IndexOp, MovementOp, Op, Pool2d, PoolKind, ReduceKind, ReduceOp,
    Scalar, UnaryOp,
};
use saggar_tensor::{DType, Descriptor, GraphBuilder, GraphError, Shape, infer, verify};
use saggar_testgen::{primitive_cases, random_graph};

fn value(dtype: DType, dims: &[usize], numbers: &[f64]) -> InterpTensor {
    InterpTensor::from_numbers(dtype, Shape::new(dims).unwrap(), numbers).unwrap()
}

/// Returns the operator's result with the inferred descriptor.
#[track_caller]
fn run(op: Op, operands: &[InterpTensor]) -> InterpTensor {
    let descriptors: Vec<&Descriptor> = operands.iter().map(InterpTensor::descriptor).collect();
    let descriptor = infer::infer(&op, &descriptors, None).unwrap();
    evaluate_op(&op, &operands.iter().collect::<Vec<_>>(), &descriptor, InterpPrecision::Stored)
}

#[track_caller]
fn check(op: Op, operands: &[InterpTensor], dims: &[usize], expected: &[f64]) {
    let result = run(op, operands);
    assert_eq!(result.descriptor().shape.dims(), dims);
    let same = |(got, expected): (&f64, &f64)| got == expected || got.is_nan() && expected.is_nan();
    let numbers = result.to_f64_numbers();
    assert!(numbers.len() == expected.len() && numbers.iter().zip(expected).all(same), "{numbers:?}");
}

const NAN: f64 = f64::NAN;
const INF: f64 = f64::INFINITY;

#[test]
fn integers_wrap_and_divide_by_zero() {
    let pair = |dtype, a: &[f64], b: &[f64]| [value(dtype, &[a.len()], a), value(dtype, &[b.len()], b)];
    check(Op::Binary(BinaryOp::Add), &pair(DType::I8, &[127.0, -128.0], &[1.0, -1.0]), &[2], &[-128.0, 127.0]);
    check(Op::Binary(BinaryOp::Sub), &pair(DType::U32, &[0.0], &[1.0]), &[1], &[4294967295.0]);
    check(Op::Binary(BinaryOp::Mul), &pair(DType::U8, &[16.0, 255.0], &[16.0, 255.0]), &[2], &[0.0, 1.0]);
    check(Op::Binary(BinaryOp::Div), &pair(DType::I32, &[-7.0, 7.0, 5.0], &[2.0, -2.0, 0.0]), &[3], &[-3.0, -3.0, 0.0]);
    check(Op::Binary(BinaryOp::Div), &pair(DType::I32, &[-2147483648.0], &[-1.0]), &[1], &[-2147483648.0]);
    check(Op::Unary(UnaryOp::Neg), &[value(DType::I8, &[1], &[-128.0])], &[1], &[-128.0]);
    check(Op::Unary(UnaryOp::Abs), &[value(DType::I8, &[1], &[-128.0])], &[1], &[-128.0]);
    let sum = Op::Reduce(ReduceOp::Fold { kind: ReduceKind::Sum, axes: vec![0] });
    check(sum, &[value(DType::U8, &[3], &[200.0, 100.0, 1.0])], &[1], &[45.0]);
    // The low 64 bits of a product of 64-bit numbers.
    let largest =
        InterpTensor::new(Descriptor::new(DType::U64, Shape::scalar()), InterpElements::Int(vec![u64::MAX.into()]));
    let product = run(Op::Binary(BinaryOp::Mul), &[largest.clone().unwrap(), largest.unwrap()]);
    assert_eq!(*product.elements(), InterpElements::Int(vec![1]));
}

#[test]
fn conversions_saturate_and_round() {
    let x = || value(DType::F32, &[6], &[-1.9, 1.9, 300.0, -300.0, NAN, INF]);
    check(Op::Unary(UnaryOp::Cast(DType::I8)), &[x()], &[6], &[-1.0, 1.0, 127.0, -128.0, 0.0, 127.0]);
    check(Op::Unary(UnaryOp::Cast(DType::U8)), &[x()], &[6], &[0.0, 1.0, 255.0, 0.0, 0.0, 255.0]);
    check(Op::Unary(UnaryOp::Cast(DType::U8)), &[value(DType::I32, &[2], &[-1.0, 256.0])], &[2], &[255.0, 0.0]);
    check(Op::Unary(UnaryOp::Cast(DType::F32)), &[value(DType::I32, &[1], &[16777217.0])], &[1], &[16777216.0]);
    let x = value(DType::F32, &[3], &[2049.0, 2051.0, 70000.0]);
    check(Op::Unary(UnaryOp::Cast(DType::F16)), &[x], &[3], &[2048.0, 2052.0, INF]);
    let x = value(DType::F32, &[5], &[0.5, 1.5, -0.5, 2.5, NAN]);
    check(Op::Unary(UnaryOp::RoundEven), &[x], &[5], &[0.0, 2.0, 0.0, 2.0, NAN]);
    check(Op::Unary(UnaryOp::Sign), &[value(DType::F32, &[3], &[-2.0, 0.0, NAN])], &[3], &[-1.0, 0.0, NAN]);
}

#[test]
fn erf_matches_known_values() {
    // Source: Abramowitz and Stegun, table 7.1.
    let x = value(DType::F32, &[6], &[0.0, 0.5, 1.0, -2.0, 7.0, -INF]);
    let y = run(Op::Unary(UnaryOp::Erf), &[x]).to_f64_numbers();
    for (got, expected) in y.iter().zip([0.0, 0.5204998778, 0.8427007929, -0.9953222650, 1.0, -1.0]) {
        assert!((got - expected).abs() < 6e-8, "{got} is not {expected}");
    }
}

#[test]
fn nan_propagates_and_the_first_of_equals_is_chosen() {
    let pair = [value(DType::F32, &[3], &[NAN, 1.0, 1.0]), value(DType::F32, &[3], &[1.0, NAN, 2.0])];
    check(Op::Binary(BinaryOp::Max), &pair, &[3], &[NAN, NAN, 2.0]);
    check(Op::Binary(BinaryOp::Min), &pair, &[3], &[NAN, NAN, 1.0]);
    check(Op::Binary(BinaryOp::Equal), &pair, &[3], &[0.0, 0.0, 0.0]);
    let fold = |kind| Op::Reduce(ReduceOp::Fold { kind, axes: vec![1] });
    let x = || value(DType::F32, &[2, 3], &[1.0, NAN, 3.0, 4.0, 6.0, 6.0]);
    check(fold(ReduceKind::Max), &[x()], &[2, 1], &[NAN, 6.0]);
    let nothing = || value(DType::F32, &[1, 0], &[]);
    for (kind, of_nothing) in
        [(ReduceKind::Sum, 0.0), (ReduceKind::Product, 1.0), (ReduceKind::Max, -INF), (ReduceKind::Min, INF)]
    {
        check(fold(kind), &[nothing()], &[1, 1], &[of_nothing]);
    }
    check(fold(ReduceKind::Max), &[value(DType::I8, &[1, 0], &[])], &[1, 1], &[-128.0]);
    let x = value(DType::I32, &[2, 3], &[5.0, 7.0, 7.0, 1.0, 1.0, 0.0]);
    check(Op::Reduce(ReduceOp::ArgMax { axis: 1 }), std::slice::from_ref(&x), &[2, 1], &[1.0, 0.0]);
    check(Op::Reduce(ReduceOp::ArgMin { axis: 0 }), &[x], &[1, 3], &[1.0, 1.0, 1.0]);
}

#[test]
fn indices_are_clamped() {
    let x = value(DType::F32, &[3], &[10.0, 20.0, 30.0]);
    let indices = || value(DType::I32, &[6], &[0.0, -1.0, -3.0, -4.0, 3.0, 99.0]);
    check(Op::Index(IndexOp::Gather { axis: 0 }), &[x, indices()], &[6], &[10.0, 30.0, 10.0, 10.0, 30.0, 30.0]);
    let updates = value(DType::F32, &[6], &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0]);
    check(Op::Index(IndexOp::ScatterAdd { axis: 0, size: 3 }), &[indices(), updates], &[3], &[13.0, 0.0, 50.0]);
    let x = value(DType::F32, &[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let indices = value(DType::U8, &[2], &[2.0, 0.0]);
    check(Op::Index(IndexOp::Gather { axis: 1 }), &[x, indices], &[2, 2], &[3.0, 1.0, 6.0, 4.0]);
}

#[test]
fn movements_match_hand_computed_values() {
    let x = || [value(DType::F32, &[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])];
    check(Op::Movement(MovementOp::Transpose(vec![1, 0])), &x(), &[3, 2], &[1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
    check(Op::Movement(MovementOp::Reverse(vec![1])), &x(), &[2, 3], &[3.0, 2.0, 1.0, 6.0, 5.0, 4.0]);
    let slice = MovementOp::Slice { starts: vec![1, 0], sizes: vec![1, 2], strides: vec![1, 2] };
    check(Op::Movement(slice), &x(), &[1, 2], &[4.0, 6.0]);
    let pad = MovementOp::Pad { low: vec![0, 1], high: vec![1, 0], value: Scalar::Float(9.0) };
    check(Op::Movement(pad), &x(), &[3, 4], &[9.0, 1.0, 2.0, 3.0, 9.0, 4.0, 5.0, 6.0, 9.0, 9.0, 9.0, 9.0]);
    let column = value(DType::F32, &[2, 1], &[7.0, 8.0]);
    let [x] = x();
    check(
        Op::Movement(MovementOp::Concat { axis: 1 }),
        &[column, x],
        &[2, 4],
        &[7.0, 1.0, 2.0, 3.0, 8.0, 4.0, 5.0, 6.0],
    );
}

#[test]
fn matmul_and_windowed_operators_match_hand_computed_values() {
    let a = value(DType::F32, &[2, 2], &[1.0, 2.0, 3.0, 4.0]);
    let b = value(DType::F32, &[2, 2], &[5.0, 6.0, 7.0, 8.0]);
    let matmul = |transpose_a, transpose_b| Op::Contract(ContractOp::MatMul { transpose_a, transpose_b });
    check(matmul(false, false), &[a.clone(), b.clone()], &[2, 2], &[19.0, 22.0, 43.0, 50.0]);
    check(matmul(true, false), &[a.clone(), b.clone()], &[2, 2], &[26.0, 30.0, 38.0, 44.0]);
    check(matmul(false, true), &[a, b], &[2, 2], &[17.0, 23.0, 39.0, 53.0]);
    let x = value(DType::F32, &[1, 1, 3, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]);
    let filter = value(DType::F32, &[1, 1, 2, 2], &[1.0, 10.0, 100.0, 1000.0]);
    let conv = Conv2d { padding: [0; 4], strides: [1, 1], dilations: [1, 1], groups: 1 };
    let conv2d = |conv| Op::Convolution(ConvolutionOp::Conv2d(conv));
    check(conv2d(conv), &[x.clone(), filter.clone()], &[1, 1, 2, 2], &[5421.0, 6532.0, 8754.0, 9865.0]);
    let padded = Conv2d { padding: [1, 0, 1, 0], strides: [2, 2], ..conv };
    check(conv2d(padded), &[x.clone(), filter], &[1, 1, 2, 2], &[1000.0, 3200.0, 7040.0, 9865.0]);
    let pool = Pool2d { window: [2, 2], padding: [0, 1, 0, 1], strides: [2, 2], dilations: [1, 1] };
    let pool2d = |kind| Op::Convolution(ConvolutionOp::Pool2d { kind, pool });
    check(pool2d(PoolKind::Max), std::slice::from_ref(&x), &[1, 1, 2, 2], &[5.0, 6.0, 8.0, 9.0]);
    check(pool2d(PoolKind::Sum), &[x], &[1, 1, 2, 2], &[12.0, 9.0, 15.0, 9.0]);
    let equals = value(DType::F32, &[1, 1, 2, 2], &[1.0, 1.0, 0.0, 1.0]);
    let dy = value(DType::F32, &[1, 1, 1, 1], &[5.0]);
    let whole = Pool2d { padding: [0; 4], ..pool };
    check(Op::Convolution(ConvolutionOp::MaxPool2dGrad(whole)), &[equals, dy], &[1, 1, 2, 2], &[5.0, 0.0, 0.0, 0.0]);
}

#[test]
fn floats_are_rounded_once_a_node() {
    // 700 times 0.1 in f32: accumulated in f64 and rounded once.
    let tenths = value(DType::F32, &[700], &[0.1; 700]);
    let sum = Op::Reduce(ReduceOp::Fold { kind: ReduceKind::Sum, axes: vec![0] });
    check(sum, &[tenths], &[1], &[f64::from((700.0 * f64::from(0.1f32)) as f32)]);
    let third = run(Op::Unary(UnaryOp::Reciprocal), &[value(DType::F32, &[1], &[3.0])]);
    assert_eq!(third.to_f64_numbers(), [f64::from(1f32 / 3.0)]);
}

#[test]
fn values_round_trip_through_bytes() {
    for seed in 0..4 {
        for case in primitive_cases(seed) {
            for value in case.inputs.iter().chain(&case.variables) {
                let bytes = value.to_bytes();
                assert_eq!(bytes.len(), value.descriptor().bytes());
                let back = InterpTensor::from_bytes(value.descriptor().clone(), &bytes).unwrap();
                assert_eq!(back.to_bytes(), bytes, "{}", case.name);
            }
        }
    }
    let descriptor = Descriptor::new(DType::I64, Shape::new([2]).unwrap());
    assert!(matches!(
        InterpTensor::from_bytes(descriptor.clone(), &[0; 15]),
        Err(GraphError::ValueLength { got: 15, .. })
    ));
    assert!(matches!(
        InterpTensor::new(descriptor, InterpElements::Float(vec![0.0; 2])),
        Err(GraphError::ValueLength { .. })
    ));
}

#[test]
fn evaluation_checks_its_inputs_and_variables() {
    let mut g = GraphBuilder::new();
    let x = g.input("x", Descriptor::new(DType::F32, Shape::new([2]).unwrap())).unwrap();
    g.output("y", x).unwrap();
    let graph = verify(g.finish()).unwrap();
    assert!(matches!(evaluate(&graph, &[], &mut []), Err(GraphError::ValueCount { expected: 1, got: 0, .. })));
    let other = value(DType::F32, &[3], &[0.0; 3]);
    assert!(matches!(evaluate(&graph, &[other], &mut []), Err(GraphError::ValueDescriptor { .. })));
}

/// Every result matches its descriptor, is representable in its data type, and is the same every time.
#[test]
fn random_graphs_evaluate_deterministically() {
    let mut nodes = 0;
    let mut finite = 0;
    for seed in 0..300 {
        let case = random_graph(seed);
        let verified = case.verified_graph();
        nodes += verified.graph().nodes.len();
        let run = || {
            let mut variables = case.variables.clone();
            let outputs = evaluate(&verified, &case.inputs, &mut variables).unwrap();
            (outputs, variables)
        };
        let (outputs, variables) = run();
        for (output, &(_, node)) in outputs.iter().zip(&verified.graph().outputs) {
            assert_eq!(output.descriptor(), verified.graph().descriptor(node), "seed {seed}");
            let stored = InterpTensor::from_bytes(output.descriptor().clone(), &output.to_bytes()).unwrap();
            assert_eq!(stored.to_bytes(), output.to_bytes(), "seed {seed}");
            finite += usize::from(output.to_f64_numbers().iter().all(|number| number.is_finite()));
            assert!(
                stored.to_f64_numbers().iter().zip(output.to_f64_numbers()).all(|(a, b)| *a == b || b.is_nan()),
                "seed {seed}"
            );
        }
        let again = run();
        assert_eq!(format!("{:?}", (outputs, variables)), format!("{again:?}"), "seed {seed}");
    }
    assert!(nodes > 3000, "{nodes} nodes");
    assert!(finite > 300, "{finite} finite outputs");
}

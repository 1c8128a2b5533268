//! Tests of edge cases: the results of each operator for NaN, infinities, both zeros and empty tensors, on the
//! interpreter and on every device, in both float types. The expected numbers are literals, so that a common error
//! cannot pass.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests say SKIP and fail by panic")]

mod support;

use saggar_tensor::NodeResult;
use std::sync::Arc;

use saggar_compile::compile;
use saggar_device::{Backend, DeviceBuffer, Meter};
use saggar_tensor::interp::{InterpTensor, evaluate};
use saggar_tensor::op::{ReduceKind, Scalar, ScatterCombine, UnaryOp};
use saggar_tensor::{DType, Descriptor, GraphBuilder, GraphError, NodeId, Shape, VerifiedGraph, nn, verify};

use support::devices;

/// Builds a result from `x` of shape `[2, 4]`, which is [`X`].
type EdgeCaseBuilder = fn(&mut GraphBuilder, NodeId) -> NodeResult;

const NAN: f64 = f64::NAN;
const INF: f64 = f64::INFINITY;
const X: [f64; 8] = [NAN, INF, -INF, 0.0, -0.0, 1.5, -1.5, 2.5];

/// Largest difference of finite results, relative to the larger of 1 and the result.
const TOLERANCE_F32: f64 = 1e-6;
const TOLERANCE_F16: f64 = 1e-3;

fn dispatch(device: &dyn Backend, graph: &VerifiedGraph, inputs: &[InterpTensor]) -> Vec<InterpTensor> {
    let meter = Meter::unlimited();
    let executable = device.load(Arc::new(compile(graph, &device.target()).unwrap()), &meter).unwrap();
    let upload = |value: &InterpTensor| {
        let buffer = device.allocate(value.descriptor(), &meter).unwrap();
        device.write(&buffer, &value.to_bytes()).unwrap();
        buffer
    };
    let inputs: Vec<DeviceBuffer> = inputs.iter().map(upload).collect();
    let outputs = executable.dispatch(&inputs, &[]).unwrap();
    let read = |buffer: &DeviceBuffer| {
        InterpTensor::from_bytes(buffer.descriptor().clone(), &device.read(buffer).unwrap()).unwrap()
    };
    outputs.iter().map(read).collect()
}

/// Checks each row's result, in its own data type, against its expected numbers: on the interpreter, then on every
/// device with all rows in one graph.
fn check(dtype: DType, rows: &[(&str, EdgeCaseBuilder, &[f64])]) {
    let mut g = GraphBuilder::new();
    let x = g.input("x", Descriptor::new(dtype, Shape::new([2, 4]).unwrap())).unwrap();
    for (name, build, _) in rows {
        let result = build(&mut g, x).unwrap_or_else(|error| panic!("{name}: {error}"));
        g.output(name, result).unwrap();
    }
    let graph = verify(g.finish()).unwrap();
    let inputs = [InterpTensor::from_numbers(dtype, Shape::new([2, 4]).unwrap(), &X).unwrap()];
    let interpreted = evaluate(&graph, &inputs, &mut []).unwrap();
    compare("the interpreter", dtype, rows, &interpreted);
    for device in devices() {
        compare(&device.info().name, dtype, rows, &dispatch(&*device, &graph, &inputs));
    }
}

fn compare(device: &str, dtype: DType, rows: &[(&str, EdgeCaseBuilder, &[f64])], found: &[InterpTensor]) {
    let tolerance = if dtype == DType::F16 { TOLERANCE_F16 } else { TOLERANCE_F32 };
    for ((name, _, expected), found) in rows.iter().zip(found) {
        let numbers = found.to_f64_numbers();
        assert_eq!(numbers.len(), expected.len(), "{name} on {device}: {numbers:?}");
        let near = |(&found, &expected): (&f64, &f64)| {
            let both_nan = found.is_nan() && expected.is_nan();
            both_nan || found == expected || (found - expected).abs() <= tolerance * expected.abs().max(1.0)
        };
        let all = numbers.iter().zip(*expected).all(near);
        assert!(all, "{name} of {dtype} on {device}: {numbers:?} is not {expected:?}");
    }
}

fn check_f32_and_f16(rows: &[(&str, EdgeCaseBuilder, &[f64])]) {
    check(DType::F32, rows);
    check(DType::F16, rows);
}

fn filled_like(g: &mut GraphBuilder, x: NodeId, value: f64) -> NodeResult {
    g.fill(g.descriptor(x).clone(), Scalar::Float(value))
}

#[test]
fn unary_operators_handle_nan_infinity_and_signed_zero() {
    let e = std::f64::consts::E;
    let rows: &[(&str, EdgeCaseBuilder, &[f64])] = &[
        ("neg", |g, x| g.neg(x), &[NAN, -INF, INF, 0.0, 0.0, -1.5, 1.5, -2.5]),
        ("abs", |g, x| g.abs(x), &[NAN, INF, INF, 0.0, 0.0, 1.5, 1.5, 2.5]),
        ("sign", |g, x| g.sign(x), &[NAN, 1.0, -1.0, 0.0, 0.0, 1.0, -1.0, 1.0]),
        ("floor", |g, x| g.floor(x), &[NAN, INF, -INF, 0.0, 0.0, 1.0, -2.0, 2.0]),
        ("ceil", |g, x| g.ceil(x), &[NAN, INF, -INF, 0.0, 0.0, 2.0, -1.0, 3.0]),
        ("round-even", |g, x| g.round_even(x), &[NAN, INF, -INF, 0.0, 0.0, 2.0, -2.0, 2.0]),
        ("exp", |g, x| g.exp(x), &[NAN, INF, 0.0, 1.0, 1.0, e.powf(1.5), e.powf(-1.5), e.powf(2.5)]),
        ("log", |g, x| g.log(x), &[NAN, INF, NAN, -INF, -INF, 1.5f64.ln(), NAN, 2.5f64.ln()]),
        ("sqrt", |g, x| g.sqrt(x), &[NAN, INF, NAN, 0.0, 0.0, 1.5f64.sqrt(), NAN, 2.5f64.sqrt()]),
        ("reciprocal", |g, x| g.reciprocal(x), &[NAN, 0.0, 0.0, INF, -INF, 1.0 / 1.5, -1.0 / 1.5, 0.4]),
        ("sin", |g, x| g.sin(x), &[NAN, NAN, NAN, 0.0, 0.0, 1.5f64.sin(), -(1.5f64.sin()), 2.5f64.sin()]),
        ("cos", |g, x| g.cos(x), &[NAN, NAN, NAN, 1.0, 1.0, 1.5f64.cos(), 1.5f64.cos(), 2.5f64.cos()]),
        ("tanh", |g, x| g.tanh(x), &[NAN, 1.0, -1.0, 0.0, 0.0, 1.5f64.tanh(), -(1.5f64.tanh()), 2.5f64.tanh()]),
        ("erf", |g, x| g.erf(x), &[NAN, 1.0, -1.0, 0.0, 0.0, 0.966_105_15, -0.966_105_15, 0.999_593_05]),
        ("stop-gradient", |g, x| g.stop_gradient(x), &X),
        ("relu", |g, x| nn::relu(g, x), &[NAN, INF, 0.0, 0.0, 0.0, 1.5, 0.0, 2.5]),
        ("leaky-relu", |g, x| nn::leaky_relu(g, x, 0.5), &[NAN, INF, -INF, 0.0, 0.0, 1.5, -0.75, 2.5]),
        ("clamp", |g, x| nn::clamp(g, x, Some(-1.0), Some(2.0)), &[NAN, 2.0, -1.0, 0.0, 0.0, 1.5, -1.0, 2.0]),
        (
            "sigmoid",
            |g, x| nn::sigmoid(g, x),
            &[
                NAN,
                1.0,
                0.0,
                0.5,
                0.5,
                1.0 / (1.0 + e.powf(-1.5)),
                1.0 / (1.0 + e.powf(1.5)),
                1.0 / (1.0 + e.powf(-2.5)),
            ],
        ),
        (
            "softplus",
            |g, x| nn::softplus(g, x),
            &[NAN, INF, 0.0, 2f64.ln(), 2f64.ln(), e.powf(1.5).ln_1p(), e.powf(-1.5).ln_1p(), e.powf(2.5).ln_1p()],
        ),
        ("elu", |g, x| nn::elu(g, x, 1.0), &[NAN, INF, -1.0, 0.0, 0.0, 1.5, e.powf(-1.5) - 1.0, 2.5]),
        ("hard-sigmoid", |g, x| nn::hard_sigmoid(g, x, 0.2, 0.5), &[NAN, 1.0, 0.0, 0.5, 0.5, 0.8, 0.2, 1.0]),
    ];
    let of_floats = UnaryOp::WITHOUT_ATTRIBUTES.iter().filter(|op| op.facts().operands.contains(DType::F32));
    let missing: Vec<&str> =
        of_floats.map(|op| op.name()).filter(|name| rows.iter().all(|(row, ..)| row != name)).collect();
    assert!(missing.is_empty(), "operators without a row: {missing:?}");
    check_f32_and_f16(rows);
}

#[test]
fn binary_operators_handle_nan_infinity_and_signed_zero() {
    check_f32_and_f16(&[
        (
            "max with 1",
            |g, x| {
                let one = filled_like(g, x, 1.0)?;
                g.max(x, one)
            },
            &[NAN, INF, 1.0, 1.0, 1.0, 1.5, 1.0, 2.5],
        ),
        (
            "1 with max",
            |g, x| {
                let one = filled_like(g, x, 1.0)?;
                g.max(one, x)
            },
            &[NAN, INF, 1.0, 1.0, 1.0, 1.5, 1.0, 2.5],
        ),
        (
            "min with 1",
            |g, x| {
                let one = filled_like(g, x, 1.0)?;
                g.min(x, one)
            },
            &[NAN, 1.0, -INF, 0.0, 0.0, 1.0, -1.5, 1.0],
        ),
        (
            "1 with min",
            |g, x| {
                let one = filled_like(g, x, 1.0)?;
                g.min(one, x)
            },
            &[NAN, 1.0, -INF, 0.0, 0.0, 1.0, -1.5, 1.0],
        ),
        // Shading languages let a driver assume that there are no infinities: `x - x` or a product with a literal 0 can
        // be 0, and a quotient with an infinity can be anything. The operands here avoid these cases.
        (
            "less infinity",
            |g, x| {
                let infinity = filled_like(g, x, INF)?;
                g.sub(x, infinity)
            },
            &[NAN, NAN, -INF, -INF, -INF, -INF, -INF, -INF],
        ),
        (
            "1 by it",
            |g, x| {
                let one = filled_like(g, x, 1.0)?;
                g.div(one, x)
            },
            &[NAN, 0.0, 0.0, INF, -INF, 1.0 / 1.5, -1.0 / 1.5, 0.4],
        ),
        (
            "squared",
            |g, x| {
                let two = filled_like(g, x, 2.0)?;
                g.pow(x, two)
            },
            &[NAN, INF, INF, 0.0, 0.0, 2.25, 2.25, 6.25],
        ),
    ]);
}

#[test]
fn comparisons_handle_nan_infinity_and_signed_zero() {
    check_f32_and_f16(&[
        ("equal to itself", |g, x| g.equal(x, x), &[0.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]),
        ("not equal to itself", |g, x| g.not_equal(x, x), &[1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]),
        (
            "equal to 0",
            |g, x| {
                let zero = filled_like(g, x, 0.0)?;
                g.equal(x, zero)
            },
            &[0.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0],
        ),
        (
            "less than 0",
            |g, x| {
                let zero = filled_like(g, x, 0.0)?;
                g.less(x, zero)
            },
            &[0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0],
        ),
        (
            "at least 0",
            |g, x| {
                let zero = filled_like(g, x, 0.0)?;
                g.greater_or_equal(x, zero)
            },
            &[0.0, 1.0, 0.0, 1.0, 1.0, 1.0, 0.0, 1.0],
        ),
        (
            "chosen",
            |g, x| {
                let zero = filled_like(g, x, 0.0)?;
                let positive = g.less(zero, x)?;
                g.select(positive, zero, x)
            },
            &[NAN, 0.0, -INF, 0.0, 0.0, 0.0, -1.5, 0.0],
        ),
    ]);
}

#[test]
fn casts_to_integers_saturate_and_map_nan_to_zero() {
    let limits = |low: f64, high: f64| vec![0.0, high, low, 0.0, 0.0, 1.0, -1.0, 2.0];
    let (small, int) = (limits(-128.0, 127.0), limits(-2_147_483_648.0, 2_147_483_647.0));
    let unsigned = |high: f64| vec![0.0, high, 0.0, 0.0, 0.0, 1.0, 0.0, 2.0];
    let (byte, word) = (unsigned(255.0), unsigned(4_294_967_295.0));
    check_f32_and_f16(&[
        ("to int8", |g, x| g.cast(x, DType::I8), &small),
        ("to uint8", |g, x| g.cast(x, DType::U8), &byte),
        ("to int32", |g, x| g.cast(x, DType::I32), &int),
        ("to uint32", |g, x| g.cast(x, DType::U32), &word),
        (
            "to float16 and back",
            |g, x| {
                let half = g.cast(x, DType::F16)?;
                g.cast(half, DType::F32)
            },
            &X,
        ),
    ]);
}

#[test]
fn reductions_handle_nan_infinity_and_signed_zero() {
    let share = 1.0 / (1.0 + (-1.5f64).exp() + (-3f64).exp() + 1f64.exp());
    let shares = [NAN, NAN, NAN, NAN, (-1.5f64).exp() * share, share, (-3f64).exp() * share, 1f64.exp() * share];
    // The second row's elements: 0, 1.5, 0, 2.5.
    check_f32_and_f16(&[
        ("sum", |g, x| g.reduce_sum(x, &[1], false), &[NAN, 2.5]),
        ("sum of columns", |g, x| g.reduce_sum(x, &[0], false), &[NAN, INF, -INF, 2.5]),
        ("product", |g, x| g.reduce_product(x, &[1], false), &[NAN, 0.0]),
        ("max", |g, x| g.reduce_max(x, &[1], false), &[NAN, 2.5]),
        ("max of columns", |g, x| g.reduce_max(x, &[0], false), &[NAN, INF, -1.5, 2.5]),
        ("min", |g, x| g.reduce_min(x, &[1], false), &[NAN, -1.5]),
        ("min of columns", |g, x| g.reduce_min(x, &[0], false), &[NAN, 1.5, -INF, 0.0]),
        ("mean", |g, x| nn::reduce_mean(g, x, &[1], false), &[NAN, 0.625]),
        ("l2 of columns", |g, x| nn::reduce_l2(g, x, &[0], false), &[NAN, INF, INF, 2.5]),
        // A NaN that comes first is never replaced, and a later NaN never replaces another element.
        ("arg-max", |g, x| g.arg_max(x, 1, false), &[0.0, 3.0]),
        ("arg-min", |g, x| g.arg_min(x, 1, false), &[0.0, 2.0]),
        (
            "arg-max of the reverse",
            |g, x| {
                let back = g.reverse(x, &[1])?;
                g.arg_max(back, 1, false)
            },
            &[2.0, 0.0],
        ),
        (
            "arg-min of the reverse",
            |g, x| {
                let back = g.reverse(x, &[1])?;
                g.arg_min(back, 1, false)
            },
            &[1.0, 1.0],
        ),
        ("softmax", |g, x| nn::softmax(g, x, 1), &shares),
        (
            "softmax with a class left out",
            |g, x| {
                let part = g.slice(x, &[0, 2], &[2, 2], &[1, 1])?;
                nn::softmax(g, part, 1)
            },
            &[0.0, 1.0, 1.0 / (1.0 + 4f64.exp()), 1.0 / (1.0 + (-4f64).exp())],
        ),
        (
            "log-sum-exp of columns",
            |g, x| {
                let part = g.slice(x, &[0, 1], &[2, 3], &[1, 1])?;
                nn::reduce_log_sum_exp(g, part, &[0], false)
            },
            &[INF, -1.5, 2.5 + (-2.5f64).exp().ln_1p()],
        ),
        ("running sum", |g, x| nn::cumulative_sum(g, x, 1, false, false), &[NAN, NAN, NAN, NAN, 0.0, 1.5, 0.0, 2.5]),
        (
            "pooled",
            |g, x| {
                let image = g.reshape(x, &[1, 1, 2, 4])?;
                let options =
                    nn::Pool2dOptions { window: Some([1, 2]), strides: [1, 2], ..nn::Pool2dOptions::default() };
                nn::max_pool2d(g, image, options)
            },
            &[NAN, 0.0, 1.5, 2.5],
        ),
        (
            "product of matrices",
            |g, x| {
                let back = g.transpose(x, &[1, 0])?;
                g.matmul(x, back)
            },
            &[NAN, NAN, NAN, 10.75],
        ),
    ]);
}

/// A reduction of no elements gives its neutral element; other operators give empty tensors.
#[test]
fn operators_on_empty_tensors_return_identities_or_empty_results() {
    let nothing: EdgeCaseBuilder = |g, x| g.slice(x, &[0, 4], &[2, 0], &[1, 1]);
    let mut g = GraphBuilder::new();
    let x = g.input("x", Descriptor::new(DType::F32, Shape::new([2, 4]).unwrap())).unwrap();
    let empty = nothing(&mut g, x).unwrap();
    let mut expected: Vec<(&str, Vec<usize>, Vec<f64>)> = Vec::new();
    for (name, kind, value) in [
        ("sum", ReduceKind::Sum, 0.0),
        ("product", ReduceKind::Product, 1.0),
        ("max", ReduceKind::Max, -INF),
        ("min", ReduceKind::Min, INF),
    ] {
        let result = g.reduce(kind, empty, &[1], false).unwrap();
        g.output(name, result).unwrap();
        expected.push((name, vec![2], vec![value; 2]));
    }
    let zeros = g.fill(Descriptor::new(DType::F32, Shape::new([0, 3]).unwrap()), Scalar::Float(1.0)).unwrap();
    let indices = g.fill(Descriptor::new(DType::I32, Shape::new([0]).unwrap()), Scalar::Int(0)).unwrap();
    let of_rows = g.fill(Descriptor::new(DType::F32, Shape::new([0, 4]).unwrap()), Scalar::Float(1.0)).unwrap();
    let results: [(&str, NodeResult, &[usize], &[f64]); 9] = [
        ("mean", nn::reduce_mean(&mut g, empty, &[1], false), &[2], &[NAN; 2]),
        ("softmax", nn::softmax(&mut g, empty, 1), &[2, 0], &[]),
        ("relu", nn::relu(&mut g, empty), &[2, 0], &[]),
        ("matmul over nothing", g.matmul(empty, zeros), &[2, 3], &[0.0; 6]),
        ("concat", g.concat(&[empty, x, empty], 1), &[2, 4], &X),
        ("gather", g.gather(x, indices, 0), &[0, 4], &[]),
        ("scatter", g.scatter(x, indices, of_rows, 0, ScatterCombine::Replace), &[2, 4], &X),
        ("scatter-add", g.scatter_add(indices, of_rows, 0, 2), &[2, 4], &[0.0; 8]),
        ("pad", g.pad(empty, &[0, 1], &[0, 1], Scalar::Float(7.0)), &[2, 2], &[7.0; 4]),
    ];
    for (name, result, dims, numbers) in results {
        g.output(name, result.unwrap_or_else(|error| panic!("{name}: {error}"))).unwrap();
        expected.push((name, dims.to_vec(), numbers.to_vec()));
    }
    for refused in
        [g.arg_max(empty, 1, false), g.gather(empty, indices, 1), nn::pad_edge(&mut g, empty, &[0, 1], &[0, 0])]
    {
        assert!(matches!(refused.unwrap_err().kind(), GraphError::AxisEmpty { .. }));
    }
    let graph = verify(g.finish()).unwrap();
    let inputs = [InterpTensor::from_numbers(DType::F32, Shape::new([2, 4]).unwrap(), &X).unwrap()];
    let same = |device: &str, found: &[InterpTensor]| {
        for ((name, dims, numbers), found) in expected.iter().zip(found) {
            assert_eq!(found.descriptor().shape.dims(), &dims[..], "{name} on {device}");
            let equal = |(a, b): (&f64, &f64)| a == b || (a.is_nan() && b.is_nan());
            assert!(
                found.to_f64_numbers().iter().zip(numbers).all(equal),
                "{name} on {device}: {:?}",
                found.to_f64_numbers()
            );
        }
    };
    same("the interpreter", &evaluate(&graph, &inputs, &mut []).unwrap());
    for device in devices() {
        same(&device.info().name, &dispatch(&*device, &graph, &inputs));
    }
}

//! Shapes and attributes of any size: each operator returns a node within every limit, or an error. It never panics,
//! overflows, or allocates memory for values that it refuses. The interpreter can run small results.

#![allow(clippy::unwrap_used, reason = "a test's panic names the place")]

use saggar_tensor::NodeResult;
use std::cell::RefCell;
use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use saggar_tensor::grad::gradients;
use saggar_tensor::interp::{InterpTensor, evaluate};
use saggar_tensor::limits::{ELEMENTS_MAX, RANK_MAX};
use saggar_tensor::nn::{
    self, Conv2dOptions, ConvTranspose2dOptions, GemmOptions, GruOptions, LstmOptions, Pool2dOptions, PoolRounding,
    RecurrentDirection, Resample2dOptions, ResampleInterpolation,
};
use saggar_tensor::op::{Conv2d, RandomDistribution, ReduceKind, Scalar, ScatterCombine};
use saggar_tensor::{DType, Descriptor, GraphBuilder, NodeId, Shape, verify};

/// Builds an operator from three operands and the numbers of its attributes.
type LimitedOperatorFn = fn(&mut GraphBuilder, [NodeId; 3], &[usize; 8]) -> NodeResult;

const OPERATORS: &[(&str, LimitedOperatorFn)] = &[
    ("reshape", |g, [x, ..], a| g.reshape(x, &a[..a[7] % 5])),
    ("expand", |g, [x, ..], a| g.broadcast_to(x, Shape::new(&a[..a[7] % 5])?)),
    ("transpose", |g, [x, ..], a| g.transpose(x, &a[..a[7] % 5])),
    ("slice", |g, [x, ..], a| g.slice(x, &a[..2], &a[2..4], &a[4..6])),
    ("narrow", |g, [x, ..], a| g.narrow(x, a[0], a[1], a[2])),
    ("reverse", |g, [x, ..], a| g.reverse(x, &a[..a[7] % 4])),
    ("concat", |g, [x, y, z], a| g.concat(&[x, y, z, x], a[0])),
    ("split", |g, [x, ..], a| Ok(nn::split(g, x, &a[1..1 + a[7] % 5], a[0])?.first().copied().unwrap_or(x))),
    ("pad", |g, [x, ..], a| g.pad(x, &a[..2], &a[2..4], Scalar::Int(0))),
    ("pad edge", |g, [x, ..], a| nn::pad_edge(g, x, &a[..2], &a[2..4])),
    ("pad reflection", |g, [x, ..], a| nn::pad_reflection(g, x, &a[..2], &a[2..4])),
    ("pad symmetric", |g, [x, ..], a| nn::pad_symmetric(g, x, &a[..2], &a[2..4])),
    ("tile", |g, [x, ..], a| nn::tile(g, x, &a[..a[7] % 5])),
    ("triangular", |g, [x, ..], a| nn::triangular(g, x, a[0] % 2 == 0, a[1] as i64)),
    ("fill", |g, _, a| g.fill(Descriptor::new(DType::F32, Shape::new(&a[..a[7] % 5])?), Scalar::Int(1))),
    ("iota", |g, _, a| g.iota(Descriptor::new(DType::F32, Shape::new(&a[..a[7] % 5])?), a[6])),
    ("constant", |g, _, a| g.constant(Descriptor::new(DType::F32, Shape::new(&a[..2])?), vec![0; 4])),
    ("one-hot", |g, [x, ..], a| {
        let places = g.cast(x, DType::I32)?;
        nn::one_hot(g, places, a[0], DType::F32)
    }),
    ("random", |g, _, a| {
        let key = g.fill(Descriptor::new(DType::U32, Shape::new([4])?), Scalar::Int(1))?;
        g.random(Shape::new(&a[..a[7] % 4])?, key, 1, RandomDistribution::Uniform)
    }),
    ("random-normal", |g, _, a| {
        let key = g.fill(Descriptor::new(DType::U32, Shape::new([4])?), Scalar::Int(1))?;
        nn::normal(g, Shape::new(&a[..a[7] % 4])?, key, 1)
    }),
    ("add", |g, [x, y, _], _| g.add(x, y)),
    ("where", |g, [x, y, z], _| {
        let condition = g.less(x, y)?;
        g.select(condition, y, z)
    }),
    ("matmul", |g, [x, y, _], _| g.matmul(x, y)),
    ("gemm", |g, [x, y, z], a| {
        let options = GemmOptions { transpose_a: a[0] % 2 == 0, transpose_b: a[1] % 2 == 0, ..GemmOptions::default() };
        nn::gemm(g, x, y, (a[2] % 2 == 0).then_some(z), options)
    }),
    ("linear", |g, [x, y, z], _| nn::linear(g, x, y, Some(z))),
    ("reduce", |g, [x, ..], a| g.reduce(ReduceKind::Product, x, &a[..a[7] % 4], a[6] % 2 == 0)),
    ("reduce-mean", |g, [x, ..], a| nn::reduce_mean(g, x, &a[..a[7] % 4], a[6] % 2 == 0)),
    ("reduce-log-sum-exp", |g, [x, ..], a| nn::reduce_log_sum_exp(g, x, &a[..a[7] % 4], a[6] % 2 == 0)),
    ("arg-max", |g, [x, ..], a| g.arg_max(x, a[0], a[6] % 2 == 0)),
    ("softmax", |g, [x, ..], a| nn::softmax(g, x, a[0])),
    ("cumulative-sum", |g, [x, ..], a| nn::cumulative_sum(g, x, a[0], a[1] % 2 == 0, a[2] % 2 == 0)),
    ("gather", |g, [x, y, _], a| {
        let places = g.cast(y, DType::I32)?;
        g.gather(x, places, a[0])
    }),
    ("gather-elements", |g, [x, y, _], a| {
        let places = g.cast(y, DType::I64)?;
        nn::gather_elements(g, x, places, a[0])
    }),
    ("gather-nd", |g, [x, y, _], _| {
        let places = g.cast(y, DType::I32)?;
        nn::gather_nd(g, x, places)
    }),
    ("scatter-elements", |g, [x, y, z], a| {
        let places = g.cast(y, DType::U32)?;
        nn::scatter_elements(g, x, places, z, a[0], ScatterCombine::Mul)
    }),
    ("scatter-nd", |g, [x, y, z], _| {
        let places = g.cast(y, DType::I32)?;
        nn::scatter_nd(g, x, places, z, ScatterCombine::Max)
    }),
    ("scatter-add", |g, [x, y, _], a| {
        let places = g.cast(x, DType::I32)?;
        g.scatter_add(places, y, a[0], a[1])
    }),
    ("conv2d", |g, [x, y, z], a| {
        let options = Conv2dOptions { conv: conv(a), ..Conv2dOptions::default() };
        nn::conv2d(g, x, y, (a[7] % 3 == 0).then_some(z), options)
    }),
    ("conv-transpose2d", |g, [x, y, _], a| {
        let options =
            ConvTranspose2dOptions { conv: transposed_conv(a), output_padding: [a[6], 0], ..Default::default() };
        nn::conv_transpose2d(g, x, y, None, options)
    }),
    ("conv-transpose2d, sized", |g, [x, y, _], a| {
        let own = g.descriptor(x).shape.get(2..4).map_or([1, 1], |image| [image[0], image[1]]);
        let output_sizes = Some(if a[0].is_multiple_of(2) { own } else { [a[6], a[7]] });
        nn::conv_transpose2d(g, x, y, None, ConvTranspose2dOptions { output_sizes, ..Default::default() })
    }),
    ("max-pool2d", |g, [x, ..], a| nn::max_pool2d(g, x, pool(a))),
    ("average-pool2d", |g, [x, ..], a| nn::average_pool2d(g, x, pool(a))),
    ("l2-pool2d", |g, [x, ..], a| nn::l2_pool2d(g, x, pool(a))),
    ("resample2d", |g, [x, ..], a| {
        let axes = [a[2] % 5, a[3] % 5];
        nn::resample2d(g, x, &Resample2dOptions { sizes: Some([a[0], a[1]]), axes, ..Resample2dOptions::default() })
    }),
    ("resample2d, scaled", |g, [x, ..], a| {
        let scales = [[0.0, 1e-30, 0.5, 2.0, 1e30, f64::NAN, f64::INFINITY, -1.0][a[0] % 8], 1.0];
        let mode = ResampleInterpolation::Linear;
        nn::resample2d(g, x, &Resample2dOptions { mode, scales, ..Resample2dOptions::default() })
    }),
    ("layer-normalization", |g, [x, y, _], a| nn::layer_normalization(g, x, Some(y), None, &a[..a[7] % 3], 1e-3)),
    ("batch-normalization", |g, [x, y, _], a| nn::batch_normalization(g, x, [y, y], None, Some(y), a[0], 1e-3)),
    ("dequantize-linear", |g, [x, y, z], _| {
        let (x, zero_point) = (g.cast(x, DType::I8)?, g.cast(z, DType::I8)?);
        nn::dequantize_linear(g, x, y, zero_point)
    }),
    ("cross-entropy", |g, [x, y, _], _| {
        let labels = g.cast(y, DType::I32)?;
        nn::cross_entropy(g, x, labels)
    }),
    (
        "gru",
        |g, [x, y, z], _| Ok(nn::gru(g, x, [y, z], None, RecurrentDirection::Backward, &GruOptions::default())?[1]),
    ),
    ("lstm", |g, [x, y, z], _| {
        Ok(nn::lstm(g, x, [y, z], [None, None], RecurrentDirection::Both, &LstmOptions::default())?[2])
    }),
    ("gru-cell", |g, [x, y, z], _| nn::gru_cell(g, x, [y, z], x, &GruOptions::default())),
    ("lstm-cell", |g, [x, y, z], _| Ok(nn::lstm_cell(g, x, [y, z], [x, x], &LstmOptions::default())?[0])),
];

fn conv(a: &[usize; 8]) -> Conv2d {
    Conv2d { padding: [a[0], a[1], a[2], a[0]], strides: [a[3], 1], dilations: [a[4], 1], groups: a[5] }
}

fn transposed_conv(a: &[usize; 8]) -> Conv2d {
    Conv2d { padding: [a[0] / 4, 0, a[1] / 4, 0], strides: [a[2], a[3]], dilations: [1, a[4]], groups: 1 }
}

fn pool(a: &[usize; 8]) -> Pool2dOptions {
    Pool2dOptions {
        window: (!a[7].is_multiple_of(4)).then_some([a[0], a[1]]),
        padding: [a[2], a[3], 0, a[4]],
        strides: [a[5], 1],
        dilations: [a[6], 1],
        rounding: if a[7].is_multiple_of(2) { PoolRounding::Ceil } else { PoolRounding::Floor },
        ..Pool2dOptions::default()
    }
}

/// Generates sizes near every limit, and small ones.
fn any_size() -> impl Strategy<Value = usize> {
    let small = 0usize..5;
    let large = prop::sample::select(vec![
        255,
        65_536,
        (1 << 24) + 1,
        ELEMENTS_MAX - 1,
        ELEMENTS_MAX,
        ELEMENTS_MAX + 1,
        u32::MAX as usize,
        1 << 32,
        usize::MAX / 2,
        usize::MAX - 1,
        usize::MAX,
    ]);
    prop_oneof![4 => small, 1 => large]
}

fn any_shape() -> impl Strategy<Value = Shape> {
    prop::collection::vec(any_size(), 0..5).prop_map(|mut dims| {
        loop {
            // Remove dimensions until the shape is valid.
            if let Ok(shape) = Shape::new(dims.clone()) {
                return shape;
            }
            let largest = (0..dims.len()).max_by_key(|&axis| dims[axis]).expect("a scalar is a shape");
            dims[largest] = if dims.len() > 2 { 1 } else { ELEMENTS_MAX / 2 };
            if Shape::new(dims.clone()).is_err() {
                dims.remove(largest);
            }
        }
    })
}

/// Generates three shapes that some operator accepts together: equal ones, and those of a convolution, of rows, of
/// cells and of networks over a sequence.
fn matching_shapes() -> impl Strategy<Value = [Shape; 3]> {
    (any_size(), any_size(), 0..7).prop_filter_map("past the limits", |(a, b, which)| {
        let (three, four) = (b.saturating_mul(3), b.saturating_mul(4));
        let dims = match which {
            0 => [vec![a, a], vec![a, a], vec![a, a]],
            1 => [vec![1, a, b, b], vec![a, a, 1, 1], vec![a]],
            2 => [vec![a, b], vec![three, b], vec![three, b]],
            3 => [vec![a, b], vec![four, b], vec![four, b]],
            4 => [vec![a, b], vec![b], vec![b]],
            5 => [vec![a, 2, b], vec![1, three, b], vec![1, three, b]],
            _ => [vec![a, 2, b], vec![2, four, b], vec![2, four, b]],
        };
        let [x, y, z] = dims.map(|dims| Shape::new(dims).ok());
        Some([x?, y?, z?])
    })
}

#[test]
fn operators_of_any_size_are_built_or_refused_without_panics() {
    let config = Config { cases: 1000, failure_persistence: None, ..Config::default() };
    // A fixed seed, so that the covered cases stay the same.
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let shapes = prop_oneof![[any_shape(), any_shape(), any_shape()], matching_shapes()];
    let strategy = (shapes, prop::array::uniform8(any_size()), prop::bool::weighted(0.8));
    let built = RefCell::new(BTreeSet::new());
    let outcome = runner.run(&strategy, |(operands, attributes, float)| {
        let dtype = if float { DType::F32 } else { DType::F16 };
        for (name, build) in OPERATORS {
            if try_operator(*build, &operands, &attributes, dtype)
                .map_err(|why| TestCaseError::fail(format!("{name}: {why}")))?
            {
                built.borrow_mut().insert(*name);
            }
        }
        Ok(())
    });
    outcome.unwrap();
    let never: Vec<&str> =
        OPERATORS.iter().map(|(name, _)| *name).filter(|name| !built.borrow().contains(name)).collect();
    assert_eq!(never, [""; 0], "operators that no case could build");
}

/// Returns whether the operator accepts these arguments, or a description of an error in its result.
fn try_operator(
    build: LimitedOperatorFn,
    operands: &[Shape; 3],
    attributes: &[usize; 8],
    dtype: DType,
) -> Result<bool, String> {
    let mut g = GraphBuilder::new();
    let nodes = [0, 1, 2].map(|at| g.input(&format!("x{at}"), Descriptor::new(dtype, operands[at].clone())).unwrap());
    let Ok(result) = build(&mut g, nodes, attributes) else { return Ok(false) };
    let shape = g.descriptor(result).shape.clone();
    if shape.rank() > RANK_MAX || shape.elements() > ELEMENTS_MAX {
        return Err(format!("{shape} is past the limits"));
    }
    g.output("result", result).unwrap();
    differentiate(&mut g, result, &nodes);
    let graph = verify(g.finish()).map_err(|error| error.to_string())?;
    // Padding, expanding and repeating can make large tensors from small ones.
    if graph.graph().nodes.iter().all(|node| node.descriptor.shape.elements() <= 2000) {
        let zeros = graph.graph().inputs.iter().map(|port| InterpTensor::zeros(port.descriptor.clone()));
        let outputs = evaluate(&graph, &zeros.collect::<Vec<_>>(), &mut []).map_err(|error| error.to_string())?;
        if outputs[0].descriptor().shape != shape {
            return Err(format!("{} is not {shape}", outputs[0].descriptor()));
        }
    }
    Ok(true)
}

/// Adds the gradients of the result's sum, if there are any.
fn differentiate(g: &mut GraphBuilder, result: NodeId, wrt: &[NodeId]) {
    let axes: Vec<usize> = (0..g.descriptor(result).shape.rank()).collect();
    let Ok(loss) = g.reduce_sum(result, &axes, false) else { return };
    let Ok(found) = gradients(g, loss, wrt) else { return };
    for (at, gradient) in found.into_iter().enumerate() {
        g.output(&format!("gradient {at}"), gradient).unwrap();
    }
}

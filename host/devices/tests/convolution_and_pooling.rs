//! Tests of windowed operators (convolution and pooling) with enough channels for the CPU to store channels last,
//! against the reference interpreter: every kind of stride, dilation, padding and remainder, with gradients, and the
//! same bits with one thread and two.

#![allow(clippy::unwrap_used, reason = "tests fail by panic")]

use std::sync::Arc;

use saggar_compile::compile;
use saggar_compile::program::{ChannelLayout, KernelBody, ValueId};
use saggar_device::{Backend, Meter};
use saggar_tensor::grad::gradients;
use saggar_tensor::interp::{InterpTensor, evaluate};
use saggar_tensor::nn::{self, Conv2dOptions, Pool2dOptions};
use saggar_tensor::op::Conv2d;
use saggar_tensor::{DType, Descriptor, GraphBuilder, Shape, VerifiedGraph, verify};

fn float(dims: &[usize]) -> Descriptor {
    Descriptor::new(DType::F32, Shape::new(dims).unwrap())
}

fn value(dims: &[usize], seed: usize) -> InterpTensor {
    let shape = Shape::new(dims).unwrap();
    let numbers: Vec<f64> =
        (0..shape.elements()).map(|i| ((i * 7919 + seed * 104_729) % 2003) as f64 / 1001.5 - 1.0).collect();
    InterpTensor::from_numbers(DType::F32, shape, &numbers).unwrap()
}

/// A convolution followed by typical operators, and its gradients.
#[derive(Clone, Copy, Debug)]
struct WindowCase {
    /// Images, channels, height, width.
    input: [usize; 4],
    outputs: usize,
    window: [usize; 2],
    conv: Conv2d,
    /// Window size and stride of the pooling that follows.
    pool: [usize; 2],
}

const CASES: [WindowCase; 16] = [
    case([2, 1, 12, 11], 20, [5, 5], [0; 4], [1, 1], [1, 1], [2, 2]),
    case([3, 20, 7, 9], 50, [3, 3], [1; 4], [1, 1], [1, 1], [2, 2]),
    case([1, 3, 15, 14], 33, [7, 7], [3; 4], [2, 2], [1, 1], [3, 2]),
    case([2, 17, 9, 8], 16, [3, 2], [2, 0, 1, 2], [2, 3], [1, 1], [2, 1]),
    case([1, 8, 13, 13], 9, [3, 3], [2; 4], [1, 1], [2, 2], [2, 2]),
    case([2, 64, 6, 6], 70, [1, 1], [0; 4], [1, 1], [1, 1], [2, 2]),
    case([2, 16, 9, 9], 24, [1, 1], [0; 4], [2, 2], [1, 1], [2, 2]),
    case([1, 130, 5, 5], 130, [3, 3], [1; 4], [1, 1], [1, 1], [2, 1]),
    // Large enough for Winograd tiles of 4x4 and 2x2 outputs, with remainders of tiles, channels and padding.
    case([3, 48, 14, 17], 35, [3, 3], [1; 4], [1, 1], [1, 1], [2, 2]),
    case([2, 33, 16, 12], 64, [3, 3], [0; 4], [1, 1], [1, 1], [2, 2]),
    case([5, 90, 7, 6], 70, [3, 3], [2, 1, 0, 2], [1, 1], [1, 1], [2, 1]),
    case([2, 40, 21, 9], 40, [3, 3], [0, 3, 4, 0], [1, 1], [1, 1], [3, 2]),
    // The same for 5x5 filters, and for transformed filters that are small and large, for one image and many.
    case([10, 20, 12, 12], 50, [5, 5], [0; 4], [1, 1], [1, 1], [2, 2]),
    case([3, 37, 13, 10], 41, [5, 5], [2, 1, 0, 3], [1, 1], [1, 1], [2, 2]),
    case([6, 70, 9, 11], 66, [5, 5], [2; 4], [1, 1], [1, 1], [2, 2]),
    case([8, 66, 10, 13], 68, [3, 3], [1, 2, 1, 0], [1, 1], [1, 1], [2, 2]),
];

const fn case(
    input: [usize; 4],
    outputs: usize,
    window: [usize; 2],
    padding: [usize; 4],
    strides: [usize; 2],
    dilations: [usize; 2],
    pool: [usize; 2],
) -> WindowCase {
    WindowCase { input, outputs, window, conv: Conv2d { padding, strides, dilations, groups: 1 }, pool }
}

/// Returns the graph and the values of its inputs, then of its variable.
fn graph(case: &WindowCase, ends: bool) -> (VerifiedGraph, [InterpTensor; 3]) {
    let mut g = GraphBuilder::new();
    let filter = [case.outputs, case.input[1], case.window[0], case.window[1]];
    let values = [value(&case.input, 1), value(&[case.outputs], 3), value(&filter, 2)];
    let x = g.input("x", float(&case.input)).unwrap();
    // A variable that is not written: its packed layout is cached.
    let (f, b) = (g.variable("f", float(&filter)).unwrap(), g.input("b", float(&[case.outputs])).unwrap());
    let options = Conv2dOptions { conv: case.conv, ..Conv2dOptions::default() };
    let y = nn::conv2d(&mut g, x, f, Some(b), options).unwrap();
    let y = if ends { nn::relu(&mut g, y).unwrap() } else { g.tanh(y).unwrap() };
    let [window, step] = case.pool;
    let pool = Pool2dOptions { window: Some([window; 2]), strides: [step; 2], ..Pool2dOptions::default() };
    let largest = nn::max_pool2d(&mut g, y, pool).unwrap();
    let mean = nn::average_pool2d(&mut g, y, pool).unwrap();
    let both = g.mul(largest, mean).unwrap();
    g.output("y", y).unwrap();
    g.output("both", both).unwrap();
    let sum = g.reduce_sum(both, &[0, 1, 2, 3], false).unwrap();
    for (at, gradient) in gradients(&mut g, sum, &[x, f, b]).unwrap().into_iter().enumerate() {
        g.output(&format!("d{at}"), gradient).unwrap();
    }
    (verify(g.finish()).unwrap(), values)
}

fn run(backend: &dyn Backend, graph: &VerifiedGraph, values: &[InterpTensor; 3]) -> Vec<InterpTensor> {
    let meter = Meter::unlimited();
    let program = compile(graph, &backend.target()).unwrap();
    let last = program.kernels.iter().filter(|kernel| kernel.body.layout() == ChannelLayout::ChannelsLast).count();
    assert!(last >= 6, "windows are not computed with channels last:\n{program}");
    let executable = backend.load(Arc::new(program), &meter).unwrap();
    let buffer = |value: &InterpTensor| {
        let buffer = backend.allocate(value.descriptor(), &meter).unwrap();
        backend.write(&buffer, &value.to_bytes()).unwrap();
        buffer
    };
    let [inputs @ .., variable] = &values.each_ref().map(buffer);
    let outputs = executable.dispatch(inputs, std::slice::from_ref(variable)).unwrap();
    let outputs = outputs.iter().map(|output| (output.descriptor().clone(), backend.read(output).unwrap()));
    outputs.map(|(descriptor, bytes)| InterpTensor::from_bytes(descriptor, &bytes).unwrap()).collect()
}

#[test]
fn windowed_operators_with_many_channels_match_the_interpreter() {
    let open = |threads, vectors| {
        saggar_cpu::open_with(saggar_cpu::CpuOptions {
            threads: Some(threads),
            vectors,
            ..saggar_cpu::CpuOptions::default()
        })
        .unwrap()
    };
    for kind in saggar_cpu::VectorSet::available() {
        // A separate multiplication and addition round twice as often.
        let rounding = if kind == saggar_cpu::VectorSet::Plain { 2e-7 } else { 1e-7 };
        check_windowed_operators(&*open(1, Some(kind)), &*open(2, Some(kind)), rounding);
    }
}

#[test]
fn fused_multiply_add_vector_sets_agree_bitwise() {
    let kinds: Vec<_> =
        saggar_cpu::VectorSet::available().into_iter().filter(|kind| *kind != saggar_cpu::VectorSet::Plain).collect();
    let open = |vectors| {
        saggar_cpu::open_with(saggar_cpu::CpuOptions { vectors: Some(vectors), ..saggar_cpu::CpuOptions::default() })
            .unwrap()
    };
    let Some((first, others)) = kinds.split_first() else { return };
    for case in &CASES {
        let (graph, values) = graph(case, true);
        let expected = run(&*open(*first), &graph, &values);
        for other in others {
            assert!(run(&*open(*other), &graph, &values) == expected, "{case:?}: {first:?} and {other:?} differ");
        }
    }
}

fn check_windowed_operators(one: &dyn Backend, two: &dyn Backend, rounding: f64) {
    for case in &CASES {
        // Sums bound the scale of all results: their rounding errors carry over.
        let mut largest = 1.0f64;
        for ends in [true, false] {
            let (graph, values) = graph(case, ends);
            let expected = evaluate(&graph, &values[..2], &mut values[2..].to_vec()).unwrap();
            // The rounding error of a random sum of this many terms in `f32`: half a unit each, with a margin.
            let [images, channels, height, width] = case.input;
            let terms = (channels * case.window[0] * case.window[1]).max(images * height * width).max(case.outputs);
            let tolerance = rounding * (terms as f64).sqrt();
            let found = run(two, &graph, &values);
            for (at, (expected, found)) in expected.iter().zip(&found).enumerate() {
                let scale = expected.to_f64_numbers().iter().fold(largest, |most, x| most.max(x.abs()));
                if ends && at == 0 {
                    largest = scale;
                }
                for (x, y) in expected.to_f64_numbers().iter().zip(found.to_f64_numbers()) {
                    assert!((x - y).abs() <= tolerance * scale, "{case:?} output {at}: {x} {y}");
                }
            }
            assert!(run(one, &graph, &values) == found, "{case:?}: other bits with one thread");
        }
    }
}

/// Pools small whole numbers, many of them equal and some NaN: the first of the largest is chosen, whether the gradient
/// overwrites the input or not.
#[test]
fn max_pool_gradients_are_exact_in_place_and_out_of_place() {
    let whole = |dims: &[usize], seed: usize, nan: bool| {
        let shape = Shape::new(dims).unwrap();
        let number = |i: usize| if nan && i % 97 == 5 { f64::NAN } else { ((i * 31 + seed) % 7) as f64 - 3.0 };
        let numbers: Vec<f64> = (0..shape.elements()).map(number).collect();
        InterpTensor::from_numbers(DType::F32, shape, &numbers).unwrap()
    };
    for (window, steps, size, in_place) in [
        ([2, 2], [2, 2], [8, 12], true),
        ([4, 1], [4, 1], [8, 7], true),
        ([2, 2], [2, 2], [9, 12], false),
        ([3, 3], [2, 3], [9, 12], false),
        ([2, 2], [3, 2], [8, 12], false),
    ] {
        for nan in [false, true] {
            let mut g = GraphBuilder::new();
            let values = [whole(&[3, 2, size[0], size[1]], 1, nan), whole(&[37, 2, 1, 1], 2, false)];
            let [x, f] = ["x", "f"].map(|name| {
                let value = &values[usize::from(name == "f")];
                g.input(name, value.descriptor().clone()).unwrap()
            });
            let maps = nn::conv2d(&mut g, x, f, None, Conv2dOptions::default()).unwrap();
            let pool = Pool2dOptions { window: Some(window), strides: steps, ..Pool2dOptions::default() };
            let largest = nn::max_pool2d(&mut g, maps, pool).unwrap();
            let weights: Vec<f64> = (0..).map(|at| f64::from(at % 5 - 2)).take(37).collect();
            let weights = InterpTensor::from_numbers(DType::F32, Shape::new([1, 37, 1, 1]).unwrap(), &weights).unwrap();
            let scale = g.input("scale", weights.descriptor().clone()).unwrap();
            let scaled = g.mul(largest, scale).unwrap();
            let sum = g.reduce_sum(scaled, &[0, 1, 2, 3], false).unwrap();
            let gradient = gradients(&mut g, sum, &[x]).unwrap()[0];
            g.output("gradient", gradient).unwrap();
            let graph = verify(g.finish()).unwrap();
            let [a, b] = values;
            let values = [a, b, weights];
            let expected = evaluate(&graph, &values, &mut []).unwrap();
            for kind in saggar_cpu::VectorSet::available() {
                let backend = saggar_cpu::open_with(saggar_cpu::CpuOptions {
                    vectors: Some(kind),
                    ..saggar_cpu::CpuOptions::default()
                })
                .unwrap();
                let meter = Meter::unlimited();
                let program = compile(&graph, &backend.target()).unwrap();
                let place = |value: &ValueId| program.values[value.index()].place;
                let chosen = program.kernels.iter().find_map(|kernel| {
                    let KernelBody::MaxPool2dGrad { input, output, .. } = &kernel.body else { return None };
                    Some(place(input) == place(output))
                });
                assert_eq!(chosen, Some(in_place), "{window:?} by {steps:?} over {size:?}\n{program}");
                let executable = backend.load(Arc::new(program), &meter).unwrap();
                let inputs = values.each_ref().map(|value| {
                    let buffer = backend.allocate(value.descriptor(), &meter).unwrap();
                    backend.write(&buffer, &value.to_bytes()).unwrap();
                    buffer
                });
                for _ in 0..2 {
                    let output = executable.dispatch(&inputs, &[]).unwrap().remove(0);
                    let found = backend.read(&output).unwrap();
                    let found = InterpTensor::from_bytes(output.descriptor().clone(), &found).unwrap();
                    let pairs = expected[0].to_f64_numbers().into_iter().zip(found.to_f64_numbers());
                    for (at, (x, y)) in pairs.enumerate() {
                        assert!(x == y, "{kind:?}: {window:?} by {steps:?} over {size:?}, element {at}: {x} {y}");
                    }
                }
            }
        }
    }
}

#[test]
fn written_weights_are_repacked() {
    let backend = saggar_cpu::open(Some(2)).unwrap();
    let meter = Meter::unlimited();
    let mut g = GraphBuilder::new();
    let x = g.input("x", float(&[3, 40])).unwrap();
    let w = g.variable("w", float(&[40, 20])).unwrap();
    let y = g.matmul(x, w).unwrap();
    g.output("y", y).unwrap();
    let graph = verify(g.finish()).unwrap();
    let executable = backend.load(Arc::new(compile(&graph, &backend.target()).unwrap()), &meter).unwrap();
    let allocate = |value: &InterpTensor| backend.allocate(value.descriptor(), &meter).unwrap();
    let (x, w) = (value(&[3, 40], 1), value(&[40, 20], 2));
    let (input, weights) = (allocate(&x), allocate(&w));
    backend.write(&input, &x.to_bytes()).unwrap();
    for seed in [2, 3] {
        let w = value(&[40, 20], seed);
        backend.write(&weights, &w.to_bytes()).unwrap();
        let expected = evaluate(&graph, std::slice::from_ref(&x), &mut [w]).unwrap()[0].to_f64_numbers();
        for _ in 0..2 {
            let output =
                executable.dispatch(std::slice::from_ref(&input), std::slice::from_ref(&weights)).unwrap().remove(0);
            let found = InterpTensor::from_bytes(output.descriptor().clone(), &backend.read(&output).unwrap()).unwrap();
            assert!(expected.iter().zip(found.to_f64_numbers()).all(|(x, y)| (x - y).abs() < 1e-4), "weights {seed}");
        }
    }
    let held = meter.bytes();
    drop((executable, weights));
    // Packed weights take at least as much memory as plain ones.
    assert!(meter.bytes() <= held - 2 * 40 * 20 * 4, "the packed weights are freed with the buffer");
}

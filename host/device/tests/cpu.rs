//! Tests of guarantees that only the CPU device makes: concurrent dispatches, checked buffers, exact memory accounting.
//! The conformance suite compares results with the reference interpreter.

#![allow(clippy::unwrap_used, reason = "tests fail by panic")]

#[path = "../benches/digits.rs"]
mod digits;
#[path = "../benches/lenet.rs"]
mod lenet;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use saggar_compile::compile;
use saggar_device::{Backend, CancelToken, DeviceBuffer, DeviceError, Executable, Meter, cpu};
use saggar_tensor::interp::{self, InterpTensor};
use saggar_tensor::op::{Conv2d, Scalar};
use saggar_tensor::{DType, Descriptor, GraphBuilder, GraphError, NodeId, Shape, VerifiedGraph, nn, verify};

fn load(backend: &dyn Backend, graph: &VerifiedGraph, meter: &Meter) -> Result<Arc<dyn Executable>, DeviceError> {
    backend.load(Arc::new(compile(graph, &backend.target()).unwrap()), meter)
}

fn buffers(backend: &dyn Backend, values: &[InterpTensor], meter: &Meter) -> Vec<DeviceBuffer> {
    let buffer = |value: &InterpTensor| {
        let buffer = backend.allocate(value.descriptor(), meter).unwrap();
        backend.write(&buffer, &value.to_bytes()).unwrap();
        buffer
    };
    values.iter().map(buffer).collect()
}

fn vector(size: usize) -> Descriptor {
    Descriptor::new(DType::F32, Shape::new([size]).unwrap())
}

/// Returns `a += x; b += a` of vectors.
fn two_counters(size: usize) -> VerifiedGraph {
    let mut g = GraphBuilder::new();
    let x = g.input("x", vector(size)).unwrap();
    let (a, b) = (g.variable("a", vector(size)).unwrap(), g.variable("b", vector(size)).unwrap());
    let next_a = g.add(a, x).unwrap();
    let next_b = g.add(b, next_a).unwrap();
    g.assign_to(a, next_a).unwrap();
    g.assign_to(b, next_b).unwrap();
    g.output("y", next_b).unwrap();
    verify(g.finish()).unwrap()
}

fn ones(size: usize) -> InterpTensor {
    InterpTensor::full(vector(size), Scalar::Float(1.0))
}

fn numbers(backend: &dyn Backend, buffer: &DeviceBuffer) -> Vec<f64> {
    InterpTensor::from_bytes(buffer.descriptor().clone(), &backend.read(buffer).unwrap()).unwrap().to_f64_numbers()
}

/// Returns a token that cancels at check number `at`, and the number of checks so far.
fn token_cancelled_at_check(at: usize) -> (CancelToken, Arc<AtomicUsize>) {
    let looks = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&looks);
    (CancelToken::new(move || counted.fetch_add(1, Ordering::Relaxed) + 1 >= at), looks)
}

/// Returns graphs of one long kernel each: a product, convolutions of one image with and without im2col, many rows.
fn long_kernels() -> Vec<VerifiedGraph> {
    let shape = |dims: &[usize]| Descriptor::new(DType::F32, Shape::new(dims).unwrap());
    let conv = Conv2d { padding: [0; 4], strides: [1; 2], dilations: [1; 2], groups: 1 };
    let one = |dims: &[&[usize]], node: &dyn Fn(&mut GraphBuilder, &[NodeId]) -> NodeId| {
        let mut g = GraphBuilder::new();
        let inputs: Vec<NodeId> =
            dims.iter().enumerate().map(|(at, dims)| g.input(&format!("x{at}"), shape(dims)).unwrap()).collect();
        let y = node(&mut g, &inputs);
        g.output("y", y).unwrap();
        verify(g.finish()).unwrap()
    };
    vec![
        one(&[&[512, 512], &[512, 512]], &|g, x| g.matmul(x[0], x[1]).unwrap()),
        one(&[&[1, 2, 128, 128], &[3, 2, 31, 31]], &|g, x| g.conv2d(x[0], x[1], conv).unwrap()),
        one(&[&[1, 64, 32, 32], &[256, 64, 3, 3]], &|g, x| g.conv2d(x[0], x[1], conv).unwrap()),
        one(&[&[1 << 20]], &|g, x| g.mul(x[0], x[0]).unwrap()),
    ]
}

#[test]
fn a_dispatch_is_cancelled_mid_kernel_and_the_next_one_is_complete() {
    let meter = Meter::unlimited();
    for threads in [1, 2] {
        let backend = cpu::open(Some(threads)).unwrap();
        for (number, graph) in long_kernels().iter().enumerate() {
            let executable = load(&*backend, graph, &meter).unwrap();
            let inputs: Vec<InterpTensor> = executable
                .program()
                .inputs
                .iter()
                .map(|port| InterpTensor::full(port.descriptor.clone(), Scalar::Float(0.5)))
                .collect();
            let inputs = buffers(&*backend, &inputs, &meter);
            let never = CancelToken::never();
            let expected = executable.dispatch_cancellable(&inputs, &[], &never).unwrap().remove(0);
            let (token, looks) = token_cancelled_at_check(usize::MAX);
            executable.dispatch_cancellable(&inputs, &[], &token).unwrap();
            let all = looks.load(Ordering::Relaxed);
            assert!(
                all > 3,
                "kernel {number} on {threads} threads checks {all} times: before it starts and between its parts"
            );
            for at in [1, 2, 3, all] {
                let (token, looks) = token_cancelled_at_check(at);
                let cancelled = executable.dispatch_cancellable(&inputs, &[], &token);
                assert!(matches!(cancelled, Err(DeviceError::Cancelled)), "kernel {number} at check {at}");
                // Each other thread can be about to check when the token is cancelled.
                assert!(looks.load(Ordering::Relaxed) <= at + threads, "kernel {number} continues after check {at}");
            }
            let after = executable.dispatch(&inputs, &[]).unwrap().remove(0);
            assert_eq!(numbers(&*backend, &after), numbers(&*backend, &expected), "kernel {number}");
        }
    }
    assert_eq!(meter.bytes(), 0, "cancelled dispatches hold no memory");
}

#[test]
fn concurrent_dispatches_do_not_interfere() {
    let backend = cpu::open(Some(2)).unwrap();
    let meter = Meter::unlimited();
    let network = lenet::network(4, false);
    let executable = load(&*backend, &network.graph, &meter).unwrap();
    let inputs = buffers(&*backend, &network.inputs, &meter);
    let variables = buffers(&*backend, &network.variables, &meter);
    let run = || backend.read(&executable.dispatch(&inputs, &variables).unwrap()[0]).unwrap();
    let expected = run();
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| (0..20).for_each(|_| assert_eq!(run(), expected)));
        }
    });
    assert_eq!(meter.submissions(), 121);
}

#[test]
fn logits_do_not_depend_on_batch_size_or_thread_count() {
    let meter = Meter::unlimited();
    let logits = |batch: usize, threads: usize| {
        let backend = cpu::open(Some(threads)).unwrap();
        let network = digits::digits(batch);
        let executable = load(&*backend, &network.graph, &meter).unwrap();
        let images = buffers(&*backend, &[network.images], &meter);
        let variables = buffers(&*backend, &network.variables, &meter);
        // The first dispatch counts the work, which decides how many threads the second one uses.
        executable.dispatch(&images, &variables).unwrap();
        backend.read(&executable.dispatch(&images, &variables).unwrap()[0]).unwrap()
    };
    let all = logits(33, 1);
    for threads in [1, 2, 5] {
        for batch in [1, 2, 3, 4, 5, 8, 17, 32, 33] {
            let found = logits(batch, threads);
            assert!(found == all[..found.len()], "{batch} images on {threads} threads");
        }
    }
}

/// Returns a convolution of `[2, 6, 9, 11]` in two groups, followed by the epilogue `end` of it and a bias per channel.
fn convolution_with_epilogue(
    end: impl Fn(&mut GraphBuilder, NodeId, NodeId) -> Result<NodeId, GraphError>,
) -> Vec<f32> {
    let mut g = GraphBuilder::new();
    let mut values = Vec::new();
    let mut input = |name: &str, dims: &[usize], special: &[f64]| {
        let shape = Shape::new(dims).unwrap();
        let number = |i: usize| (i * 7919 % 2003) as f64 / 1001.5 - 1.0;
        let numbers: Vec<f64> = (0..shape.elements()).map(|i| special.get(i).copied().unwrap_or(number(i))).collect();
        values.push(InterpTensor::from_numbers(DType::F32, shape.clone(), &numbers).unwrap());
        g.input(name, Descriptor::new(DType::F32, shape)).unwrap()
    };
    let x = input("x", &[2, 6, 9, 11], &[]);
    // The first two channels are zeros.
    let filter = input("filter", &[14, 3, 3, 2], &[0.0; 36]);
    let bias = input("bias", &[14, 1, 1], &[-0.0, -1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY]);
    let y =
        g.conv2d(x, filter, Conv2d { padding: [0, 2, 1, 0], strides: [1, 1], dilations: [1, 2], groups: 2 }).unwrap();
    let y = end(&mut g, y, bias).unwrap();
    g.output("y", y).unwrap();
    let (backend, meter) = (cpu::open(Some(1)).unwrap(), Meter::unlimited());
    let executable = load(&*backend, &verify(g.finish()).unwrap(), &meter).unwrap();
    let inputs = buffers(&*backend, &values[..executable.program().inputs.len()], &meter);
    let y = backend.read(&executable.dispatch(&inputs, &[]).unwrap()[0]).unwrap();
    y.as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect()
}

#[test]
fn fused_convolution_epilogues_equal_the_separate_operators() {
    let alone = convolution_with_epilogue(|_, y, _| Ok(y));
    let bias = [-0.0, -1.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY];
    let plane = alone.len() / 28;
    let sum = convolution_with_epilogue(|g, y, bias| g.add(y, bias));
    let turned = convolution_with_epilogue(|g, y, bias| g.add(bias, y));
    let relu = convolution_with_epilogue(|g, y, bias| {
        let sum = g.add(y, bias)?;
        nn::relu(g, sum)
    });
    let larger = convolution_with_epilogue(|g, y, bias| {
        let sum = g.add(y, bias)?;
        let least = g.scalar(DType::F32, Scalar::Float(0.25))?;
        g.max(sum, least)
    });
    let other = convolution_with_epilogue(|g, y, bias| {
        let sum = g.add(y, bias)?;
        g.neg(sum)
    });
    for (at, &y) in alone.iter().enumerate() {
        let channel = at / plane % 14;
        let Some(bias) = bias.get(channel) else {
            assert_eq!(relu[at].to_bits(), if sum[at] <= 0.0 { 0 } else { sum[at].to_bits() });
            assert_eq!(larger[at], sum[at].max(0.25));
            assert_eq!(other[at], -sum[at]);
            continue;
        };
        let expected = y + bias;
        let same = |found: f32, expected: f32| {
            assert!(found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan(), "{channel}: {found}");
        };
        same(sum[at], expected);
        same(turned[at], expected);
        same(relu[at], if expected <= 0.0 { 0.0 } else { expected });
        same(larger[at], if expected <= 0.25 { 0.25 } else { expected });
        same(other[at], -expected);
    }
}

#[test]
fn concurrent_updates_of_shared_variables_are_serialized() {
    let backend = cpu::open(Some(2)).unwrap();
    let meter = Meter::unlimited();
    let size = 50_000;
    let executable = load(&*backend, &two_counters(size), &meter).unwrap();
    let given = buffers(&*backend, &[ones(size)], &meter);
    let state = buffers(&*backend, &[InterpTensor::zeros(vector(size)), InterpTensor::zeros(vector(size))], &meter);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..25).for_each(|_| drop(executable.dispatch(&given, &state).unwrap())));
        }
    });
    assert!(numbers(&*backend, &state[0]).iter().all(|&a| a == 100.0));
    assert!(numbers(&*backend, &state[1]).iter().all(|&b| b == 5050.0));
}

#[test]
fn wrong_buffers_are_refused_by_name() {
    let backend = cpu::open(Some(1)).unwrap();
    let meter = Meter::unlimited();
    let executable = load(&*backend, &two_counters(3), &meter).unwrap();
    let good = buffers(&*backend, &[ones(3), ones(3), ones(3)], &meter);
    let wide = buffers(&*backend, &[ones(4)], &meter);
    let refused = |inputs: &[DeviceBuffer], variables: &[DeviceBuffer]| match executable.dispatch(inputs, variables) {
        Err(DeviceError::Mismatch { port, .. }) => port,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(&[], &good[1..]), "inputs");
    assert_eq!(refused(&wide, &good[1..]), "x");
    assert_eq!(refused(&good[..1], &[good[1].clone(), wide[0].clone()]), "b");
    // Two variables, or an input and a variable, must not share memory if it is written.
    let aliased = refused(&good[..1], &[good[1].clone(), good[1].clone()]);
    assert!(aliased == "a" || aliased == "b", "{aliased}");
    refused(&good[..1], &[good[0].clone(), good[1].clone()]);
    assert!(matches!(backend.write(&good[0], &[0; 11]), Err(DeviceError::Mismatch { .. })));
    assert_eq!(numbers(&*backend, &good[0]), [1.0; 3]);
}

#[test]
fn one_buffer_may_be_read_as_several_inputs() {
    let backend = cpu::open(Some(1)).unwrap();
    let meter = Meter::unlimited();
    let mut g = GraphBuilder::new();
    let (a, b) = (g.input("a", vector(3)).unwrap(), g.input("b", vector(3)).unwrap());
    let sum = g.add(a, b).unwrap();
    g.output("y", sum).unwrap();
    let executable = load(&*backend, &verify(g.finish()).unwrap(), &meter).unwrap();
    let one = buffers(&*backend, &[ones(3)], &meter);
    let outputs = executable.dispatch(&[one[0].clone(), one[0].clone()], &[]).unwrap();
    assert_eq!(numbers(&*backend, &outputs[0]), [2.0; 3]);
}

#[test]
fn memory_is_charged_before_it_is_allocated_and_given_back() {
    let backend = cpu::open(Some(1)).unwrap();
    let meter = Meter::new(1000);
    let first = backend.allocate(&vector(200), &meter).unwrap();
    assert_eq!(meter.bytes(), 800);
    let refused = backend.allocate(&vector(200), &meter);
    assert!(matches!(refused, Err(DeviceError::OutOfMemory { asked_bytes: 800, used_bytes: 800, limit_bytes: 1000 })));
    drop(first);
    assert_eq!((meter.bytes(), meter.peak_bytes()), (0, 800));

    // An output that does not fit in memory leaves the variables unchanged.
    let given = buffers(&*backend, &[ones(70)], &meter);
    let state = buffers(&*backend, &[ones(70), ones(70)], &meter);
    let executable = load(&*backend, &two_counters(70), &meter).unwrap();
    assert!(matches!(executable.dispatch(&given, &state), Err(DeviceError::OutOfMemory { .. })));
    assert_eq!(numbers(&*backend, &state[0]), [1.0; 70]);
    drop((given, state, executable));
    assert_eq!(meter.bytes(), 0);
}

#[test]
fn work_is_metered() {
    let backend = cpu::open(Some(1)).unwrap();
    let meter = Meter::unlimited();
    let executable = load(&*backend, &two_counters(100_000), &meter).unwrap();
    let given = buffers(&*backend, &[ones(100_000)], &meter);
    let state = buffers(&*backend, &[ones(100_000), ones(100_000)], &meter);
    executable.dispatch(&given, &state).unwrap();
    assert_eq!(meter.submissions(), 1);
    assert_eq!(meter.dispatches(), executable.program().kernels.len() as u64);
    assert!(!meter.busy_time().is_zero());
}

/// Returns one-hot sums over the last axis of `x [3, rows, 700]`, which contains NaN, infinities and -0; an index
/// selects the element.
fn one_hot_sum_graph(dtype: DType, rows: usize, turned: bool) -> (VerifiedGraph, Vec<InterpTensor>) {
    let mut g = GraphBuilder::new();
    let shape = Shape::new([3, rows, 700]).unwrap();
    let special = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0];
    let number =
        |i: usize| if i.is_multiple_of(3) { special[i / 3 % 4] } else { (i * 7919 % 2003) as f64 / 1001.5 - 1.0 };
    let numbers: Vec<f64> = (0..shape.elements()).map(number).collect();
    // Some indices are before the first element, some after the last.
    let indices: Vec<f64> = (0..3 * rows).map(|i| (i * 131 % 720) as f64 - 10.0).collect();
    let values = vec![
        InterpTensor::from_numbers(dtype, shape.clone(), &numbers).unwrap(),
        InterpTensor::from_numbers(DType::I64, Shape::new([3, rows, 1]).unwrap(), &indices).unwrap(),
    ];
    let x = g.input("x", values[0].descriptor().clone()).unwrap();
    let index = g.input("index", values[1].descriptor().clone()).unwrap();
    let index = g.cast(index, DType::I32).unwrap();
    let index = g.broadcast_to(index, shape.clone()).unwrap();
    let places = g.iota(Descriptor::new(DType::I32, shape.clone()), 2).unwrap();
    let is_there = if turned { g.equal(index, places).unwrap() } else { g.equal(places, index).unwrap() };
    let scaled = g.scalar(dtype, Scalar::Float(-2.0)).unwrap();
    let scaled = g.mul(x, scaled).unwrap();
    let zeros = g.fill(Descriptor::new(dtype, shape), Scalar::Float(0.0)).unwrap();
    let one = g.select(is_there, scaled, zeros).unwrap();
    let sum = g.reduce_sum(one, &[2], false).unwrap();
    g.output("sum", sum).unwrap();
    (verify(g.finish()).unwrap(), values)
}

#[test]
fn a_one_hot_row_sum_reads_only_the_selected_element() {
    let meter = Meter::unlimited();
    let backend = cpu::open(Some(2)).unwrap();
    for dtype in [DType::F32, DType::F16] {
        for (rows, turned) in [(1, false), (7, true), (300, false)] {
            let (graph, values) = one_hot_sum_graph(dtype, rows, turned);
            let program = compile(&graph, &backend.target()).unwrap();
            let routines = cpu::describe_kernels(&program).unwrap();
            assert!(routines.iter().any(|routine| routine.contains("one-hot sum")), "{routines:?}");
            let expected = interp::evaluate(&graph, &values, &mut []).unwrap();
            let inputs = buffers(&*backend, &values, &meter);
            let outputs = load(&*backend, &graph, &meter).unwrap().dispatch(&inputs, &[]).unwrap();
            let found =
                InterpTensor::from_bytes(outputs[0].descriptor().clone(), &backend.read(&outputs[0]).unwrap()).unwrap();
            let bits = |value: &InterpTensor| -> Vec<u64> {
                let bits = |x: f64| if x.is_nan() { u64::MAX } else { x.to_bits() };
                value.to_f64_numbers().into_iter().map(bits).collect()
            };
            assert_eq!(bits(&found), bits(&expected[0]), "{dtype}, {rows} rows");
        }
    }
}

//! Conformance tests: every device computes what the reference interpreter defines, for every primitive, for random
//! graphs with their gradients, and for a real network. They compare outputs and assigned variables over two
//! dispatches.
//!
//! Tolerance: an element can differ by a number of units (2^-23 for `float32`, 2^-10 for `float16`) of the largest
//! magnitude in its tensor, or of 1 if that is larger. The number is the allowance of the graph's least precise
//! operator (`Op::error_units`). Integers are equal. Every device supports every data type: adapters whose
//! shaders have no 64-bit integers emulate them with words, and the other adapters are tested once with the emulation
//! too. Repeats on one device are equal bit for bit, and so are results for all numbers of threads on the CPU. The
//! tests also run on Mesa's lavapipe and on SwiftShader if they are installed.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests say SKIP and fail by panic")]

#[path = "../benches/lenet.rs"]
mod lenet;
mod support;

use std::sync::Arc;

use saggar_compile::{DisabledOptimizations, Optimization, OptimizationScope, compile};
use saggar_device::{Backend, DeviceBuffer, Meter};
use saggar_gpu::wgsl::ShaderTuning;
use saggar_tensor::grad::gradients;
use saggar_tensor::interp::{InterpElements, InterpTensor, evaluate};
use saggar_tensor::op::ReduceKind;
use saggar_tensor::{DType, Descriptor, Graph, GraphBuilder, NodeId, Shape, VerifiedGraph, nn, verify};
use saggar_testgen::{GraphCase, primitive_cases, random_graph};

/// Random graphs tested on the CPU.
const GRAPHS: u64 = 200;
/// Random graphs tested with each vector set except the widest.
const GRAPHS_PER_NARROWER_VECTOR_SET: u64 = 60;
/// Random graphs tested on each adapter; fewer, because every graph has shaders to compile.
const GRAPHS_ON_ADAPTERS: u64 = 40;
/// Random graphs tested on adapters with a tuning that differs only in emulated 64-bit integers.
const GRAPHS_WITH_EMULATED_INT64: u64 = 10;
/// Units for graphs of many operators on the CPU, whose errors add up and are amplified.
const GRAPH_UNITS: f64 = 2048.0;
/// The same on adapters. Mesa's lavapipe needs 26 for the wide kernels, 7 for the network and 6 for random graphs. For
/// the cases of one operator it needs 2 for products and sums, 1 for elementary functions and 0 for all others, so
/// these use the limits of the CPU.
const GRAPH_UNITS_ON_ADAPTERS: f64 = 64.0;

/// A device under test.
struct DeviceUnderTest {
    backend: Arc<dyn Backend>,
    /// Units for graphs of many operators.
    graph_units: f64,
    /// Random graphs to test.
    graphs: u64,
    /// Seeds of primitive cases to test.
    seeds: u64,
    /// Whether its kernels stage tiles in workgroup memory.
    has_tiles: bool,
}

/// Returns all devices of this machine: the CPU with one and two threads and with every vector set that it has, and
/// every adapter with both variants of its kernels.
fn devices() -> Vec<DeviceUnderTest> {
    let cpu = |threads, vectors, graphs| {
        let options = saggar_cpu::CpuOptions { threads: Some(threads), vectors, ..saggar_cpu::CpuOptions::default() };
        DeviceUnderTest {
            backend: saggar_cpu::open_with(options).unwrap(),
            graph_units: GRAPH_UNITS,
            graphs,
            seeds: 3,
            has_tiles: false,
        }
    };
    let mut devices = vec![cpu(1, None, GRAPHS), cpu(2, None, GRAPHS)];
    // The widest vector set is the default and is tested already.
    let kinds = saggar_cpu::VectorSet::available();
    let narrower = kinds.iter().rev().skip(1).rev();
    devices.extend(narrower.map(|&kind| cpu(2, Some(kind), GRAPHS_PER_NARROWER_VECTOR_SET)));
    for index in 0..support::adapters("; the CPU alone is tested") {
        let variants = [(false, false, true), (true, true, true), (true, true, false)];
        for (workgroup_memory, half_storage, wide_integers) in variants {
            // With few operations per dispatch, plain kernels are split into several dispatches.
            let operations_max = if workgroup_memory { u64::MAX } else { 20_000 };
            let subgroup = saggar_gpu::subgroup_size(index).filter(|_| workgroup_memory);
            let kinds = ShaderTuning { workgroup_memory, half_storage, wide_integers, ..ShaderTuning::UNLIMITED };
            let tuning = ShaderTuning { operations_max, subgroup, ..kinds };
            let backend = saggar_gpu::open_tuned(index, tuning).unwrap();
            devices.push(DeviceUnderTest {
                backend,
                graph_units: GRAPH_UNITS_ON_ADAPTERS,
                graphs: if wide_integers { GRAPHS_ON_ADAPTERS } else { GRAPHS_WITH_EMULATED_INT64 },
                seeds: 1,
                has_tiles: workgroup_memory,
            });
        }
    }
    devices
}

/// Returns the allowance of the least precise operator.
fn tolerance(graph: &Graph) -> f64 {
    graph.nodes.iter().map(|node| node.op.error_units()).fold(0.0, f64::max)
}

fn check_near(what: &str, expected: &InterpTensor, found: &InterpTensor, units: f64) {
    assert_eq!(expected.descriptor(), found.descriptor(), "{what}");
    match (expected.elements(), found.elements()) {
        (InterpElements::Int(a), InterpElements::Int(b)) => assert_eq!(a, b, "{what}"),
        (InterpElements::Float(a), InterpElements::Float(b)) => {
            let half = expected.descriptor().dtype == DType::F16;
            let unit = if half { 2f64.powi(-10) } else { 2f64.powi(-23) };
            let scale = a.iter().filter(|x| x.is_finite()).fold(1.0f64, |scale, x| scale.max(x.abs()));
            for (at, (a, b)) in a.iter().zip(b).enumerate() {
                let near = a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= units * unit * scale;
                assert!(near, "{what}: element {at} is {b}, not {a}; {units} units of {scale} allowed");
            }
        }
        (InterpElements::Int(_), InterpElements::Float(_)) | (InterpElements::Float(_), InterpElements::Int(_)) => {
            panic!("{what}: types")
        }
    }
}

fn buffers(backend: &dyn Backend, values: &[InterpTensor], meter: &Meter) -> Vec<DeviceBuffer> {
    let buffer = |value: &InterpTensor| {
        let buffer = backend.allocate(value.descriptor(), meter).unwrap();
        backend.write(&buffer, &value.to_bytes()).unwrap();
        buffer
    };
    values.iter().map(buffer).collect()
}

fn read(backend: &dyn Backend, buffers: &[DeviceBuffer]) -> Vec<Vec<u8>> {
    buffers.iter().map(|buffer| backend.read(buffer).unwrap()).collect()
}

/// Returns the outputs and variables after each of `steps` dispatches.
fn run(
    backend: &dyn Backend,
    graph: &VerifiedGraph,
    inputs: &[InterpTensor],
    variables: &[InterpTensor],
    steps: usize,
) -> Vec<Vec<Vec<u8>>> {
    let program = Arc::new(compile(graph, &backend.target()).unwrap());
    let meter = Meter::unlimited();
    let executable = backend.load(program, &meter).unwrap();
    let inputs = buffers(backend, inputs, &meter);
    let variables = buffers(backend, variables, &meter);
    let mut results = Vec::new();
    for _ in 0..steps {
        let outputs = executable.dispatch(&inputs, &variables).unwrap();
        let mut result = read(backend, &outputs);
        result.extend(read(backend, &variables));
        results.push(result);
    }
    drop((executable, inputs, variables));
    backend.synchronize().unwrap();
    assert_eq!(meter.bytes(), 0, "all charged bytes are released");
    results
}

fn check(
    device: &DeviceUnderTest,
    name: &str,
    graph: &VerifiedGraph,
    inputs: &[InterpTensor],
    variables: &[InterpTensor],
    units: f64,
) {
    let name = format!("{} on {}", name, device.backend.info().name);
    let first = run(&*device.backend, graph, inputs, variables, 2);
    let again = run(&*device.backend, graph, inputs, variables, 2);
    assert_eq!(first, again, "{name}: a repeat differs");
    let mut state = variables.to_vec();
    for (step, found) in first.iter().enumerate() {
        let mut expected = evaluate(graph, inputs, &mut state).unwrap();
        expected.extend(state.iter().cloned());
        assert_eq!(expected.len(), found.len());
        for (index, (expected, found)) in expected.iter().zip(found).enumerate() {
            let found = InterpTensor::from_bytes(expected.descriptor().clone(), found).unwrap();
            let what = format!("{name}, step {step}, result {index}");
            check_near(&what, expected, &found, units);
        }
    }
}

/// Returns the case with the gradients of the sum of its smooth outputs as additional outputs, or `None` if it has no
/// gradients.
fn with_gradients(case: &GraphCase) -> Option<GraphCase> {
    let mut case = case.clone();
    let float = |g: &GraphBuilder, node: &NodeId| g.descriptor(*node).dtype == DType::F32;
    let g = &mut case.builder;
    let wrt: Vec<NodeId> = case.input_nodes.iter().copied().filter(|node| float(g, node)).collect();
    let mut outputs = case.output_nodes.clone();
    outputs.retain(|node| case.smooth && float(g, node));
    let mut loss: Option<NodeId> = None;
    for output in outputs {
        let axes: Vec<usize> = (0..g.descriptor(output).shape.rank()).collect();
        let sum = g.reduce_sum(output, &axes, false).unwrap();
        loss = Some(loss.map_or(sum, |loss| g.add(loss, sum).unwrap()));
    }
    let derivatives = gradients(g, loss?, &wrt).ok()?;
    for (index, derivative) in derivatives.into_iter().enumerate() {
        g.output(&format!("gradient {index}"), derivative).unwrap();
    }
    Some(case)
}

fn check_case(device: &DeviceUnderTest, case: &GraphCase, units: f64) {
    check(device, &case.name, &case.verified_graph(), &case.inputs, &case.variables, units);
}

#[test]
fn every_primitive_matches_the_interpreter() {
    for device in devices() {
        for seed in 0..device.seeds {
            for case in primitive_cases(seed) {
                check_case(&device, &case, tolerance(case.verified_graph().graph()));
            }
        }
    }
}

#[test]
fn gradients_of_every_primitive_match_the_interpreter() {
    let mut tried = 0;
    for device in devices() {
        for case in primitive_cases(7).iter().filter_map(with_gradients) {
            check_case(&device, &case, device.graph_units);
            tried += 1;
        }
    }
    assert!(tried > 100, "only {tried} cases have gradients");
}

#[test]
fn random_graphs_match_the_interpreter() {
    for device in devices() {
        for seed in 0..device.graphs {
            let case = random_graph(seed);
            check_case(&device, &case, device.graph_units);
            if let Some(case) = with_gradients(&case) {
                check_case(&device, &case, device.graph_units);
            }
        }
    }
}

/// Every optimization of the compiler and of the devices can be left out, each alone and all together.
#[test]
fn results_are_equal_within_the_tolerance_without_each_optimization() {
    let network = lenet::network(3, true);
    let of_programs = |it: &&Optimization| it.scope() == OptimizationScope::Program;
    let all: DisabledOptimizations = Optimization::ALL.iter().copied().collect();
    let each = Optimization::ALL.iter().filter(of_programs).map(|&it| DisabledOptimizations::NONE.with(it));
    for without in each.chain([all]) {
        let names: Vec<&str> = without.iter().map(Optimization::name).collect();
        let named = |case: &GraphCase| GraphCase { name: format!("{} without {names:?}", case.name), ..case.clone() };
        for backend in support::devices() {
            let is_cpu = backend.info().name == "cpu";
            let graph_units = if is_cpu { GRAPH_UNITS } else { GRAPH_UNITS_ON_ADAPTERS };
            let backend = saggar_device::without_optimizations(backend, without);
            assert_eq!(backend.target().without, without);
            let device = DeviceUnderTest { backend, graph_units, graphs: 0, seeds: 0, has_tiles: false };
            if is_cpu {
                for case in primitive_cases(5).iter().map(named) {
                    check_case(&device, &case, tolerance(case.verified_graph().graph()));
                }
            }
            for seed in 0..if is_cpu { 20 } else { 2 } {
                let case = named(&random_graph(seed));
                check_case(&device, &case, graph_units);
                with_gradients(&case).iter().for_each(|case| check_case(&device, case, graph_units));
            }
            if is_cpu {
                check(&device, "lenet", &network.graph, &network.inputs, &network.variables, graph_units);
            }
        }
    }
}

#[test]
fn lenet_training_matches_the_interpreter() {
    let network = lenet::network(3, true);
    for device in devices() {
        // SwiftShader's compiler takes more than 20 GB for the tiles of a convolution's gradient. Production never uses
        // tiles on software adapters.
        if device.has_tiles && device.backend.info().adapter.contains("SwiftShader") {
            println!("SKIP: SwiftShader does not compile tiles of a network");
            continue;
        }
        check(&device, "lenet", &network.graph, &network.inputs, &network.variables, device.graph_units);
    }
}

#[test]
fn results_are_bitwise_equal_for_any_thread_count() {
    let large =
        [lenet::network(20, true), lenet::network(33, false), large_operators(DType::F32), large_operators(DType::F16)];
    let backends: Vec<_> = [1, 2, 3, 5].iter().map(|&threads| saggar_cpu::open(Some(threads)).unwrap()).collect();
    for network in &large {
        let run = |backend: &Arc<dyn Backend>| run(&**backend, &network.graph, &network.inputs, &network.variables, 3);
        let expected = run(&backends[0]);
        for (index, backend) in backends.iter().enumerate().skip(1) {
            assert!(expected == run(backend), "{index} threads more change a result");
        }
    }
}

#[test]
fn large_kernels_match_the_interpreter() {
    // Compared with the data type of its sums, float16 adds only one rounding per stored result.
    for dtype in [DType::F32, DType::F16] {
        let network = large_operators(dtype);
        for device in devices() {
            let units = if dtype == DType::F32 { device.graph_units } else { 16.0 };
            check(&device, &format!("wide {dtype}"), &network.graph, &network.inputs, &network.variables, units);
        }
    }
}

/// Layers of a network in float16 with int64 labels, and the gradients of a loss. In such chains of roundings, some
/// results round to the other neighbour.
#[test]
fn float16_composite_operators_match_the_interpreter() {
    let mut g = GraphBuilder::new();
    let mut inputs = Vec::new();
    let half = [&[6usize, 10][..], &[10, 7], &[7], &[2, 3, 8, 8], &[4, 3, 3, 3], &[4]];
    let [x, weight, bias, images, filter, channels] =
        half.map(|dims| wide_input(&mut g, &mut inputs, DType::F16, dims));
    let labels = g.input("labels", Descriptor::new(DType::I64, Shape::new([6]).unwrap())).unwrap();
    let numbers = [3.0, 0.0, 6.0, 2.0, 2.0, 5.0];
    inputs.push(InterpTensor::from_numbers(DType::I64, Shape::new([6]).unwrap(), &numbers).unwrap());
    let logits = nn::linear(&mut g, x, weight, Some(bias)).unwrap();
    let loss = nn::cross_entropy(&mut g, logits, labels).unwrap();
    let maps = nn::conv2d(&mut g, images, filter, Some(channels), nn::Conv2dOptions::default()).unwrap();
    let pool = nn::Pool2dOptions { window: Some([2, 2]), strides: [2, 2], ..nn::Pool2dOptions::default() };
    let outputs = [
        nn::gelu(&mut g, logits).unwrap(),
        nn::softmax(&mut g, logits, 1).unwrap(),
        nn::layer_normalization(&mut g, x, None, None, &[1], 1e-3).unwrap(),
        nn::relu(&mut g, maps).unwrap(),
        nn::max_pool2d(&mut g, maps, pool).unwrap(),
        nn::average_pool2d(&mut g, maps, pool).unwrap(),
        g.gather(weight, labels, 0).unwrap(),
        loss,
    ];
    let derivatives = gradients(&mut g, loss, &[x, weight, bias]).unwrap();
    for (index, output) in outputs.into_iter().chain(derivatives).enumerate() {
        g.output(&format!("y{index}"), output).unwrap();
    }
    let graph = verify(g.finish()).unwrap();
    for device in devices() {
        check(&device, "float16 composites", &graph, &inputs, &[], 8.0);
    }
}

#[test]
fn large_integer_reductions_match_the_interpreter() {
    for dtype in DType::ALL.into_iter().filter(|dtype| !dtype.is_float()) {
        let mut g = GraphBuilder::new();
        let mut inputs = Vec::new();
        let long = wide_input(&mut g, &mut inputs, dtype, &[2, 5000]);
        let many = wide_input(&mut g, &mut inputs, dtype, &[1100, 20]);
        for (index, (x, axes)) in
            [(long, &[1][..]), (long, &[0, 1]), (many, &[0]), (many, &[1])].into_iter().enumerate()
        {
            for kind in ReduceKind::ALL {
                let folded = g.reduce(kind, x, axes, false).unwrap();
                g.output(&format!("{kind:?} {index}"), folded).unwrap();
            }
        }
        let largest = g.arg_max(long, 1, false).unwrap();
        g.output("largest", largest).unwrap();
        let graph = verify(g.finish()).unwrap();
        for device in devices() {
            check(&device, &format!("wide {dtype}"), &graph, &inputs, &[], 0.0);
        }
    }
}

/// Adds an input with odd numbers from the whole range of an integer type, so that products keep their low bits, or
/// with numbers between -1 and 1 of a float type.
fn wide_input(g: &mut GraphBuilder, inputs: &mut Vec<InterpTensor>, dtype: DType, dims: &[usize]) -> NodeId {
    let descriptor = Descriptor::new(dtype, Shape::new(dims).unwrap());
    let (count, seed) = (descriptor.shape.elements(), inputs.len());
    let elements = if dtype.is_float() {
        InterpElements::Float((0..count).map(|i| ((i * 7919 + seed) % 2003) as f64 / 1001.5 - 1.0).collect())
    } else {
        let mixed = |i: usize| ((i + seed) as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        InterpElements::Int((0..count).map(|i| i128::from(mixed(i) | 1)).collect())
    };
    let node = g.input(&format!("x{seed}"), descriptor.clone()).unwrap();
    inputs.push(InterpTensor::new(descriptor, elements).unwrap());
    node
}

/// Returns operators that are large enough to split every kernel into several tasks and segments.
fn large_operators(dtype: DType) -> lenet::LenetGraph {
    let mut g = GraphBuilder::new();
    let mut inputs = Vec::new();
    let mut input = |g: &mut GraphBuilder, dims: &[usize]| wide_input(g, &mut inputs, dtype, dims);
    let x = input(&mut g, &[300, 210]);
    let y = input(&mut g, &[210, 700]);
    let long = input(&mut g, &[2, 70_000]);
    let many = input(&mut g, &[5000, 30]);
    let thin = input(&mut g, &[20, 210]);
    let product = g.matmul(x, y).unwrap();
    let few_rows = g.matmul(thin, y).unwrap();
    // In float16, the order of the products depends on rounding.
    let searched = if dtype == DType::F32 { product } else { x };
    let softmax = nn::softmax(&mut g, product, 1).unwrap();
    let turned = g.transpose(softmax, &[1, 0]).unwrap();
    let outputs = [
        g.reduce_sum(long, &[1], false).unwrap(),
        g.reduce_sum(long, &[0, 1], false).unwrap(),
        g.reduce_max(many, &[0], false).unwrap(),
        g.reduce_sum(many, &[0], false).unwrap(),
        g.reduce_sum(many, &[1], false).unwrap(),
        g.reduce_sum(product, &[0], false).unwrap(),
        g.arg_max(searched, 1, false).unwrap(),
        g.arg_min(searched, 0, false).unwrap(),
        few_rows,
        turned,
    ];
    for (index, output) in outputs.into_iter().enumerate() {
        g.output(&format!("y{index}"), output).unwrap();
    }
    lenet::LenetGraph { graph: verify(g.finish()).unwrap(), inputs, variables: Vec::new() }
}

/// With a binding limit this small, most tensors of the cases need several bindings.
#[test]
fn tensors_larger_than_one_binding_match_the_interpreter() {
    for index in 0..saggar_gpu::adapters().len() {
        let with = |window_bytes| {
            saggar_gpu::open_tuned(
                index,
                ShaderTuning { workgroup_memory: false, window_bytes, ..ShaderTuning::UNLIMITED },
            )
            .unwrap()
        };
        // SwiftShader has 10 bindings, and lavapipe 32.
        let bindings = |limit: &(String, u64)| limit.0 == "bindings_max" && limit.1 < 32;
        let window_bytes = if with(256).info().limits.iter().any(bindings) { 1024 } else { 256 };
        let backend = with(window_bytes);
        let device =
            DeviceUnderTest { backend, graph_units: GRAPH_UNITS_ON_ADAPTERS, graphs: 0, seeds: 1, has_tiles: false };
        let large = |case: &&GraphCase| case.inputs.iter().any(|input| input.descriptor().bytes() > window_bytes);
        let mut tried = 0;
        for case in primitive_cases(5).iter().filter(large) {
            check_case(&device, case, tolerance(case.verified_graph().graph()));
            tried += 1;
        }
        assert!(tried > 20, "only {tried} cases have a tensor of more than {window_bytes} bytes");
    }
}

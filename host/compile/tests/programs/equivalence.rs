//! Compiled programs compute the same results as the interpreter.

use saggar_tensor::grad::gradients;
use saggar_tensor::interp::InterpTensor;
use saggar_tensor::op::{Conv2d, Pool2d, PoolKind};
use saggar_tensor::{DType, Descriptor, GraphBuilder, NodeId, Shape, VerifiedGraph, verify};
use saggar_testgen::{GraphCase, high_fan_in_graph, primitive_cases, random_graph};

use saggar_compile::limits::{EXPR_INSTRUCTIONS_MAX, FUSED_MATMUL_VALUES_MAX};
use saggar_compile::program::{KernelBody, ValueId};
use saggar_compile::{CompileError, CompileTarget, DisabledOptimizations, Program, compile};
use saggar_testgen::reference;

pub(crate) const WORD_TARGET: CompileTarget = CompileTarget {
    words: true,
    half_storage: true,
    channels_last: false,
    in_place: false,
    alignment_bytes: 256,
    slab_bytes_max: 128 << 20,
    binding_bytes_max: 128 << 20,
    kernel_values_max: 7,
    chain_values_max: FUSED_MATMUL_VALUES_MAX,
    chain_rows_min: 0,
    without: DisabledOptimizations::NONE,
};

pub(crate) fn check_matches_interpreter(
    name: &str,
    graph: &VerifiedGraph,
    inputs: &[InterpTensor],
    variables: &[InterpTensor],
    target: &CompileTarget,
) -> Program {
    let compared = reference::compare_with_interpreter(graph, inputs, variables, target);
    let program = compared.unwrap_or_else(|error| panic!("{name}: {error}"));
    let program = program.unwrap_or_else(|difference| panic!("{name}: {difference}"));
    assert_eq!(compile(graph, target).unwrap(), program, "{name}: compiling twice");
    for kernel in &program.kernels {
        assert!(kernel.body.value_count() <= kernel.body.values_max(target), "{name}: {kernel:?}");
    }
    program
}

fn check_case(case: &GraphCase) {
    for target in [CompileTarget::cpu(), WORD_TARGET] {
        check_matches_interpreter(&case.name, &case.verified_graph(), &case.inputs, &case.variables, &target);
    }
}

#[test]
fn every_primitive_matches_the_interpreter() {
    for seed in 0..3 {
        primitive_cases(seed).iter().for_each(check_case);
    }
}

#[test]
fn random_graphs_match_the_interpreter() {
    for seed in 0..300 {
        check_case(&random_graph(seed));
    }
}

/// Compiles random graphs for the compiler's narrowest targets, as many as `GRAPHS` says: `make fuzz-graphs` tries
/// 100,000.
#[test]
fn random_graphs_compile_for_a_gpu_and_match_the_interpreter() {
    let graphs: u64 = std::env::var("GRAPHS").map_or(2000, |graphs| graphs.parse().expect("GRAPHS is a number"));
    let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get() as u64);
    let campaign = |first: u64| {
        for seed in (first..graphs).step_by(threads as usize) {
            let case = if seed % 4 == 0 { random_graph(1_000_000 + seed) } else { high_fan_in_graph(seed) };
            let few = CompileTarget { kernel_values_max: 5, ..WORD_TARGET };
            let target = [WORD_TARGET, CompileTarget::gpu(), few, CompileTarget { chain_values_max: 0, ..few }]
                [seed as usize / 4 % 4];
            let compared =
                reference::compare_with_interpreter(&case.verified_graph(), &case.inputs, &case.variables, &target);
            let compared = compared.unwrap_or_else(|error| panic!("{}: {error}", case.name));
            compared.unwrap_or_else(|difference| panic!("{}: {difference}", case.name));
        }
    };
    std::thread::scope(|scope| (0..threads).for_each(|first| drop(scope.spawn(move || campaign(first)))));
    println!("{graphs} graphs");
}

/// Operands that are materialized after other readers of the same inputs have been fused.
#[test]
fn concatenations_used_twice_fit_into_kernels() {
    for count in [9, 12, 33] {
        let mut builder = GraphBuilder::new();
        let descriptor = Descriptor::new(DType::F32, Shape::new([2, 3]).unwrap());
        let parts: Vec<NodeId> =
            (0..count).map(|at| builder.input(&format!("x{at}"), descriptor.clone()).unwrap()).collect();
        let c = builder.concat(&parts, 0).unwrap();
        let a = builder.min(c, c).unwrap();
        let b = builder.min(c, a).unwrap();
        let y = builder.sub(b, a).unwrap();
        builder.output("y", y).unwrap();
        let values = (0..count).map(|at| {
            let numbers: Vec<f64> = (0..6).map(|element| f64::from(at * 6 + element)).collect();
            InterpTensor::from_numbers(DType::F32, descriptor.shape.clone(), &numbers).unwrap()
        });
        let (graph, inputs) = (verify(builder.finish()).unwrap(), values.collect::<Vec<_>>());
        for target in [
            CompileTarget::gpu(),
            CompileTarget::cpu(),
            WORD_TARGET,
            CompileTarget { kernel_values_max: 5, ..WORD_TARGET },
        ] {
            check_matches_interpreter("a concatenation used twice", &graph, &inputs, &[], &target);
        }
    }
}

#[test]
fn compiled_gradients_match_the_interpreter() {
    let mut tried = 0;
    let differentiable = (0..400).map(random_graph).chain(primitive_cases(1)).filter(|case| case.smooth);
    for mut case in differentiable {
        let mut sums = Vec::new();
        for node in case.output_nodes.clone() {
            let Descriptor { dtype, shape } = case.builder.descriptor(node).clone();
            if dtype == DType::F32 {
                let axes: Vec<usize> = (0..shape.rank()).collect();
                sums.push(case.builder.reduce_sum(node, &axes, false).unwrap());
            }
        }
        let wrt: Vec<NodeId> = case.input_nodes.clone();
        let wrt: Vec<NodeId> =
            wrt.into_iter().filter(|node| case.builder.descriptor(*node).dtype == DType::F32).collect();
        let Some(loss) = sums.into_iter().reduce(|sum, more| case.builder.add(sum, more).unwrap()) else { continue };
        let gradients = gradients(&mut case.builder, loss, &wrt).unwrap();
        for (at, gradient) in gradients.into_iter().enumerate() {
            case.builder.output(&format!("gradient {at}"), gradient).unwrap();
        }
        check_case(&case);
        tried += 1;
    }
    assert!(tried > 100, "{tried} graphs were differentiable");
}

/// Graphs with crossed assignments: each variable's next value depends on the other variables' old values.
#[test]
fn assignments_read_the_old_values_of_variables() {
    let mut builder = GraphBuilder::new();
    let descriptor = Descriptor::new(DType::F32, Shape::new([2, 3]).unwrap());
    let [a, b, c] = ["a", "b", "c"].map(|name| builder.variable(name, descriptor.clone()).unwrap());
    // A swap, a product that reads the variable it replaces, and an output of the old and the new value.
    builder.assign_to(a, b).unwrap();
    builder.assign_to(b, a).unwrap();
    let turned = builder.transpose(c, &[1, 0]).unwrap();
    let square = builder.matmul(turned, c).unwrap();
    let next = builder.matmul(c, square).unwrap();
    builder.assign_to(c, next).unwrap();
    let both = builder.sub(next, c).unwrap();
    for (name, node) in [("old", c), ("new", next), ("again", next), ("both", both)] {
        builder.output(name, node).unwrap();
    }
    let variables: Vec<InterpTensor> = [1.0, 2.0, 0.5]
        .map(|scale| {
            let numbers: Vec<f64> = (0..6).map(|at| f64::from(at) * scale - 1.0).collect();
            InterpTensor::from_numbers(DType::F32, descriptor.shape.clone(), &numbers).unwrap()
        })
        .to_vec();
    let graph = verify(builder.finish()).unwrap();
    for target in [CompileTarget::cpu(), WORD_TARGET, CompileTarget { kernel_values_max: 5, ..WORD_TARGET }] {
        let program = check_matches_interpreter("crossing assignments", &graph, &[], &variables, &target);
        assert_eq!(program.written_variables, [0, 1, 2]);
    }
}

/// In-place writes happen if the target allows them, except over a value that is read again, read in another order, or
/// read by a later kernel.
#[test]
fn elementwise_kernels_write_over_an_operand_at_its_last_read() {
    let slabs = |target: &CompileTarget, read_again: bool, turned: bool| {
        let mut builder = GraphBuilder::new();
        let x = builder.input("x", Descriptor::new(DType::F32, Shape::new([64, 64]).unwrap())).unwrap();
        let product = builder.matmul(x, x).unwrap();
        let largest = builder.reduce_max(product, &[1], true).unwrap();
        let other = if turned { builder.transpose(product, &[1, 0]).unwrap() } else { product };
        let centred = builder.sub(other, largest).unwrap();
        let mut result = builder.matmul(centred, x).unwrap();
        if read_again {
            let again = builder.matmul(x, product).unwrap();
            result = builder.add(result, again).unwrap();
        }
        builder.output("y", result).unwrap();
        let numbers: Vec<f64> = (0..64 * 64).map(|at| f64::from(at % 31) / 31.0 - 0.5).collect();
        let x = InterpTensor::from_numbers(DType::F32, Shape::new([64, 64]).unwrap(), &numbers).unwrap();
        let program = check_matches_interpreter("centred", &verify(builder.finish()).unwrap(), &[x], &[], target);
        program.slabs.iter().map(|slab| slab.bytes).sum::<usize>()
    };
    let [over, apart] = [true, false].map(|in_place| CompileTarget { in_place, ..CompileTarget::cpu() });
    let matrix = 64 * 64 * 4;
    assert_eq!([slabs(&over, false, false), slabs(&apart, false, false)], [matrix + 256, 2 * matrix + 256]);
    assert_eq!(slabs(&over, true, false), slabs(&apart, true, false), "read again");
    assert_eq!(slabs(&over, false, true), slabs(&apart, false, true), "read in another order");
}

/// The two values have equal padded sizes but different element counts, so the result gets a separate location.
#[test]
fn a_result_smaller_than_its_operand_is_not_written_in_place() {
    let mut builder = GraphBuilder::new();
    let float = |dims: &[usize]| Descriptor::new(DType::F32, Shape::new(dims).unwrap());
    let dims = [vec![7, 9], vec![5, 3]];
    let values = dims.each_ref().map(|dims| {
        let shape = Shape::new(&**dims).unwrap();
        let numbers: Vec<f64> = (0..shape.elements()).map(|at| (at % 5) as f64 / 8.0).collect();
        InterpTensor::from_numbers(DType::F32, shape, &numbers).unwrap()
    });
    let [a, w] = ["a", "w"].map(|name| builder.input(name, float(&dims[usize::from(name == "w")])).unwrap());
    let sums = builder.reduce_sum(a, &[1], false).unwrap();
    let first = builder.slice(sums, &[0], &[5], &[1]).unwrap();
    let powers = builder.exp(first).unwrap();
    let row = builder.reshape(powers, &[1, 5]).unwrap();
    let result = builder.matmul(row, w).unwrap();
    builder.output("y", result).unwrap();
    check_matches_interpreter(
        "first elements",
        &verify(builder.finish()).unwrap(),
        &values,
        &[],
        &CompileTarget::cpu(),
    );
}

/// If windows are disjoint tiles, the gradient of max pooling overwrites the input that it selects from.
#[test]
fn max_pool_gradients_of_tiling_windows_are_written_over_the_input() {
    let in_place = |target: &CompileTarget, pool: Pool2d, read_again: bool| {
        let mut builder = GraphBuilder::new();
        let float = |dims: &[usize]| Descriptor::new(DType::F32, Shape::new(dims).unwrap());
        let values = [vec![2, 1, 8, 12], vec![20, 1, 1, 1]].map(|dims| {
            let shape = Shape::new(&*dims).unwrap();
            let numbers: Vec<f64> = (0..shape.elements()).map(|at| (at * 7 % 11) as f64 - 5.0).collect();
            InterpTensor::from_numbers(DType::F32, shape, &numbers).unwrap()
        });
        let [x, filter] = ["x", "filter"].map(|name| {
            let value = &values[usize::from(name == "filter")];
            builder.input(name, float(value.descriptor().shape.dims())).unwrap()
        });
        let conv = Conv2d { padding: [0; 4], strides: [1, 1], dilations: [1, 1], groups: 1 };
        let y = builder.conv2d(x, filter, conv).unwrap();
        let largest = builder.pool2d(y, PoolKind::Max, pool).unwrap();
        let mut loss = builder.reduce_sum(largest, &[0, 1, 2, 3], false).unwrap();
        if read_again {
            let squares = builder.mul(y, y).unwrap();
            let sum = builder.reduce_sum(squares, &[0, 1, 2, 3], false).unwrap();
            loss = builder.add(loss, sum).unwrap();
        }
        let gradient = gradients(&mut builder, loss, &[filter]).unwrap();
        builder.output("gradient", gradient[0]).unwrap();
        let program = check_matches_interpreter("tiles", &verify(builder.finish()).unwrap(), &values, &[], target);
        let place = |value: &ValueId| program.values[value.index()].place;
        let found = program.kernels.iter().find_map(|kernel| {
            let KernelBody::MaxPool2dGrad { input, output, .. } = &kernel.body else { return None };
            Some(place(input) == place(output))
        });
        found.expect("the gradient is a kernel")
    };
    let pool = |window: [usize; 2], strides: [usize; 2]| Pool2d { padding: [0; 4], window, strides, dilations: [1, 1] };
    let cpu = CompileTarget::cpu();
    assert!(in_place(&cpu, pool([2, 3], [2, 3]), false), "tiles");
    assert!(!in_place(&cpu, pool([3, 3], [1, 3]), false), "windows overlap");
    assert!(!in_place(&cpu, pool([2, 2], [2, 3]), false), "elements between windows");
    assert!(!in_place(&cpu, pool([3, 2], [3, 2]), false), "elements after the last window");
    assert!(!in_place(&cpu, pool([2, 3], [2, 3]), true), "read again");
    assert!(!in_place(&CompileTarget { in_place: false, ..cpu }, pool([2, 3], [2, 3]), false), "a target that cannot");
}

#[test]
fn a_value_larger_than_the_slab_limit_is_named_in_the_error() {
    let mut builder = GraphBuilder::new();
    let x = builder.input("x", Descriptor::new(DType::I64, Shape::new([4]).unwrap())).unwrap();
    let y = builder.add(x, x).unwrap();
    builder.output("y", y).unwrap();
    let graph = verify(builder.finish()).unwrap();
    let small = CompileTarget { slab_bytes_max: 16, alignment_bytes: 16, ..CompileTarget::cpu() };
    let too_large = CompileError::ValueTooLarge { op: "add", label: "node 1".into(), value_bytes: 32, limit_bytes: 16 };
    assert_eq!(compile(&graph, &small).unwrap_err(), too_large);
}

/// Long graphs of the shapes on which passes could be slow or recurse deeply.
#[test]
fn long_graphs_compile() {
    type NodeChainGenerator = fn(&mut GraphBuilder, NodeId, usize) -> NodeId;
    let grow: [(usize, NodeChainGenerator); 4] = [
        (40_000, |b, x, _| b.tanh(x).unwrap()),
        (8_000, |b, x, _| {
            let y = b.abs(x).unwrap();
            b.add(x, y).unwrap()
        }),
        (40_000, |b, x, at| b.transpose(x, if at % 2 == 0 { &[1, 0] } else { &[0, 1] }).unwrap()),
        (5_000, |b, x, _| b.matmul(x, x).unwrap()),
    ];
    for (count, grow) in grow {
        let mut builder = GraphBuilder::new();
        let mut x = builder.input("x", Descriptor::new(DType::F32, Shape::new([3, 3]).unwrap())).unwrap();
        for at in 0..count {
            x = grow(&mut builder, x, at);
        }
        builder.output("y", x).unwrap();
        let graph = verify(builder.finish()).unwrap();
        let program = compile(&graph, &WORD_TARGET).unwrap();
        for kernel in &program.kernels {
            if let KernelBody::Map { expr, .. } = &kernel.body {
                assert!(expr.instructions.len() <= EXPR_INSTRUCTIONS_MAX, "{} instructions", expr.instructions.len());
            }
        }
        let scratch: usize = program.slabs.iter().map(|slab| slab.bytes).sum();
        assert!(scratch <= 4 * WORD_TARGET.alignment_bytes, "a chain needs two tensors at a time, not {scratch} bytes");
    }
}

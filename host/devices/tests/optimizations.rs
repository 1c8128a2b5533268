//! Every optimization of the compiler and the devices has a switch that changes what runs: for each one, a graph whose
//! program, routines or shaders differ without it. `conformance.rs` compares the results.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests say SKIP and fail by panic")]

#[path = "../benches/lenet.rs"]
#[allow(dead_code, reason = "only its graphs are compiled here")]
mod lenet;
mod support;

use std::sync::Arc;

use saggar_compile::{CompileTarget, DisabledOptimizations, Optimization, OptimizationScope, compile};
use saggar_device::{Meter, TuningRecords, without_optimizations};
use saggar_gpu::wgsl::{self, CooperativeMatrix, ShaderTuning};
use saggar_tensor::op::{Conv2d, Scalar};
use saggar_tensor::{DType, Descriptor, GraphBuilder, NodeId, Shape, VerifiedGraph, verify};
use saggar_testgen::{ATTENTION_SIZES, attention_case};

/// The tuning of an adapter with every feature.
const TUNING: ShaderTuning = ShaderTuning {
    cooperative_matrix: Some(CooperativeMatrix { side: 16, subgroup: 32, shared_bytes: 48 << 10 }),
    subgroup: Some(32),
    ..ShaderTuning::UNLIMITED
};

fn f32_tensor(dims: &[usize]) -> Descriptor {
    Descriptor::new(DType::F32, Shape::new(dims).unwrap())
}

/// Returns a graph whose output is what `build` returns.
fn graph(build: impl FnOnce(&mut GraphBuilder) -> NodeId) -> VerifiedGraph {
    let mut builder = GraphBuilder::new();
    let y = build(&mut builder);
    builder.output("y", y).unwrap();
    verify(builder.finish()).unwrap()
}

/// Returns the product of `[m, k]` and the variable `[k, n]`.
fn product(dtype: DType, [m, n, k]: [usize; 3]) -> VerifiedGraph {
    graph(|g| {
        let x = g.input("x", Descriptor::new(dtype, Shape::new([m, k]).unwrap())).unwrap();
        let w = g.variable("w", Descriptor::new(dtype, Shape::new([k, n]).unwrap())).unwrap();
        g.matmul(x, w).unwrap()
    })
}

/// Returns a convolution of `[1, channels, side, side]` by 3 by 3 taps.
fn convolution(channels: usize, side: usize) -> VerifiedGraph {
    graph(|g| {
        let x = g.input("x", f32_tensor(&[1, channels, side, side])).unwrap();
        let w = g.variable("w", f32_tensor(&[channels, channels, 3, 3])).unwrap();
        g.conv2d(x, w, Conv2d { padding: [0; 4], strides: [1; 2], dilations: [1; 2], groups: 1 }).unwrap()
    })
}

/// Returns the sum of the element of each row that an index selects.
fn one_hot_sum() -> VerifiedGraph {
    graph(|g| {
        let shape = Shape::new([4, 700]).unwrap();
        let x = g.input("x", f32_tensor(&[4, 700])).unwrap();
        let index = g.input("index", Descriptor::new(DType::I32, Shape::new([4, 1]).unwrap())).unwrap();
        let index = g.broadcast_to(index, shape.clone()).unwrap();
        let places = g.iota(Descriptor::new(DType::I32, shape), 1).unwrap();
        let is_there = g.equal(places, index).unwrap();
        let zeros = g.fill(f32_tensor(&[4, 700]), Scalar::Float(0.0)).unwrap();
        let one = g.select(is_there, x, zeros).unwrap();
        g.reduce_sum(one, &[1], false).unwrap()
    })
}

/// Describes what would run: the kernels of the program, and their routines on the processor or their shaders.
fn describe(graph: &VerifiedGraph, device: ProcessorKind, without: DisabledOptimizations) -> String {
    let target = match device {
        ProcessorKind::Cpu => CompileTarget::cpu(),
        ProcessorKind::Gpu => CompileTarget { chain_rows_min: 0, ..CompileTarget::gpu() },
    };
    let program = compile(graph, &target.without(without)).unwrap();
    // In-place results differ by the places of values alone.
    let kernels = format!("{:?}{:?}{:?}", program.kernels, program.values, program.slabs);
    match device {
        ProcessorKind::Cpu => format!("{kernels}{:?}", saggar_cpu::describe_kernels(&program).unwrap()),
        ProcessorKind::Gpu => {
            let tuning = TUNING.without(program.without);
            let shaders = program.kernels.iter().map(|kernel| wgsl::shader_passes(&program, kernel, tuning).unwrap());
            format!("{kernels}{:?}", shaders.collect::<Vec<_>>())
        }
    }
}

#[derive(Clone, Copy)]
enum ProcessorKind {
    Cpu,
    Gpu,
}

/// Returns a graph and a device for which an optimization of programs matters, and what else must be left out to see it;
/// `None` for autotuning, whose choice is made when a program is loaded.
fn example(optimization: Optimization) -> Option<(VerifiedGraph, ProcessorKind, DisabledOptimizations)> {
    let none = DisabledOptimizations::NONE;
    let rows = |g: &mut GraphBuilder| {
        let x = g.input("x", f32_tensor(&[64, 4096])).unwrap();
        g.reduce_sum(x, &[1], false).unwrap()
    };
    let (graph, device) = match optimization {
        Optimization::ReluMaxPool => (lenet::network(3, false).graph, ProcessorKind::Cpu),
        Optimization::Fusion | Optimization::ReluSlope | Optimization::ChannelsLast | Optimization::InPlace => {
            (lenet::network(3, true).graph, ProcessorKind::Cpu)
        }
        Optimization::FusedMatMul => (attention_case(ATTENTION_SIZES, 1).verified_graph(), ProcessorKind::Gpu),
        Optimization::Winograd => (convolution(64, 32), ProcessorKind::Cpu),
        Optimization::DirectConvolution => (convolution(2, 16), ProcessorKind::Cpu),
        Optimization::Prepack => (product(DType::F32, [64, 64, 64]), ProcessorKind::Cpu),
        Optimization::OneHotSum => (one_hot_sum(), ProcessorKind::Cpu),
        Optimization::Tiles => (product(DType::F32, [256, 256, 256]), ProcessorKind::Gpu),
        Optimization::SplitK => (product(DType::F32, [64, 64, 1 << 16]), ProcessorKind::Gpu),
        Optimization::Subgroups => (graph(rows), ProcessorKind::Gpu),
        Optimization::CooperativeMatrices => (product(DType::F16, [256, 256, 64]), ProcessorKind::Gpu),
        Optimization::Autotune
        | Optimization::ShaderCache
        | Optimization::ComponentCache
        | Optimization::DatasetResidency
        | Optimization::ProgramCache
        | Optimization::SharedInstances
        | Optimization::Batching
        | Optimization::ResponseCache => return None,
    };
    // Images with their channels last are never convolved directly.
    let is_direct = optimization == Optimization::DirectConvolution;
    Some((graph, device, if is_direct { none.with(Optimization::ChannelsLast) } else { none }))
}

#[test]
fn each_switch_of_programs_changes_what_runs_and_no_other_switch_does() {
    let network = lenet::network(3, true).graph;
    for &optimization in Optimization::ALL {
        let Some((graph, device, left_out)) = example(optimization) else {
            let is_elsewhere = optimization.scope() != OptimizationScope::Program;
            assert!(is_elsewhere || optimization == Optimization::Autotune, "no example of {optimization}");
            let without = DisabledOptimizations::NONE.with(optimization);
            let on = describe(&network, ProcessorKind::Cpu, DisabledOptimizations::NONE);
            assert!(on == describe(&network, ProcessorKind::Cpu, without), "{optimization}");
            continue;
        };
        let (on, off) = (describe(&graph, device, left_out), describe(&graph, device, left_out.with(optimization)));
        assert!(on != off, "the switch of {optimization} changes nothing");
    }
}

/// Returns how many kernels a training step has without these optimizations.
fn kernel_count(without: DisabledOptimizations) -> usize {
    let network = lenet::network(3, true);
    compile(&network.graph, &CompileTarget::cpu().without(without)).unwrap().kernels.len()
}

#[test]
fn without_fusion_every_elementwise_operator_has_a_kernel() {
    let fused = kernel_count(DisabledOptimizations::NONE);
    assert!(kernel_count(DisabledOptimizations::NONE.with(Optimization::Fusion)) > 2 * fused);
}

#[test]
fn without_autotuning_no_candidate_is_tried_or_read_from_the_file() {
    let graph = product(DType::F32, [160, 160, 160]);
    for index in 0..support::adapters("") {
        let directory = tempfile::tempdir().unwrap();
        let options = saggar_gpu::GpuOptions {
            tuning: Some(ShaderTuning::UNLIMITED),
            cache_dir: Some(directory.path()),
            autotune_operations_min: Some(1 << 20),
            ..saggar_gpu::GpuOptions::default()
        };
        let device = saggar_gpu::open_with(index, options).unwrap();
        if !device.info().exact_seconds {
            println!("SKIP: adapter {index} has no timestamps");
            continue;
        }
        let reduced =
            without_optimizations(Arc::clone(&device), DisabledOptimizations::NONE.with(Optimization::Autotune));
        let program = Arc::new(compile(&graph, &reduced.target()).unwrap());
        reduced.load(program, &Meter::unlimited()).unwrap();
        assert_eq!(device.tuning_records(), TuningRecords::new());
        let program = Arc::new(compile(&graph, &device.target()).unwrap());
        device.load(program, &Meter::unlimited()).unwrap();
        assert_eq!(device.tuning_records().len(), 1);
    }
}

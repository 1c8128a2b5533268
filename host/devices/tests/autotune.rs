//! Tests of autotuning: candidates are benchmarked once, the choice is shared with other processes through a file, and
//! a choice that the caller loads takes precedence.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests say SKIP and fail by panic")]

mod support;

use std::path::Path;
use std::sync::Arc;

use saggar_compile::{Program, compile};
use saggar_device::{Backend, Meter, TuningRecords};
use saggar_gpu::wgsl::{self, ShaderCandidate, ShaderTuning};
use saggar_tensor::interp::{InterpTensor, evaluate};
use saggar_tensor::{DType, Descriptor, GraphBuilder, Shape, VerifiedGraph, verify};

const SIDE: usize = 160;
/// Operations of the product below.
const OPERATIONS: u64 = 2 * (SIDE * SIDE * SIDE) as u64;

fn product() -> (VerifiedGraph, [InterpTensor; 2]) {
    let shape = Shape::new([SIDE, SIDE]).unwrap();
    let mut g = GraphBuilder::new();
    let [a, b] = ["a", "b"].map(|name| g.input(name, Descriptor::new(DType::F32, shape.clone())).unwrap());
    let product = g.matmul(a, b).unwrap();
    g.output("product", product).unwrap();
    // Whole numbers: sums are exact in every order.
    let values = [3, 5].map(|step| {
        let numbers: Vec<f64> = (0..shape.elements()).map(|at| (at * step % 7) as f64 - 3.0).collect();
        InterpTensor::from_numbers(DType::F32, shape.clone(), &numbers).unwrap()
    });
    (verify(g.finish()).unwrap(), values)
}

/// Opens an adapter that autotunes kernels of at least `tried_operations_min` operations, or returns `None` if it has
/// no timestamps.
fn open_with_autotuning(index: usize, cache_dir: &Path, tried_operations_min: Option<u64>) -> Option<Arc<dyn Backend>> {
    let tuning = Some(ShaderTuning::UNLIMITED);
    let options = saggar_gpu::GpuOptions {
        tuning,
        cache_dir: Some(cache_dir),
        autotune_operations_min: tried_operations_min,
        ..saggar_gpu::GpuOptions::default()
    };
    let device = saggar_gpu::open_with(index, options).unwrap();
    if !device.info().exact_seconds {
        println!("SKIP: adapter {index} has no timestamps");
        return None;
    }
    Some(device)
}

/// Returns the product's bytes, and the executable's debug text.
fn run(device: &dyn Backend, program: &Arc<Program>, values: &[InterpTensor]) -> (Vec<u8>, String) {
    let meter = Meter::unlimited();
    let executable = device.load(Arc::clone(program), &meter).unwrap();
    let buffer = |value: &InterpTensor| {
        let buffer = device.allocate(value.descriptor(), &meter).unwrap();
        device.write(&buffer, &value.to_bytes()).unwrap();
        buffer
    };
    let inputs: Vec<_> = values.iter().map(buffer).collect();
    let outputs = executable.dispatch(&inputs, &[]).unwrap();
    (device.read(&outputs[0]).unwrap(), format!("{executable:?}"))
}

fn candidates_of(program: &Program) -> Vec<ShaderCandidate> {
    wgsl::autotune_candidates(program, &program.kernels[0], ShaderTuning::UNLIMITED).unwrap()
}

#[test]
fn autotuning_runs_once_and_later_devices_reuse_the_stored_choice() {
    let (graph, values) = product();
    let expected = evaluate(&graph, &values, &mut []).unwrap()[0].to_bytes();
    for index in 0..support::adapters("") {
        let directory = tempfile::tempdir().unwrap();
        let Some(device) = open_with_autotuning(index, directory.path(), Some(OPERATIONS)) else { continue };
        let program = Arc::new(compile(&graph, &device.target()).unwrap());
        assert_eq!(device.tuning_records(), TuningRecords::new(), "nothing was loaded");
        assert_eq!(run(&*device, &program, &values).0, expected);
        let found = device.tuning_records();
        let identity = program.kernel_identity(&program.kernels[0]);
        assert_eq!(found.keys().collect::<Vec<_>>(), [&identity]);
        assert!(candidates_of(&program).iter().any(|way| way.name == found[&identity]), "{found:?}");

        // Another process reads the choice from the file and benchmarks nothing.
        let other = open_with_autotuning(index, directory.path(), None).unwrap();
        assert_eq!(other.tuning_records(), found);
        assert_eq!(run(&*other, &program, &values).0, expected);
    }
}

#[test]
fn small_kernels_are_not_autotuned() {
    let (graph, values) = product();
    for index in 0..support::adapters("") {
        let directory = tempfile::tempdir().unwrap();
        for least in [None, Some(OPERATIONS + 1)] {
            let Some(device) = open_with_autotuning(index, directory.path(), least) else { continue };
            let program = Arc::new(compile(&graph, &device.target()).unwrap());
            run(&*device, &program, &values);
            assert_eq!(device.tuning_records(), TuningRecords::new());
        }
    }
}

#[test]
fn a_loaded_tuning_choice_overrides_autotuning() {
    let (graph, values) = product();
    let expected = evaluate(&graph, &values, &mut []).unwrap()[0].to_bytes();
    for index in 0..support::adapters("") {
        // The loaded choice differs from the one in the file.
        let directory = tempfile::tempdir().unwrap();
        let Some(device) = open_with_autotuning(index, directory.path(), Some(OPERATIONS)) else { continue };
        let program = Arc::new(compile(&graph, &device.target()).unwrap());
        let identity = program.kernel_identity(&program.kernels[0]);
        for way in candidates_of(&program) {
            device.load_tuning(&TuningRecords::from([(identity.clone(), way.name.clone())]));
            let (bytes, loaded) = run(&*device, &program, &values);
            assert_eq!(bytes, expected, "{way:?}");
            let passes = wgsl::shader_passes_of_candidate(
                &program,
                &program.kernels[0],
                ShaderTuning::UNLIMITED,
                Some(&way.name),
            )
            .unwrap();
            let groups = format!("workgroups: {:?}", passes[0].workgroups);
            assert!(loaded.contains(&groups), "{way:?}: no {groups} in {loaded}");
        }
        // An unknown candidate name is ignored.
        device.load_tuning(&TuningRecords::from([(identity.clone(), "by hand".to_owned())]));
        assert_eq!(run(&*device, &program, &values).0, expected);
    }
}

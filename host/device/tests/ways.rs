//! Kernels that may be computed in several ways: which one is fastest is tried out once, kept for other processes, and given
//! up for one that a caller keeps.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests say SKIP and fail by panic")]

mod support;

use std::path::Path;
use std::sync::Arc;

use saggar_compile::wgsl::{self, Tuning, Way};
use saggar_compile::{Program, compile};
use saggar_device::{Backend, Meter, Ways, gpu};
use saggar_tensor::interp::{Value, evaluate};
use saggar_tensor::{DType, Descriptor, GraphBuilder, Shape, VerifiedGraph, verify};

const SIDE: usize = 160;
/// Operations of the product below.
const OPERATIONS: u64 = 2 * (SIDE * SIDE * SIDE) as u64;

fn product() -> (VerifiedGraph, [Value; 2]) {
    let shape = Shape::new([SIDE, SIDE]).unwrap();
    let mut g = GraphBuilder::new();
    let [a, b] = ["a", "b"].map(|name| g.input(name, Descriptor::new(DType::F32, shape.clone())).unwrap());
    let product = g.matmul(a, b).unwrap();
    g.output("product", product).unwrap();
    // Whole numbers, so that sums are exact in every order.
    let values = [3, 5].map(|step| {
        let numbers: Vec<f64> = (0..shape.elements()).map(|at| (at * step % 7) as f64 - 3.0).collect();
        Value::from_numbers(DType::F32, shape.clone(), &numbers).unwrap()
    });
    (verify(g.finish()).unwrap(), values)
}

/// An adapter whose tiles are tried out for kernels of so many operations; none where it has no timestamps.
fn open(index: usize, kept: &Path, tried_operations_min: Option<u64>) -> Option<Arc<dyn Backend>> {
    let tuning = Some(Tuning::UNLIMITED);
    let options = gpu::Options { tuning, kept: Some(kept), tried_operations_min, ..gpu::Options::default() };
    let device = gpu::open_with(index, options).unwrap();
    if !device.info().exact_seconds {
        println!("SKIP: adapter {index} has no timestamps");
        return None;
    }
    Some(device)
}

/// The product's bytes, and how it was loaded, for people.
fn run(device: &dyn Backend, program: &Arc<Program>, values: &[Value]) -> (Vec<u8>, String) {
    let meter = Meter::unlimited();
    let executable = device.load(Arc::clone(program), &meter).unwrap();
    let buffer = |value: &Value| {
        let buffer = device.allocate(value.descriptor(), &meter).unwrap();
        device.write(&buffer, &value.to_bytes()).unwrap();
        buffer
    };
    let inputs: Vec<_> = values.iter().map(buffer).collect();
    let outputs = executable.dispatch(&inputs, &[]).unwrap();
    (device.read(&outputs[0]).unwrap(), format!("{executable:?}"))
}

fn ways_of(program: &Program) -> Vec<Way> {
    wgsl::ways(program, &program.kernels[0], Tuning::UNLIMITED).unwrap()
}

#[test]
fn the_fastest_way_is_found_once_and_kept() {
    let (graph, values) = product();
    let expected = evaluate(&graph, &values, &mut []).unwrap()[0].to_bytes();
    for index in 0..support::adapters("") {
        let directory = tempfile::tempdir().unwrap();
        let Some(device) = open(index, directory.path(), Some(OPERATIONS)) else { continue };
        let program = Arc::new(compile(&graph, &device.target()).unwrap());
        assert_eq!(device.ways(), Ways::new(), "nothing was loaded");
        assert_eq!(run(&*device, &program, &values).0, expected);
        let found = device.ways();
        let identity = program.kernel_identity(&program.kernels[0]);
        assert_eq!(found.keys().collect::<Vec<_>>(), [&identity]);
        assert!(ways_of(&program).iter().any(|way| way.name == found[&identity]), "{found:?}");

        // Another process takes it from the file, and tries nothing.
        let other = open(index, directory.path(), None).unwrap();
        assert_eq!(other.ways(), found);
        assert_eq!(run(&*other, &program, &values).0, expected);
    }
}

#[test]
fn small_kernels_are_not_tried() {
    let (graph, values) = product();
    for index in 0..support::adapters("") {
        let directory = tempfile::tempdir().unwrap();
        for least in [None, Some(OPERATIONS + 1)] {
            let Some(device) = open(index, directory.path(), least) else { continue };
            let program = Arc::new(compile(&graph, &device.target()).unwrap());
            run(&*device, &program, &values);
            assert_eq!(device.ways(), Ways::new());
        }
    }
}

#[test]
fn a_way_that_is_kept_is_taken_whatever_is_fastest() {
    let (graph, values) = product();
    let expected = evaluate(&graph, &values, &mut []).unwrap()[0].to_bytes();
    for index in 0..support::adapters("") {
        // The file of another device says something else.
        let directory = tempfile::tempdir().unwrap();
        let Some(device) = open(index, directory.path(), Some(OPERATIONS)) else { continue };
        let program = Arc::new(compile(&graph, &device.target()).unwrap());
        let identity = program.kernel_identity(&program.kernels[0]);
        for way in ways_of(&program) {
            device.keep_ways(&Ways::from([(identity.clone(), way.name.clone())]));
            let (bytes, loaded) = run(&*device, &program, &values);
            assert_eq!(bytes, expected, "{way:?}");
            let passes = wgsl::passes_in(&program, &program.kernels[0], Tuning::UNLIMITED, Some(&way.name)).unwrap();
            let groups = format!("workgroups: {:?}", passes[0].workgroups);
            assert!(loaded.contains(&groups), "{way:?}: no {groups} in {loaded}");
        }
        // One that no build has is none.
        device.keep_ways(&Ways::from([(identity.clone(), "by hand".to_owned())]));
        assert_eq!(run(&*device, &program, &values).0, expected);
    }
}

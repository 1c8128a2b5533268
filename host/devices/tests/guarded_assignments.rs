//! Tests of guarded assignments, on the interpreter and on every device: an assignment with a nonfinite value is
//! skipped, and counters still advance.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests say SKIP and fail by panic")]

mod support;

use std::sync::Arc;

use saggar_compile::compile;
use saggar_device::{Backend, Meter};
use saggar_tensor::interp::{InterpTensor, evaluate};
use saggar_tensor::op::Scalar;
use saggar_tensor::{DType, Descriptor, GraphBuilder, Shape, VerifiedGraph, verify};

use support::devices;

const NAN: f64 = f64::NAN;
const INF: f64 = f64::INFINITY;

fn value(dtype: DType, dims: &[usize], numbers: &[f64]) -> InterpTensor {
    InterpTensor::from_numbers(dtype, Shape::new(dims.to_vec()).unwrap(), numbers).unwrap()
}

/// Returns a step that adds its inputs to `wide` and `half`, stores the sum of the first input in `mean`, which has a
/// separate guard, and counts steps.
fn guarded_step() -> VerifiedGraph {
    let mut g = GraphBuilder::new();
    let of = |dtype, dims: &[usize]| Descriptor::new(dtype, Shape::new(dims.to_vec()).unwrap());
    let (wide, half, none) = (of(DType::F32, &[2, 2]), of(DType::F16, &[2]), of(DType::F32, &[0]));
    let (x, y) = (g.input("x", wide.clone()).unwrap(), g.input("y", half.clone()).unwrap());
    for (name, descriptor, added) in [("wide", wide, x), ("half", half, y)] {
        let held = g.variable(name, descriptor).unwrap();
        let sum = g.add(held, added).unwrap();
        g.assign_to(held, sum).unwrap();
    }
    let mean = g.variable("mean", of(DType::F32, &[])).unwrap();
    let sum = g.reduce_sum(x, &[0, 1], false).unwrap();
    g.assign_to(mean, sum).unwrap();
    let count = g.variable("count", of(DType::I32, &[])).unwrap();
    let one = g.scalar(DType::I32, Scalar::Int(1)).unwrap();
    let next = g.add(count, one).unwrap();
    g.assign_to(count, next).unwrap();
    let empty = g.variable("empty", none).unwrap();
    let twice = g.add(empty, empty).unwrap();
    g.assign_to(empty, twice).unwrap();
    g.guard_assignments(&|variable| variable == 2).unwrap();
    g.output("sum", sum).unwrap();
    verify(g.finish()).unwrap()
}

fn initial_variables() -> [InterpTensor; 5] {
    [
        value(DType::F32, &[2, 2], &[1.0, 2.0, 3.0, 4.0]),
        value(DType::F16, &[2], &[64.0, 6.0]),
        value(DType::F32, &[], &[7.0]),
        value(DType::I32, &[], &[0.0]),
        value(DType::F32, &[0], &[]),
    ]
}

/// Returns the values of the variables after one step.
fn step_on_interpreter(graph: &VerifiedGraph, inputs: &[InterpTensor]) -> Vec<Vec<f64>> {
    let mut variables = initial_variables();
    evaluate(graph, inputs, &mut variables).unwrap();
    variables.iter().map(InterpTensor::to_f64_numbers).collect()
}

fn step_on_device(device: &dyn Backend, graph: &VerifiedGraph, inputs: &[InterpTensor]) -> Vec<Vec<f64>> {
    let meter = Meter::unlimited();
    let executable = device.load(Arc::new(compile(graph, &device.target()).unwrap()), &meter).unwrap();
    let upload = |value: &InterpTensor| {
        let buffer = device.allocate(value.descriptor(), &meter).unwrap();
        device.write(&buffer, &value.to_bytes()).unwrap();
        buffer
    };
    let (inputs, variables): (Vec<_>, Vec<_>) =
        (inputs.iter().map(upload).collect(), initial_variables().iter().map(upload).collect());
    executable.dispatch(&inputs, &variables).unwrap();
    let read = |buffer: &_| device.read(buffer).unwrap();
    let back = |(it, buffer): (&InterpTensor, &_)| {
        InterpTensor::from_bytes(it.descriptor().clone(), &read(buffer)).unwrap().to_f64_numbers()
    };
    initial_variables().iter().zip(&variables).map(back).collect()
}

/// Inputs, and the expected values of the variables after the step.
struct GuardCase {
    name: &'static str,
    x: [f64; 4],
    y: [f64; 2],
    after: [Vec<f64>; 5],
}

#[test]
fn an_update_with_a_nonfinite_value_is_skipped_entirely() {
    let graph = guarded_step();
    let held = |mean: f64| [vec![1.0, 2.0, 3.0, 4.0], vec![64.0, 6.0], vec![mean], vec![1.0], vec![]];
    let sound = [vec![2.0, 3.0, 4.0, 5.0], vec![65.0, 7.0], vec![4.0], vec![1.0], vec![]];
    let cases = [
        GuardCase { name: "sound", x: [1.0; 4], y: [1.0; 2], after: sound },
        GuardCase { name: "NaN", x: [1.0, NAN, 1.0, 1.0], y: [1.0; 2], after: held(7.0) },
        GuardCase { name: "infinite", x: [1.0, 1.0, 1.0, -INF], y: [1.0; 2], after: held(7.0) },
        GuardCase { name: "another's", x: [1.0; 4], y: [INF, 1.0], after: held(4.0) },
        // With 64 added, this is too large for `float16`.
        GuardCase { name: "past float16", x: [1.0; 4], y: [65504.0, 1.0], after: held(4.0) },
    ];
    for GuardCase { name, x, y, after } in cases {
        let inputs = [value(DType::F32, &[2, 2], &x), value(DType::F16, &[2], &y)];
        assert_eq!(step_on_interpreter(&graph, &inputs), after, "{name}, interpreted");
        for device in devices() {
            assert_eq!(step_on_device(&*device, &graph, &inputs), after, "{name} on {}", device.info().name);
        }
    }
}

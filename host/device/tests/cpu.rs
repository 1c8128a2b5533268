//! What only the CPU device promises: dispatches at the same time, checked buffers, exact accounts. Results against the
//! reference interpreter are the conformance suite's.

#![allow(clippy::unwrap_used, reason = "tests fail by panic")]

#[path = "../benches/lenet.rs"]
mod lenet;

use std::sync::Arc;

use saggar_compile::compile;
use saggar_device::{Backend, Buffer, DeviceError, Executable, Meter, cpu};
use saggar_tensor::interp::Value;
use saggar_tensor::op::Scalar;
use saggar_tensor::{DType, Descriptor, GraphBuilder, Shape, VerifiedGraph, verify};

fn load(backend: &dyn Backend, graph: &VerifiedGraph, meter: &Meter) -> Result<Arc<dyn Executable>, DeviceError> {
    backend.load(Arc::new(compile(graph, &backend.target()).unwrap()), meter)
}

fn buffers(backend: &dyn Backend, values: &[Value], meter: &Meter) -> Vec<Buffer> {
    let buffer = |value: &Value| {
        let buffer = backend.allocate(value.descriptor(), meter).unwrap();
        backend.write(&buffer, &value.to_bytes()).unwrap();
        buffer
    };
    values.iter().map(buffer).collect()
}

fn vector(size: usize) -> Descriptor {
    Descriptor::new(DType::F32, Shape::new([size]).unwrap())
}

/// `a += x; b += a` of vectors.
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

fn ones(size: usize) -> Value {
    Value::filled(vector(size), Scalar::Float(1.0))
}

fn numbers(backend: &dyn Backend, buffer: &Buffer) -> Vec<f64> {
    Value::from_bytes(buffer.descriptor().clone(), &backend.read(buffer).unwrap()).unwrap().numbers()
}

#[test]
fn dispatches_at_the_same_time_do_not_disturb_one_another() {
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
fn updates_of_shared_state_are_one_after_the_other() {
    let backend = cpu::open(Some(2)).unwrap();
    let meter = Meter::unlimited();
    let size = 50_000;
    let executable = load(&*backend, &two_counters(size), &meter).unwrap();
    let given = buffers(&*backend, &[ones(size)], &meter);
    let state = buffers(&*backend, &[Value::zeros(vector(size)), Value::zeros(vector(size))], &meter);
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
    let refused = |inputs: &[Buffer], variables: &[Buffer]| match executable.dispatch(inputs, variables) {
        Err(DeviceError::Mismatch { port, .. }) => port,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(&[], &good[1..]), "inputs");
    assert_eq!(refused(&wide, &good[1..]), "x");
    assert_eq!(refused(&good[..1], &[good[1].clone(), wide[0].clone()]), "b");
    // One memory for two variables, or for an input and a variable, has no meaning where it is written.
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

    // An output that does not fit leaves the state as it was.
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
    assert!(!meter.busy().is_zero());
}

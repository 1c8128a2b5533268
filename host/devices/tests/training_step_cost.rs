//! Tests of the work that a training step costs an adapter in steady state: submissions, barriers, allocations, bind
//! groups, read-backs.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests say SKIP and fail by panic")]

#[path = "../benches/lenet.rs"]
mod lenet;
mod support;

use std::sync::Arc;

use saggar_compile::compile;
use saggar_device::{Backend, DeviceBuffer, DeviceCounters, Executable, Meter};
use saggar_gpu::wgsl::ShaderTuning;
use saggar_tensor::interp::InterpTensor;
use saggar_tensor::nn::{self, SgdOptions};
use saggar_tensor::{DType, Descriptor, GraphBuilder, Shape, VerifiedGraph, verify};

/// Returns every adapter with the plain and with the tuned kernels.
fn devices() -> Vec<Arc<dyn Backend>> {
    let tunings = [false, true].map(|workgroup_memory| ShaderTuning { workgroup_memory, ..ShaderTuning::UNLIMITED });
    let adapters = 0..support::adapters("");
    adapters.flat_map(|index| tunings.map(|tuning| saggar_gpu::open_tuned(index, tuning).unwrap())).collect()
}

/// A loaded program with its tensors.
struct SteadyProgram {
    backend: Arc<dyn Backend>,
    executable: Arc<dyn Executable>,
    meter: Meter,
    inputs: Vec<DeviceBuffer>,
    values: Vec<InterpTensor>,
    variables: Vec<DeviceBuffer>,
}

impl SteadyProgram {
    fn new(
        backend: Arc<dyn Backend>,
        graph: &VerifiedGraph,
        inputs: Vec<InterpTensor>,
        variables: &[InterpTensor],
    ) -> SteadyProgram {
        let meter = Meter::unlimited();
        let program = Arc::new(compile(graph, &backend.target()).unwrap());
        let executable = backend.load(program, &meter).unwrap();
        let buffer = |value: &InterpTensor| {
            let buffer = backend.allocate(value.descriptor(), &meter).unwrap();
            backend.write(&buffer, &value.to_bytes()).unwrap();
            buffer
        };
        let variables = variables.iter().map(buffer).collect();
        let buffers = inputs.iter().map(buffer).collect();
        SteadyProgram { backend: Arc::clone(&backend), executable, meter, inputs: buffers, values: inputs, variables }
    }

    /// Runs one step like a training job: a batch overwrites the previous one, and the loss is not read.
    fn step(&self) {
        for (buffer, value) in self.inputs.iter().zip(&self.values) {
            self.backend.write(buffer, &value.to_bytes()).unwrap();
        }
        self.executable.dispatch(&self.inputs, &self.variables).unwrap();
    }

    /// Returns the counters that `steps` steps add.
    fn count_work(&self, steps: usize) -> DeviceCounters {
        let before = self.meter.counters();
        (0..steps).for_each(|_| self.step());
        self.backend.synchronize().unwrap();
        let after = self.meter.counters();
        DeviceCounters {
            dispatches: after.dispatches - before.dispatches,
            submissions: after.submissions - before.submissions,
            barriers: after.barriers - before.barriers,
            bind_groups: after.bind_groups - before.bind_groups,
            allocations: after.allocations - before.allocations,
            reads: after.reads - before.reads,
        }
    }
}

#[test]
fn a_warm_training_step_needs_at_most_one_submission_and_no_allocations() {
    for backend in devices() {
        let lenet::LenetGraph { graph, inputs, variables } = lenet::network(8, true);
        let loaded = SteadyProgram::new(backend, &graph, inputs, &variables);
        loaded.count_work(5);
        let bytes = loaded.meter.bytes();
        let steps = 20;
        let work = loaded.count_work(steps as usize);
        let kernels = loaded.executable.program().kernels.len() as u64;
        println!("{kernels} kernels: {work:?} in {steps} steps");
        let [dispatches, barriers] = [work.dispatches, work.barriers].map(|all| all / steps);
        // Some kernels have two passes. After fusion, a step of this network has at most 40 kernels.
        assert!((kernels..=kernels + 4).contains(&dispatches) && kernels <= 40, "{dispatches} of {kernels} kernels");
        assert!(barriers < dispatches, "the first pass needs no barrier");
        // Steps that are dispatched while the adapter is busy share a submission.
        assert!((1..=steps).contains(&work.submissions), "{work:?}");
        let expected = DeviceCounters {
            dispatches: dispatches * steps,
            submissions: work.submissions,
            barriers: barriers * steps,
            bind_groups: 0,
            allocations: 0,
            reads: 0,
        };
        assert_eq!(work, expected);
        assert_eq!(loaded.meter.bytes(), bytes);
    }
}

/// Returns one step of gradient descent for a linear regression.
fn linear_regression() -> (VerifiedGraph, Vec<InterpTensor>, Vec<InterpTensor>) {
    let float = |dims: &[usize]| Descriptor::new(DType::F32, Shape::new(dims).unwrap());
    let value = |dims: &[usize]| {
        let shape = Shape::new(dims).unwrap();
        let numbers: Vec<f64> = (0..shape.elements()).map(|i| i as f64 / 8.0 - 1.0).collect();
        InterpTensor::from_numbers(DType::F32, shape, &numbers).unwrap()
    };
    let mut g = GraphBuilder::new();
    let (x, y) = (g.input("x", float(&[16, 1])).unwrap(), g.input("y", float(&[16, 1])).unwrap());
    let rate = g.input("rate", float(&[])).unwrap();
    let (w, velocity) = (g.variable("w", float(&[1, 1])).unwrap(), g.variable("velocity", float(&[1, 1])).unwrap());
    let predicted = g.matmul(x, w).unwrap();
    let loss = nn::mean_squared_error(&mut g, predicted, y).unwrap();
    let gradient = saggar_tensor::grad::gradients(&mut g, loss, &[w]).unwrap()[0];
    let options = SgdOptions { momentum: 0.9, ..SgdOptions::default() };
    let next = nn::sgd(&mut g, &options, w, gradient, velocity, rate).unwrap();
    g.assign_to(w, next.parameter).unwrap();
    g.assign_to(velocity, next.velocity).unwrap();
    g.output("loss", loss).unwrap();
    let rate = InterpTensor::from_numbers(DType::F32, Shape::new([]).unwrap(), &[0.01]).unwrap();
    let inputs = vec![value(&[16, 1]), value(&[16, 1]), rate];
    (verify(g.finish()).unwrap(), inputs, vec![value(&[1, 1]); 2])
}

#[test]
fn ten_thousand_training_steps_do_not_grow_device_memory() {
    for backend in devices() {
        let (graph, inputs, variables) = linear_regression();
        let loaded = SteadyProgram::new(backend, &graph, inputs, &variables);
        loaded.count_work(20);
        let (bytes, peak) = (loaded.meter.bytes(), loaded.meter.peak_bytes());
        let work = loaded.count_work(10_000);
        assert!((1..=10_000).contains(&work.submissions), "{work:?}");
        assert_eq!((work.allocations, work.bind_groups), (0, 0));
        assert_eq!((loaded.meter.bytes(), loaded.meter.peak_bytes()), (bytes, peak));
        // The model has learnt y = x.
        let weight = loaded.backend.read(&loaded.variables[0]).unwrap();
        let weight = f32::from_le_bytes(weight.try_into().unwrap());
        assert!((weight - 1.0).abs() < 1e-3, "{weight}");
    }
}

//! Speed of every adapter: `cargo bench -p saggar-device --bench adapters [-- kernels]`.
//!
//! A LeNet training step at batch 64: wall time with a wait at the end, the device's own busy time, and what loading
//! costs. With `kernels`, the busy time of each kernel, each run alone.

#![allow(clippy::print_stdout, reason = "it prints what it measured")]

mod lenet;

use std::sync::Arc;
use std::time::Instant;

use saggar_compile::program::Program;
use saggar_compile::{compile, wgsl};
use saggar_device::{Backend, Buffer, Meter, gpu};
use saggar_tensor::interp::Value;

const BATCH: usize = 64;
const STEPS: u32 = 20;

/// Seconds of wall and of busy time of one dispatch, on average.
fn seconds(backend: &dyn Backend, program: Program, inputs: &[Buffer], variables: &[Buffer]) -> [f64; 2] {
    let meter = Meter::unlimited();
    let executable = backend.load(Arc::new(program), &meter).expect("it loads");
    let run = |steps: u32| {
        for _ in 0..steps {
            executable.dispatch(inputs, variables).expect("it runs");
        }
        backend.synchronize().expect("it runs");
    };
    run(2);
    let (busy, begun) = (meter.busy(), Instant::now());
    run(STEPS);
    let wall = begun.elapsed();
    [wall, meter.busy() - busy].map(|time| time.as_secs_f64() / f64::from(STEPS))
}

fn buffers(backend: &dyn Backend, values: &[Value]) -> Vec<Buffer> {
    let buffer = |value: &Value| {
        let buffer = backend.allocate(value.descriptor(), &Meter::unlimited()).expect("memory");
        backend.write(&buffer, &value.to_bytes()).expect("sizes agree");
        buffer
    };
    values.iter().map(buffer).collect()
}

fn measure(backend: &dyn Backend, kernels: bool) {
    let network = lenet::network(BATCH, true);
    let begun = Instant::now();
    let program = compile(&network.graph, &backend.target()).expect("the adapter has all types");
    let compiled = begun.elapsed();
    let begun = Instant::now();
    let executable = backend.load(Arc::new(program.clone()), &Meter::unlimited()).expect("it loads");
    println!("  compiled in {compiled:.1?}, loaded in {:.1?}, {} kernels", begun.elapsed(), program.kernels.len());
    let (inputs, variables) = (buffers(backend, &network.inputs), buffers(backend, &network.variables));
    let [wall, busy] = seconds(backend, program.clone(), &inputs, &variables);
    println!("  lenet step: {:.3} ms, busy {:.3} ms, {:.1} steps/s", wall * 1e3, busy * 1e3, 1.0 / wall);
    drop(executable);
    if kernels {
        for kernel in &program.kernels {
            let alone = Program { kernels: vec![kernel.clone()], ..program.clone() };
            let [_, busy] = seconds(backend, alone, &inputs, &variables);
            println!("  {:>10.3} ms {}", busy * 1e3, kernel.label);
        }
    }
}

fn main() {
    let kernels = std::env::args().any(|argument| argument == "kernels");
    for (index, info) in gpu::adapters().into_iter().enumerate() {
        for workgroup_memory in [false, true] {
            println!("{} {} workgroup_memory {workgroup_memory}", info.name, info.adapter);
            match gpu::open_tuned(index, wgsl::Tuning { workgroup_memory, wide_integers: true }) {
                Ok(backend) => measure(&*backend, kernels),
                Err(error) => println!("  {error}"),
            }
        }
    }
}

//! Tests of scratch memory: programs of one owner share it, and programs of different owners do not.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests say SKIP and fail by panic")]

mod support;

use std::sync::Arc;

use saggar_compile::compile;
use saggar_compile::program::Program;
use saggar_device::{Backend, DeviceBuffer, Executable, Meter};
use saggar_tensor::op::ReduceKind;
use saggar_tensor::{DType, Descriptor, GraphBuilder, Shape, verify};

use support::devices;

/// Returns the sum of `x xᵀ` for `x` of `[rows, 2]`; the product is in a slab.
fn program(device: &dyn Backend, rows: usize) -> Arc<Program> {
    let mut g = GraphBuilder::new();
    let x = g.input("x", Descriptor::new(DType::F32, Shape::new([rows, 2]).unwrap())).unwrap();
    let t = g.transpose(x, &[1, 0]).unwrap();
    let product = g.matmul(x, t).unwrap();
    let squares = g.mul(product, product).unwrap();
    let total = g.reduce(ReduceKind::Sum, squares, &[0, 1], false).unwrap();
    let rows = g.reduce(ReduceKind::Max, product, &[1], false).unwrap();
    g.output("total", total).unwrap();
    g.output("rows", rows).unwrap();
    let program = compile(&verify(g.finish()).unwrap(), &device.target()).unwrap();
    assert!(slab_bytes(&program) >= rows_bytes(program.inputs[0].descriptor.shape.dims()[0]), "nothing lies in a slab");
    Arc::new(program)
}

fn rows_bytes(rows: usize) -> u64 {
    (rows * rows * 4) as u64
}

fn slab_bytes(program: &Program) -> u64 {
    program.slabs.iter().map(|slab| slab.bytes as u64).sum()
}

/// Runs the program on `x` of ones: every element of the product is 2.
fn run(device: &dyn Backend, executable: &dyn Executable, meter: &Meter) {
    let descriptor = executable.program().inputs[0].descriptor.clone();
    let rows = descriptor.shape.dims()[0];
    let x = device.allocate(&descriptor, meter).unwrap();
    device.write(&x, &1f32.to_le_bytes().repeat(2 * rows)).unwrap();
    let outputs = executable.dispatch(&[x], &[]).unwrap();
    let read = |buffer: &DeviceBuffer| -> Vec<f32> {
        let bytes = device.read(buffer).unwrap();
        bytes.as_chunks().0.iter().map(|word| f32::from_le_bytes(*word)).collect()
    };
    assert_eq!(read(&outputs[0]), [(4 * rows * rows) as f32], "{rows} rows on {}", device.info().name);
    assert_eq!(read(&outputs[1]), vec![2.0; rows], "{rows} rows on {}", device.info().name);
}

#[test]
fn programs_of_one_owner_share_the_scratch_of_the_largest() {
    for device in devices() {
        let device = &*device;
        let meter = Meter::unlimited();
        // Scratch memory grows and is kept: the small program runs again in the large one's memory.
        let programs = [64, 256, 128].map(|rows| program(device, rows));
        let mut loaded = Vec::new();
        for program in &programs {
            let executable = device.load(Arc::clone(program), &meter).unwrap();
            run(device, &*executable, &meter);
            loaded.push(executable);
        }
        for executable in loaded.iter().chain(loaded.iter().rev()) {
            run(device, &**executable, &meter);
        }
        let (name, held) = (&device.info().name, meter.bytes());
        let alone = |program: &Arc<Program>| {
            let meter = Meter::unlimited();
            let executable = device.load(Arc::clone(program), &meter).unwrap();
            run(device, &*executable, &meter);
            meter.bytes()
        };
        let each = programs.each_ref().map(alone);
        let rest: u64 = programs.iter().zip(each).map(|(program, bytes)| bytes - slab_bytes(program).min(bytes)).sum();
        assert!(held >= each[1], "{name}: {held} bytes, and the largest alone holds {}", each[1]);
        assert!(held <= each[1] + rest, "{name}: {held} bytes for programs that alone hold {each:?}");
        drop(loaded);
        assert_eq!(meter.bytes(), 0, "{name}: memory that no program uses is released");
    }
}

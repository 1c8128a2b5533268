use std::sync::Arc;

use saggar_compile::wgsl::{Binding, Shader, Tuning, Window};
use saggar_tensor::{DType, Descriptor, GraphBuilder, Shape, verify};

use super::Gpu;
use super::context::{Context, block_on};
use super::pipeline::Description;
use crate::backend::{Backend, Buffer};
use crate::room::{Memory, Room};
use crate::{CancelToken, DeviceError, Meter};

fn device() -> Option<Gpu> {
    let found = super::found();
    let Some(adapter) = found.first() else {
        assert!(std::env::var_os("REQUIRE_GPU").is_none_or(|value| value != "1"), "no adapter");
        println!("SKIP: no adapter");
        return None;
    };
    let (device, queue) = block_on(adapter.request_device(&wgpu::DeviceDescriptor::default())).unwrap();
    let tuning = Tuning { workgroup_memory: false, wide_integers: false, ..Tuning::UNLIMITED };
    let room = Room::new("vulkan:0", Memory::Bytes { bytes: 1 << 30, of: "a test's limit" });
    Some(Gpu { context: Arc::new(Context::new(device, queue, super::info(0, adapter), tuning, room)) })
}

/// A shader of one binding.
fn shader(source: &str) -> Shader {
    let window = Window { binding: Binding::Output(0), offset_bytes: 0, bytes: None };
    Shader { source: source.to_owned(), bindings: vec![window], workgroups: [1, 1, 1], slices: 1, parts_bytes: 0 }
}

fn vector(elements: usize) -> Descriptor {
    Descriptor::new(DType::F32, Shape::new([elements]).unwrap())
}

/// The square of a matrix and what its rows add up to: kernels of two sorts.
pub(super) fn squares(gpu: &dyn Backend) -> saggar_compile::Program {
    let mut g = GraphBuilder::new();
    let x = g.input("x", Descriptor::new(DType::F32, Shape::new([8, 8]).unwrap())).unwrap();
    let square = g.matmul(x, x).unwrap();
    let sums = g.reduce_sum(square, &[1], false).unwrap();
    g.output("square", square).unwrap();
    g.output("sums", sums).unwrap();
    saggar_compile::compile(&verify(g.finish()).unwrap(), &gpu.target()).unwrap()
}

#[test]
fn a_profiled_dispatch_computes_the_same_and_tells_each_kernel() {
    if device().is_none() {
        return;
    }
    let gpu = super::open(0).unwrap();
    let meter = Meter::unlimited();
    let executable = gpu.load(Arc::new(squares(&*gpu)), &meter).unwrap();
    let x = gpu.allocate(&executable.program().inputs[0].descriptor, &meter).unwrap();
    let numbers: Vec<f32> = (0..64_u8).map(f32::from).collect();
    gpu.write(&x, bytemuck::cast_slice(&numbers)).unwrap();
    let x = std::slice::from_ref(&x);
    let read = |buffers: Vec<Buffer>| buffers.iter().map(|buffer| gpu.read(buffer).unwrap()).collect::<Vec<_>>();
    let plain = read(executable.dispatch(x, &[]).unwrap());
    let before = meter.dispatches();
    let (outputs, kernels) = executable.profile(x, &[]).unwrap();
    assert_eq!(read(outputs), plain);
    let count = executable.program().kernels.len();
    assert!(count >= 2 && meter.dispatches() == before + count as u64);
    assert_eq!(kernels.map(|kernels| kernels.len()), gpu.info().exact_seconds.then_some(count));
}

#[test]
fn a_lost_device_stays_lost() {
    let Some(gpu) = device() else { return };
    let meter = Meter::unlimited();
    let kept = gpu.allocate(&vector(8), &meter).unwrap();
    gpu.context.device.destroy();
    // The driver's word arrives with the first poll.
    let _ = gpu.synchronize();
    assert!(matches!(gpu.synchronize(), Err(DeviceError::Lost { .. })));
    assert!(matches!(gpu.read(&kept), Err(DeviceError::Lost { .. })));
    assert!(matches!(gpu.write(&kept, &[0; 32]), Err(DeviceError::Lost { .. })));
    assert!(matches!(gpu.allocate(&vector(8), &meter), Err(DeviceError::Lost { .. })));
    drop(kept);
    assert_eq!(meter.bytes(), 0);
}

#[test]
fn a_shader_that_is_refused_is_an_error_and_no_loss() {
    let Some(gpu) = device() else { return };
    let broken = shader("fn main() { this is no shader }");
    let description = Description { label: "broken", shader: &broken, slice: 0 };
    let refused = |known: bool| {
        let refused = gpu.context.pipelines.get(&gpu.context, description);
        assert_eq!(refused.map(drop).map_err(|refused| refused.is_known), Err(known));
    };
    // Threads that make pipelines ahead tell nobody.
    assert_eq!(gpu.context.pipelines.make_all(&gpu.context, &[description], &CancelToken::never()).len(), 0);
    refused(false);
    refused(true);
    gpu.synchronize().unwrap();
}

#[test]
fn equal_shaders_share_a_pipeline_while_it_is_used() {
    let Some(gpu) = device() else { return };
    let one = shader(
        "@group(0) @binding(0) var<storage, read_write> b0: array<f32>;
        @compute @workgroup_size(1) fn main() { b0[0] = 1.0; }",
    );
    let get = || {
        let description = Description { label: "one", shader: &one, slice: 0 };
        gpu.context.pipelines.get(&gpu.context, description).unwrap()
    };
    let (first, second) = (get(), get());
    assert!(Arc::ptr_eq(&first, &second));
    let unused = Arc::downgrade(&first);
    drop((first, second));
    gpu.context.pipelines.prune();
    assert!(unused.upgrade().is_none());
}

/// What the driver has given, in buffers that are alive.
fn allocated_bytes(gpu: &Gpu) -> u64 {
    gpu.synchronize().unwrap();
    gpu.context.device.generate_allocator_report().map_or(0, |report| report.total_allocated_bytes)
}

#[test]
fn loading_and_unloading_leaves_the_drivers_memory_as_it_was() {
    let Some(gpu) = device() else { return };
    let meter = Meter::unlimited();
    let program = Arc::new(squares(&gpu));
    let descriptor = program.inputs[0].descriptor.clone();
    let cycle = || {
        let executable = gpu.load(Arc::clone(&program), &meter).unwrap();
        let x = gpu.allocate(&descriptor, &meter).unwrap();
        gpu.write(&x, &[0; 256]).unwrap();
        let outputs = executable.dispatch(std::slice::from_ref(&x), &[]).unwrap();
        gpu.read(&outputs[0]).unwrap();
    };
    // What is kept for the next of its size is there after the first cycles, and no more of it after many.
    (0..10).for_each(|_| cycle());
    let before = allocated_bytes(&gpu);
    (0..500).for_each(|_| cycle());
    assert_eq!((allocated_bytes(&gpu), meter.bytes()), (before, 0));
}

use std::sync::Arc;

use saggar_tensor::{DType, Descriptor, GraphBuilder, Shape, verify};

use super::GpuDevice;
use super::autotune::Autotuner;
use super::context::GpuContext;
use super::pipeline::{PipelineDescriptor, SharedPipelines};
use super::wgpu_device::{WgpuDevice, block_on};
use super::wgsl::{Shader, ShaderBinding, ShaderResource, ShaderTuning};
use saggar_device::backend::{Backend, DeviceBuffer};
use saggar_device::memory_budget::{DeviceMemoryBudget, MemorySource};
use saggar_device::owner_cache::PerOwner;
use saggar_device::{CancelToken, DeviceError, Meter};

fn open_first_adapter() -> Option<GpuDevice> {
    let found = super::enumerate_adapters();
    let Some(adapter) = found.first() else {
        assert!(std::env::var_os("REQUIRE_GPU").is_none_or(|value| value != "1"), "no adapter");
        println!("SKIP: no adapter");
        return None;
    };
    let (device, queue) = block_on(adapter.request_device(&wgpu::DeviceDescriptor::default())).unwrap();
    let tuning = ShaderTuning { workgroup_memory: false, wide_integers: false, ..ShaderTuning::UNLIMITED };
    let room = DeviceMemoryBudget::new("vulkan:0", MemorySource::Fixed { bytes: 1 << 30, source: "a test's limit" });
    let device = WgpuDevice::new(device, queue, super::device_info(0, adapter), room);
    let context = Arc::new(GpuContext::new(device, tuning, SharedPipelines::default()));
    Some(GpuDevice { context, scratches: PerOwner::default(), autotuner: Autotuner::default() })
}

/// Returns a shader with one binding.
fn single_binding_shader(source: &str) -> Shader {
    let window = ShaderBinding { resource: ShaderResource::Output(0), offset_bytes: 0, bytes: None };
    Shader { source: source.to_owned(), bindings: vec![window], workgroups: [1, 1, 1], slices: 1, pass_buffer_bytes: 0 }
}

fn vector(elements: usize) -> Descriptor {
    Descriptor::new(DType::F32, Shape::new([elements]).unwrap())
}

/// Returns a program that computes the square of a matrix and its row sums: two kinds of kernels.
pub(super) fn squares_program(gpu: &dyn Backend) -> saggar_compile::Program {
    let mut g = GraphBuilder::new();
    let x = g.input("x", Descriptor::new(DType::F32, Shape::new([8, 8]).unwrap())).unwrap();
    let square = g.matmul(x, x).unwrap();
    let sums = g.reduce_sum(square, &[1], false).unwrap();
    g.output("square", square).unwrap();
    g.output("sums", sums).unwrap();
    saggar_compile::compile(&verify(g.finish()).unwrap(), &gpu.target()).unwrap()
}

#[test]
fn profiling_returns_the_same_outputs_and_one_duration_per_kernel() {
    if open_first_adapter().is_none() {
        return;
    }
    let gpu = super::open(0).unwrap();
    let meter = Meter::unlimited();
    let executable = gpu.load(Arc::new(squares_program(&*gpu)), &meter).unwrap();
    let x = gpu.allocate(&executable.program().inputs[0].descriptor, &meter).unwrap();
    let numbers: Vec<f32> = (0..64_u8).map(f32::from).collect();
    gpu.write(&x, bytemuck::cast_slice(&numbers)).unwrap();
    let x = std::slice::from_ref(&x);
    let read = |buffers: Vec<DeviceBuffer>| buffers.iter().map(|buffer| gpu.read(buffer).unwrap()).collect::<Vec<_>>();
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
    let Some(gpu) = open_first_adapter() else { return };
    let meter = Meter::unlimited();
    let buffer = gpu.allocate(&vector(8), &meter).unwrap();
    gpu.context.device.handle.destroy();
    // The first poll reports the loss.
    let _ = gpu.synchronize();
    assert!(matches!(gpu.synchronize(), Err(DeviceError::Lost { .. })));
    assert!(matches!(gpu.read(&buffer), Err(DeviceError::Lost { .. })));
    assert!(matches!(gpu.write(&buffer, &[0; 32]), Err(DeviceError::Lost { .. })));
    assert!(matches!(gpu.allocate(&vector(8), &meter), Err(DeviceError::Lost { .. })));
    drop(buffer);
    assert_eq!(meter.bytes(), 0);
}

#[test]
fn a_rejected_shader_returns_an_error_without_losing_the_device() {
    let Some(gpu) = open_first_adapter() else { return };
    let broken = single_binding_shader("fn main() { this is no shader }");
    let description = PipelineDescriptor { label: "broken", shader: &broken, slice: 0 };
    let refused = |known: bool| {
        let refused = gpu.context.pipelines.get_or_compile(&gpu.context.device, description);
        assert_eq!(refused.map(drop).map_err(|refused| refused.is_already_reported), Err(known));
    };
    // Compiling ahead reports no refusals.
    assert_eq!(gpu.context.pipelines.compile_all(&gpu.context.device, &[description], &CancelToken::never()).len(), 0);
    refused(false);
    refused(true);
    gpu.synchronize().unwrap();
}

#[test]
fn equal_shaders_share_a_pipeline_while_it_is_used() {
    let Some(gpu) = open_first_adapter() else { return };
    let one = single_binding_shader(
        "@group(0) @binding(0) var<storage, read_write> b0: array<f32>;
        @compute @workgroup_size(1) fn main() { b0[0] = 1.0; }",
    );
    let get = || {
        let description = PipelineDescriptor { label: "one", shader: &one, slice: 0 };
        gpu.context.pipelines.get_or_compile(&gpu.context.device, description).unwrap()
    };
    let (first, second) = (get(), get());
    assert!(Arc::ptr_eq(&first, &second));
    let unused = Arc::downgrade(&first);
    drop((first, second));
    gpu.context.pipelines.prune();
    assert!(unused.upgrade().is_none());
}

/// Returns the bytes that the driver has allocated for live buffers.
fn allocated_bytes(gpu: &GpuDevice) -> u64 {
    gpu.synchronize().unwrap();
    gpu.context.device.handle.generate_allocator_report().map_or(0, |report| report.total_allocated_bytes)
}

#[test]
fn repeated_loading_and_unloading_does_not_grow_driver_memory() {
    let Some(gpu) = open_first_adapter() else { return };
    let meter = Meter::unlimited();
    let program = Arc::new(squares_program(&gpu));
    let descriptor = program.inputs[0].descriptor.clone();
    let cycle = || {
        let executable = gpu.load(Arc::clone(&program), &meter).unwrap();
        let x = gpu.allocate(&descriptor, &meter).unwrap();
        gpu.write(&x, &[0; 256]).unwrap();
        let outputs = executable.dispatch(std::slice::from_ref(&x), &[]).unwrap();
        gpu.read(&outputs[0]).unwrap();
    };
    // The pools are full after the first cycles and must not grow after many.
    (0..10).for_each(|_| cycle());
    let before = allocated_bytes(&gpu);
    (0..500).for_each(|_| cycle());
    assert_eq!((allocated_bytes(&gpu), meter.bytes()), (before, 0));
}

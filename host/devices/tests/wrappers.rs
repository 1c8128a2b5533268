//! Tests of what wraps and measures any device, with the processor as the device.
#![allow(clippy::unwrap_used, reason = "in a test, to unwrap is to assert")]

use std::sync::Arc;

use saggar_device::profile::ProfilingBackend;
use saggar_device::{Backend, DeviceError, Meter, roofline};
use saggar_tensor::{DType, Descriptor, GraphBuilder, Shape, verify};

#[test]
fn the_profiler_passes_on_the_memory_check_of_its_device() {
    let options =
        saggar_cpu::CpuOptions { threads: Some(1), memory_bytes: Some(1000), ..saggar_cpu::CpuOptions::default() };
    let profiler = ProfilingBackend::new(saggar_cpu::open_with(options).unwrap());
    let refused = profiler.check_memory(&"a model", 1001, &Meter::unlimited()).unwrap_err();
    assert!(matches!(refused, DeviceError::InsufficientMemory { asked_bytes: 1001, .. }), "{refused}");
    assert!(profiler.stores_data());
}

#[test]
fn every_dispatch_is_profiled_with_its_kernels() {
    let profiler = ProfilingBackend::new(saggar_cpu::open(Some(1)).unwrap());
    let mut g = GraphBuilder::new();
    let square = Descriptor::new(DType::F32, Shape::new([4, 4]).unwrap());
    let x = g.input("x", square.clone()).unwrap();
    let y = g.matmul(x, x).unwrap();
    g.output("y", y).unwrap();
    let program = saggar_compile::compile(&verify(g.finish()).unwrap(), &profiler.target()).unwrap();
    let meter = Meter::unlimited();
    let executable = profiler.load(Arc::new(program), &meter).unwrap();
    let x = profiler.allocate(&square, &meter).unwrap();
    profiler.write(&x, bytemuck::cast_slice(&[1.0_f32; 16])).unwrap();
    for _ in 0..2 {
        let outputs = executable.dispatch(std::slice::from_ref(&x), &[]).unwrap();
        assert_eq!(profiler.read(&outputs[0]).unwrap(), bytemuck::cast_slice::<f32, u8>(&[4.0; 16]));
    }
    let profile = profiler.profile();
    let [first, second] = &profile.dispatches[..] else { panic!("{profile:?}") };
    assert!(first.started + first.duration <= second.started + second.duration);
    let kernels = profile.programs[first.program].kernels.len();
    assert_eq!(second.kernels.as_ref().map(Vec::len), Some(kernels));
}

#[test]
fn measured_peaks_are_positive_and_finite() {
    let peak = roofline::measure(&*saggar_cpu::open(None).unwrap()).unwrap();
    assert!(peak.operations_per_second > 1e6 && peak.bytes_per_second > 1e6, "{peak:?}");
    assert!(peak.operations_per_second.is_finite() && peak.bytes_per_second.is_finite(), "{peak:?}");
}

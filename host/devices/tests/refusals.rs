//! Tests of refusals: graphs that no memory can hold are refused before anything is allocated, and kernels that an
//! adapter's driver refuses are replaced by their plain variants.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests say SKIP and fail by panic")]

mod support;

use std::sync::Arc;

use parking_lot::Mutex;
use saggar_compile::{CompileTarget, compile};
use saggar_device::{Backend, DeviceError, Meter};
use saggar_gpu::wgsl::ShaderTuning;
use saggar_tensor::interp::{InterpTensor, evaluate};
use saggar_tensor::limits::{ELEMENTS_MAX, GRAPH_OUTPUTS_MAX};
use saggar_tensor::{DType, Descriptor, GraphBuilder, Shape, VerifiedGraph, nn, verify};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

fn float(dims: &[usize]) -> Descriptor {
    Descriptor::new(DType::F32, Shape::new(dims).unwrap())
}

/// Returns a graph whose outputs have `bytes` bytes together; none is larger than the device's largest buffer.
fn oversized_graph(device: &dyn Backend, bytes: u64) -> VerifiedGraph {
    let elements = (device.target().slab_bytes_max / 8).min(ELEMENTS_MAX) & !0xff;
    let count = (bytes / (4 * elements as u64) + 1).min(GRAPH_OUTPUTS_MAX as u64);
    let mut g = GraphBuilder::new();
    let x = g.input("x", float(&[1])).unwrap();
    for at in 0..count {
        let y = g.broadcast_to(x, Shape::new([elements]).unwrap()).unwrap();
        g.output(&format!("y{at}"), y).unwrap();
    }
    verify(g.finish()).unwrap()
}

#[test]
fn a_graph_larger_than_memory_is_refused_before_any_allocation() {
    let mut devices = vec![saggar_cpu::open(Some(2)).unwrap()];
    devices.extend((0..support::adapters("")).map(|index| saggar_gpu::open(index).unwrap()));
    for device in devices {
        let graph = oversized_graph(&*device, 4 << 40);
        let program = compile(&graph, &device.target()).unwrap();
        let wanted: u64 = program.outputs.iter().map(|port| port.descriptor.bytes() as u64).sum();
        let meter = Meter::unlimited();
        let name = &device.info().name;
        let refused = device.load(Arc::new(program), &meter).unwrap_err();
        let DeviceError::InsufficientMemory { asked_bytes, available_bytes, .. } = refused else {
            panic!("{name}: {refused}")
        };
        assert!(asked_bytes >= wanted && available_bytes < wanted, "{name}: {refused}");
        let text = refused.to_string();
        for part in [&asked_bytes.to_string(), &available_bytes.to_string(), name, &"smaller batches".to_owned()] {
            assert!(text.contains(part.as_str()), "{text}");
        }
        assert_eq!((meter.bytes(), meter.peak_bytes()), (0, 0), "{name}: something was charged");
        // The device is still usable.
        device.allocate(&float(&[10]), &meter).unwrap();
    }
}

#[test]
fn the_memory_limit_of_a_device_is_shared_by_all_owners() {
    let options =
        saggar_cpu::CpuOptions { threads: Some(1), memory_bytes: Some(10_000), ..saggar_cpu::CpuOptions::default() };
    let device = saggar_cpu::open_with(options).unwrap();
    // Two owners share the memory.
    let (one, other) = (Meter::unlimited(), Meter::unlimited());
    let buffer = device.allocate(&float(&[2000]), &one).unwrap();
    let refused = device.allocate(&float(&[2000]), &other).unwrap_err();
    let is_said = matches!(refused, DeviceError::InsufficientMemory { asked_bytes: 8000, available_bytes: 2000, .. });
    assert!(is_said, "{refused}");
    assert!(device.check_memory(&"a model", 8000, &other).is_err());
    drop(buffer);
    device.check_memory(&"a model", 8000, &other).unwrap();
    device.allocate(&float(&[2000]), &other).unwrap();
}

#[test]
fn a_read_larger_than_free_host_memory_is_refused() {
    let device = saggar_cpu::open(Some(1)).unwrap();
    let meter = Meter::unlimited();
    let Err(DeviceError::InsufficientMemory { available_bytes, .. }) =
        device.check_memory(&"everything", 1 << 60, &meter)
    else {
        println!("SKIP: this system does not say how much memory it has");
        return;
    };
    // Allocates a tensor that fits, and others until less than its size is left. None of their pages is touched.
    let elements_max = i32::MAX as u64;
    let elements = (available_bytes / 20 * 11 / 8).min(elements_max);
    let wide = |elements: u64| Descriptor::new(DType::I64, Shape::new([elements as usize]).unwrap());
    let tensor = device.allocate(&wide(elements), &meter).unwrap();
    let mut others = Vec::new();
    let mut too_many = (available_bytes / 8).saturating_sub(elements * 9 / 5);
    while too_many > 0 {
        let some = too_many.min(elements_max);
        others.push(device.allocate(&wide(some), &meter).unwrap());
        too_many -= some;
    }
    let refused = device.read(&tensor).unwrap_err();
    let is_said = matches!(refused, DeviceError::InsufficientMemory { asked_bytes, .. } if asked_bytes == 8 * elements);
    assert!(is_said, "{refused}");
    assert!(refused.to_string().contains(&format!("a copy of int64[{elements}]")), "{refused}");
}

#[test]
fn packed_weights_count_toward_the_memory_limit() {
    let mut g = GraphBuilder::new();
    let x = g.input("x", float(&[64, 256])).unwrap();
    let w = g.variable("w", float(&[256, 256])).unwrap();
    let y = g.matmul(x, w).unwrap();
    g.output("y", y).unwrap();
    let program = Arc::new(compile(&verify(g.finish()).unwrap(), &CompileTarget::cpu()).unwrap());
    let routines = saggar_cpu::describe_kernels(&program).unwrap();
    assert!(routines.iter().any(|routine| routine.contains("weights are packed once")), "{routines:?}");

    let weights_bytes = 4 * 256 * 256;
    let open = |memory_bytes| {
        let options = saggar_cpu::CpuOptions {
            threads: Some(1),
            memory_bytes: Some(memory_bytes),
            ..saggar_cpu::CpuOptions::default()
        };
        (saggar_cpu::open_with(options).unwrap(), Meter::unlimited())
    };
    let (device, meter) = open(2 * weights_bytes - 1);
    let _weights = device.allocate(&float(&[256, 256]), &meter).unwrap();
    let refused = device.load(Arc::clone(&program), &meter).unwrap_err();
    assert!(
        matches!(refused, DeviceError::InsufficientMemory { .. }) && refused.to_string().contains("packed weights"),
        "{refused}"
    );

    let (device, meter) = open(8 * weights_bytes);
    let weights = device.allocate(&float(&[256, 256]), &meter).unwrap();
    let x = device.allocate(&float(&[64, 256]), &meter).unwrap();
    let executable = device.load(program, &meter).unwrap();
    let before = meter.bytes();
    let (inputs, variables) = ([x], [weights]);
    drop(executable.dispatch(&inputs, &variables).unwrap());
    assert!(meter.bytes() >= before + weights_bytes, "the packed form is there: {} after {before}", meter.bytes());
    let left = 8 * weights_bytes - meter.bytes();
    device.check_memory(&"the rest", left, &meter).unwrap();
    assert!(device.check_memory(&"more than the rest", left + 1, &meter).is_err());
}

#[test]
fn an_unsupported_vector_set_is_refused_with_a_list_of_supported_ones() {
    let here = saggar_cpu::VectorSet::available();
    let all = [
        saggar_cpu::VectorSet::Plain,
        saggar_cpu::VectorSet::Neon,
        saggar_cpu::VectorSet::Avx2,
        saggar_cpu::VectorSet::Avx512,
    ];
    for set in all {
        let opened =
            saggar_cpu::open_with(saggar_cpu::CpuOptions { vectors: Some(set), ..saggar_cpu::CpuOptions::default() });
        match opened {
            Ok(device) => assert!(here.contains(&set), "{set:?} on {}", device.info().driver),
            Err(error) => {
                assert!(!here.contains(&set) && error.to_string().contains("it has plain"), "{error}");
            }
        }
    }
}

/// Collects the warnings of one thread as text.
#[derive(Clone, Default)]
struct WarningCollector(Arc<Mutex<Vec<String>>>);

impl Subscriber for WarningCollector {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == tracing::Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        struct WarningText(String);
        impl Visit for WarningText {
            fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
                self.0.push_str(&format!("{field}={value:?} "));
            }
        }
        let mut text = WarningText(String::new());
        event.record(&mut text);
        self.0.lock().push(text.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Returns a product large enough for tiles in workgroup memory, and operators that use it.
fn product() -> (VerifiedGraph, Vec<InterpTensor>) {
    let mut g = GraphBuilder::new();
    let a = g.input("a", float(&[70, 48])).unwrap();
    let b = g.input("b", float(&[48, 66])).unwrap();
    let y = g.matmul(a, b).unwrap();
    g.label(y, "the product").unwrap();
    let y = nn::relu(&mut g, y).unwrap();
    g.output("y", y).unwrap();
    let value = |dims: [usize; 2], step: usize| {
        let numbers: Vec<f64> = (0..dims[0] * dims[1]).map(|at| ((at * step) % 17) as f64 / 8.0 - 1.0).collect();
        InterpTensor::from_numbers(DType::F32, Shape::new(dims).unwrap(), &numbers).unwrap()
    };
    (verify(g.finish()).unwrap(), vec![value([70, 48], 7), value([48, 66], 5)])
}

fn has_tiles(source: &str) -> bool {
    source.contains("tile_a")
}

#[test]
fn a_kernel_the_driver_rejects_runs_its_plain_variant_and_warns_once() {
    let (graph, inputs) = product();
    let expected = evaluate(&graph, &inputs, &mut []).unwrap()[0].to_f64_numbers();
    for index in 0..support::adapters("") {
        let options = saggar_gpu::GpuOptions {
            tuning: Some(ShaderTuning::UNLIMITED),
            fail_shaders: Some(has_tiles),
            ..saggar_gpu::GpuOptions::default()
        };
        let device = saggar_gpu::open_with(index, options).unwrap();
        let heard = WarningCollector::default();
        let load = || {
            let program = Arc::new(compile(&graph, &device.target()).unwrap());
            device.load(program, &Meter::unlimited()).unwrap()
        };
        let executable = tracing::subscriber::with_default(heard.clone(), || {
            load();
            load()
        });
        let warnings = heard.0.lock().clone();
        let [warning] = &warnings[..] else { panic!("one warning, not {warnings:?}") };
        for part in ["the product", "plain variant", "reason="] {
            assert!(warning.contains(part), "{part}: {warning}");
        }
        let meter = Meter::unlimited();
        let given: Vec<_> = inputs
            .iter()
            .map(|value| {
                let buffer = device.allocate(value.descriptor(), &meter).unwrap();
                device.write(&buffer, &value.to_bytes()).unwrap();
                buffer
            })
            .collect();
        let found = executable.dispatch(&given, &[]).unwrap().remove(0);
        let found = InterpTensor::from_bytes(found.descriptor().clone(), &device.read(&found).unwrap()).unwrap();
        let near = expected.iter().zip(found.to_f64_numbers()).all(|(x, y)| (x - y).abs() < 1e-3);
        assert!(near, "the plain variant computes something else");
    }
}

#[test]
fn a_kernel_with_no_compilable_variant_returns_the_drivers_error() {
    let (graph, _) = product();
    for index in 0..support::adapters("") {
        let options = saggar_gpu::GpuOptions {
            tuning: Some(ShaderTuning::UNLIMITED),
            fail_shaders: Some(|_| true),
            ..saggar_gpu::GpuOptions::default()
        };
        let device = saggar_gpu::open_with(index, options).unwrap();
        let program = Arc::new(compile(&graph, &device.target()).unwrap());
        let refused = device.load(program, &Meter::unlimited()).unwrap_err();
        assert!(matches!(refused, DeviceError::Unsupported { .. }), "{refused}");
        assert!(refused.to_string().contains("and its plain variant"), "{refused}");
        device.synchronize().unwrap();
    }
}

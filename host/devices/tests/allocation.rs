//! Tests of a training whose adapter's driver refuses an allocation: it returns an error, and the device stays usable.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests say SKIP and fail by panic")]

mod support;

use std::sync::Arc;

use saggar_compile::compile;
use saggar_device::{Backend, DeviceError, Meter};
use saggar_gpu::wgsl::ShaderTuning;
use saggar_tensor::grad::gradients;
use saggar_tensor::interp::InterpTensor;
use saggar_tensor::op::Scalar;
use saggar_tensor::{DType, GraphBuilder, Shape, VerifiedGraph, nn, verify};

/// Returns one step of gradient descent for a network of two layers, with a scatter so that one kernel has two passes.
fn network() -> (VerifiedGraph, Vec<InterpTensor>, Vec<InterpTensor>) {
    let value = |dtype: DType, dims: &[usize]| {
        let shape = Shape::new(dims).unwrap();
        let unit = if dtype.is_float() { 8.0 } else { 1.0 };
        let numbers: Vec<f64> = (0..shape.elements()).map(|i| (i % 7) as f64 / unit).collect();
        InterpTensor::from_numbers(dtype, shape, &numbers).unwrap()
    };
    let inputs = vec![value(DType::I32, &[6]), value(DType::F32, &[6, 3])];
    let variables = vec![value(DType::F32, &[50, 4]), value(DType::F32, &[4, 3])];
    let mut g = GraphBuilder::new();
    let words = g.input("words", inputs[0].descriptor().clone()).unwrap();
    let wanted = g.input("wanted", inputs[1].descriptor().clone()).unwrap();
    let table = g.variable("table", variables[0].descriptor().clone()).unwrap();
    let weights = g.variable("weights", variables[1].descriptor().clone()).unwrap();
    let rows = g.gather(table, words, 0).unwrap();
    let found = g.matmul(rows, weights).unwrap();
    let loss = nn::mean_squared_error(&mut g, found, wanted).unwrap();
    let rate = g.scalar(DType::F32, Scalar::Float(0.1)).unwrap();
    for (variable, gradient) in [table, weights].into_iter().zip(gradients(&mut g, loss, &[table, weights]).unwrap()) {
        let step = g.mul(gradient, rate).unwrap();
        let next = g.sub(variable, step).unwrap();
        g.assign_to(variable, next).unwrap();
    }
    g.output("loss", loss).unwrap();
    (verify(g.finish()).unwrap(), inputs, variables)
}

/// Runs some steps from the initial values and returns the bytes of the last loss.
fn train(device: &dyn Backend, meter: &Meter) -> Result<Vec<u8>, DeviceError> {
    let (graph, inputs, variables) = network();
    let program = Arc::new(compile(&graph, &device.target()).unwrap());
    let executable = device.load(program, meter)?;
    let buffer = |value: &InterpTensor| {
        let buffer = device.allocate(value.descriptor(), meter)?;
        device.write(&buffer, &value.to_bytes())?;
        Ok(buffer)
    };
    let inputs = inputs.iter().map(buffer).collect::<Result<Vec<_>, DeviceError>>()?;
    let variables = variables.iter().map(buffer).collect::<Result<Vec<_>, DeviceError>>()?;
    let mut last = Vec::new();
    for _ in 0..3 {
        let outputs = executable.dispatch(&inputs, &variables)?;
        last = device.read(&outputs[0])?;
    }
    Ok(last)
}

#[test]
fn a_refused_allocation_is_an_error_and_the_device_stays_usable() {
    if support::adapters("") == 0 {
        return;
    }
    let tuning = Some(ShaderTuning { workgroup_memory: false, ..ShaderTuning::UNLIMITED });
    let open = |refuse_buffers| {
        saggar_gpu::open_with(
            0,
            saggar_gpu::GpuOptions { tuning, fail_allocations: refuse_buffers, ..saggar_gpu::GpuOptions::default() },
        )
        .unwrap()
    };
    let expected = train(&*open(None), &Meter::unlimited()).unwrap();
    let mut refused = 0;
    for number in 0.. {
        // Refuse two: after the first refusal, the device frees its pools and retries.
        let device = open(Some([number, number + 2]));
        let meter = Meter::unlimited();
        match train(&*device, &meter) {
            Ok(loss) => {
                assert_eq!(loss, expected);
                println!("{refused} allocations were refused, one per training");
                assert!(refused > 10, "{refused}");
                break;
            }
            Err(DeviceError::InsufficientMemory { asked_bytes, available_bytes, .. }) => {
                assert!(available_bytes < asked_bytes, "number {number}");
                refused += 1;
            }
            Err(other) => panic!("number {number}: {other}"),
        }
        assert_eq!(meter.bytes(), 0, "number {number}: all charged bytes are released");
        // The second refusal may still be pending.
        let _ = train(&*device, &meter);
        device.check_alive().unwrap();
        assert_eq!(train(&*device, &meter).unwrap(), expected, "number {number}");
    }
}

#[test]
fn the_pipeline_cache_is_reused_and_rewritten_when_corrupt() {
    if support::adapters("") == 0 {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let train_with_cache = || {
        let options = saggar_gpu::GpuOptions { cache_dir: Some(folder.path()), ..saggar_gpu::GpuOptions::default() };
        train(&*saggar_gpu::open_with(0, options).unwrap(), &Meter::unlimited()).unwrap()
    };
    let files = || {
        let files = std::fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().path());
        files.map(|file| (file.clone(), std::fs::read(file).unwrap())).collect::<Vec<_>>()
    };
    let first = train_with_cache();
    let cache_files = files();
    let [(file, bytes)] = &cache_files[..] else {
        println!("SKIP: this driver has no pipeline cache: {cache_files:?}");
        return;
    };
    assert_eq!(train_with_cache(), first);
    assert_eq!(files().len(), 1);
    for damaged in [&b""[..], &bytes[..bytes.len() - 1], &[&bytes[..], b"more"].concat()] {
        std::fs::write(file, damaged).unwrap();
        assert_eq!(train_with_cache(), first);
        // The driver's data may contain the time, so only the header is compared.
        assert_eq!(files()[0].1[..8], bytes[..8]);
        assert!(files()[0].1.len() > 40, "the file was rewritten");
    }
}

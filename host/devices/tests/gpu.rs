//! Tests of guarantees that only the wgpu device makes: repeatable bits, exact seconds, limits, recycled memory. The
//! conformance suite compares results with the reference interpreter.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests say SKIP and fail by panic")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use saggar_compile::program::expr::{AffineView, Instruction, Register, ScalarExpr};
use saggar_compile::program::{
    Epilogue, Kernel, KernelBody, Program, ProgramValue, ResultStore, Slab, ValueId, ValueLocation,
};
use saggar_compile::target::StorageClass;
use saggar_compile::{DisabledOptimizations, compile};
use saggar_device::{Backend, DeviceBuffer, DeviceError, Executable, Meter};
use saggar_gpu::wgsl::ShaderTuning;
use saggar_tensor::op::{BinaryOp, RandomDistribution, ReduceKind, Scalar, UnaryOp};
use saggar_tensor::{DType, Descriptor, GraphBuilder, GraphPort, Shape, verify};

/// Opens the first adapter. Prints SKIP if there is no adapter, or fails if `REQUIRE_GPU=1`.
fn device() -> Option<Arc<dyn Backend>> {
    match saggar_gpu::open(0) {
        Ok(device) => Some(device),
        Err(error) => {
            assert!(std::env::var_os("REQUIRE_GPU").is_none_or(|value| value != "1"), "{error}");
            println!("SKIP: {error}");
            None
        }
    }
}

fn descriptor(dtype: DType, dims: &[usize]) -> Descriptor {
    Descriptor::new(dtype, Shape::new(dims).unwrap())
}

fn port(name: &str, descriptor: Descriptor) -> GraphPort {
    GraphPort { name: name.to_owned(), descriptor }
}

fn identity(dims: &[usize]) -> AffineView {
    let strides = Shape::new(dims).unwrap().strides().iter().map(|&stride| stride as i64).collect();
    AffineView { offset: 0, strides, bounds: Vec::new() }
}

fn load(value: u32, dims: &[usize]) -> Instruction {
    Instruction::Load { value: ValueId(value), view: identity(dims), fill: None }
}

fn store(value: u32, register: u32) -> Vec<ResultStore> {
    vec![ResultStore { value: ValueId(value), register: Register(register) }]
}

fn kernel(label: &str, body: KernelBody) -> Kernel {
    Kernel { label: label.to_owned(), body }
}

/// Returns one map over a vector, from input 0 to output 0, both of `dtype`.
fn map_program(dtype: DType, dims: &[usize], op: UnaryOp) -> Program {
    let tensor = descriptor(dtype, dims);
    let instructions = vec![(load(0, dims), dtype), (Instruction::Unary(op, Register(0)), dtype)];
    let body = KernelBody::Map { dims: dims.to_vec(), expr: ScalarExpr { instructions }, stores: store(1, 1) };
    Program {
        values: vec![
            ProgramValue { descriptor: tensor.clone(), place: ValueLocation::Input(0) },
            ProgramValue { descriptor: tensor.clone(), place: ValueLocation::Output(0) },
        ],
        slabs: Vec::new(),
        kernels: vec![kernel("map", body)],
        inputs: vec![port("x", tensor.clone())],
        variables: Vec::new(),
        written_variables: Vec::new(),
        constants: Vec::new(),
        outputs: vec![port("y", tensor)],
        without: DisabledOptimizations::NONE,
    }
}

fn identity_epilogue(value: u32) -> Epilogue {
    let expr = ScalarExpr { instructions: vec![(Instruction::Accumulated, DType::F32)] };
    Epilogue { expr, stores: store(value, 0) }
}

/// Multiplies value 0, `[m, k]`, by its transpose into value 1.
fn with_transpose(m: usize, k: usize) -> KernelBody {
    KernelBody::MatMul {
        sizes: [1, m, m, k],
        a: ValueId(0),
        b: ValueId(0),
        transpose_a: false,
        transpose_b: true,
        batch_stride_a: 0,
        batch_stride_b: 0,
        epilogue: identity_epilogue(1),
    }
}

/// Sums value 1's elements into value 2.
fn sum_of_all(elements: usize) -> KernelBody {
    let view = AffineView { offset: 0, strides: vec![0, 1], bounds: Vec::new() };
    let element = Instruction::Load { value: ValueId(1), view, fill: None };
    KernelBody::Fold {
        kind: ReduceKind::Sum,
        outer: vec![1],
        inner: vec![elements],
        prologue: ScalarExpr { instructions: vec![(element, DType::F32)] },
        epilogue: identity_epilogue(2),
    }
}

/// Returns a program that writes a random `a` of `[m, k]` to a slab, `a` times its transpose to another slab, and the
/// sum of all elements to the output. The variable counts dispatches.
fn random_matmul_sum_program(m: usize, k: usize) -> Program {
    let float = |dims: &[usize], place| ProgramValue { descriptor: descriptor(DType::F32, dims), place };
    let slab = |offset_bytes| ValueLocation::Slab { slab: 0, offset_bytes };
    let product_at = (m * k * 4).next_multiple_of(256);
    let random = Instruction::Random {
        key: ValueId(3),
        stream: 1,
        distribution: RandomDistribution::Uniform,
        view: identity(&[m, k]),
    };
    let count = vec![
        (load(4, &[1]), DType::F32),
        (Instruction::Immediate(saggar_tensor::op::Scalar::Float(1.0)), DType::F32),
        (Instruction::Binary(BinaryOp::Add, Register(0), Register(1)), DType::F32),
    ];
    let counted = KernelBody::Map { dims: vec![1], expr: ScalarExpr { instructions: count }, stores: store(4, 2) };
    let drawn = ScalarExpr { instructions: vec![(random, DType::F32)] };
    let kernels = vec![
        kernel("random", KernelBody::Map { dims: vec![m, k], expr: drawn, stores: store(0, 0) }),
        kernel("product", with_transpose(m, k)),
        kernel("sum", sum_of_all(m * m)),
        kernel("count", counted),
    ];
    Program {
        values: vec![
            float(&[m, k], slab(0)),
            float(&[m, m], slab(product_at)),
            float(&[1], ValueLocation::Output(0)),
            ProgramValue { descriptor: descriptor(DType::U32, &[4]), place: ValueLocation::Input(0) },
            float(&[1], ValueLocation::Variable(0)),
        ],
        slabs: vec![Slab { class: StorageClass::F32, bytes: product_at + m * m * 4 }],
        kernels,
        inputs: vec![port("key", descriptor(DType::U32, &[4]))],
        variables: vec![port("count", descriptor(DType::F32, &[1]))],
        written_variables: vec![0],
        constants: Vec::new(),
        outputs: vec![port("sum", descriptor(DType::F32, &[1]))],
        without: DisabledOptimizations::NONE,
    }
}

fn tensor(device: &dyn Backend, dtype: DType, dims: &[usize], bytes: &[u8], meter: &Meter) -> DeviceBuffer {
    let buffer = device.allocate(&descriptor(dtype, dims), meter).unwrap();
    device.write(&buffer, bytes).unwrap();
    buffer
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|word| f32::from_le_bytes(word.try_into().unwrap())).collect()
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// Returns the results of the element-wise operator on the device.
fn evaluate(device: &dyn Backend, op: UnaryOp, values: &[f32]) -> Vec<f32> {
    let meter = Meter::unlimited();
    let program = device.load(Arc::new(map_program(DType::F32, &[values.len()], op)), &meter).unwrap();
    let x = tensor(device, DType::F32, &[values.len()], &bytes(values), &meter);
    let y = program.dispatch(&[x], &[]).unwrap();
    floats(&device.read(&y[0]).unwrap())
}

#[test]
fn repeated_dispatches_are_bitwise_equal() {
    if device().is_none() {
        return;
    }
    for workgroup_memory in [false, true] {
        let device = saggar_gpu::open_tuned(0, ShaderTuning { workgroup_memory, ..ShaderTuning::UNLIMITED }).unwrap();
        let meter = Meter::unlimited();
        let run = || {
            let program = device.load(Arc::new(random_matmul_sum_program(100, 77)), &meter).unwrap();
            let key = tensor(&*device, DType::U32, &[4], &[7; 16], &meter);
            let count = device.allocate(&descriptor(DType::F32, &[1]), &meter).unwrap();
            let sums: Vec<Vec<u8>> = (0..3)
                .map(|_| {
                    let outputs = program.dispatch(std::slice::from_ref(&key), std::slice::from_ref(&count)).unwrap();
                    device.read(&outputs[0]).unwrap()
                })
                .collect();
            assert_eq!(floats(&device.read(&count).unwrap()), [3.0]);
            assert_eq!(sums[0], sums[2]);
            sums
        };
        let (first, second) = (run(), run());
        assert_eq!(first, second);
        // 100 * 100 * 77 products of two uniform numbers, with a mean of 1/4.
        let sum = floats(&first[0])[0];
        assert!((sum / (100.0 * 100.0 * 77.0) - 0.25).abs() < 0.03, "{sum}");
        assert_eq!(meter.bytes(), 0);
    }
}

#[test]
fn busy_time_and_work_are_metered() {
    let Some(device) = device() else { return };
    let meter = Meter::unlimited();
    let program = device.load(Arc::new(random_matmul_sum_program(64, 64)), &meter).unwrap();
    let key = tensor(&*device, DType::U32, &[4], &[0; 16], &meter);
    let count = device.allocate(&descriptor(DType::F32, &[1]), &meter).unwrap();
    // More dispatches than one query set holds, so that both ways to read timestamps back are used.
    for _ in 0..150 {
        program.dispatch(std::slice::from_ref(&key), std::slice::from_ref(&count)).unwrap();
    }
    device.synchronize().unwrap();
    assert_eq!(meter.dispatches(), 600);
    // Dispatches that arrive while the adapter is busy share a submission.
    assert!((1..=150).contains(&meter.submissions()), "{}", meter.submissions());
    let busy = meter.busy_time();
    assert!(busy > Duration::ZERO && busy < Duration::from_secs(120), "{busy:?}");
    device.synchronize().unwrap();
    assert_eq!(meter.busy_time(), busy);
    assert_eq!(floats(&device.read(&count).unwrap()), [150.0]);
}

/// Returns the busy time charged to two owners, divided by the wall time in which the device always had work of theirs.
fn share_of_busy_time(device: &dyn Backend, program: &Arc<Program>) -> f64 {
    let owners = [Meter::unlimited(), Meter::unlimited()];
    let loaded = owners.each_ref().map(|meter| {
        let key = tensor(device, DType::U32, &[4], &[0; 16], meter);
        let count = device.allocate(&descriptor(DType::F32, &[1]), meter).unwrap();
        (device.load(Arc::clone(program), meter).unwrap(), key, count)
    });
    let dispatch = |(executable, key, count): &(Arc<dyn Executable>, DeviceBuffer, DeviceBuffer)| {
        executable.dispatch(std::slice::from_ref(key), std::slice::from_ref(count)).unwrap();
    };
    loaded.iter().for_each(dispatch);
    device.synchronize().unwrap();
    let busy = || owners.iter().map(Meter::busy_time).sum::<Duration>();
    let (before, began) = (busy(), Instant::now());
    std::thread::scope(|scope| {
        // One owner has twice as many dispatches as the other.
        for (job, times) in loaded.iter().zip([10, 20]) {
            scope.spawn(move || (0..times).for_each(|_| dispatch(job)));
        }
    });
    device.synchronize().unwrap();
    (busy() - before).as_secs_f64() / began.elapsed().as_secs_f64()
}

/// Returns a program that keeps the device busy for at least five milliseconds, beside which the time to submit a
/// dispatch and to wait for it is short on fast GPUs too.
fn long_program(device: &dyn Backend) -> Arc<Program> {
    let mut size = 384;
    loop {
        let program = Arc::new(random_matmul_sum_program(size, size));
        let key = tensor(device, DType::U32, &[4], &[0; 16], &Meter::unlimited());
        let count = device.allocate(&descriptor(DType::F32, &[1]), &Meter::unlimited()).unwrap();
        let meter = Meter::unlimited();
        let executable = device.load(Arc::clone(&program), &meter).unwrap();
        executable.dispatch(&[key], &[count]).unwrap();
        device.synchronize().unwrap();
        if meter.busy_time() >= Duration::from_millis(5) || size >= 6144 {
            return program;
        }
        size *= 2;
    }
}

/// All busy time is counted exactly once. The machine can do other work between two passes, so the best of several
/// measurements counts.
#[test]
fn metered_seconds_of_concurrent_jobs_add_up_to_device_busy_time() {
    let Some(device) = device() else { return };
    if !device.info().exact_seconds {
        println!("SKIP: this adapter has no timestamps");
        return;
    }
    let program = long_program(&*device);
    let mut best = 0.0_f64;
    for _ in 0..30 {
        let share = share_of_busy_time(&*device, &program);
        assert!(share < 1.02, "{share}");
        best = best.max(share);
        if best > 0.98 {
            println!("{best:.4} of the time is charged");
            return;
        }
    }
    panic!("at most {best:.4} of the time is charged");
}

#[test]
fn tensors_over_a_memory_limit_are_refused_before_allocation() {
    let Some(device) = device() else { return };
    let meter = Meter::new(1000);
    let error = device.allocate(&descriptor(DType::F32, &[300]), &meter).unwrap_err();
    assert!(
        matches!(error, DeviceError::OutOfMemory { asked_bytes: 1200, used_bytes: 0, limit_bytes: 1000 }),
        "{error}"
    );
    let error = device.load(Arc::new(random_matmul_sum_program(64, 64)), &meter).unwrap_err();
    assert!(matches!(error, DeviceError::OutOfMemory { .. }), "{error}");
    let buffer = device.allocate(&descriptor(DType::U8, &[100]), &meter).unwrap();
    assert_eq!(meter.bytes(), 400);
    drop(buffer);
    assert_eq!(meter.bytes(), 0);
    let unlimited = Meter::unlimited();
    let error = device.allocate(&descriptor(DType::F32, &[(1 << 31) - 1]), &unlimited).unwrap_err();
    assert!(error.to_string().contains("max_"), "{error}");
    // Without 16-bit storage, a half-precision number takes one word; a 64-bit integer takes two words.
    let half_bytes = if device.target().half_storage { 20 } else { 40 };
    for (dtype, bytes) in [(DType::F16, half_bytes), (DType::I64, 80), (DType::U64, 80)] {
        let buffer = device.allocate(&descriptor(dtype, &[10]), &unlimited).unwrap();
        assert_eq!(unlimited.bytes(), bytes, "{dtype}");
        drop(buffer);
    }
    assert_eq!(unlimited.bytes(), 0);
}

#[test]
fn a_kernel_runs_on_an_empty_tensor() {
    let Some(device) = device() else { return };
    assert_eq!(evaluate(&*device, UnaryOp::Neg, &[]), [0.0f32; 0]);
}

#[test]
fn recycled_buffers_are_zeroed_and_metered_bytes_return_to_zero() {
    let Some(device) = device() else { return };
    let meter = Meter::unlimited();
    for round in 0..200u32 {
        let program = device.load(Arc::new(map_program(DType::I8, &[1000], UnaryOp::Neg)), &meter).unwrap();
        let x = device.allocate(&descriptor(DType::I8, &[1000]), &meter).unwrap();
        assert_eq!(device.read(&x).unwrap(), [0; 1000]);
        let fresh = device.allocate(&descriptor(DType::I8, &[1000]), &meter).unwrap();
        let zeros = program.dispatch(&[fresh], &[]).unwrap();
        assert_eq!(device.read(&zeros[0]).unwrap(), [0; 1000]);
        let value = (round % 256) as u8;
        device.write(&x, &[value; 1000]).unwrap();
        let y = program.dispatch(&[x], &[]).unwrap();
        assert_eq!(device.read(&y[0]).unwrap(), [value.wrapping_neg(); 1000]);
        drop((program, y, zeros));
        assert_eq!(meter.bytes(), 0);
    }
}

#[test]
fn mismatched_tensors_are_reported_by_port_name() {
    let Some(device) = device() else { return };
    let meter = Meter::unlimited();
    let program = device.load(Arc::new(map_program(DType::F32, &[4], UnaryOp::Neg)), &meter).unwrap();
    let wrong = device.allocate(&descriptor(DType::F32, &[5]), &meter).unwrap();
    let error = program.dispatch(&[wrong], &[]).unwrap_err();
    assert_eq!(error.to_string(), "x: expected float32[4], got float32[5]");
    let error = program.dispatch(&[], &[]).unwrap_err();
    assert!(matches!(error, DeviceError::Mismatch { .. }), "{error}");
    if let Ok(other) = saggar_gpu::open(0) {
        let foreign = other.allocate(&descriptor(DType::F32, &[4]), &meter).unwrap();
        let error = program.dispatch(&[foreign], &[]).unwrap_err();
        assert!(matches!(error, DeviceError::Mismatch { .. }), "{error}");
    }
    let x = device.allocate(&descriptor(DType::F32, &[4]), &meter).unwrap();
    assert!(matches!(device.write(&x, &[0; 15]), Err(DeviceError::Mismatch { .. })));
}

#[test]
fn an_absent_adapter_is_not_found() {
    let error = saggar_gpu::open(1000).unwrap_err();
    assert!(matches!(error, DeviceError::NotFound { .. }), "{error}");
}

#[test]
fn transcendental_functions_are_accurate() {
    let Some(device) = device() else { return };
    type UnaryAccuracyCase = (UnaryOp, fn(f64) -> f64, f64, f64);
    // Each operator with its test range. The error bound is 4 units in the last place of the larger of result and 2^-3.
    let cases: [UnaryAccuracyCase; 5] = [
        (UnaryOp::Exp, f64::exp, -80.0, 80.0),
        (UnaryOp::Log, f64::ln, 1e-30, 4.0),
        (UnaryOp::Sin, f64::sin, -3000.0, 3000.0),
        (UnaryOp::Cos, f64::cos, -3000.0, 3000.0),
        (UnaryOp::Tanh, f64::tanh, -9.0, 9.0),
    ];
    for (op, exact, low, high) in cases {
        let xs: Vec<f32> = (0..100_000).map(|i| (low + (high - low) * f64::from(i) / 1e5) as f32).collect();
        let ys = evaluate(&*device, op, &xs);
        for (&x, y) in xs.iter().zip(ys) {
            let expected = exact(f64::from(x));
            let error = (f64::from(y) - expected).abs() / expected.abs().max(0.125);
            assert!(error <= 4.0 * f64::from(f32::EPSILON), "{op:?}({x}) = {y}, not {expected}");
        }
    }
}

#[test]
fn special_values_follow_ieee() {
    type SpecialValueCase = (UnaryOp, fn(f32) -> f32);
    let Some(device) = device() else { return };
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    let xs = [inf, -inf, nan, 0.0, -0.0, -1.0, 2.5, 3.5, -2.5];
    let cases: [SpecialValueCase; 10] = [
        (UnaryOp::Exp, f32::exp),
        (UnaryOp::Log, f32::ln),
        (UnaryOp::Sqrt, f32::sqrt),
        (UnaryOp::Sin, f32::sin),
        (UnaryOp::Tanh, f32::tanh),
        (UnaryOp::Abs, f32::abs),
        (UnaryOp::Reciprocal, f32::recip),
        (UnaryOp::RoundEven, f32::round_ties_even),
        (UnaryOp::Floor, f32::floor),
        (UnaryOp::Sign, |x| if x.is_nan() || x == 0.0 { x } else { x.signum() }),
    ];
    for (op, exact) in cases {
        for (x, y) in xs.into_iter().zip(evaluate(&*device, op, &xs)) {
            let expected = exact(x);
            let close = y == expected || (y - expected).abs() <= 1e-6 * expected.abs();
            assert!(close || y.is_nan() && expected.is_nan(), "{op:?}({x}) = {y}, not {expected}");
        }
    }
}

#[test]
fn kernels_over_the_loop_iteration_limit_are_refused() {
    let Some(device) = device() else { return };
    if !device.info().software {
        println!("SKIP: {} runs loops of any length", device.info().name);
        return;
    }
    let (mut g, meter) = (GraphBuilder::new(), Meter::unlimited());
    let ones = |g: &mut GraphBuilder, dims: &[usize]| g.fill(descriptor(DType::F32, dims), Scalar::Float(1.0)).unwrap();
    let (a, b) = (ones(&mut g, &[1, 70_000]), ones(&mut g, &[70_000, 1]));
    let product = g.matmul(a, b).unwrap();
    g.output("y", product).unwrap();
    let program = Arc::new(compile(&verify(g.finish()).unwrap(), &device.target()).unwrap());
    let refused = device.load(program, &meter).unwrap_err().to_string();
    assert!(refused.contains("70002 loop iterations in one invocation"), "{refused}");
    assert!(refused.contains("this device allows 65535"), "{refused}");
}

//! What only the wgpu device promises: repeatable bits, exact seconds, limits, recycled memory. Results against the
//! reference interpreter are the conformance suite's.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests say SKIP and fail by panic")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use saggar_compile::compile;
use saggar_compile::expr::{Expr, Instruction, Register, View};
use saggar_compile::program::{Body, Epilogue, Kernel, Place, Program, Slab, Store, Value, ValueId};
use saggar_compile::target::Class;
use saggar_compile::wgsl::Tuning;
use saggar_device::{Backend, Buffer, DeviceError, Executable, Meter, gpu};
use saggar_tensor::op::{Binary, Distribution, ReduceKind, Scalar, Unary};
use saggar_tensor::{DType, Descriptor, GraphBuilder, Port, Shape, verify};

/// The first adapter, or a SKIP line. With `REQUIRE_GPU=1`, its absence is a failure.
fn device() -> Option<Arc<dyn Backend>> {
    match gpu::open(0) {
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

fn port(name: &str, descriptor: Descriptor) -> Port {
    Port { name: name.to_owned(), descriptor }
}

fn identity(dims: &[usize]) -> View {
    let strides = Shape::new(dims).unwrap().strides().iter().map(|&stride| stride as i64).collect();
    View { offset: 0, strides, bounds: Vec::new() }
}

fn load(value: u32, dims: &[usize]) -> Instruction {
    Instruction::Load { value: ValueId(value), view: identity(dims), fill: None }
}

fn store(value: u32, register: u32) -> Vec<Store> {
    vec![Store { value: ValueId(value), register: Register(register) }]
}

fn kernel(label: &str, body: Body) -> Kernel {
    Kernel { label: label.to_owned(), body }
}

/// One map over a vector: input 0 to output 0, both of `dtype`.
fn map(dtype: DType, dims: &[usize], op: Unary) -> Program {
    let tensor = descriptor(dtype, dims);
    let instructions = vec![(load(0, dims), dtype), (Instruction::Unary(op, Register(0)), dtype)];
    let body = Body::Map { dims: dims.to_vec(), expr: Expr { instructions }, stores: store(1, 1) };
    Program {
        values: vec![
            Value { descriptor: tensor.clone(), place: Place::Input(0) },
            Value { descriptor: tensor.clone(), place: Place::Output(0) },
        ],
        slabs: Vec::new(),
        kernels: vec![kernel("map", body)],
        inputs: vec![port("x", tensor.clone())],
        variables: Vec::new(),
        written_variables: Vec::new(),
        constants: Vec::new(),
        outputs: vec![port("y", tensor)],
    }
}

fn plain(value: u32) -> Epilogue {
    let expr = Expr { instructions: vec![(Instruction::Accumulated, DType::F32)] };
    Epilogue { expr, stores: store(value, 0) }
}

/// Value 0, `[m, k]`, times its transpose to value 1.
fn with_transpose(m: usize, k: usize) -> Body {
    Body::MatMul {
        sizes: [1, m, m, k],
        a: ValueId(0),
        b: ValueId(0),
        transpose_a: false,
        transpose_b: true,
        batch_stride_a: 0,
        batch_stride_b: 0,
        epilogue: plain(1),
    }
}

/// The sum of value 1's elements to value 2.
fn sum_of_all(elements: usize) -> Body {
    let view = View { offset: 0, strides: vec![0, 1], bounds: Vec::new() };
    let element = Instruction::Load { value: ValueId(1), view, fill: None };
    Body::Fold {
        kind: ReduceKind::Sum,
        outer: vec![1],
        inner: vec![elements],
        prologue: Expr { instructions: vec![(element, DType::F32)] },
        epilogue: plain(2),
    }
}

/// Random `a` of `[m, k]` into a slab, `a` times its transpose into another, and the sum of all into the output; the
/// variable is a count of dispatches.
fn chain(m: usize, k: usize) -> Program {
    let float = |dims: &[usize], place| Value { descriptor: descriptor(DType::F32, dims), place };
    let slab = |offset_bytes| Place::Slab { slab: 0, offset_bytes };
    let product_at = (m * k * 4).next_multiple_of(256);
    let random = Instruction::Random {
        key: ValueId(3),
        stream: 1,
        distribution: Distribution::Uniform,
        view: identity(&[m, k]),
    };
    let count = vec![
        (load(4, &[1]), DType::F32),
        (Instruction::Immediate(saggar_tensor::op::Scalar::Float(1.0)), DType::F32),
        (Instruction::Binary(Binary::Add, Register(0), Register(1)), DType::F32),
    ];
    let counted = Body::Map { dims: vec![1], expr: Expr { instructions: count }, stores: store(4, 2) };
    let drawn = Expr { instructions: vec![(random, DType::F32)] };
    let kernels = vec![
        kernel("random", Body::Map { dims: vec![m, k], expr: drawn, stores: store(0, 0) }),
        kernel("product", with_transpose(m, k)),
        kernel("sum", sum_of_all(m * m)),
        kernel("count", counted),
    ];
    Program {
        values: vec![
            float(&[m, k], slab(0)),
            float(&[m, m], slab(product_at)),
            float(&[1], Place::Output(0)),
            Value { descriptor: descriptor(DType::U32, &[4]), place: Place::Input(0) },
            float(&[1], Place::Variable(0)),
        ],
        slabs: vec![Slab { class: Class::F32, bytes: product_at + m * m * 4 }],
        kernels,
        inputs: vec![port("key", descriptor(DType::U32, &[4]))],
        variables: vec![port("count", descriptor(DType::F32, &[1]))],
        written_variables: vec![0],
        constants: Vec::new(),
        outputs: vec![port("sum", descriptor(DType::F32, &[1]))],
    }
}

fn tensor(device: &dyn Backend, dtype: DType, dims: &[usize], bytes: &[u8], meter: &Meter) -> Buffer {
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

/// The element-wise operator on the device.
fn evaluate(device: &dyn Backend, op: Unary, values: &[f32]) -> Vec<f32> {
    let meter = Meter::unlimited();
    let program = device.load(Arc::new(map(DType::F32, &[values.len()], op)), &meter).unwrap();
    let x = tensor(device, DType::F32, &[values.len()], &bytes(values), &meter);
    let y = program.dispatch(&[x], &[]).unwrap();
    floats(&device.read(&y[0]).unwrap())
}

#[test]
fn equal_work_gives_equal_bits() {
    if device().is_none() {
        return;
    }
    for workgroup_memory in [false, true] {
        let device = gpu::open_tuned(0, Tuning { workgroup_memory, ..Tuning::UNLIMITED }).unwrap();
        let meter = Meter::unlimited();
        let run = || {
            let program = device.load(Arc::new(chain(100, 77)), &meter).unwrap();
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
        // 100 * 100 * 77 products of two uniform numbers, a quarter each on average.
        let sum = floats(&first[0])[0];
        assert!((sum / (100.0 * 100.0 * 77.0) - 0.25).abs() < 0.03, "{sum}");
        assert_eq!(meter.bytes(), 0);
    }
}

#[test]
fn busy_time_and_work_are_metered() {
    let Some(device) = device() else { return };
    let meter = Meter::unlimited();
    let program = device.load(Arc::new(chain(64, 64)), &meter).unwrap();
    let key = tensor(&*device, DType::U32, &[4], &[0; 16], &meter);
    let count = device.allocate(&descriptor(DType::F32, &[1]), &meter).unwrap();
    // More dispatches than one set of timestamps holds, so that both ways of reading them back are used.
    for _ in 0..150 {
        program.dispatch(std::slice::from_ref(&key), std::slice::from_ref(&count)).unwrap();
    }
    device.synchronize().unwrap();
    assert_eq!(meter.dispatches(), 600);
    // Those that came while the adapter was busy share a submission.
    assert!((1..=150).contains(&meter.submissions()), "{}", meter.submissions());
    let busy = meter.busy();
    assert!(busy > Duration::ZERO && busy < Duration::from_secs(120), "{busy:?}");
    device.synchronize().unwrap();
    assert_eq!(meter.busy(), busy);
    assert_eq!(floats(&device.read(&count).unwrap()), [150.0]);
}

/// What two owners are charged for together, of the time in which the device was never without work of theirs.
fn share_of_busy_time(device: &dyn Backend, program: &Arc<Program>) -> f64 {
    let owners = [Meter::unlimited(), Meter::unlimited()];
    let loaded = owners.each_ref().map(|meter| {
        let key = tensor(device, DType::U32, &[4], &[0; 16], meter);
        let count = device.allocate(&descriptor(DType::F32, &[1]), meter).unwrap();
        (device.load(Arc::clone(program), meter).unwrap(), key, count)
    });
    let dispatch = |(executable, key, count): &(Arc<dyn Executable>, Buffer, Buffer)| {
        executable.dispatch(std::slice::from_ref(key), std::slice::from_ref(count)).unwrap();
    };
    loaded.iter().for_each(dispatch);
    device.synchronize().unwrap();
    let busy = || owners.iter().map(Meter::busy).sum::<Duration>();
    let (before, began) = (busy(), Instant::now());
    std::thread::scope(|scope| {
        // One has twice as much to do as the other.
        for (job, times) in loaded.iter().zip([10, 20]) {
            scope.spawn(move || (0..times).for_each(|_| dispatch(job)));
        }
    });
    device.synchronize().unwrap();
    (busy() - before).as_secs_f64() / began.elapsed().as_secs_f64()
}

/// Nothing is counted twice and nothing is left out. Between two passes the machine may do something else for a moment, so the
/// best of several looks counts.
#[test]
fn seconds_of_jobs_that_share_a_device_add_up_to_its_busy_time() {
    let Some(device) = device() else { return };
    if !device.info().exact_seconds {
        println!("SKIP: this adapter has no timestamps");
        return;
    }
    let program = Arc::new(chain(384, 384));
    let mut best = 0.0_f64;
    for _ in 0..10 {
        let share = share_of_busy_time(&*device, &program);
        assert!(share < 1.02, "{share}");
        best = best.max(share);
        if best > 0.98 {
            println!("{best:.4} of the time is somebody's");
            return;
        }
    }
    panic!("at most {best:.4} of the time is somebody's");
}

#[test]
fn limits_refuse_before_allocating() {
    let Some(device) = device() else { return };
    let meter = Meter::new(1000);
    let error = device.allocate(&descriptor(DType::F32, &[300]), &meter).unwrap_err();
    assert!(
        matches!(error, DeviceError::OutOfMemory { asked_bytes: 1200, used_bytes: 0, limit_bytes: 1000 }),
        "{error}"
    );
    let error = device.load(Arc::new(chain(64, 64)), &meter).unwrap_err();
    assert!(matches!(error, DeviceError::OutOfMemory { .. }), "{error}");
    let kept = device.allocate(&descriptor(DType::U8, &[100]), &meter).unwrap();
    assert_eq!(meter.bytes(), 400);
    drop(kept);
    assert_eq!(meter.bytes(), 0);
    let unlimited = Meter::unlimited();
    let error = device.allocate(&descriptor(DType::F32, &[(1 << 31) - 1]), &unlimited).unwrap_err();
    assert!(error.to_string().contains("max_"), "{error}");
    // A half-precision number takes a word where shaders have no 16-bit storage, a 64-bit integer two words.
    let half_bytes = if device.target().half_storage { 20 } else { 40 };
    for (dtype, bytes) in [(DType::F16, half_bytes), (DType::I64, 80), (DType::U64, 80)] {
        let kept = device.allocate(&descriptor(dtype, &[10]), &unlimited).unwrap();
        assert_eq!(unlimited.bytes(), bytes, "{dtype}");
        drop(kept);
    }
    assert_eq!(unlimited.bytes(), 0);
}

#[test]
fn empty_tensors_run() {
    let Some(device) = device() else { return };
    assert_eq!(evaluate(&*device, Unary::Neg, &[]), [0.0f32; 0]);
}

#[test]
fn recycled_memory_is_zero_and_bytes_return_to_the_start() {
    let Some(device) = device() else { return };
    let meter = Meter::unlimited();
    for round in 0..200u32 {
        let program = device.load(Arc::new(map(DType::I8, &[1000], Unary::Neg)), &meter).unwrap();
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
fn tensors_that_do_not_fit_are_named() {
    let Some(device) = device() else { return };
    let meter = Meter::unlimited();
    let program = device.load(Arc::new(map(DType::F32, &[4], Unary::Neg)), &meter).unwrap();
    let wrong = device.allocate(&descriptor(DType::F32, &[5]), &meter).unwrap();
    let error = program.dispatch(&[wrong], &[]).unwrap_err();
    assert_eq!(error.to_string(), "x: expected float32[4], got float32[5]");
    let error = program.dispatch(&[], &[]).unwrap_err();
    assert!(matches!(error, DeviceError::Mismatch { .. }), "{error}");
    if let Ok(other) = gpu::open(0) {
        let foreign = other.allocate(&descriptor(DType::F32, &[4]), &meter).unwrap();
        let error = program.dispatch(&[foreign], &[]).unwrap_err();
        assert!(matches!(error, DeviceError::Mismatch { .. }), "{error}");
    }
    let x = device.allocate(&descriptor(DType::F32, &[4]), &meter).unwrap();
    assert!(matches!(device.write(&x, &[0; 15]), Err(DeviceError::Mismatch { .. })));
}

#[test]
fn an_absent_adapter_is_not_found() {
    let error = gpu::open(1000).unwrap_err();
    assert!(matches!(error, DeviceError::NotFound { .. }), "{error}");
}

#[test]
fn transcendental_functions_are_accurate() {
    let Some(device) = device() else { return };
    type Case = (Unary, fn(f64) -> f64, f64, f64);
    // Each with the range it is tested on. The bound is 4 units in the last place of the larger of result and 2^-3.
    let cases: [Case; 5] = [
        (Unary::Exp, f64::exp, -80.0, 80.0),
        (Unary::Log, f64::ln, 1e-30, 4.0),
        (Unary::Sin, f64::sin, -3000.0, 3000.0),
        (Unary::Cos, f64::cos, -3000.0, 3000.0),
        (Unary::Tanh, f64::tanh, -9.0, 9.0),
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
    type Case = (Unary, fn(f32) -> f32);
    let Some(device) = device() else { return };
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    let xs = [inf, -inf, nan, 0.0, -0.0, -1.0, 2.5, 3.5, -2.5];
    let cases: [Case; 10] = [
        (Unary::Exp, f32::exp),
        (Unary::Log, f32::ln),
        (Unary::Sqrt, f32::sqrt),
        (Unary::Sin, f32::sin),
        (Unary::Tanh, f32::tanh),
        (Unary::Abs, f32::abs),
        (Unary::Reciprocal, f32::recip),
        (Unary::RoundEven, f32::round_ties_even),
        (Unary::Floor, f32::floor),
        (Unary::Sign, |x| if x.is_nan() || x == 0.0 { x } else { x.signum() }),
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
fn loops_that_a_device_would_cut_short_are_refused() {
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
    assert!(refused.contains("loops run 70002 times in one invocation"), "{refused}");
    assert!(refused.contains("ends them after 65535"), "{refused}");
}

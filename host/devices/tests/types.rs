//! Tests of data types whose arithmetic shaders lack: the exact bits of `float16`, which the conformance suite compares
//! only within a tolerance, and 64-bit integers emulated with words.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests say SKIP and fail by panic")]

mod support;

use std::sync::{Arc, OnceLock};

use saggar_compile::compile;
use saggar_device::{Backend, Meter};
use saggar_gpu::wgsl::ShaderTuning;
use saggar_tensor::interp::{InterpTensor, float16};
use saggar_tensor::op::{BinaryOp, Conv2d, ConvolutionOp, IndexOp, Op, Pool2d, PoolKind, Scalar};
use saggar_tensor::{DType, Descriptor, GraphBuilder, NodeId, Shape, verify};

/// Returns the first adapter with each variant of its kernels, opened once. Prints SKIP if there is no adapter, or fails
/// if `REQUIRE_GPU=1`.
fn devices() -> &'static [Arc<dyn Backend>] {
    static DEVICES: OnceLock<Vec<Arc<dyn Backend>>> = OnceLock::new();
    if support::adapters("") == 0 {
        return &[];
    }
    DEVICES.get_or_init(open_variants)
}

fn open_variants() -> Vec<Arc<dyn Backend>> {
    let open = |(workgroup_memory, half_storage, wide_integers)| {
        saggar_gpu::open_tuned(
            0,
            ShaderTuning { workgroup_memory, half_storage, wide_integers, ..ShaderTuning::UNLIMITED },
        )
        .unwrap()
    };
    [(false, false, true), (false, true, true), (true, false, true), (true, true, true), (true, true, false)]
        .map(open)
        .to_vec()
}

fn shape(dims: &[usize]) -> Shape {
    Shape::new(dims).unwrap()
}

/// Data type, dimensions and bytes.
type RawInput<'a> = (DType, &'a [usize], &'a [u8]);

/// Runs the graph of `build` on these inputs and returns the bytes of its output.
fn run(
    device: &dyn Backend,
    inputs: &[RawInput<'_>],
    build: impl FnOnce(&mut GraphBuilder, &[NodeId]) -> NodeId,
) -> Vec<u8> {
    let meter = Meter::unlimited();
    let mut g = GraphBuilder::new();
    let (mut nodes, mut buffers) = (Vec::new(), Vec::new());
    for (at, (dtype, dims, bytes)) in inputs.iter().enumerate() {
        let descriptor = Descriptor::new(*dtype, shape(dims));
        nodes.push(g.input(&format!("x{at}"), descriptor.clone()).unwrap());
        buffers.push(device.allocate(&descriptor, &meter).unwrap());
        device.write(&buffers[at], bytes).unwrap();
    }
    let output = build(&mut g, &nodes);
    g.output("y", output).unwrap();
    let program = compile(&verify(g.finish()).unwrap(), &device.target()).unwrap();
    let outputs = device.load(Arc::new(program), &meter).unwrap().dispatch(&buffers, &[]).unwrap();
    device.read(&outputs[0]).unwrap()
}

fn float16_bytes(numbers: &[f64]) -> Vec<u8> {
    numbers.iter().flat_map(|&number| float16::to_bits(number).to_le_bytes()).collect()
}

/// Casts a `float16` result to `float32`, so that rounding in the read-back cannot hide the device's.
fn as_float32(g: &mut GraphBuilder, half: NodeId) -> NodeId {
    g.cast(half, DType::F32).unwrap()
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|word| f32::from_le_bytes(word.try_into().unwrap())).collect()
}

/// Tests numbers around every boundary between two neighbouring half-precision numbers and around these numbers,
/// including subnormal and the largest ones, with both signs.
#[test]
fn float16_rounding_is_to_nearest_even() {
    let mut numbers = vec![f32::NAN, f32::INFINITY, f32::MAX, 1e-45, f32::MIN_POSITIVE, 1e-10, 65519.996, 65520.0, 1e9];
    for bits in 0..=0x7bffu16 {
        let low = float16::from_bits(bits) as f32;
        // The next number after the largest would be 65536.
        let high = if bits == 0x7bff { 65536.0 } else { float16::from_bits(bits + 1) as f32 };
        let middle = (low + high) / 2.0;
        numbers.extend([low, low.next_up(), middle.next_down(), middle, middle.next_up(), high.next_down()]);
    }
    numbers.extend(numbers.clone().iter().map(|number| -number));
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    for device in devices() {
        let inputs = [(DType::F32, &[numbers.len()][..], &bytes[..])];
        let found = run(device.as_ref(), &inputs, |g, x| {
            let half = g.cast(x[0], DType::F16).unwrap();
            as_float32(g, half)
        });
        for (number, found) in numbers.iter().zip(floats(&found)) {
            let expected = float16::round(f64::from(*number)) as f32;
            let equal = found.to_bits() == expected.to_bits() || (found.is_nan() && expected.is_nan());
            assert!(equal, "{number} ({:#x}) becomes {found}, not {expected}", number.to_bits());
        }
    }
}

#[test]
fn every_float16_survives_upload_and_download() {
    let bytes: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
    for device in devices() {
        let inputs = [(DType::F16, &[1 << 16][..], &bytes[..])];
        let back = run(device.as_ref(), &inputs, |_, x| x[0]);
        let negated = run(device.as_ref(), &inputs, |g, x| g.neg(x[0]).unwrap());
        for bits in 0..=u16::MAX {
            let at = |bytes: &[u8]| u16::from_le_bytes([bytes[2 * bits as usize], bytes[2 * bits as usize + 1]]);
            if float16::from_bits(bits).is_nan() {
                assert!(float16::from_bits(at(&back)).is_nan(), "{bits:#x}");
                assert!(float16::from_bits(at(&negated)).is_nan(), "{bits:#x}");
            } else {
                assert_eq!((at(&back), at(&negated)), (bits, bits ^ 0x8000));
            }
        }
        // Tensors that end within a word.
        for length in [0, 1, 3, 65_535] {
            let back =
                run(device.as_ref(), &[(DType::F16, &[length], &bytes[..2 * length])], |g, x| g.neg(x[0]).unwrap());
            assert_eq!(back.len(), 2 * length);
            let expected = bytes.chunks_exact(2).map(|half| [half[0], half[1] ^ 0x80]).take(length.min(0x7c01));
            assert!(back.chunks_exact(2).zip(expected).all(|(back, half)| back == half), "{length}");
        }
    }
}

/// 5000 elements.
const PLANE: &[usize] = &[1, 1, 50, 100];

/// Sums that would stop at 2048 if each addition were rounded.
#[test]
fn sums_of_float16_are_accumulated_in_float32() {
    let ones = float16_bytes(&[1.0; 5000]);
    let indices: Vec<u8> = [0i32; 5000].iter().flat_map(|index| index.to_le_bytes()).collect();
    let pool = Pool2d { window: [50, 100], padding: [0; 4], strides: [1, 1], dilations: [1, 1] };
    let conv = Conv2d { padding: [0; 4], strides: [1, 1], dilations: [1, 1], groups: 1 };
    let ops: [(ConvolutionOp, &[&'static [usize]]); 5] = [
        (ConvolutionOp::Conv2d(conv), &[PLANE, PLANE]),
        (ConvolutionOp::Conv2dFilterGrad { conv, window: [1, 1] }, &[PLANE, PLANE]),
        (ConvolutionOp::Conv2dInputGrad { conv, size: [1, 1] }, &[&[1, 5000, 1, 1], &[5000, 1, 1, 1]]),
        (ConvolutionOp::Pool2d { kind: PoolKind::Sum, pool }, &[PLANE]),
        // The middle element is in every window.
        (ConvolutionOp::SumPool2dGrad { pool, size: [99, 199] }, &[PLANE]),
    ];
    let half = |dims: &'static [usize]| (DType::F16, dims, &ones[..]);
    for device in devices() {
        let largest = |inputs: &[RawInput<'_>], build: &dyn Fn(&mut GraphBuilder, &[NodeId]) -> NodeId| {
            let found = run(device.as_ref(), inputs, |g, x| {
                let half = build(g, x);
                as_float32(g, half)
            });
            floats(&found).into_iter().fold(0.0, f32::max)
        };
        assert_eq!(largest(&[half(&[5000])], &|g, x| g.reduce_sum(x[0], &[0], false).unwrap()), 5000.0);
        assert_eq!(largest(&[half(&[1, 5000]), half(&[5000, 1])], &|g, x| g.matmul(x[0], x[1]).unwrap()), 5000.0);
        for (op, operands) in &ops {
            let inputs: Vec<RawInput<'_>> = operands.iter().map(|&dims| half(dims)).collect();
            assert_eq!(largest(&inputs, &|g, x| g.add_node(Op::Convolution(*op), x).unwrap()), 5000.0, "{op:?}");
        }
        let scatter = Op::Index(IndexOp::ScatterAdd { axis: 0, size: 1 });
        let inputs = [(DType::I32, &[5000][..], &indices[..]), half(&[5000])];
        assert_eq!(largest(&inputs, &|g, x| g.add_node(scatter.clone(), x).unwrap()), 5000.0);
    }
}

/// 4097 = 4096 + 1 lies between two half-precision numbers, and so does the sum of 4097 ones: every operation must
/// round it.
#[test]
fn results_of_float16_are_rounded_before_they_are_used() {
    let ones = float16_bytes(&[1.0; 4097]);
    for device in devices() {
        let sum = [(DType::F16, &[4097][..], &ones[..])];
        let found = run(device.as_ref(), &sum, |g, x| {
            let sum = g.reduce_sum(x[0], &[0], false).unwrap();
            as_float32(g, sum)
        });
        assert_eq!(floats(&found), [4096.0]);
        let (large, one) = (float16_bytes(&[4096.0]), float16_bytes(&[1.0]));
        let operands = [(DType::F16, &[1][..], &large[..]), (DType::F16, &[1], &one)];
        let found = run(device.as_ref(), &operands, |g, x| {
            let sum = g.binary(BinaryOp::Add, x[0], x[1]).unwrap();
            let rest = g.binary(BinaryOp::Sub, sum, x[0]).unwrap();
            as_float32(g, rest)
        });
        assert_eq!(floats(&found), [0.0]);
    }
}

/// Uses empty tensors, and scratch memory that holds several data types side by side.
#[test]
fn one_program_computes_with_all_data_types() {
    for device in devices() {
        let numbers: Vec<f64> = (0..600).map(|at| f64::from(at % 50)).collect();
        let value = InterpTensor::from_numbers(DType::F16, shape(&[20, 30]), &numbers).unwrap().to_bytes();
        let inputs = [(DType::F16, &[20, 30][..], &value[..]), (DType::I64, &[0, 30], &[])];
        let found = run(device.as_ref(), &inputs, |g, x| {
            let mut total = None;
            for dtype in DType::ALL {
                let cast = g.cast(x[0], dtype).unwrap();
                let largest = g.reduce_max(cast, &[0], true).unwrap();
                let wide = g.cast(largest, DType::I64).unwrap();
                total = Some(total.map_or(wide, |total| g.add(total, wide).unwrap()));
            }
            g.concat(&[total.unwrap(), x[1]], 0).unwrap()
        });
        let totals: Vec<i64> =
            found.chunks_exact(8).map(|bytes| i64::from_le_bytes(bytes.try_into().unwrap())).collect();
        let largest = |column: i64| (0..20).map(|row| (row * 30 + column) % 50).max().unwrap();
        assert_eq!(totals, (0..30).map(|column| 8 * largest(column)).collect::<Vec<i64>>());
    }
}

/// Some drivers wrongly ignore the upper half of a widened number in comparisons.
#[test]
fn widened_integers_compare_by_value() {
    type IntegerComparison = fn(i128, i128) -> bool;
    let comparisons: [(BinaryOp, IntegerComparison); 3] =
        [(BinaryOp::Less, |a, b| a < b), (BinaryOp::LessOrEqual, |a, b| a <= b), (BinaryOp::Equal, |a, b| a == b)];
    let values = [-356_387_803, 356_387_803, -5, 0, i32::MIN, i32::MAX];
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    for device in devices() {
        for (narrow, wide) in [(DType::I32, DType::I64), (DType::U32, DType::U64)] {
            let number = |value: i32| if narrow == DType::I32 { value.into() } else { i128::from(value as u32) };
            for constant in [0i128, -5, 5, 1 << 31, -(1 << 31) - 1, 1 << 32] {
                if wide == DType::U64 && constant < 0 {
                    continue;
                }
                for ((op, truth), swapped) in comparisons.iter().flat_map(|it| [(it, false), (it, true)]) {
                    let found = run(device.as_ref(), &[(narrow, &[values.len()], &bytes)], |g, x| {
                        let widened = g.cast(x[0], wide).unwrap();
                        let constant = g.scalar(wide, Scalar::Int(constant)).unwrap();
                        let (a, b) = if swapped { (constant, widened) } else { (widened, constant) };
                        g.binary(*op, a, b).unwrap()
                    });
                    let expected = values.map(|value| {
                        let (a, b) = if swapped { (constant, number(value)) } else { (number(value), constant) };
                        u8::from(truth(a, b))
                    });
                    assert_eq!(found, expected, "{op:?} of {narrow} as {wide} and {constant}, swapped: {swapped}");
                }
            }
        }
    }
}

/// Returns numbers of every bit length, whose bits after the first 24 are above, below and at one half.
fn rounding_edge_integers() -> Vec<u64> {
    let mut numbers = vec![0, 1, u64::MAX];
    for length in 1..=64u32 {
        let highest = 1u64 << (length - 1);
        for (place, odd) in (0..length).flat_map(|place| [(place, 0), (place, 1)]) {
            let bit = 1u64 << place;
            numbers.extend([highest | bit | odd, highest | bit.wrapping_sub(1), highest.wrapping_sub(bit)]);
        }
    }
    numbers
}

#[test]
fn casts_of_64_bit_integers_to_float_round_to_nearest_even() {
    let numbers = rounding_edge_integers();
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    // Rust converts to the nearest number, ties to even.
    let unsigned: Vec<f32> = numbers.iter().map(|&number| number as f32).collect();
    let signed: Vec<f32> = numbers.iter().map(|&number| number as i64 as f32).collect();
    for device in devices() {
        for (dtype, expected) in [(DType::U64, &unsigned), (DType::I64, &signed)] {
            let found = floats(&run(device.as_ref(), &[(dtype, &[numbers.len()], &bytes)], |g, x| {
                g.cast(x[0], DType::F32).unwrap()
            }));
            for ((number, expected), found) in numbers.iter().zip(expected).zip(found) {
                assert_eq!(*expected, found, "{dtype} of {number:#x}");
            }
        }
    }
}

#[test]
fn division_of_64_bit_integers_is_exact() {
    let numbers: Vec<u64> = rounding_edge_integers().into_iter().step_by(41).collect();
    let count = numbers.len();
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    let pairs = || numbers.iter().flat_map(|&a| numbers.iter().map(move |&b| (a, b)));
    let unsigned = pairs().map(|(a, b)| a.checked_div(b).unwrap_or(0));
    // The smallest number divided by -1 wraps.
    let by = |a: i64, b: i64| if b == 0 { 0 } else { a.wrapping_div(b) as u64 };
    let signed = pairs().map(|(a, b)| by(a as i64, b as i64));
    for (dtype, expected) in [(DType::U64, unsigned.collect::<Vec<_>>()), (DType::I64, signed.collect())] {
        for device in devices() {
            let operands = [(dtype, &[count, 1][..], &bytes[..]), (dtype, &[1, count], &bytes)];
            let found = run(device.as_ref(), &operands, |g, x| g.binary(BinaryOp::Div, x[0], x[1]).unwrap());
            let found: Vec<u64> =
                found.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect();
            for ((pair, expected), found) in pairs().zip(&expected).zip(&found) {
                assert_eq!(expected, found, "{dtype}: {pair:#x?}");
            }
        }
    }
}

//! Cases of 64-bit integers that `f64` does not represent: low bits under high ones, carries between words, both ends,
//! and indices above 32 bits.

use super::{CaseBuilder, GraphCase};
use saggar_tensor::interp::{InterpElements, InterpTensor};
use saggar_tensor::op::{BinaryOp, IndexOp, MovementOp, Op, ReduceKind, ReduceOp, Scalar, UnaryOp};
use saggar_tensor::{DType, Descriptor, NodeId, Shape};

/// Numbers around zero, the ends of 32 bits, the last exact integer of `f64`, and the ends of 64 bits.
const SIGNED: [i128; 16] = [
    0,
    1,
    -1,
    7,
    -3,
    i32::MIN as i128,
    u32::MAX as i128,
    (1 << 32) + 1,
    -(1 << 32) - 1,
    (1 << 53) + 1,
    0x0123_4567_89ab_cdef,
    -0x0123_4567_89ab_cdef,
    i64::MAX as i128,
    i64::MAX as i128 - 1,
    i64::MIN as i128,
    i64::MIN as i128 + 1,
];
/// As [`SIGNED`], with the largest signed number in the middle.
const UNSIGNED: [i128; 16] = [
    0,
    1,
    2,
    7,
    i32::MAX as i128 + 1,
    u32::MAX as i128,
    1 << 32,
    (1 << 32) + 1,
    (1 << 53) + 1,
    0x0123_4567_89ab_cdef,
    0xfedc_ba98_7654_3210,
    i64::MAX as i128,
    i64::MAX as i128 + 1,
    i64::MAX as i128 + 2,
    u64::MAX as i128,
    u64::MAX as i128 - 1,
];

pub(super) fn cases(cases: &mut Vec<GraphCase>) {
    for (dtype, numbers) in [(DType::I64, SIGNED), (DType::U64, UNSIGNED)] {
        elementwise_cases(dtype, &numbers, cases);
        cast_cases(dtype, &numbers, cases);
        fold_cases(dtype, &numbers, cases);
        gather_index_cases(dtype, &numbers, cases);
        constant_cases(dtype, cases);
    }
}

fn input_tensor(draft: &mut CaseBuilder, dtype: DType, dims: &[usize], numbers: Vec<i128>) -> NodeId {
    let descriptor = Descriptor::new(dtype, Shape::new(dims).expect("a small shape"));
    draft.input_with_value(InterpTensor::new(descriptor, InterpElements::Int(numbers)).expect("one number an element"))
}

/// Returns every pair of numbers, as two square matrices.
fn pair_matrices(draft: &mut CaseBuilder, dtype: DType, numbers: &[i128]) -> [NodeId; 2] {
    let count = numbers.len();
    let first = (0..count * count).map(|at| numbers[at / count]).collect();
    let second = (0..count * count).map(|at| numbers[at % count]).collect();
    [first, second].map(|numbers| input_tensor(draft, dtype, &[count, count], numbers))
}

fn elementwise_cases(dtype: DType, numbers: &[i128], cases: &mut Vec<GraphCase>) {
    for &op in BinaryOp::ALL.iter().filter(|op| op.facts().operands.contains(dtype)) {
        let mut draft = CaseBuilder::default();
        let operands = pair_matrices(&mut draft, dtype, numbers);
        let y = draft.node(Op::Binary(op), &operands);
        cases.push(draft.finish(format!("{} of all bits of {dtype}", op.name()), &[y], false));
    }
    for &op in UnaryOp::WITHOUT_ATTRIBUTES.iter().filter(|op| op.facts().operands.contains(dtype)) {
        let mut draft = CaseBuilder::default();
        let x = input_tensor(&mut draft, dtype, &[numbers.len()], numbers.to_vec());
        let y = draft.node(Op::Unary(op), &[x]);
        cases.push(draft.finish(format!("{} of all bits of {dtype}", op.name()), &[y], false));
    }
    let mut draft = CaseBuilder::default();
    let [a, b] = pair_matrices(&mut draft, dtype, numbers);
    let less = draft.node(Op::Binary(BinaryOp::Less), &[a, b]);
    let y = draft.node(Op::Select, &[less, b, a]);
    cases.push(draft.finish(format!("where of all bits of {dtype}"), &[y], false));
}

fn cast_cases(dtype: DType, numbers: &[i128], cases: &mut Vec<GraphCase>) {
    for to in DType::ALL {
        let mut draft = CaseBuilder::default();
        let x = input_tensor(&mut draft, dtype, &[numbers.len()], numbers.to_vec());
        let y = draft.node(Op::Unary(UnaryOp::Cast(to)), &[x]);
        cases.push(draft.finish(format!("cast all bits of {dtype} to {to}"), &[y], false));
    }
    // The neighbours of both ends in float32, and fractions.
    let [end, twice] = [2f32.powi(63), 2f32.powi(64)];
    let magnitudes = [end, end.next_down(), end.next_up(), twice, twice.next_down(), 2f32.powi(53), 0.75, 1e10];
    let signed = magnitudes.into_iter().flat_map(|magnitude| [magnitude, -magnitude]);
    let numbers: Vec<f64> = signed.chain([f32::NAN, f32::INFINITY, f32::NEG_INFINITY]).map(f64::from).collect();
    let mut draft = CaseBuilder::default();
    let shape = Shape::new([numbers.len()]).expect("a small shape");
    let x =
        draft.input_with_value(InterpTensor::from_numbers(DType::F32, shape, &numbers).expect("one number an element"));
    let y = draft.node(Op::Unary(UnaryOp::Cast(dtype)), &[x]);
    cases.push(draft.finish(format!("cast float32 around the ends of {dtype}"), &[y], false));
}

fn fold_cases(dtype: DType, numbers: &[i128], cases: &mut Vec<GraphCase>) {
    let count = numbers.len();
    let fold = |kind| ReduceOp::Fold { kind, axes: vec![1] };
    // Only odd factors keep the low bits of a product non-zero.
    let ops = [
        (fold(ReduceKind::Sum), 0),
        (fold(ReduceKind::Product), 1),
        (fold(ReduceKind::Max), 0),
        (fold(ReduceKind::Min), 0),
        (ReduceOp::ArgMax { axis: 1 }, 0),
        (ReduceOp::ArgMin { axis: 1 }, 0),
    ];
    for (op, lowest) in ops {
        let mut draft = CaseBuilder::default();
        // Each row begins at another number.
        let number = |at: usize| numbers[(at / count + at % count) % count] | lowest;
        let rows = (0..count * count).filter(|at| at % count < count - 3).map(number).collect();
        let x = input_tensor(&mut draft, dtype, &[count, count - 3], rows);
        let name = format!("{} of all bits of {dtype}", op.name());
        let y = draft.node(Op::Reduce(op), &[x]);
        cases.push(draft.finish(name, &[y], false));
    }
}

/// Adds indices whose low 32 bits are in range although the index is not.
fn gather_index_cases(dtype: DType, numbers: &[i128], cases: &mut Vec<GraphCase>) {
    let indices =
        vec![(1 << 32) + 1, -(1 << 32) - 1, i64::MAX.into(), i64::MIN.into(), 1 << 31, (1 << 33) + 2, 2, -2, 0, -5];
    let mut draft = CaseBuilder::default();
    let x = input_tensor(&mut draft, dtype, &[8, 2], numbers.to_vec());
    let at = input_tensor(&mut draft, DType::I64, &[indices.len()], indices.clone());
    let y = draft.node(Op::Index(IndexOp::Gather { axis: 0 }), &[x, at]);
    cases.push(draft.finish(format!("gather {dtype} by indices past 32 bits"), &[y], false));

    let mut draft = CaseBuilder::default();
    let at = input_tensor(&mut draft, DType::I64, &[indices.len()], indices);
    let updates = input_tensor(&mut draft, dtype, &[10], numbers[6..].to_vec());
    let y = draft.node(Op::Index(IndexOp::ScatterAdd { axis: 0, size: 4 }), &[at, updates]);
    cases.push(draft.finish(format!("scatter-add {dtype} by indices past 32 bits"), &[y], false));
}

fn constant_cases(dtype: DType, cases: &mut Vec<GraphCase>) {
    let ends: [i128; 2] =
        if dtype.is_signed_integer() { [i64::MIN.into(), i64::MAX.into()] } else { [(1 << 63) + 1, u64::MAX.into()] };
    for end in ends {
        let mut draft = CaseBuilder::default();
        let x = input_tensor(&mut draft, dtype, &[3], vec![1, 2, 3]);
        let pad = MovementOp::Pad { low: vec![1], high: vec![2], value: Scalar::Int(end) };
        let padded = draft.node(Op::Movement(pad), &[x]);
        let descriptor = Descriptor::new(dtype, Shape::new([6]).expect("a small shape"));
        let filled = draft.builder.fill(descriptor, Scalar::Int(end)).expect("fits the type");
        let sum = draft.node(Op::Binary(BinaryOp::Add), &[padded, filled]);
        cases.push(draft.finish(format!("pad and fill {dtype} with {end}"), &[padded, filled, sum], false));
    }
}

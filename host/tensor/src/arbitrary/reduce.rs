//! Cases of reductions.

use super::Case;
use super::draft::single;
use super::values::{Random, Values};
use crate::DType;
use crate::op::{Op, Reduce, ReduceKind};

pub(super) fn cases(random: &mut Random, cases: &mut Vec<Case>) {
    for kind in [ReduceKind::Sum, ReduceKind::Product, ReduceKind::Max, ReduceKind::Min] {
        for dtype in DType::ALL {
            fold(random, kind, dtype, cases);
        }
        shapes(random, kind, cases);
    }
    for dtype in DType::ALL {
        for last in [Reduce::ArgMax { axis: 2 }, Reduce::ArgMin { axis: 0 }] {
            let name = format!("{} {dtype}", last.name());
            let operands = [(dtype, &[3, 2, 5][..], Values::Distinct)];
            cases.push(single(random, name, Op::Reduce(last.clone()), &operands, dtype.is_float()));
            let name = format!("{} {dtype} of equals", last.name());
            let operands = [(dtype, &[4, 3, 6][..], Values::Coarse)];
            cases.push(single(random, name, Op::Reduce(last), &operands, false));
        }
    }
}

fn fold(random: &mut Random, kind: ReduceKind, dtype: DType, cases: &mut Vec<Case>) {
    let values = match kind {
        ReduceKind::Sum => Values::Any,
        ReduceKind::Product => Values::NonZero,
        ReduceKind::Max | ReduceKind::Min => Values::Distinct,
    };
    let rank = random.between(1, 4);
    let dims = random.dims(rank);
    let axes = random.axes(rank);
    let op = Reduce::Fold { kind, axes };
    let name = format!("{} {dtype}", op.name());
    cases.push(single(random, name, Op::Reduce(op.clone()), &[(dtype, &dims, values)], dtype.is_float()));
    if !dtype.is_float() {
        let name = format!("{} {dtype} extremes", op.name());
        let op = Reduce::Fold { kind, axes: vec![1] };
        cases.push(single(random, name, Op::Reduce(op), &[(dtype, &[3, 9], Values::Extreme)], false));
    }
}

/// Dimensions that schedules treat differently: reduced first, last, in the middle, all, none, long, of nothing.
fn shapes(random: &mut Random, kind: ReduceKind, cases: &mut Vec<Case>) {
    let shapes: [(&[usize], &[usize]); 9] = [
        (&[7, 3], &[0]),
        (&[3, 7], &[1]),
        (&[2, 5, 3], &[1]),
        (&[2, 3, 4, 2], &[0, 2]),
        (&[2, 3, 2], &[0, 1, 2]),
        (&[4, 3], &[]),
        (&[], &[]),
        (&[2, 700], &[1]),
        (&[3, 0, 2], &[1]),
    ];
    for (dims, axes) in shapes {
        let op = Reduce::Fold { kind, axes: axes.to_vec() };
        let name = format!("{} {dims:?} over {axes:?}", op.name());
        // 700 factors would leave the range of f32; 700 distinct values are no problem.
        let values = match kind {
            ReduceKind::Sum => Values::Any,
            ReduceKind::Product if dims.contains(&700) => Values::Truth,
            ReduceKind::Product => Values::NonZero,
            ReduceKind::Max | ReduceKind::Min => Values::Distinct,
        };
        let smooth = !dims.contains(&700);
        cases.push(single(random, name, Op::Reduce(op), &[(DType::F32, dims, values)], smooth));
    }
    let op = Reduce::Fold { kind, axes: vec![1] };
    let name = format!("{} with equals and zeros", op.name());
    // Sums and products are smooth there, and a product's slope at zeros is worth a check.
    let smooth = match kind {
        ReduceKind::Sum | ReduceKind::Product => true,
        ReduceKind::Max | ReduceKind::Min => false,
    };
    cases.push(single(random, name, Op::Reduce(op), &[(DType::F32, &[12, 3], Values::Coarse)], smooth));
}

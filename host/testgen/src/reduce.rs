//! Cases of reductions.

use super::GraphCase;
use super::case_builder::single_op_case;
use super::values::{CaseRng, ValueDistribution};
use saggar_tensor::DType;
use saggar_tensor::op::{Op, ReduceKind, ReduceOp};

pub(super) fn cases(random: &mut CaseRng, cases: &mut Vec<GraphCase>) {
    for kind in ReduceKind::ALL {
        for dtype in DType::ALL {
            fold_cases(random, kind, dtype, cases);
        }
        shape_cases(random, kind, cases);
    }
    for dtype in DType::ALL {
        for last in [ReduceOp::ArgMax { axis: 2 }, ReduceOp::ArgMin { axis: 0 }] {
            let name = format!("{} {dtype}", last.name());
            let operands = [(dtype, &[3, 2, 5][..], ValueDistribution::Distinct)];
            cases.push(single_op_case(random, name, Op::Reduce(last.clone()), &operands, dtype.is_float()));
            let name = format!("{} {dtype} of equals", last.name());
            let operands = [(dtype, &[4, 3, 6][..], ValueDistribution::Coarse)];
            cases.push(single_op_case(random, name, Op::Reduce(last), &operands, false));
        }
    }
}

fn fold_cases(random: &mut CaseRng, kind: ReduceKind, dtype: DType, cases: &mut Vec<GraphCase>) {
    let values = match kind {
        ReduceKind::Sum => ValueDistribution::Any,
        ReduceKind::Product => ValueDistribution::NonZero,
        ReduceKind::Max | ReduceKind::Min => ValueDistribution::Distinct,
    };
    let rank = random.between(1, 4);
    let dims = random.random_dims(rank);
    let axes = random.random_axes(rank);
    let op = ReduceOp::Fold { kind, axes };
    let name = format!("{} {dtype}", op.name());
    cases.push(single_op_case(random, name, Op::Reduce(op.clone()), &[(dtype, &dims, values)], dtype.is_float()));
    if !dtype.is_float() {
        let name = format!("{} {dtype} extremes", op.name());
        let op = ReduceOp::Fold { kind, axes: vec![1] };
        cases.push(single_op_case(
            random,
            name,
            Op::Reduce(op),
            &[(dtype, &[3, 9], ValueDistribution::Extreme)],
            false,
        ));
    }
}

/// Adds dimensions that schedules treat differently: reduced first, last, in the middle, all, none, long, empty.
fn shape_cases(random: &mut CaseRng, kind: ReduceKind, cases: &mut Vec<GraphCase>) {
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
        let op = ReduceOp::Fold { kind, axes: axes.to_vec() };
        let name = format!("{} {dims:?} over {axes:?}", op.name());
        // The product of 700 factors would leave the range of f32; 700 distinct values are no problem for the other
        // kinds.
        let values = match kind {
            ReduceKind::Sum => ValueDistribution::Any,
            ReduceKind::Product if dims.contains(&700) => ValueDistribution::Boolean,
            ReduceKind::Product => ValueDistribution::NonZero,
            ReduceKind::Max | ReduceKind::Min => ValueDistribution::Distinct,
        };
        let smooth = !dims.contains(&700);
        cases.push(single_op_case(random, name, Op::Reduce(op), &[(DType::F32, dims, values)], smooth));
    }
    let op = ReduceOp::Fold { kind, axes: vec![1] };
    let name = format!("{} with equals and zeros", op.name());
    // Sums and products are smooth there, and a product's slope at zeros is worth a check.
    let smooth = match kind {
        ReduceKind::Sum | ReduceKind::Product => true,
        ReduceKind::Max | ReduceKind::Min => false,
    };
    cases.push(single_op_case(
        random,
        name,
        Op::Reduce(op),
        &[(DType::F32, &[12, 3], ValueDistribution::Coarse)],
        smooth,
    ));
}

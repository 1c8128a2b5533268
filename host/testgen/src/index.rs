//! Cases of gather and scatter, with indices in range, negative and out of range.

use super::GraphCase;
use super::case_builder::single_op_case;
use super::values::{CaseRng, ValueDistribution};
use saggar_tensor::DType;
use saggar_tensor::op::{IndexOp, Op, ScatterCombine};

pub(super) fn cases(random: &mut CaseRng, cases: &mut Vec<GraphCase>) {
    for indices in [DType::I32, DType::U32, DType::I64, DType::U8] {
        for dtype in DType::ALL {
            gather_case(random, indices, dtype, &[5, 3], &[4], 0, cases);
            scatter_case(random, indices, dtype, &[3], &[6], 1, cases);
        }
    }
    for combine in ScatterCombine::ALL {
        for dtype in DType::ALL {
            update_case(random, combine, dtype, &[5, 3], &[7], 0, cases);
        }
        update_case(random, combine, DType::F32, &[2, 6, 3], &[2, 2], 1, cases);
        update_case(random, combine, DType::F32, &[4], &[], 0, cases);
        update_case(random, combine, DType::F32, &[3, 2], &[0], 1, cases);
    }
    let shapes: [(&[usize], &[usize], usize); 5] =
        [(&[4], &[], 0), (&[2, 6, 3], &[2, 3], 1), (&[2, 3], &[5], 1), (&[1, 2], &[3], 0), (&[3, 2], &[0], 0)];
    for (x, indices, axis) in shapes {
        gather_case(random, DType::I32, DType::F32, x, indices, axis, cases);
    }
    scatter_case(random, DType::I32, DType::F32, &[], &[40], 0, cases);
    scatter_case(random, DType::I32, DType::F32, &[2], &[2, 3], 0, cases);
    scatter_case(random, DType::I32, DType::F32, &[2, 2], &[0], 1, cases);
}

fn gather_case(
    random: &mut CaseRng,
    indices: DType,
    dtype: DType,
    x: &[usize],
    shape: &[usize],
    axis: usize,
    cases: &mut Vec<GraphCase>,
) {
    let op = Op::Index(IndexOp::Gather { axis });
    let operands = [(dtype, x, ValueDistribution::Any), (indices, shape, ValueDistribution::Index(x[axis]))];
    let name = format!("gather {dtype} {x:?} by {indices} {shape:?} along {axis}");
    cases.push(single_op_case(random, name, op, &operands, dtype.is_float()));
}

/// Returns a scatter case. `around` are the dimensions that indices do not address; `axis` of them come before the
/// addressed axis.
fn scatter_case(
    random: &mut CaseRng,
    indices: DType,
    dtype: DType,
    around: &[usize],
    shape: &[usize],
    axis: usize,
    cases: &mut Vec<GraphCase>,
) {
    let size = 4;
    let updates = [&around[..axis], shape, &around[axis..]].concat();
    let op = Op::Index(IndexOp::ScatterAdd { axis, size });
    let operands = [(indices, shape, ValueDistribution::Index(size)), (dtype, &updates[..], ValueDistribution::Any)];
    let name = format!("scatter-add {dtype} {updates:?} by {indices} {shape:?} along {axis}");
    cases.push(single_op_case(random, name, op, &operands, dtype.is_float()));
}

fn update_case(
    random: &mut CaseRng,
    combine: ScatterCombine,
    dtype: DType,
    x: &[usize],
    indices: &[usize],
    axis: usize,
    cases: &mut Vec<GraphCase>,
) {
    let updates = [&x[..axis], indices, &x[axis + 1..]].concat();
    let op = Op::Index(IndexOp::Scatter { axis, combine });
    let operands = [
        (dtype, x, ValueDistribution::Any),
        (DType::I32, indices, ValueDistribution::Index(x[axis])),
        (dtype, &updates[..], ValueDistribution::Any),
    ];
    let differentiable = match combine {
        ScatterCombine::Replace | ScatterCombine::Add | ScatterCombine::Mul => dtype.is_float(),
        // An element and an update can be equal.
        ScatterCombine::Min | ScatterCombine::Max => false,
    };
    let name = format!("scatter {combine:?} {dtype} {x:?} by {indices:?} along {axis}");
    cases.push(single_op_case(random, name, op, &operands, differentiable));
}

//! Cases of gathering and scattering, with indices inside, negative and outside.

use super::Case;
use super::draft::single;
use super::values::{Random, Values};
use crate::DType;
use crate::op::{Combine, Index, Op};

pub(super) fn cases(random: &mut Random, cases: &mut Vec<Case>) {
    for indices in [DType::I32, DType::U32, DType::I64, DType::U8] {
        for dtype in DType::ALL {
            gather(random, indices, dtype, &[5, 3], &[4], 0, cases);
            scatter(random, indices, dtype, &[3], &[6], 1, cases);
        }
    }
    for combine in [Combine::Replace, Combine::Add, Combine::Mul, Combine::Min, Combine::Max] {
        for dtype in DType::ALL {
            update(random, combine, dtype, &[5, 3], &[7], 0, cases);
        }
        update(random, combine, DType::F32, &[2, 6, 3], &[2, 2], 1, cases);
        update(random, combine, DType::F32, &[4], &[], 0, cases);
        update(random, combine, DType::F32, &[3, 2], &[0], 1, cases);
    }
    let shapes: [(&[usize], &[usize], usize); 5] =
        [(&[4], &[], 0), (&[2, 6, 3], &[2, 3], 1), (&[2, 3], &[5], 1), (&[1, 2], &[3], 0), (&[3, 2], &[0], 0)];
    for (x, indices, axis) in shapes {
        gather(random, DType::I32, DType::F32, x, indices, axis, cases);
    }
    scatter(random, DType::I32, DType::F32, &[], &[40], 0, cases);
    scatter(random, DType::I32, DType::F32, &[2], &[2, 3], 0, cases);
    scatter(random, DType::I32, DType::F32, &[2, 2], &[0], 1, cases);
}

fn gather(
    random: &mut Random,
    indices: DType,
    dtype: DType,
    x: &[usize],
    shape: &[usize],
    axis: usize,
    cases: &mut Vec<Case>,
) {
    let op = Op::Index(Index::Gather { axis });
    let operands = [(dtype, x, Values::Any), (indices, shape, Values::Index(x[axis]))];
    let name = format!("gather {dtype} {x:?} by {indices} {shape:?} along {axis}");
    cases.push(single(random, name, op, &operands, dtype.is_float()));
}

/// `around` are the dimensions that indices do not address; `axis` of them come before.
fn scatter(
    random: &mut Random,
    indices: DType,
    dtype: DType,
    around: &[usize],
    shape: &[usize],
    axis: usize,
    cases: &mut Vec<Case>,
) {
    let size = 4;
    let updates = [&around[..axis], shape, &around[axis..]].concat();
    let op = Op::Index(Index::ScatterAdd { axis, size });
    let operands = [(indices, shape, Values::Index(size)), (dtype, &updates[..], Values::Any)];
    let name = format!("scatter-add {dtype} {updates:?} by {indices} {shape:?} along {axis}");
    cases.push(single(random, name, op, &operands, dtype.is_float()));
}

fn update(
    random: &mut Random,
    combine: Combine,
    dtype: DType,
    x: &[usize],
    indices: &[usize],
    axis: usize,
    cases: &mut Vec<Case>,
) {
    let updates = [&x[..axis], indices, &x[axis + 1..]].concat();
    let op = Op::Index(Index::Scatter { axis, combine });
    let operands =
        [(dtype, x, Values::Any), (DType::I32, indices, Values::Index(x[axis])), (dtype, &updates[..], Values::Any)];
    let differentiable = match combine {
        Combine::Replace | Combine::Add | Combine::Mul => dtype.is_float(),
        // An element and an update may be equal.
        Combine::Min | Combine::Max => false,
    };
    let name = format!("scatter {combine:?} {dtype} {x:?} by {indices:?} along {axis}");
    cases.push(single(random, name, op, &operands, differentiable));
}

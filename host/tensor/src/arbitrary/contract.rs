//! Cases of matrix multiplication.

use super::Case;
use super::draft::single;
use super::values::{Random, Values};
use crate::DType;
use crate::op::{Contract, Op};

pub(super) fn cases(random: &mut Random, cases: &mut Vec<Case>) {
    let sizes: [(&[usize], [usize; 3]); 8] = [
        (&[], [3, 4, 5]),
        (&[], [1, 7, 1]),
        (&[], [1, 1, 1]),
        (&[2], [3, 2, 4]),
        (&[2, 3], [2, 5, 1]),
        (&[], [17, 33, 19]),
        (&[], [3, 0, 2]),
        (&[0], [2, 3, 2]),
    ];
    for dtype in [DType::F32, DType::F16] {
        for (batch, [m, k, n]) in sizes {
            for (transpose_a, transpose_b) in [(false, false), (true, false), (false, true), (true, true)] {
                let a = [batch, &if transpose_a { [k, m] } else { [m, k] }].concat();
                let b = [batch, &if transpose_b { [n, k] } else { [k, n] }].concat();
                let name = format!("matmul {dtype} {a:?}{} {b:?}{}", mark(transpose_a), mark(transpose_b));
                let op = Op::Contract(Contract::MatMul { transpose_a, transpose_b });
                let operands = [(dtype, &a[..], Values::Any), (dtype, &b[..], Values::Any)];
                cases.push(single(random, name, op, &operands, m * k * n < 1000));
            }
        }
    }
}

fn mark(transposed: bool) -> &'static str {
    if transposed { "^T" } else { "" }
}

//! Cases of matrix multiplication.

use super::GraphCase;
use super::case_builder::single_op_case;
use super::values::{CaseRng, ValueDistribution};
use saggar_tensor::DType;
use saggar_tensor::op::{ContractOp, Op};

pub(super) fn cases(random: &mut CaseRng, cases: &mut Vec<GraphCase>) {
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
                let name =
                    format!("matmul {dtype} {a:?}{} {b:?}{}", transpose_mark(transpose_a), transpose_mark(transpose_b));
                let op = Op::Contract(ContractOp::MatMul { transpose_a, transpose_b });
                let operands = [(dtype, &a[..], ValueDistribution::Any), (dtype, &b[..], ValueDistribution::Any)];
                cases.push(single_op_case(random, name, op, &operands, m * k * n < 1000));
            }
        }
    }
}

fn transpose_mark(transposed: bool) -> &'static str {
    if transposed { "^T" } else { "" }
}

//! Matrix multiplication.

use super::value::{InterpElements, InterpTensor};
use crate::Shape;
use crate::op::ContractOp;

pub(super) fn evaluate(op: ContractOp, a: &InterpTensor, b: &InterpTensor, result: &Shape) -> InterpElements {
    match op {
        ContractOp::MatMul { transpose_a, transpose_b } => {
            let rank = result.rank();
            let (m, n) = (result[rank - 2], result[rank - 1]);
            let k = a.dims()[if transpose_a { rank - 2 } else { rank - 1 }];
            let batches: usize = result[..rank - 2].iter().product();
            let (a, b) = (a.floats(), b.floats());
            let mut sums = Vec::with_capacity(result.elements());
            for batch in 0..batches {
                for row in 0..m {
                    for column in 0..n {
                        let term = |step: usize| {
                            let at_a = if transpose_a { step * m + row } else { row * k + step };
                            let at_b = if transpose_b { column * k + step } else { step * n + column };
                            a[batch * m * k + at_a] * b[batch * k * n + at_b]
                        };
                        sums.push((0..k).map(term).sum());
                    }
                }
            }
            InterpElements::Float(sums)
        }
    }
}

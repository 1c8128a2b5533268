//! Cases of movements: each with every data type once, and with more attributes in `float32`.

use super::draft::single;
use super::values::{Random, Values};
use super::{Case, Draft};
use crate::op::{Movement, Op, Scalar};
use crate::{DType, Shape};

pub(super) fn cases(random: &mut Random, cases: &mut Vec<Case>) {
    for dtype in DType::ALL {
        for (dims, op) in movements(random, dtype) {
            let name = format!("{} {dtype} {dims:?}", op.name());
            cases.push(single(random, name, Op::Movement(op), &[(dtype, &dims, Values::Any)], dtype.is_float()));
        }
        concat(random, dtype, cases);
    }
    chain(random, cases);
}

fn movements(random: &mut Random, dtype: DType) -> Vec<(Vec<usize>, Movement)> {
    let shape = |dims: &[usize]| Shape::new(dims).expect("a small shape");
    let value = if dtype.is_float() { Scalar::Float(1.5) } else { Scalar::Int(7) };
    let slice = |starts: &[usize], sizes: &[usize], strides: &[usize]| Movement::Slice {
        starts: starts.to_vec(),
        sizes: sizes.to_vec(),
        strides: strides.to_vec(),
    };
    let pad = |low: &[usize], high: &[usize]| Movement::Pad { low: low.to_vec(), high: high.to_vec(), value };
    vec![
        (vec![2, 6, 3], Movement::Reshape(shape(&[4, 9]))),
        (vec![1], Movement::Reshape(shape(&[]))),
        (vec![0, 3], Movement::Reshape(shape(&[5, 0]))),
        (vec![2, 1, 3], Movement::Broadcast(shape(&[2, 4, 3]))),
        (vec![1, 1], Movement::Broadcast(shape(&[3, 5]))),
        (vec![1, 2], Movement::Broadcast(shape(&[0, 2]))),
        (vec![2, 3, 4], Movement::Transpose(vec![2, 0, 1])),
        (vec![2, 1, 3, 2], Movement::Transpose(random.order(4))),
        (vec![5, 7], slice(&[1, 2], &[3, 4], &[1, 1])),
        (vec![5, 7, 3], slice(&[0, 1, 2], &[3, 3, 1], &[2, 2, 1])),
        (vec![11], slice(&[2], &[3], &[4])),
        (
            vec![1, 2, 1, 1, 2, 1, 9, 2],
            slice(&[0, 0, 0, 0, 1, 0, 1, 0], &[1, 2, 1, 1, 1, 1, 3, 2], &[1, 1, 1, 1, 1, 1, 3, 1]),
        ),
        (vec![4, 3], slice(&[4, 1], &[0, 2], &[1, 1])),
        (vec![3, 4, 2], Movement::Reverse(vec![0, 2])),
        (vec![3, 4], Movement::Reverse(vec![1])),
        (vec![2, 3], pad(&[1, 0], &[0, 2])),
        (vec![3, 0, 1], pad(&[0, 2, 1], &[1, 1, 0])),
        (vec![], pad(&[], &[])),
    ]
}

fn concat(random: &mut Random, dtype: DType, cases: &mut Vec<Case>) {
    let shapes: [(&[&[usize]], usize); 4] = [
        (&[&[2, 3], &[4, 3], &[1, 3]], 0),
        (&[&[2, 3, 2], &[2, 1, 2], &[2, 0, 2], &[2, 4, 2]], 1),
        (&[&[3, 2], &[3, 2]], 1),
        (&[&[2, 2]], 0),
    ];
    for (operands, axis) in shapes {
        let operands: Vec<(DType, &[usize], Values)> =
            operands.iter().map(|&dims| (dtype, dims, Values::Any)).collect();
        let name = format!("concat {dtype} of {} along {axis}", operands.len());
        let op = Op::Movement(Movement::Concat { axis });
        cases.push(single(random, name, op, &operands, dtype.is_float()));
    }
}

/// Movements that a compiler may fold into one view, and some it cannot.
fn chain(random: &mut Random, cases: &mut Vec<Case>) {
    let mut draft = Draft::default();
    let x = draft.input(random, DType::F32, &[2, 3, 4], Values::Any);
    let shape = |dims: &[usize]| Shape::new(dims).expect("a small shape");
    let ops = [
        Movement::Transpose(vec![1, 2, 0]),
        Movement::Reshape(shape(&[3, 8])),
        Movement::Reverse(vec![1]),
        Movement::Slice { starts: vec![0, 1], sizes: vec![3, 3], strides: vec![1, 2] },
        Movement::Pad { low: vec![1, 0], high: vec![0, 1], value: Scalar::Float(-1.0) },
        Movement::Reshape(shape(&[1, 16])),
        Movement::Broadcast(shape(&[3, 16])),
        Movement::Reshape(shape(&[6, 8])),
        Movement::Transpose(vec![1, 0]),
    ];
    let y = ops.into_iter().fold(x, |node, op| draft.node(Op::Movement(op), &[node]));
    cases.push(draft.done("a chain of movements", &[y], true));
}

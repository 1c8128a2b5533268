//! Cases of movements: each with every data type once, and with more attributes in `float32`.

use super::case_builder::single_op_case;
use super::values::{CaseRng, ValueDistribution};
use super::{CaseBuilder, GraphCase};
use saggar_tensor::op::{MovementOp, Op, Scalar};
use saggar_tensor::{DType, Shape};

pub(super) fn cases(random: &mut CaseRng, cases: &mut Vec<GraphCase>) {
    for dtype in DType::ALL {
        for (dims, op) in movement_ops(random, dtype) {
            let name = format!("{} {dtype} {dims:?}", op.name());
            cases.push(single_op_case(
                random,
                name,
                Op::Movement(op),
                &[(dtype, &dims, ValueDistribution::Any)],
                dtype.is_float(),
            ));
        }
        concat_cases(random, dtype, cases);
    }
    movement_chain_cases(random, cases);
}

fn movement_ops(random: &mut CaseRng, dtype: DType) -> Vec<(Vec<usize>, MovementOp)> {
    let shape = |dims: &[usize]| Shape::new(dims).expect("a small shape");
    let value = if dtype.is_float() { Scalar::Float(1.5) } else { Scalar::Int(7) };
    let slice = |starts: &[usize], sizes: &[usize], strides: &[usize]| MovementOp::Slice {
        starts: starts.to_vec(),
        sizes: sizes.to_vec(),
        strides: strides.to_vec(),
    };
    let pad = |low: &[usize], high: &[usize]| MovementOp::Pad { low: low.to_vec(), high: high.to_vec(), value };
    vec![
        (vec![2, 6, 3], MovementOp::Reshape(shape(&[4, 9]))),
        (vec![1], MovementOp::Reshape(shape(&[]))),
        (vec![0, 3], MovementOp::Reshape(shape(&[5, 0]))),
        (vec![2, 1, 3], MovementOp::Broadcast(shape(&[2, 4, 3]))),
        (vec![1, 1], MovementOp::Broadcast(shape(&[3, 5]))),
        (vec![1, 2], MovementOp::Broadcast(shape(&[0, 2]))),
        (vec![2, 3, 4], MovementOp::Transpose(vec![2, 0, 1])),
        (vec![2, 1, 3, 2], MovementOp::Transpose(random.permutation(4))),
        (vec![5, 7], slice(&[1, 2], &[3, 4], &[1, 1])),
        (vec![5, 7, 3], slice(&[0, 1, 2], &[3, 3, 1], &[2, 2, 1])),
        (vec![11], slice(&[2], &[3], &[4])),
        (
            vec![1, 2, 1, 1, 2, 1, 9, 2],
            slice(&[0, 0, 0, 0, 1, 0, 1, 0], &[1, 2, 1, 1, 1, 1, 3, 2], &[1, 1, 1, 1, 1, 1, 3, 1]),
        ),
        (vec![4, 3], slice(&[4, 1], &[0, 2], &[1, 1])),
        (vec![3, 4, 2], MovementOp::Reverse(vec![0, 2])),
        (vec![3, 4], MovementOp::Reverse(vec![1])),
        (vec![2, 3], pad(&[1, 0], &[0, 2])),
        (vec![3, 0, 1], pad(&[0, 2, 1], &[1, 1, 0])),
        (vec![], pad(&[], &[])),
    ]
}

fn concat_cases(random: &mut CaseRng, dtype: DType, cases: &mut Vec<GraphCase>) {
    let shapes: [(&[&[usize]], usize); 4] = [
        (&[&[2, 3], &[4, 3], &[1, 3]], 0),
        (&[&[2, 3, 2], &[2, 1, 2], &[2, 0, 2], &[2, 4, 2]], 1),
        (&[&[3, 2], &[3, 2]], 1),
        (&[&[2, 2]], 0),
    ];
    for (operands, axis) in shapes {
        let operands: Vec<(DType, &[usize], ValueDistribution)> =
            operands.iter().map(|&dims| (dtype, dims, ValueDistribution::Any)).collect();
        let name = format!("concat {dtype} of {} along {axis}", operands.len());
        let op = Op::Movement(MovementOp::Concat { axis });
        cases.push(single_op_case(random, name, op, &operands, dtype.is_float()));
    }
}

/// Adds chains of movements, some of which a compiler can fold into one view.
fn movement_chain_cases(random: &mut CaseRng, cases: &mut Vec<GraphCase>) {
    let mut draft = CaseBuilder::default();
    let x = draft.input(random, DType::F32, &[2, 3, 4], ValueDistribution::Any);
    let shape = |dims: &[usize]| Shape::new(dims).expect("a small shape");
    let ops = [
        MovementOp::Transpose(vec![1, 2, 0]),
        MovementOp::Reshape(shape(&[3, 8])),
        MovementOp::Reverse(vec![1]),
        MovementOp::Slice { starts: vec![0, 1], sizes: vec![3, 3], strides: vec![1, 2] },
        MovementOp::Pad { low: vec![1, 0], high: vec![0, 1], value: Scalar::Float(-1.0) },
        MovementOp::Reshape(shape(&[1, 16])),
        MovementOp::Broadcast(shape(&[3, 16])),
        MovementOp::Reshape(shape(&[6, 8])),
        MovementOp::Transpose(vec![1, 0]),
    ];
    let y = ops.into_iter().fold(x, |node, op| draft.node(Op::Movement(op), &[node]));
    cases.push(draft.finish("a chain of movements", &[y], true));
}

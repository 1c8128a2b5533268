//! Chains, with their matrix as a whole.

use saggar_tensor::interp::{Precision, Value, apply};
use saggar_tensor::op::{Binary, Movement, Op, Reduce, ReduceKind, Unary};
use saggar_tensor::{DType, Shape};

use super::{Memory, descriptor, epilogued, flat, matrices, multiplied, registers, reshaped};
use crate::program::{Body, End, Softmax, ValueId};

/// Every value that the chain writes, with its elements.
pub(super) fn results(memory: &Memory<'_>, body: &Body) -> Vec<(ValueId, Value)> {
    let Body::Chain { dims, products, link, softmax, end, results, epilogue } = body else {
        panic!("{body:?} is no chain");
    };
    let [.., rows, columns] = dims[..] else { panic!("a chain's matrix has rows and columns: {dims:?}") };
    let batch = dims[..dims.len() - 2].iter().product();
    let pieces = products.iter().map(|product| {
        let a = matrices(memory, product.a, [batch, rows, product.depth]);
        flat(&multiplied(memory, [batch, rows, columns, product.depth], &a, product.b))
    });
    let pieces: Vec<Value> = pieces.collect();
    let element = registers(memory, link, dims, &pieces).pop().expect("a link has an instruction");
    let mut matrix = reshaped(&element, &[batch, rows, columns]);
    let mut written = Vec::new();
    if let Some(Softmax { largest, sum }) = softmax {
        let parts;
        (matrix, parts) = softmax_of(&matrix);
        let stored = [*largest, *sum].into_iter().zip(parts);
        written.extend(stored.filter_map(|(value, part)| value.map(|value| (value, part))));
    }
    let result = match end {
        End::Fold(kind) => folded(&matrix, *kind),
        End::Product { factor, columns: n, turned } => {
            let product = multiplied(memory, [batch, rows, *n, columns], &matrix, *factor);
            if *turned { swapped(&product, [batch, *n, rows]) } else { product }
        }
    };
    let mut all = epilogued(memory, results, result, epilogue);
    all.extend(written);
    all
}

fn folded(matrix: &Value, kind: ReduceKind) -> Value {
    let mut dims = matrix.descriptor().shape.to_vec();
    dims[2] = 1;
    let op = Op::Reduce(Reduce::Fold { kind, axes: vec![2] });
    apply(&op, &[matrix], &descriptor(DType::F32, &dims), Precision::Stored)
}

fn swapped(product: &Value, dims: [usize; 3]) -> Value {
    let op = Op::Movement(Movement::Transpose(vec![0, 2, 1]));
    apply(&op, &[product], &descriptor(DType::F32, &dims), Precision::Stored)
}

/// The softmax over the last axis, and the largest element and the sum of exponentials of each row.
fn softmax_of(scores: &Value) -> (Value, [Value; 2]) {
    let whole = scores.descriptor();
    let spread = |row: &Value| {
        let op = Op::Movement(Movement::Broadcast(Shape::new(whole.shape.dims()).expect("it is a shape already")));
        apply(&op, &[row], whole, Precision::Stored)
    };
    let on = |op: Op, operands: &[&Value]| apply(&op, operands, whole, Precision::Stored);
    let largest = folded(scores, ReduceKind::Max);
    let less = on(Op::Binary(Binary::Sub), &[scores, &spread(&largest)]);
    let power = on(Op::Unary(Unary::Exp), &[&less]);
    let sum = folded(&power, ReduceKind::Sum);
    (on(Op::Binary(Binary::Div), &[&power, &spread(&sum)]), [largest, sum])
}

//! Reference implementation of fused matmuls; materializes the whole matrix.

use saggar_tensor::interp::{InterpPrecision, InterpTensor, evaluate_op};
use saggar_tensor::op::{BinaryOp, MovementOp, Op, ReduceKind, ReduceOp, UnaryOp};
use saggar_tensor::{DType, Shape};

use super::{
    ReferenceMemory, apply_epilogue, descriptor, evaluate_registers, flatten, load_matrices, multiply, reshape,
};
use saggar_compile::program::{FusedConsumer, KernelBody, SoftmaxStatistics, ValueId};

/// Computes every value that the fused matmul writes.
pub(super) fn fused_matmul_results(memory: &ReferenceMemory<'_>, body: &KernelBody) -> Vec<(ValueId, InterpTensor)> {
    let KernelBody::Chain { dims, products, link, softmax, end, results, epilogue } = body else {
        panic!("{body:?} is not a fused matmul");
    };
    let [.., rows, columns] = dims[..] else { panic!("a fused matmul's matrix has rows and columns: {dims:?}") };
    let batch = dims[..dims.len() - 2].iter().product();
    let pieces = products.iter().map(|product| {
        let a = load_matrices(memory, product.a, [batch, rows, product.depth]);
        flatten(&multiply(memory, [batch, rows, columns, product.depth], &a, product.b))
    });
    let pieces: Vec<InterpTensor> = pieces.collect();
    let element = evaluate_registers(memory, link, dims, &pieces).pop().expect("a score expression has an instruction");
    let mut matrix = reshape(&element, &[batch, rows, columns]);
    let mut written = Vec::new();
    if let Some(SoftmaxStatistics { largest, sum }) = softmax {
        let parts;
        (matrix, parts) = row_softmax(&matrix);
        let stored = [*largest, *sum].into_iter().zip(parts);
        written.extend(stored.filter_map(|(value, part)| value.map(|value| (value, part))));
    }
    let result = match end {
        FusedConsumer::Fold(kind) => fold_rows(&matrix, *kind),
        FusedConsumer::Product { factor, columns: n, turned } => {
            let product = multiply(memory, [batch, rows, *n, columns], &matrix, *factor);
            if *turned { transpose_matrices(&product, [batch, *n, rows]) } else { product }
        }
    };
    let mut all = apply_epilogue(memory, results, result, epilogue);
    all.extend(written);
    all
}

fn fold_rows(matrix: &InterpTensor, kind: ReduceKind) -> InterpTensor {
    let mut dims = matrix.descriptor().shape.to_vec();
    dims[2] = 1;
    let op = Op::Reduce(ReduceOp::Fold { kind, axes: vec![2] });
    evaluate_op(&op, &[matrix], &descriptor(DType::F32, &dims), InterpPrecision::Stored)
}

fn transpose_matrices(product: &InterpTensor, dims: [usize; 3]) -> InterpTensor {
    let op = Op::Movement(MovementOp::Transpose(vec![0, 2, 1]));
    evaluate_op(&op, &[product], &descriptor(DType::F32, &dims), InterpPrecision::Stored)
}

/// Returns the softmax over the last axis, and the largest element and the sum of exponentials of each row.
fn row_softmax(scores: &InterpTensor) -> (InterpTensor, [InterpTensor; 2]) {
    let whole = scores.descriptor();
    let spread = |row: &InterpTensor| {
        let op = Op::Movement(MovementOp::Broadcast(Shape::new(whole.shape.dims()).expect("it is a shape already")));
        evaluate_op(&op, &[row], whole, InterpPrecision::Stored)
    };
    let on = |op: Op, operands: &[&InterpTensor]| evaluate_op(&op, operands, whole, InterpPrecision::Stored);
    let largest = fold_rows(scores, ReduceKind::Max);
    let less = on(Op::Binary(BinaryOp::Sub), &[scores, &spread(&largest)]);
    let power = on(Op::Unary(UnaryOp::Exp), &[&less]);
    let sum = fold_rows(&power, ReduceKind::Sum);
    (on(Op::Binary(BinaryOp::Div), &[&power, &spread(&sum)]), [largest, sum])
}

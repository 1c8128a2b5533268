//! Builds the body of a fused matmul: a reduction or a product of a matrix that is computed from products and not
//! materialized.

use std::collections::BTreeSet;
use std::rc::Rc;

use saggar_tensor::op::{ContractOp, ReduceOp};
use saggar_tensor::{DType, NodeId};

use super::{BodyContext, fixed_epilogue, with_splits};
use crate::fuse::coalesce::{DimensionGroups, regroup};
use crate::fuse::emit::{ExprEmitter, FusionFailure, LocalNodes, ProductElements};
use crate::fuse::fused_matmul_search::MatrixConsumer;
use crate::fuse::iteration_space::{ElementAccess, IterationSpace};
use crate::fuse::matmul_operands::matrix_view;
use crate::program::expr::ScalarExpr;
use crate::program::{FusedConsumer, FusedProduct, KernelBody, ProductOperand, SoftmaxStatistics, ValueId};

/// Builds the fused matmul that ends in `anchor`.
pub(super) fn fused_matmul_body(
    plan: BodyContext<'_>,
    anchor: NodeId,
    ends: &MatrixConsumer,
) -> Result<KernelBody, FusionFailure> {
    // The matrix, or the scores of its softmax, whose shape can differ.
    let node = ends.softmax.map_or(ends.matrix, |rows| rows.scores);
    let mut dims = plan.graph.descriptor(node).shape.to_vec();
    let last = dims.len() - 1;
    if ends.transposed {
        dims.swap(last - 1, last);
    }
    let (link, used) = score_expr(plan, node, ends.transposed, &dims)?;
    if used.is_empty() {
        return Err(FusionFailure::Store(ends.matrix));
    }
    let products = used.iter().map(|&node| fused_product(plan, node, ends.transposed)).collect();
    let node = plan.graph.node(anchor);
    let end = match (node.op.as_reduce(), node.op.as_contract()) {
        (Some(ReduceOp::Fold { kind, .. }), _) => FusedConsumer::Fold(*kind),
        (_, Some(ContractOp::MatMul { transpose_a, transpose_b })) => {
            let other = 1 - ends.operand;
            let turned = ends.operand == 1;
            let read = product_operand(plan, node.inputs[other], [*transpose_a, *transpose_b][other] != turned);
            let result = &plan.graph.descriptor(anchor).shape;
            FusedConsumer::Product { factor: read, columns: result[result.rank() - if turned { 2 } else { 1 }], turned }
        }
        (Some(_) | None, None) => return Err(FusionFailure::Refused),
    };
    let rows: BTreeSet<NodeId> = plan.chains.softmax_rows(anchor).collect();
    let roots: BTreeSet<NodeId> = plan.roots.difference(&rows).copied().collect();
    let stored = |node: NodeId| plan.roots.contains(&node).then_some(ValueId(node.0));
    let softmax = ends.softmax.map(|rows| SoftmaxStatistics { largest: stored(rows.largest), sum: stored(rows.sum) });
    let results = match end {
        FusedConsumer::Fold(_) => dims[..last].to_vec(),
        FusedConsumer::Product { .. } => plan.graph.descriptor(anchor).shape.to_vec(),
    };
    let epilogue = fixed_epilogue(BodyContext { roots: &roots, ..plan }, &results, &singleton_groups(results.len()))?;
    Ok(KernelBody::Chain { dims, products, link, softmax, end, results, epilogue })
}

/// Returns a separate group for each of `rank` axes.
fn singleton_groups(rank: usize) -> DimensionGroups {
    (0..rank).map(|axis| vec![axis]).collect()
}

/// Builds the score expression of `node`, with rows and columns exchanged if `flipped`, and returns it with the
/// products that it uses.
fn score_expr(
    plan: BodyContext<'_>,
    node: NodeId,
    flipped: bool,
    dims: &[usize],
) -> Result<(ScalarExpr, Vec<NodeId>), FusionFailure> {
    let nothing = BTreeSet::new();
    let shape = &plan.graph.descriptor(node).shape;
    let attempt = |space: &[IterationSpace]| {
        let space = &space[0];
        let mut coordinates: Vec<_> = (0..dims.len()).map(|axis| space.axis(axis)).collect();
        if flipped {
            coordinates.swap(dims.len() - 2, dims.len() - 1);
        }
        let access = ElementAccess { coordinates, bounds: Vec::new() };
        let position = access.position(shape, space.dims.len());
        let mut emitter =
            ExprEmitter::new(plan.graph, plan.stored, LocalNodes { anchor: None, roots: &nothing }, space);
        emitter.product_elements =
            Some(ProductElements { products: &plan.chains.products, position, used: Vec::new() });
        let element = emitter.emit_element(node, &Rc::new(access))?;
        let used = emitter.product_elements.take().map(|pieces| pieces.used).unwrap_or_default();
        Ok((emitter.builder.finish(&mut [element]), used))
    };
    let ((mut expr, used), space) = with_splits(vec![IterationSpace::new(dims)], attempt)?;
    let space = &space[0];
    let of_axis = |axis: usize| (0..space.dims.len()).filter(|&dim| space.origin[dim] == axis).collect();
    let groups: DimensionGroups = (0..dims.len()).map(of_axis).collect();
    let is_float = expr.instructions.last().is_some_and(|(_, dtype)| *dtype == DType::F32);
    if is_float && regroup(&mut expr, &space.dims, &groups) { Ok((expr, used)) } else { Err(FusionFailure::Refused) }
}

/// Returns the product `node`, transposed if `flipped`.
fn fused_product(plan: BodyContext<'_>, node: NodeId, flipped: bool) -> FusedProduct {
    let inner = plan.graph.node(node);
    let Some(&ContractOp::MatMul { transpose_a, transpose_b }) = inner.op.as_contract() else {
        unreachable!("only products are pieces")
    };
    let shape = &plan.graph.descriptor(inner.inputs[0]).shape;
    let depth = shape[shape.rank() - if transpose_a { 2 } else { 1 }];
    let (a, b) =
        (product_operand(plan, inner.inputs[0], transpose_a), product_operand(plan, inner.inputs[1], transpose_b));
    let turned = |factor: ProductOperand| ProductOperand { transposed: !factor.transposed, ..factor };
    if flipped { FusedProduct { depth, a: turned(b), b: turned(a) } } else { FusedProduct { depth, a, b } }
}

fn product_operand(plan: BodyContext<'_>, node: NodeId, transposed: bool) -> ProductOperand {
    let read = matrix_view(plan.graph, node);
    ProductOperand {
        value: ValueId(read.node.0),
        transposed: transposed != read.transposed,
        batch_stride: read.batch_stride,
    }
}

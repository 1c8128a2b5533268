//! The body of a chain: a fold or a product of a matrix that is computed from products where it is used.

use std::collections::BTreeSet;
use std::rc::Rc;

use saggar_tensor::op::{Contract, Op, Reduce};
use saggar_tensor::{DType, Interrupted, NodeId};

use super::body::{Plan, fixed_epilogue, in_space};
use super::chains::Ends;
use super::coalesce::{Groups, regroup};
use super::emit::{Emitter, Failure, Local, Pieces};
use super::group::{Context, Group, group};
use super::matmul::matrix;
use super::space::{Access, Space};
use crate::expr::Expr;
use crate::program::{Body, End, Factor, Product, Softmax, ValueId};

/// The chain that ends in `anchor`.
pub(super) fn chain(plan: Plan<'_>, anchor: NodeId, ends: &Ends) -> Result<Body, Failure> {
    // The matrix itself, or what it is a softmax of, which may be shaped in another way.
    let node = ends.softmax.map_or(ends.matrix, |rows| rows.scores);
    let mut dims = plan.graph.descriptor(node).shape.to_vec();
    let last = dims.len() - 1;
    if ends.flipped {
        dims.swap(last - 1, last);
    }
    let (link, used) = link(plan, node, ends.flipped, &dims)?;
    if used.is_empty() {
        return Err(Failure::Store(ends.matrix));
    }
    let products = used.iter().map(|&node| product(plan, node, ends.flipped)).collect();
    let node = plan.graph.node(anchor);
    let end = match &node.op {
        Op::Reduce(Reduce::Fold { kind, .. }) => End::Fold(*kind),
        Op::Contract(Contract::MatMul { transpose_a, transpose_b }) => {
            let other = 1 - ends.operand;
            let turned = ends.operand == 1;
            let read = factor(plan, node.inputs[other], [*transpose_a, *transpose_b][other] != turned);
            let result = &plan.graph.descriptor(anchor).shape;
            End::Product { factor: read, columns: result[result.rank() - if turned { 2 } else { 1 }], turned }
        }
        Op::Source(_)
        | Op::Unary(_)
        | Op::Binary(_)
        | Op::Select
        | Op::Reduce(_)
        | Op::Movement(_)
        | Op::Convolution(_)
        | Op::Index(_) => return Err(Failure::Refused),
    };
    let rows: BTreeSet<NodeId> = plan.chains.rows(anchor).collect();
    let roots: BTreeSet<NodeId> = plan.roots.difference(&rows).copied().collect();
    let stored = |node: NodeId| plan.roots.contains(&node).then_some(ValueId(node.0));
    let softmax = ends.softmax.map(|rows| Softmax { largest: stored(rows.largest), sum: stored(rows.sum) });
    let results = match end {
        End::Fold(_) => dims[..last].to_vec(),
        End::Product { .. } => plan.graph.descriptor(anchor).shape.to_vec(),
    };
    let epilogue = fixed_epilogue(Plan { roots: &roots, ..plan }, &results, &each(results.len()))?;
    Ok(Body::Chain { dims, products, link, softmax, end, results, epilogue })
}

/// Each of `rank` axes for itself.
fn each(rank: usize) -> Groups {
    (0..rank).map(|axis| vec![axis]).collect()
}

/// The expression of `node`, with rows for columns where it is flipped, and the products in it.
fn link(plan: Plan<'_>, node: NodeId, flipped: bool, dims: &[usize]) -> Result<(Expr, Vec<NodeId>), Failure> {
    let nothing = BTreeSet::new();
    let shape = &plan.graph.descriptor(node).shape;
    let attempt = |space: &[Space]| {
        let space = &space[0];
        let mut coordinates: Vec<_> = (0..dims.len()).map(|axis| space.axis(axis)).collect();
        if flipped {
            coordinates.swap(dims.len() - 2, dims.len() - 1);
        }
        let access = Access { coordinates, bounds: Vec::new() };
        let position = access.position(shape, space.dims.len());
        let mut emitter = Emitter::new(plan.graph, plan.stored, Local { anchor: None, roots: &nothing }, space);
        emitter.pieces = Some(Pieces { products: &plan.chains.products, position, used: Vec::new() });
        let element = emitter.element(node, &Rc::new(access))?;
        let used = emitter.pieces.take().map(|pieces| pieces.used).unwrap_or_default();
        Ok((emitter.builder.finish(&mut [element]), used))
    };
    let ((mut expr, used), space) = in_space(vec![Space::new(dims)], attempt)?;
    let space = &space[0];
    let of_axis = |axis: usize| (0..space.dims.len()).filter(|&dim| space.origin[dim] == axis).collect();
    let groups: Groups = (0..dims.len()).map(of_axis).collect();
    let is_float = expr.instructions.last().is_some_and(|(_, dtype)| *dtype == DType::F32);
    if is_float && regroup(&mut expr, &space.dims, &groups) { Ok((expr, used)) } else { Err(Failure::Refused) }
}

/// The product `node`, or, flipped, its transpose.
fn product(plan: Plan<'_>, node: NodeId, flipped: bool) -> Product {
    let inner = plan.graph.node(node);
    let Op::Contract(Contract::MatMul { transpose_a, transpose_b }) = inner.op else {
        unreachable!("only products are pieces")
    };
    let shape = &plan.graph.descriptor(inner.inputs[0]).shape;
    let depth = shape[shape.rank() - if transpose_a { 2 } else { 1 }];
    let (a, b) = (factor(plan, inner.inputs[0], transpose_a), factor(plan, inner.inputs[1], transpose_b));
    let turned = |factor: Factor| Factor { transposed: !factor.transposed, ..factor };
    if flipped { Product { depth, a: turned(b), b: turned(a) } } else { Product { depth, a, b } }
}

fn factor(plan: Plan<'_>, node: NodeId, transposed: bool) -> Factor {
    let read = matrix(plan.graph, node);
    Factor { value: ValueId(read.node.0), transposed: transposed != read.transposed, batch_stride: read.batch_stride }
}

/// The groups, with those parts of a softmax left out of memory that nobody reads there.
///
/// # Errors
/// `Interrupted`.
pub(super) fn without_idle_rows(context: &Context<'_>, mut groups: Vec<Group>) -> Result<Vec<Group>, Interrupted> {
    if context.chains.absorbed.is_empty() {
        return Ok(groups);
    }
    let mut readers = vec![0; context.graph.nodes.len()];
    groups.iter().flat_map(|group| &group.loads).for_each(|load| readers[load.index()] += 1);
    for slot in &mut groups {
        context.interrupt.check()?;
        let Some(anchor) = slot.anchor else { continue };
        let is_idle = |node: &NodeId| !context.claimed.contains(node) && readers[node.index()] == 0;
        let idle: BTreeSet<NodeId> = context.chains.rows(anchor).filter(is_idle).collect();
        let roots = slot.roots.difference(&idle).copied().collect();
        if !idle.is_empty()
            && let Ok(smaller) = group(context, Some(anchor), slot.local.clone(), roots)
        {
            *slot = smaller;
        }
    }
    Ok(groups)
}

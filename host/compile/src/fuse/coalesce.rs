//! Coalesces dimensions: neighbouring dimensions become one if every view is contiguous over them.

use crate::program::expr::{AffineView, CoordinateBound, Instruction, ScalarExpr};

/// Groups of neighbouring dimensions that become one dimension each; in each group the outermost comes first.
pub(super) type DimensionGroups = Vec<Vec<usize>>;

/// Returns the sizes of the grouped dimensions.
pub(super) fn grouped_sizes(dims: &[usize], groups: &DimensionGroups) -> Vec<usize> {
    groups.iter().map(|group| group.iter().map(|&dim| dims[dim]).product()).collect()
}

/// Returns the coarsest groups of `dims[from..to]` that every view allows; dimensions of size 1 are left out.
pub(super) fn coarsest_groups(exprs: &[&ScalarExpr], dims: &[usize], from: usize, to: usize) -> DimensionGroups {
    let mut groups: DimensionGroups = Vec::new();
    for dim in (from..to).filter(|&dim| dims[dim] != 1) {
        let joins = groups.last().is_some_and(|group| {
            let outer = *group.last().expect("a group is made with one dimension");
            exprs.iter().all(|expr| expr_views(expr).all(|view| is_contiguous(view, outer, dim, dims)))
        });
        match groups.last_mut() {
            Some(group) if joins => group.push(dim),
            Some(_) | None => groups.push(vec![dim]),
        }
    }
    groups
}

/// Returns whether `view` is contiguous over `outer` and `inner`, the next dimension of size above 1.
fn is_contiguous(view: &AffineView, outer: usize, inner: usize, dims: &[usize]) -> bool {
    view.strides[outer] == view.strides[inner] * dims[inner] as i64
        && !view.bounds.iter().any(|bound| bound.dim == inner)
}

/// Rewrites every view for iteration over `groups`.
///
/// Returns false if a view does not allow it; `expr` is then partly rewritten and must be discarded.
pub(super) fn regroup(expr: &mut ScalarExpr, dims: &[usize], groups: &DimensionGroups) -> bool {
    expr.instructions.iter_mut().all(|(instruction, _)| match instruction {
        Instruction::Load { view, .. } | Instruction::Index(view) | Instruction::Random { view, .. } => {
            regroup_view(view, dims, groups)
        }
        Instruction::Immediate(_)
        | Instruction::Accumulated
        | Instruction::Product(_)
        | Instruction::Unary(..)
        | Instruction::Binary(..)
        | Instruction::Select(..) => true,
    })
}

fn regroup_view(view: &mut AffineView, dims: &[usize], groups: &DimensionGroups) -> bool {
    let mut strides = Vec::with_capacity(groups.len());
    let mut bounds = Vec::new();
    for (at, group) in groups.iter().enumerate() {
        let large: Vec<usize> = group.iter().copied().filter(|&dim| dims[dim] != 1).collect();
        if !large.windows(2).all(|pair| is_contiguous(view, pair[0], pair[1], dims)) {
            return false;
        }
        strides.push(large.last().map_or(0, |&dim| view.strides[dim]));
        let inner: i64 = large.iter().skip(1).map(|&dim| dims[dim] as i64).product();
        bounds.extend(
            view.bounds.iter().filter(|bound| large.first() == Some(&bound.dim)).map(|bound| CoordinateBound {
                dim: at,
                low: bound.low * inner,
                high: bound.high * inner,
            }),
        );
    }
    view.strides = strides;
    view.bounds = bounds;
    true
}

fn expr_views(expr: &ScalarExpr) -> impl Iterator<Item = &AffineView> {
    expr.instructions.iter().filter_map(|(instruction, _)| match instruction {
        Instruction::Load { view, .. } | Instruction::Index(view) | Instruction::Random { view, .. } => Some(view),
        Instruction::Immediate(_)
        | Instruction::Accumulated
        | Instruction::Product(_)
        | Instruction::Unary(..)
        | Instruction::Binary(..)
        | Instruction::Select(..) => None,
    })
}

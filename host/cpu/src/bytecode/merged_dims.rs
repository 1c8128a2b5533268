//! Merging of iteration dimensions that all views of an expression traverse alike.

use saggar_compile::program::expr::{AffineView, CoordinateBound};

/// Iteration dimensions, grouped so that every view traverses each group as one dimension.
pub(super) struct MergedDims {
    pub(super) dims: Vec<usize>,
    /// For each group, its innermost original dimension. A view's stride there is its stride for the group.
    innermost: Vec<usize>,
    original: Vec<usize>,
}

impl MergedDims {
    pub(super) fn new(dims: &[usize], views: &[&AffineView]) -> MergedDims {
        let bounded =
            |dim: usize| views.iter().any(|view| view.bounds.iter().any(|b| excludes_any(b, dims) && b.dim == dim));
        let mut merged = MergedDims { dims: Vec::new(), innermost: Vec::new(), original: dims.to_vec() };
        for (dim, &size) in dims.iter().enumerate() {
            if size == 1 && !bounded(dim) {
                continue;
            }
            let joins = merged.innermost.last().is_some_and(|&outer| {
                let alike = |view: &&AffineView| view.strides[outer] == view.strides[dim].wrapping_mul(size as i64);
                !bounded(outer) && !bounded(dim) && views.iter().all(alike)
            });
            if joins {
                let last = merged.dims.len() - 1;
                merged.dims[last] *= size;
                merged.innermost[last] = dim;
            } else {
                merged.dims.push(size);
                merged.innermost.push(dim);
            }
        }
        merged
    }

    /// Returns the first element if a merged view reads memory in iteration order, or `None` if it does not.
    pub(super) fn dense_offset(&self, view: &AffineView) -> Option<usize> {
        let mut expected = 1;
        for (&size, &stride) in self.dims.iter().zip(&view.strides).rev() {
            if stride != expected {
                return None;
            }
            expected *= size as i64;
        }
        if view.bounds.is_empty() { usize::try_from(view.offset).ok() } else { None }
    }

    /// Returns the view over the groups. Dimensions of size 1 contribute nothing: their coordinate is always 0.
    pub(super) fn merge_view(&self, view: &AffineView) -> AffineView {
        let group = |dim: usize| self.innermost.iter().position(|&inner| inner == dim);
        let bounds = view
            .bounds
            .iter()
            .filter(|bound| excludes_any(bound, &self.original))
            .map(|bound| CoordinateBound { dim: group(bound.dim).expect("bounded dimensions stay"), ..*bound })
            .collect();
        let mut strides: Vec<i64> = self.innermost.iter().map(|&dim| view.strides[dim]).collect();
        if strides.is_empty() {
            strides.push(0);
        }
        AffineView { offset: view.offset, strides, bounds }
    }
}

/// Returns whether a bound excludes any coordinate.
fn excludes_any(bound: &CoordinateBound, dims: &[usize]) -> bool {
    bound.low > 0 || bound.high < dims[bound.dim] as i64
}

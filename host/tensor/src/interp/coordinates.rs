//! Iteration over row-major tensors, and element offsets.

/// Calls `visit` with the coordinates of every element of `dims`, in row-major order.
pub(super) fn for_each_coordinate(dims: &[usize], mut visit: impl FnMut(&[usize])) {
    if dims.contains(&0) {
        return;
    }
    let mut at = vec![0; dims.len()];
    loop {
        visit(&at);
        let Some(axis) = (0..dims.len()).rev().find(|&axis| at[axis] + 1 < dims[axis]) else { return };
        at[axis] += 1;
        at[axis + 1..].fill(0);
    }
}

/// Returns the row-major position of the element `at` in a tensor of `dims`.
pub(super) fn row_major_offset(dims: &[usize], at: &[usize]) -> usize {
    dims.iter().zip(at).fold(0, |offset, (&dim, &coordinate)| offset * dim + coordinate)
}

/// Returns `dims` split at `axis`: the product before it, its size, and the product after it.
pub(super) fn split_dims_at_axis(dims: &[usize], axis: usize) -> [usize; 3] {
    [dims[..axis].iter().product(), dims[axis], dims[axis + 1..].iter().product()]
}

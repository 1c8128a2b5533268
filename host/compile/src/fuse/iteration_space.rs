//! Iteration spaces and affine maps from their coordinates to those of a node.

use saggar_tensor::Shape;

use crate::program::expr::{AffineView, CoordinateBound};

/// `offset + sum(strides[d] * coordinate[d])`; strides of dimensions of size 1 are 0.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct AffineExpr {
    pub(super) offset: i64,
    pub(super) strides: Vec<i64>,
}

impl AffineExpr {
    pub(super) fn constant(rank: usize, offset: i64) -> AffineExpr {
        AffineExpr { offset, strides: vec![0; rank] }
    }

    /// Returns `self * factor + offset`.
    pub(super) fn scaled(mut self, factor: i64, offset: i64) -> AffineExpr {
        self.offset = self.offset * factor + offset;
        self.strides.iter_mut().for_each(|stride| *stride *= factor);
        self
    }

    fn add(&mut self, other: &AffineExpr, factor: i64) {
        self.offset += other.offset * factor;
        for (stride, more) in self.strides.iter_mut().zip(&other.strides) {
            *stride += more * factor;
        }
    }

    /// Returns the smallest and largest value over the space.
    fn range(&self, dims: &[usize]) -> (i64, i64) {
        let mut range = (self.offset, self.offset);
        for (&stride, &dim) in self.strides.iter().zip(dims) {
            let reach = stride * (dim as i64 - 1).max(0);
            if reach < 0 { range.0 += reach } else { range.1 += reach }
        }
        range
    }
}

/// Reasons why an access cannot be followed further in this space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AccessObstacle {
    /// It can be followed once dimension `dim` is split with `inner` coordinates in its inner part.
    Split { dim: usize, inner: usize },
    /// It is not affine.
    NotAffine,
}

/// The dimensions that a kernel iterates over; several can be parts of one original axis.
#[derive(Clone, Debug)]
pub(super) struct IterationSpace {
    pub(super) dims: Vec<usize>,
    /// For each dimension, the original axis it is part of.
    pub(super) origin: Vec<usize>,
}

impl IterationSpace {
    pub(super) fn new(dims: &[usize]) -> IterationSpace {
        IterationSpace { dims: dims.to_vec(), origin: (0..dims.len()).collect() }
    }

    pub(super) fn split(&mut self, dim: usize, inner: usize) {
        self.dims[dim] /= inner;
        self.dims.insert(dim + 1, inner);
        self.origin.insert(dim + 1, self.origin[dim]);
    }

    /// Nests `inner` inside `self`; the axes of `inner` are numbered after those of `self`.
    pub(super) fn nested(&self, inner: &IterationSpace, outer_axes: usize) -> IterationSpace {
        let mut joined = self.clone();
        joined.dims.extend(&inner.dims);
        joined.origin.extend(inner.origin.iter().map(|axis| axis + outer_axes));
        joined
    }

    /// Returns the coordinate along original axis `axis`.
    pub(super) fn axis(&self, axis: usize) -> AffineExpr {
        let mut affine = AffineExpr::constant(self.dims.len(), 0);
        let mut stride = 1;
        for dim in (0..self.dims.len()).rev().filter(|&dim| self.origin[dim] == axis) {
            affine.strides[dim] = if self.dims[dim] > 1 { stride } else { 0 };
            stride *= self.dims[dim] as i64;
        }
        affine
    }

    /// Returns the position in row-major order.
    pub(super) fn position(&self) -> AffineExpr {
        let mut affine = AffineExpr::constant(self.dims.len(), 0);
        let mut stride = 1;
        for dim in (0..self.dims.len()).rev() {
            affine.strides[dim] = if self.dims[dim] > 1 { stride } else { 0 };
            stride *= self.dims[dim] as i64;
        }
        affine
    }
}

/// The element of a node that each point of a space accesses, and the part of the space in which the access is valid.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ElementAccess {
    /// One coordinate for each dimension of the node.
    pub(super) coordinates: Vec<AffineExpr>,
    /// Bounds of the valid part, sorted by dimension, at most one per dimension.
    pub(super) bounds: Vec<CoordinateBound>,
}

/// The part of a space in which a condition holds.
pub(super) enum RestrictedAccess {
    /// The whole space.
    Everywhere,
    /// No point.
    Nowhere,
    /// The points within this bound.
    Within(CoordinateBound),
}

impl ElementAccess {
    /// Returns the access to a node of this shape at the element with the space's current position.
    pub(super) fn in_order(space: &IterationSpace, shape: &Shape) -> Result<ElementAccess, AccessObstacle> {
        Ok(ElementAccess { coordinates: delinearise(&space.position(), &space.dims, shape)?, bounds: Vec::new() })
    }

    /// Returns the element's position in a dense tensor of the node's shape.
    pub(super) fn position(&self, shape: &Shape, rank: usize) -> AffineExpr {
        let mut position = AffineExpr::constant(rank, 0);
        for (coordinate, stride) in self.coordinates.iter().zip(shape.strides()) {
            position.add(coordinate, stride as i64);
        }
        position
    }

    /// Returns the view of a dense tensor of the node's shape.
    pub(super) fn view(&self, shape: &Shape, rank: usize) -> AffineView {
        let AffineExpr { offset, strides } = self.position(shape, rank);
        AffineView { offset, strides, bounds: self.bounds.clone() }
    }

    /// Returns the access restricted to `bound`, or `None` if no point is left.
    pub(super) fn with_bound(mut self, bound: CoordinateBound) -> Option<ElementAccess> {
        match self.bounds.iter_mut().find(|other| other.dim == bound.dim) {
            Some(other) => {
                other.low = other.low.max(bound.low);
                other.high = other.high.min(bound.high);
                if other.low >= other.high {
                    return None;
                }
            }
            None => {
                self.bounds.push(bound);
                self.bounds.sort_by_key(|bound| bound.dim);
            }
        }
        Some(self)
    }
}

/// Returns the part of the space in which `low <= affine < high`.
pub(super) fn restrict(
    affine: &AffineExpr,
    low: i64,
    high: i64,
    dims: &[usize],
) -> Result<RestrictedAccess, AccessObstacle> {
    let (least, greatest) = affine.range(dims);
    if least >= low && greatest < high {
        return Ok(RestrictedAccess::Everywhere);
    }
    if greatest < low || least >= high {
        return Ok(RestrictedAccess::Nowhere);
    }
    let mut moving = (0..dims.len()).filter(|&dim| affine.strides[dim] != 0 && dims[dim] > 1);
    let (Some(dim), None) = (moving.next(), moving.next()) else { return Err(AccessObstacle::NotAffine) };
    let (stride, size) = (affine.strides[dim], dims[dim] as i64);
    // low <= offset + stride * i <= high - 1, solved for i by dividing toward the inside of the interval.
    let (from, to) = if stride > 0 { (low, high - 1) } else { (high - 1, low) };
    let first = ceiling_quotient(from - affine.offset, stride).max(0);
    let last = floor_quotient(to - affine.offset, stride).min(size - 1);
    if first > last {
        return Ok(RestrictedAccess::Nowhere);
    }
    Ok(RestrictedAccess::Within(CoordinateBound { dim, low: first, high: last + 1 }))
}

fn floor_quotient(a: i64, b: i64) -> i64 {
    let quotient = a / b;
    if a % b != 0 && (a < 0) != (b < 0) { quotient - 1 } else { quotient }
}

fn ceiling_quotient(a: i64, b: i64) -> i64 {
    -floor_quotient(-a, b)
}

/// Returns the coordinates in `shape` of the element at `position`.
pub(super) fn delinearise(
    position: &AffineExpr,
    dims: &[usize],
    shape: &Shape,
) -> Result<Vec<AffineExpr>, AccessObstacle> {
    let rank = dims.len();
    let weights: Vec<i64> = shape.strides().iter().map(|&stride| stride as i64).collect();
    // A falling dimension is treated as a rising one from its far end.
    let mut offset = position.offset;
    for (&stride, &dim) in position.strides.iter().zip(dims) {
        offset += stride.min(0) * (dim as i64 - 1);
    }
    if offset < 0 || offset >= shape.elements() as i64 {
        return Err(AccessObstacle::NotAffine);
    }
    let mut digits: Vec<AffineExpr> =
        (0..shape.rank()).map(|axis| AffineExpr::constant(rank, offset / weights[axis] % shape[axis] as i64)).collect();
    let mut reach: Vec<i64> = digits.iter().map(|digit| digit.offset).collect();
    for dim in (0..rank).filter(|&dim| position.strides[dim] != 0 && dims[dim] > 1) {
        let (stride, size) = (position.strides[dim].abs(), dims[dim]);
        let axis = (0..shape.rank()).find(|&axis| shape[axis] > 1 && weights[axis] <= stride);
        let Some(axis) = axis.filter(|&axis| stride % weights[axis] == 0) else {
            return Err(AccessObstacle::NotAffine);
        };
        let factor = stride / weights[axis];
        reach[axis] += factor * (size as i64 - 1);
        if reach[axis] >= shape[axis] as i64 {
            return Err(split_obstacle(dim, size, shape[axis], factor as usize));
        }
        digits[axis].strides[dim] = factor * position.strides[dim].signum();
        if position.strides[dim] < 0 {
            digits[axis].offset += factor * (size as i64 - 1);
        }
    }
    Ok(digits)
}

fn split_obstacle(dim: usize, size: usize, axis_size: usize, factor: usize) -> AccessObstacle {
    let inner = axis_size / factor;
    if axis_size.is_multiple_of(factor) && inner > 1 && inner < size && size.is_multiple_of(inner) {
        AccessObstacle::Split { dim, inner }
    } else {
        AccessObstacle::NotAffine
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(dims: &[usize]) -> Shape {
        Shape::new(dims).unwrap()
    }

    #[test]
    fn a_flat_space_is_split_to_follow_a_transposed_matrix() {
        let mut space = IterationSpace::new(&[12]);
        let obstacle = ElementAccess::in_order(&space, &shape(&[3, 4])).unwrap_err();
        assert_eq!(obstacle, AccessObstacle::Split { dim: 0, inner: 4 });
        space.split(0, 4);
        let access = ElementAccess::in_order(&space, &shape(&[3, 4])).unwrap();
        assert_eq!(access.coordinates[0].strides, [1, 0]);
        assert_eq!(access.coordinates[1].strides, [0, 1]);
        assert_eq!(space.axis(0).strides, [4, 1]);
    }

    #[test]
    fn a_falling_dimension_keeps_its_direction() {
        let position = AffineExpr { offset: 5, strides: vec![-1] };
        let digits = delinearise(&position, &[6], &shape(&[6])).unwrap();
        assert_eq!(digits[0], AffineExpr { offset: 5, strides: vec![-1] });
        assert!(delinearise(&position, &[6], &shape(&[5])).is_err());
    }

    #[test]
    fn bounds_are_solved_for_the_coordinate() {
        let solve = |offset, stride, low, high, size| match restrict(
            &AffineExpr { offset, strides: vec![stride] },
            low,
            high,
            &[size],
        )
        .unwrap()
        {
            RestrictedAccess::Everywhere => (0, size as i64),
            RestrictedAccess::Nowhere => (0, 0),
            RestrictedAccess::Within(bound) => (bound.low, bound.high),
        };
        for (offset, stride, low, high) in [(-2, 1, 0, 5), (7, -1, 0, 5), (-3, 2, 0, 4), (8, -3, 1, 6), (50, 1, 0, 9)] {
            let inside: Vec<i64> = (0..10).filter(|i| (low..high).contains(&(offset + stride * i))).collect();
            let (first, end) = solve(offset, stride, low, high, 10);
            assert_eq!(inside, (first..end).collect::<Vec<_>>(), "{offset} {stride} {low} {high}");
        }
    }
}

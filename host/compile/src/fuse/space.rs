//! Iteration spaces and affine maps from their coordinates to those of a node.

use saggar_tensor::Shape;

use crate::expr::{Bound, View};

/// `offset + sum(strides[d] * coordinate[d])`; strides of dimensions of size 1 are 0.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Affine {
    pub(super) offset: i64,
    pub(super) strides: Vec<i64>,
}

impl Affine {
    pub(super) fn constant(rank: usize, offset: i64) -> Affine {
        Affine { offset, strides: vec![0; rank] }
    }

    /// `self * factor + offset`.
    pub(super) fn scaled(mut self, factor: i64, offset: i64) -> Affine {
        self.offset = self.offset * factor + offset;
        self.strides.iter_mut().for_each(|stride| *stride *= factor);
        self
    }

    fn add(&mut self, other: &Affine, factor: i64) {
        self.offset += other.offset * factor;
        for (stride, more) in self.strides.iter_mut().zip(&other.strides) {
            *stride += more * factor;
        }
    }

    /// Least and greatest value over the space.
    fn range(&self, dims: &[usize]) -> (i64, i64) {
        let mut range = (self.offset, self.offset);
        for (&stride, &dim) in self.strides.iter().zip(dims) {
            let reach = stride * (dim as i64 - 1).max(0);
            if reach < 0 { range.0 += reach } else { range.1 += reach }
        }
        range
    }
}

/// Why an access cannot be followed further in this space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Obstacle {
    /// It can, once dimension `dim` is split with `inner` coordinates in its inner part.
    Split { dim: usize, inner: usize },
    /// It is not affine.
    NotAffine,
}

/// The dimensions a kernel iterates over; some stem from splitting one original axis.
#[derive(Clone, Debug)]
pub(super) struct Space {
    pub(super) dims: Vec<usize>,
    /// For each dimension, the original axis it is part of.
    pub(super) origin: Vec<usize>,
}

impl Space {
    pub(super) fn new(dims: &[usize]) -> Space {
        Space { dims: dims.to_vec(), origin: (0..dims.len()).collect() }
    }

    pub(super) fn split(&mut self, dim: usize, inner: usize) {
        self.dims[dim] /= inner;
        self.dims.insert(dim + 1, inner);
        self.origin.insert(dim + 1, self.origin[dim]);
    }

    /// `self` outside, `inner` inside; the axes of `inner` are numbered after those of `self`.
    pub(super) fn joined(&self, inner: &Space, outer_axes: usize) -> Space {
        let mut joined = self.clone();
        joined.dims.extend(&inner.dims);
        joined.origin.extend(inner.origin.iter().map(|axis| axis + outer_axes));
        joined
    }

    /// The coordinate along original axis `axis`.
    pub(super) fn axis(&self, axis: usize) -> Affine {
        let mut affine = Affine::constant(self.dims.len(), 0);
        let mut stride = 1;
        for dim in (0..self.dims.len()).rev().filter(|&dim| self.origin[dim] == axis) {
            affine.strides[dim] = if self.dims[dim] > 1 { stride } else { 0 };
            stride *= self.dims[dim] as i64;
        }
        affine
    }

    /// The position in row-major order.
    pub(super) fn position(&self) -> Affine {
        let mut affine = Affine::constant(self.dims.len(), 0);
        let mut stride = 1;
        for dim in (0..self.dims.len()).rev() {
            affine.strides[dim] = if self.dims[dim] > 1 { stride } else { 0 };
            stride *= self.dims[dim] as i64;
        }
        affine
    }
}

/// Which element of a node each point of a space stands for, and where in the space that is meant.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Access {
    /// One for each dimension of the node.
    pub(super) coordinates: Vec<Affine>,
    /// Sorted by dimension, one each at most.
    pub(super) bounds: Vec<Bound>,
}

/// What is left of an access under a further condition.
pub(super) enum Restricted {
    /// The condition holds everywhere that is meant.
    Everywhere,
    /// Nowhere.
    Nowhere,
    /// Where this bound holds.
    Within(Bound),
}

impl Access {
    /// A node of this shape at the element with the space's own position.
    pub(super) fn in_order(space: &Space, shape: &Shape) -> Result<Access, Obstacle> {
        Ok(Access { coordinates: delinearise(&space.position(), &space.dims, shape)?, bounds: Vec::new() })
    }

    /// The element's position in a dense tensor of the node's shape.
    pub(super) fn position(&self, shape: &Shape, rank: usize) -> Affine {
        let mut position = Affine::constant(rank, 0);
        for (coordinate, stride) in self.coordinates.iter().zip(shape.strides()) {
            position.add(coordinate, stride as i64);
        }
        position
    }

    /// The view of a dense tensor of the node's shape.
    pub(super) fn view(&self, shape: &Shape, rank: usize) -> View {
        let Affine { offset, strides } = self.position(shape, rank);
        View { offset, strides, bounds: self.bounds.clone() }
    }

    /// The access that also demands `bound`; none where nothing is left.
    pub(super) fn bounded(mut self, bound: Bound) -> Option<Access> {
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

/// Where `low <= affine < high`.
pub(super) fn restrict(affine: &Affine, low: i64, high: i64, dims: &[usize]) -> Result<Restricted, Obstacle> {
    let (least, greatest) = affine.range(dims);
    if least >= low && greatest < high {
        return Ok(Restricted::Everywhere);
    }
    if greatest < low || least >= high {
        return Ok(Restricted::Nowhere);
    }
    let mut moving = (0..dims.len()).filter(|&dim| affine.strides[dim] != 0 && dims[dim] > 1);
    let (Some(dim), None) = (moving.next(), moving.next()) else { return Err(Obstacle::NotAffine) };
    let (stride, size) = (affine.strides[dim], dims[dim] as i64);
    // low <= offset + stride * i <= high - 1, solved for i by dividing toward the inside of the interval.
    let (from, to) = if stride > 0 { (low, high - 1) } else { (high - 1, low) };
    let first = ceiling_quotient(from - affine.offset, stride).max(0);
    let last = floor_quotient(to - affine.offset, stride).min(size - 1);
    if first > last {
        return Ok(Restricted::Nowhere);
    }
    Ok(Restricted::Within(Bound { dim, low: first, high: last + 1 }))
}

fn floor_quotient(a: i64, b: i64) -> i64 {
    let quotient = a / b;
    if a % b != 0 && (a < 0) != (b < 0) { quotient - 1 } else { quotient }
}

fn ceiling_quotient(a: i64, b: i64) -> i64 {
    -floor_quotient(-a, b)
}

/// Coordinates in `shape` of the element at `position`.
pub(super) fn delinearise(position: &Affine, dims: &[usize], shape: &Shape) -> Result<Vec<Affine>, Obstacle> {
    let rank = dims.len();
    let weights: Vec<i64> = shape.strides().iter().map(|&stride| stride as i64).collect();
    // A falling dimension is followed as a rising one from its far end.
    let mut offset = position.offset;
    for (&stride, &dim) in position.strides.iter().zip(dims) {
        offset += stride.min(0) * (dim as i64 - 1);
    }
    if offset < 0 || offset >= shape.elements() as i64 {
        return Err(Obstacle::NotAffine);
    }
    let mut digits: Vec<Affine> =
        (0..shape.rank()).map(|axis| Affine::constant(rank, offset / weights[axis] % shape[axis] as i64)).collect();
    let mut reach: Vec<i64> = digits.iter().map(|digit| digit.offset).collect();
    for dim in (0..rank).filter(|&dim| position.strides[dim] != 0 && dims[dim] > 1) {
        let (stride, size) = (position.strides[dim].abs(), dims[dim]);
        let axis = (0..shape.rank()).find(|&axis| shape[axis] > 1 && weights[axis] <= stride);
        let Some(axis) = axis.filter(|&axis| stride % weights[axis] == 0) else { return Err(Obstacle::NotAffine) };
        let factor = stride / weights[axis];
        reach[axis] += factor * (size as i64 - 1);
        if reach[axis] >= shape[axis] as i64 {
            return Err(split(dim, size, shape[axis], factor as usize));
        }
        digits[axis].strides[dim] = factor * position.strides[dim].signum();
        if position.strides[dim] < 0 {
            digits[axis].offset += factor * (size as i64 - 1);
        }
    }
    Ok(digits)
}

fn split(dim: usize, size: usize, axis_size: usize, factor: usize) -> Obstacle {
    let inner = axis_size / factor;
    if axis_size.is_multiple_of(factor) && inner > 1 && inner < size && size.is_multiple_of(inner) {
        Obstacle::Split { dim, inner }
    } else {
        Obstacle::NotAffine
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
        let mut space = Space::new(&[12]);
        let obstacle = Access::in_order(&space, &shape(&[3, 4])).unwrap_err();
        assert_eq!(obstacle, Obstacle::Split { dim: 0, inner: 4 });
        space.split(0, 4);
        let access = Access::in_order(&space, &shape(&[3, 4])).unwrap();
        assert_eq!(access.coordinates[0].strides, [1, 0]);
        assert_eq!(access.coordinates[1].strides, [0, 1]);
        assert_eq!(space.axis(0).strides, [4, 1]);
    }

    #[test]
    fn a_falling_dimension_keeps_its_direction() {
        let position = Affine { offset: 5, strides: vec![-1] };
        let digits = delinearise(&position, &[6], &shape(&[6])).unwrap();
        assert_eq!(digits[0], Affine { offset: 5, strides: vec![-1] });
        assert!(delinearise(&position, &[6], &shape(&[5])).is_err());
    }

    #[test]
    fn bounds_are_solved_for_the_coordinate() {
        let solve = |offset, stride, low, high, size| match restrict(
            &Affine { offset, strides: vec![stride] },
            low,
            high,
            &[size],
        )
        .unwrap()
        {
            Restricted::Everywhere => (0, size as i64),
            Restricted::Nowhere => (0, 0),
            Restricted::Within(bound) => (bound.low, bound.high),
        };
        for (offset, stride, low, high) in [(-2, 1, 0, 5), (7, -1, 0, 5), (-3, 2, 0, 4), (8, -3, 1, 6), (50, 1, 0, 9)] {
            let inside: Vec<i64> = (0..10).filter(|i| (low..high).contains(&(offset + stride * i))).collect();
            let (first, end) = solve(offset, stride, low, high, 10);
            assert_eq!(inside, (first..end).collect::<Vec<_>>(), "{offset} {stride} {low} {high}");
        }
    }
}

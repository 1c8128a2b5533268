//! Shapes: static, row-major, at most [`RANK_MAX`] dimensions and [`ELEMENTS_MAX`] elements. The limits are checked on
//! construction.

use std::fmt;
use std::ops::Deref;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::DType;
use crate::limits::{ELEMENTS_MAX, RANK_MAX};

/// The reason why dimensions are not a shape.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum ShapeError {
    /// More dimensions than [`RANK_MAX`].
    #[error("a tensor has at most {RANK_MAX} dimensions, not {rank}")]
    RankTooLarge {
        /// The requested number of dimensions.
        rank: usize,
    },
    /// More elements than [`ELEMENTS_MAX`].
    #[error("a tensor has at most {ELEMENTS_MAX} elements, and {dims:?} has more")]
    TooManyElements {
        /// The requested dimensions.
        dims: Vec<usize>,
    },
}

/// Dimensions of a tensor, outermost first. A scalar has none. A dimension can be 0.
///
/// A `Shape` value proves that its rank and its number of elements are within limits.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(try_from = "Vec<usize>", into = "Vec<usize>")]
pub struct Shape(Vec<usize>);

impl Shape {
    /// Creates a shape of these dimensions.
    ///
    /// # Errors
    /// Returns `RankTooLarge` above [`RANK_MAX`] dimensions, and `TooManyElements` above [`ELEMENTS_MAX`] elements.
    pub fn new(dims: impl Into<Vec<usize>>) -> Result<Shape, ShapeError> {
        let dims = dims.into();
        if dims.len() > RANK_MAX {
            return Err(ShapeError::RankTooLarge { rank: dims.len() });
        }
        // A zero dimension must not hide an overflow of the others, because strides are computed from them too.
        let product = dims.iter().try_fold(1usize, |n, &d| n.checked_mul(d.max(1)));
        match product {
            Some(n) if n <= ELEMENTS_MAX => Ok(Shape(dims)),
            _ => Err(ShapeError::TooManyElements { dims }),
        }
    }

    /// Returns the shape of a scalar: no dimensions, one element.
    pub fn scalar() -> Shape {
        Shape(Vec::new())
    }

    /// Returns the dimensions, outermost first.
    pub fn dims(&self) -> &[usize] {
        &self.0
    }

    /// Returns the number of dimensions.
    pub fn rank(&self) -> usize {
        self.0.len()
    }

    /// Returns the number of elements: the product of the dimensions, 1 for a scalar.
    pub fn elements(&self) -> usize {
        self.0.iter().product()
    }

    /// Returns the row-major strides in elements.
    pub fn strides(&self) -> Vec<usize> {
        let mut strides = vec![1; self.rank()];
        for axis in (1..self.rank()).rev() {
            strides[axis - 1] = strides[axis] * self.0[axis].max(1);
        }
        strides
    }
}

impl TryFrom<Vec<usize>> for Shape {
    type Error = ShapeError;
    fn try_from(dims: Vec<usize>) -> Result<Shape, ShapeError> {
        Shape::new(dims)
    }
}

impl From<Shape> for Vec<usize> {
    fn from(shape: Shape) -> Vec<usize> {
        shape.0
    }
}

impl Deref for Shape {
    type Target = [usize];
    fn deref(&self) -> &[usize] {
        &self.0
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (axis, dim) in self.0.iter().enumerate() {
            let separator = if axis == 0 { "" } else { ", " };
            write!(f, "{separator}{dim}")?;
        }
        f.write_str("]")
    }
}

/// Data type and shape of a tensor (WebNN: `MLOperandDescriptor`).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Descriptor {
    /// The type of each element.
    pub dtype: DType,
    /// The dimensions.
    pub shape: Shape,
}

impl Descriptor {
    /// Creates a descriptor of this type and shape.
    pub fn new(dtype: DType, shape: Shape) -> Descriptor {
        Descriptor { dtype, shape }
    }

    /// Returns the bytes of the dense tensor in host memory.
    pub fn bytes(&self) -> usize {
        self.shape.elements() * self.dtype.bytes()
    }
}

impl fmt::Display for Descriptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.dtype, self.shape)
    }
}

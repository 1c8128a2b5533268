//! Matrix products, convolutions and poolings.

use super::{FoldingGraph, PlaneWindows, PoolingMode, ValueResult};
use crate::error::{Error, Result};
use crate::value::{GraphValue, broadcast_shapes};

/// The maximum number of elementwise products that an integer matrix product is summed from.
const INTEGER_PRODUCTS_MAX: usize = 1 << 24;

impl FoldingGraph<'_> {
    /// Returns the matrix product with leading dimensions broadcast. Both operands have at least 2 dimensions.
    ///
    /// The host multiplies only matrices of floats. Integers are multiplied element by element and summed.
    ///
    /// # Errors
    /// Returns `Host` if the host refuses the call; `Invalid` if the shapes do not fit; `Unsupported` for large integer
    /// products.
    pub fn matmul(&mut self, a: &GraphValue, b: &GraphValue) -> ValueResult {
        if !a.elem().is_float() {
            return self.integer_matmul(a, b);
        }
        let (x, y) = (self.operand(a)?, self.operand(b)?);
        let result = self.backend.matmul(&x, &y);
        self.wrap_operand(a.elem(), result)
    }

    fn integer_matmul(&mut self, a: &GraphValue, b: &GraphValue) -> ValueResult {
        let (rank_a, rank_b) = (a.rank(), b.rank());
        let left = self.unsqueeze(a, rank_a)?;
        let right = self.unsqueeze(b, rank_b - 2)?;
        let shape = broadcast_shapes(left.shape(), right.shape())?;
        if shape.iter().try_fold(1usize, |n, &dim| n.checked_mul(dim)).is_none_or(|n| n > INTEGER_PRODUCTS_MAX) {
            return Err(Error::unsupported(format!(
                "an integer matrix product of {:?} and {:?}",
                a.shape(),
                b.shape()
            )));
        }
        let products = self.mul(&left, &right)?;
        let axis = products.rank() - 2;
        let sum = self.reduce(crate::backend::ReductionOperator::Sum, &products, &[axis])?;
        self.squeeze(&sum, &[axis])
    }

    /// Returns the cross-correlation of `x` `[n, c, h, w]` with `filter` `[o, c / groups, kh, kw]`.
    ///
    /// # Errors
    /// Returns `Host` if the host refuses the call.
    pub fn conv2d(
        &mut self,
        x: &GraphValue,
        filter: &GraphValue,
        bias: Option<&GraphValue>,
        windows: PlaneWindows,
        groups: usize,
    ) -> ValueResult {
        let (operand, filter) = (self.operand(x)?, self.operand(filter)?);
        let bias = bias.map(|bias| self.operand(bias)).transpose()?;
        let result = self.backend.conv2d(&operand, &filter, bias.as_ref(), windows, groups);
        self.wrap_operand(x.elem(), result)
    }

    /// Returns the transposed convolution, with height and width `size`.
    ///
    /// # Errors
    /// Returns `Host` if the host refuses the call.
    pub fn conv_transpose2d(
        &mut self,
        x: &GraphValue,
        filter: &GraphValue,
        bias: Option<&GraphValue>,
        windows: PlaneWindows,
        groups: usize,
        size: [usize; 2],
    ) -> ValueResult {
        let (operand, filter) = (self.operand(x)?, self.operand(filter)?);
        let bias = bias.map(|bias| self.operand(bias)).transpose()?;
        let result = self.backend.conv_transpose2d(&operand, &filter, bias.as_ref(), windows, groups, size);
        self.wrap_operand(x.elem(), result)
    }

    /// Returns the largest element or the mean of each window. Padding is ignored.
    ///
    /// # Errors
    /// Returns `Host` if the host refuses the call.
    pub fn pool2d(
        &mut self,
        how: PoolingMode,
        x: &GraphValue,
        window: [usize; 2],
        windows: PlaneWindows,
    ) -> Result<GraphValue> {
        let operand = self.operand(x)?;
        let result = self.backend.pool2d(how, &operand, window, windows);
        self.wrap_operand(x.elem(), result)
    }
}

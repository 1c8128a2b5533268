//! Data movement: reshaping, permuting, padding, gathering and scattering.

use super::{FoldingGraph, ScatterMode, ValueResult};
use crate::elem::ElementType;
use crate::error::{Error, Result};
use crate::fold;
use crate::value::{GraphValue, element_count};

impl FoldingGraph<'_> {
    /// Returns the same elements with another shape.
    ///
    /// # Errors
    /// Returns `Host` if the host refuses the call; `Invalid` if the element counts differ.
    pub fn reshape(&mut self, x: &GraphValue, shape: &[usize]) -> ValueResult {
        if x.shape() == shape {
            return Ok(x.clone());
        }
        if element_count(shape)? != x.len() {
            return Err(Error::invalid(format!("shape {:?} cannot become {shape:?}", x.shape())));
        }
        if let Some(constant) = x.constant()
            && self.reserve_fold_budget(constant.len())
        {
            return Ok(fold::reshape(constant, shape).into());
        }
        let operand = self.operand(x)?;
        let result = self.backend.reshape(&operand, shape);
        self.wrap_operand(x.elem(), result)
    }

    /// Permutes the axes: axis `i` of the result is axis `permutation[i]`.
    ///
    /// # Errors
    /// Returns `Host` if the host refuses the call; `Invalid` if `permutation` is not a permutation of the axes.
    pub fn transpose(&mut self, x: &GraphValue, permutation: &[usize]) -> ValueResult {
        let mut sorted = permutation.to_vec();
        sorted.sort_unstable();
        if !sorted.iter().copied().eq(0..x.rank()) {
            return Err(Error::invalid(format!("{permutation:?} is no permutation of {} axes", x.rank())));
        }
        if permutation.is_sorted() {
            return Ok(x.clone());
        }
        if let Some(constant) = x.constant()
            && self.reserve_fold_budget(constant.len())
        {
            return Ok(fold::transpose(constant, permutation).into());
        }
        let operand = self.operand(x)?;
        let result = self.backend.transpose(&operand, permutation);
        self.wrap_operand(x.elem(), result)
    }

    /// Swaps two axes.
    ///
    /// # Errors
    /// Returns the errors of [`FoldingGraph::transpose`].
    pub fn swap_axes(&mut self, x: &GraphValue, a: usize, b: usize) -> ValueResult {
        let mut permutation: Vec<usize> = (0..x.rank()).collect();
        permutation.swap(a, b);
        self.transpose(x, &permutation)
    }

    /// Broadcasts dimensions of size 1 to exactly `shape`.
    ///
    /// # Errors
    /// Returns `Host` if the host refuses the call; `Invalid` if `x` does not broadcast to `shape`.
    pub fn expand(&mut self, x: &GraphValue, shape: &[usize]) -> ValueResult {
        if x.shape() == shape {
            return Ok(x.clone());
        }
        let fits = x.rank() <= shape.len()
            && x.shape().iter().rev().zip(shape.iter().rev()).all(|(&from, &to)| from == to || from == 1);
        if !fits {
            return Err(Error::invalid(format!("shape {:?} cannot be repeated to {shape:?}", x.shape())));
        }
        if let Some(constant) = x.constant()
            && self.reserve_fold_budget(element_count(shape)?)
        {
            return Ok(fold::expand(constant, shape).into());
        }
        let operand = self.operand(x)?;
        let result = self.backend.expand(&operand, shape);
        self.wrap_operand(x.elem(), result)
    }

    /// Returns `sizes[i]` elements along axis `i`, from `starts[i]` on, every `steps[i]`-th. The caller keeps them in
    /// bounds.
    ///
    /// # Errors
    /// Returns `Host` if the host refuses the call.
    pub fn slice(&mut self, x: &GraphValue, starts: &[usize], sizes: &[usize], steps: &[usize]) -> ValueResult {
        if starts.iter().all(|&start| start == 0) && sizes == x.shape() {
            return Ok(x.clone());
        }
        if let Some(constant) = x.constant()
            && self.reserve_fold_budget(sizes.iter().product())
        {
            return Ok(fold::slice(constant, starts, sizes, steps).into());
        }
        let operand = self.operand(x)?;
        let result = self.backend.slice(&operand, starts, sizes, steps);
        self.wrap_operand(x.elem(), result)
    }

    /// Returns elements `start .. start + size` along `axis`.
    ///
    /// # Errors
    /// Returns `Host` if the host refuses the call; `Invalid` if the range is out of bounds.
    pub fn narrow(&mut self, x: &GraphValue, axis: usize, start: usize, size: usize) -> ValueResult {
        let dim = x.dim(axis)?;
        if start.checked_add(size).is_none_or(|end| end > dim) {
            return Err(Error::invalid(format!(
                "{size} elements from {start} are not in axis {axis} of {:?}",
                x.shape()
            )));
        }
        let mut starts = vec![0; x.rank()];
        let mut sizes = x.shape().to_vec();
        starts[axis] = start;
        sizes[axis] = size;
        self.slice(x, &starts, &sizes, &vec![1; x.rank()])
    }

    /// Returns the element at `index` along `axis` and removes the axis.
    ///
    /// # Errors
    /// Returns the errors of [`FoldingGraph::narrow`].
    pub fn index_axis(&mut self, x: &GraphValue, axis: usize, index: usize) -> ValueResult {
        let slice = self.narrow(x, axis, index, 1)?;
        let mut shape = slice.shape().to_vec();
        shape.remove(axis);
        self.reshape(&slice, &shape)
    }

    /// Concatenates along `axis`.
    ///
    /// # Errors
    /// Returns `Host` if the host refuses the call; `Invalid` if `xs` is empty or types or shapes differ.
    pub fn concat(&mut self, xs: &[GraphValue], axis: usize) -> ValueResult {
        let first = xs.first().ok_or_else(|| Error::invalid("nothing to join"))?;
        if let [only] = xs {
            return Ok(only.clone());
        }
        let mut total = 0usize;
        for x in xs {
            let mut others = x.shape().to_vec();
            total = total.saturating_add(x.dim(axis)?);
            others[axis] = first.dim(axis)?;
            if others != first.shape() || x.elem() != first.elem() {
                let (a, b) = ((first.elem(), first.shape()), (x.elem(), x.shape()));
                return Err(Error::invalid(format!("{a:?} and {b:?} cannot be joined along axis {axis}")));
            }
        }
        let mut shape = first.shape().to_vec();
        shape[axis] = total;
        let constants: Option<Vec<_>> = xs.iter().map(|x| x.constant().map(|c| &**c)).collect();
        if let Some(constants) = constants
            && self.reserve_fold_budget(element_count(&shape)?)
        {
            return Ok(fold::concat(&constants, axis).into());
        }
        let operands = xs.iter().map(|x| self.operand(x)).collect::<Result<Vec<_>>>()?;
        let result = self.backend.concat(&operands, axis);
        self.wrap_operand(first.elem(), result)
    }

    /// Pads each axis with `value` before and after.
    ///
    /// # Errors
    /// Returns `Host` if the host refuses the call; `Invalid` if the result has too many elements.
    pub fn pad(&mut self, x: &GraphValue, low: &[usize], high: &[usize], value: f64) -> ValueResult {
        if low.iter().chain(high).all(|&count| count == 0) {
            return Ok(x.clone());
        }
        let sizes = x.shape().iter().zip(low).zip(high);
        let shape: Vec<usize> =
            sizes.map(|((dim, low), high)| dim.saturating_add(*low).saturating_add(*high)).collect();
        let count = element_count(&shape)?;
        if let Some(constant) = x.constant()
            && self.reserve_fold_budget(count)
        {
            return Ok(fold::pad(constant, low, high, value).into());
        }
        let operand = self.operand(x)?;
        let result = self.backend.pad(&operand, low, high, value);
        self.wrap_operand(x.elem(), result)
    }

    /// Reverses the order along `axes`.
    ///
    /// # Errors
    /// Returns `Host` if the host refuses the call.
    pub fn reverse(&mut self, x: &GraphValue, axes: &[usize]) -> ValueResult {
        if let Some(constant) = x.constant()
            && self.reserve_fold_budget(constant.len())
        {
            return Ok(fold::reverse(constant, axes).into());
        }
        let operand = self.operand(x)?;
        let result = self.backend.reverse(&operand, axes);
        self.wrap_operand(x.elem(), result)
    }

    /// Gathers slices along `axis` at `indices`. Negative indices count from the end.
    ///
    /// # Errors
    /// Returns `Host` if the host refuses the call.
    pub fn gather(&mut self, x: &GraphValue, indices: &GraphValue, axis: usize) -> ValueResult {
        x.dim(axis)?;
        let shape = [&x.shape()[..axis], indices.shape(), &x.shape()[axis + 1..]].concat();
        if let (Some(constant), Some(wanted)) = (x.constant(), indices.constant())
            && self.reserve_fold_budget(element_count(&shape)?)
            && let Some(folded) = fold::gather(constant, wanted, axis)
        {
            return Ok(folded.into());
        }
        let operand = self.operand(x)?;
        let indices = self.index_operand(indices)?;
        let result = self.backend.gather(&operand, &indices, axis);
        self.wrap_operand(x.elem(), result)
    }

    /// Returns the indices in a type that the host accepts.
    fn index_operand(&mut self, indices: &GraphValue) -> Result<crate::value::BackendOperand> {
        let is_index_type = matches!(
            indices.elem(),
            ElementType::Int32 | ElementType::Int64 | ElementType::Uint32 | ElementType::Uint8
        );
        let indices = if is_index_type { indices.clone() } else { self.cast(indices, ElementType::Int32)? };
        self.operand(&indices)
    }

    /// Gathers along `axis` the element at the index in the same position of `indices`.
    ///
    /// # Errors
    /// Returns `Host` if the host refuses the call.
    pub fn gather_elements(&mut self, x: &GraphValue, indices: &GraphValue, axis: usize) -> ValueResult {
        let (operand, indices) = (self.operand(x)?, self.index_operand(indices)?);
        let result = self.backend.gather_elements(&operand, &indices, axis);
        self.wrap_operand(x.elem(), result)
    }

    /// Gathers slices at the coordinates in the last dimension of `indices`, which index the first axes of `x`.
    ///
    /// # Errors
    /// Returns `Host` if the host refuses the call.
    pub fn gather_nd(&mut self, x: &GraphValue, indices: &GraphValue) -> ValueResult {
        let (operand, indices) = (self.operand(x)?, self.index_operand(indices)?);
        let result = self.backend.gather_nd(&operand, &indices);
        self.wrap_operand(x.elem(), result)
    }

    /// Combines `updates` into `x` at the positions that [`FoldingGraph::gather_elements`] reads.
    ///
    /// # Errors
    /// Returns `Host` if the host refuses the call.
    pub fn scatter_elements(
        &mut self,
        x: &GraphValue,
        indices: &GraphValue,
        updates: &GraphValue,
        axis: usize,
        how: ScatterMode,
    ) -> ValueResult {
        let (operand, indices, updates) = (self.operand(x)?, self.index_operand(indices)?, self.operand(updates)?);
        let result = self.backend.scatter_elements(&operand, &indices, &updates, axis, how);
        self.wrap_operand(x.elem(), result)
    }

    /// Combines `updates` into `x` at the positions that [`FoldingGraph::gather_nd`] reads.
    ///
    /// # Errors
    /// Returns `Host` if the host refuses the call.
    pub fn scatter_nd(
        &mut self,
        x: &GraphValue,
        indices: &GraphValue,
        updates: &GraphValue,
        how: ScatterMode,
    ) -> ValueResult {
        let (operand, indices, updates) = (self.operand(x)?, self.index_operand(indices)?, self.operand(updates)?);
        let result = self.backend.scatter_nd(&operand, &indices, &updates, how);
        self.wrap_operand(x.elem(), result)
    }

    /// Inserts an axis of size 1 before `axis`.
    ///
    /// # Errors
    /// Returns `Host` if the host refuses the call.
    pub fn unsqueeze(&mut self, x: &GraphValue, axis: usize) -> ValueResult {
        let mut shape = x.shape().to_vec();
        shape.insert(axis, 1);
        self.reshape(x, &shape)
    }

    /// Removes axes of size 1.
    ///
    /// # Errors
    /// Returns `Host` if the host refuses the call; `Invalid` if one of the axes has another size.
    pub fn squeeze(&mut self, x: &GraphValue, axes: &[usize]) -> ValueResult {
        if let Some(axis) = axes.iter().find(|&&axis| x.shape().get(axis) != Some(&1)) {
            return Err(Error::invalid(format!("axis {axis} of {:?} has not size 1", x.shape())));
        }
        let other_axes = x.shape().iter().enumerate().filter(|(axis, _)| !axes.contains(axis));
        let shape: Vec<usize> = other_axes.map(|(_, &dim)| dim).collect();
        self.reshape(x, &shape)
    }
}

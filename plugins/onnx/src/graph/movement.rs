//! Moving elements, and choosing them by index.

use super::{Built, Graph, Scatter};
use crate::elem::Elem;
use crate::error::{Error, Result};
use crate::fold;
use crate::value::{Value, elements};

impl Graph<'_> {
    /// The same elements under another shape.
    ///
    /// # Errors
    /// `Host`; `Invalid` if the sizes differ.
    pub fn reshape(&mut self, x: &Value, shape: &[usize]) -> Built {
        if x.shape() == shape {
            return Ok(x.clone());
        }
        if elements(shape)? != x.len() {
            return Err(Error::invalid(format!("shape {:?} cannot become {shape:?}", x.shape())));
        }
        if let Some(constant) = x.constant()
            && self.affordable(constant.len())
        {
            return Ok(fold::reshape(constant, shape).into());
        }
        let operand = self.operand(x)?;
        let made = self.backend.reshape(&operand, shape);
        self.made(x.elem(), made)
    }

    /// Result axis `i` is axis `permutation[i]`.
    ///
    /// # Errors
    /// `Host`; `Invalid` if it is no permutation of the axes.
    pub fn transpose(&mut self, x: &Value, permutation: &[usize]) -> Built {
        let mut sorted = permutation.to_vec();
        sorted.sort_unstable();
        if !sorted.iter().copied().eq(0..x.rank()) {
            return Err(Error::invalid(format!("{permutation:?} is no permutation of {} axes", x.rank())));
        }
        if permutation.is_sorted() {
            return Ok(x.clone());
        }
        if let Some(constant) = x.constant()
            && self.affordable(constant.len())
        {
            return Ok(fold::transpose(constant, permutation).into());
        }
        let operand = self.operand(x)?;
        let made = self.backend.transpose(&operand, permutation);
        self.made(x.elem(), made)
    }

    /// Two axes exchanged.
    ///
    /// # Errors
    /// As [`Graph::transpose`].
    pub fn swap(&mut self, x: &Value, a: usize, b: usize) -> Built {
        let mut permutation: Vec<usize> = (0..x.rank()).collect();
        permutation.swap(a, b);
        self.transpose(x, &permutation)
    }

    /// Dimensions of size 1 repeated to exactly this shape.
    ///
    /// # Errors
    /// `Host`; `Invalid` if the shapes do not fit.
    pub fn expand(&mut self, x: &Value, shape: &[usize]) -> Built {
        if x.shape() == shape {
            return Ok(x.clone());
        }
        let fits = x.rank() <= shape.len()
            && x.shape().iter().rev().zip(shape.iter().rev()).all(|(&from, &to)| from == to || from == 1);
        if !fits {
            return Err(Error::invalid(format!("shape {:?} cannot be repeated to {shape:?}", x.shape())));
        }
        if let Some(constant) = x.constant()
            && self.affordable(elements(shape)?)
        {
            return Ok(fold::expand(constant, shape).into());
        }
        let operand = self.operand(x)?;
        let made = self.backend.expand(&operand, shape);
        self.made(x.elem(), made)
    }

    /// `sizes[i]` elements from `starts[i]`, every `steps[i]`-th, along each axis; they are inside.
    ///
    /// # Errors
    /// `Host`.
    pub fn slice(&mut self, x: &Value, starts: &[usize], sizes: &[usize], steps: &[usize]) -> Built {
        if starts.iter().all(|&start| start == 0) && sizes == x.shape() {
            return Ok(x.clone());
        }
        if let Some(constant) = x.constant()
            && self.affordable(sizes.iter().product())
        {
            return Ok(fold::slice(constant, starts, sizes, steps).into());
        }
        let operand = self.operand(x)?;
        let made = self.backend.slice(&operand, starts, sizes, steps);
        self.made(x.elem(), made)
    }

    /// Elements `start .. start + size` along `axis`.
    ///
    /// # Errors
    /// `Host`; `Invalid` if they are not inside.
    pub fn narrow(&mut self, x: &Value, axis: usize, start: usize, size: usize) -> Built {
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

    /// The element at `index` along `axis`; the axis goes.
    ///
    /// # Errors
    /// As [`Graph::narrow`].
    pub fn at(&mut self, x: &Value, axis: usize, index: usize) -> Built {
        let slice = self.narrow(x, axis, index, 1)?;
        let mut shape = slice.shape().to_vec();
        shape.remove(axis);
        self.reshape(&slice, &shape)
    }

    /// Joined along `axis`.
    ///
    /// # Errors
    /// `Host`; `Invalid` if there is nothing to join or types or shapes differ.
    pub fn concat(&mut self, xs: &[Value], axis: usize) -> Built {
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
            && self.affordable(elements(&shape)?)
        {
            return Ok(fold::concat(&constants, axis).into());
        }
        let operands = xs.iter().map(|x| self.operand(x)).collect::<Result<Vec<_>>>()?;
        let made = self.backend.concat(&operands, axis);
        self.made(first.elem(), made)
    }

    /// `value` added before and after along each axis.
    ///
    /// # Errors
    /// `Host`; `Invalid` if there are too many elements.
    pub fn pad(&mut self, x: &Value, low: &[usize], high: &[usize], value: f64) -> Built {
        if low.iter().chain(high).all(|&count| count == 0) {
            return Ok(x.clone());
        }
        let sizes = x.shape().iter().zip(low).zip(high);
        let shape: Vec<usize> =
            sizes.map(|((dim, low), high)| dim.saturating_add(*low).saturating_add(*high)).collect();
        let count = elements(&shape)?;
        if let Some(constant) = x.constant()
            && self.affordable(count)
        {
            return Ok(fold::pad(constant, low, high, value).into());
        }
        let operand = self.operand(x)?;
        let made = self.backend.pad(&operand, low, high, value);
        self.made(x.elem(), made)
    }

    /// Order reversed along `axes`.
    ///
    /// # Errors
    /// `Host`.
    pub fn reverse(&mut self, x: &Value, axes: &[usize]) -> Built {
        if let Some(constant) = x.constant()
            && self.affordable(constant.len())
        {
            return Ok(fold::reverse(constant, axes).into());
        }
        let operand = self.operand(x)?;
        let made = self.backend.reverse(&operand, axes);
        self.made(x.elem(), made)
    }

    /// Slices along `axis` at `indices`; negative ones count from the end.
    ///
    /// # Errors
    /// `Host`.
    pub fn gather(&mut self, x: &Value, indices: &Value, axis: usize) -> Built {
        x.dim(axis)?;
        let shape = [&x.shape()[..axis], indices.shape(), &x.shape()[axis + 1..]].concat();
        if let (Some(constant), Some(wanted)) = (x.constant(), indices.constant())
            && self.affordable(elements(&shape)?)
            && let Some(folded) = fold::gather(constant, wanted, axis)
        {
            return Ok(folded.into());
        }
        let operand = self.operand(x)?;
        let indices = self.indices(indices)?;
        let made = self.backend.gather(&operand, &indices, axis);
        self.made(x.elem(), made)
    }

    /// Indices in a type that the host takes.
    fn indices(&mut self, indices: &Value) -> Result<crate::value::Operand> {
        let taken = matches!(indices.elem(), Elem::Int32 | Elem::Int64 | Elem::Uint32 | Elem::Uint8);
        let indices = if taken { indices.clone() } else { self.cast(indices, Elem::Int32)? };
        self.operand(&indices)
    }

    /// Along `axis` the element that the index in the same place names.
    ///
    /// # Errors
    /// `Host`.
    pub fn gather_elements(&mut self, x: &Value, indices: &Value, axis: usize) -> Built {
        let (operand, indices) = (self.operand(x)?, self.indices(indices)?);
        let made = self.backend.gather_elements(&operand, &indices, axis);
        self.made(x.elem(), made)
    }

    /// What the last dimension of `indices` names along the first axes.
    ///
    /// # Errors
    /// `Host`.
    pub fn gather_nd(&mut self, x: &Value, indices: &Value) -> Built {
        let (operand, indices) = (self.operand(x)?, self.indices(indices)?);
        let made = self.backend.gather_nd(&operand, &indices);
        self.made(x.elem(), made)
    }

    /// `x` with `updates` combined into the places that [`Graph::gather_elements`] reads.
    ///
    /// # Errors
    /// `Host`.
    pub fn scatter_elements(
        &mut self,
        x: &Value,
        indices: &Value,
        updates: &Value,
        axis: usize,
        how: Scatter,
    ) -> Built {
        let (operand, indices, updates) = (self.operand(x)?, self.indices(indices)?, self.operand(updates)?);
        let made = self.backend.scatter_elements(&operand, &indices, &updates, axis, how);
        self.made(x.elem(), made)
    }

    /// `x` with `updates` combined into the places that [`Graph::gather_nd`] reads.
    ///
    /// # Errors
    /// `Host`.
    pub fn scatter_nd(&mut self, x: &Value, indices: &Value, updates: &Value, how: Scatter) -> Built {
        let (operand, indices, updates) = (self.operand(x)?, self.indices(indices)?, self.operand(updates)?);
        let made = self.backend.scatter_nd(&operand, &indices, &updates, how);
        self.made(x.elem(), made)
    }

    /// An axis of size 1 added before `axis`.
    ///
    /// # Errors
    /// `Host`.
    pub fn unsqueeze(&mut self, x: &Value, axis: usize) -> Built {
        let mut shape = x.shape().to_vec();
        shape.insert(axis, 1);
        self.reshape(x, &shape)
    }

    /// Axes of size 1 taken away.
    ///
    /// # Errors
    /// `Host`; `Invalid` if one has another size.
    pub fn squeeze(&mut self, x: &Value, axes: &[usize]) -> Built {
        if let Some(axis) = axes.iter().find(|&&axis| x.shape().get(axis) != Some(&1)) {
            return Err(Error::invalid(format!("axis {axis} of {:?} has not size 1", x.shape())));
        }
        let kept = x.shape().iter().enumerate().filter(|(axis, _)| !axes.contains(axis));
        let shape: Vec<usize> = kept.map(|(_, &dim)| dim).collect();
        self.reshape(x, &shape)
    }
}

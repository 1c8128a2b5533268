//! Access to float tensors as `f32`, whatever their type in memory. Contractions and windowed kernels compute in `f32`
//! only.

use std::borrow::Cow;

use saggar_tensor::DType;

use super::elementwise_loops::{elements, elements_mut};
use crate::half;

/// Returns a float tensor's elements.
pub(super) fn as_f32(dtype: DType, bytes: &[u8]) -> Cow<'_, [f32]> {
    if dtype.bytes() == 2 {
        Cow::Owned(elements::<u16>(bytes).iter().map(|&bits| half::to_f32(bits)).collect())
    } else {
        Cow::Borrowed(elements(bytes))
    }
}

/// Calls `f` to write a float tensor's elements, and rounds them afterwards if memory is narrower. `f` must write all.
pub(super) fn write_as_f32(dtype: DType, bytes: &mut [u8], f: impl FnOnce(&mut [f32])) {
    if dtype.bytes() == 2 {
        let halves = elements_mut::<u16>(bytes);
        let mut wide = vec![0.0; halves.len()];
        f(&mut wide);
        for (half, &value) in halves.iter_mut().zip(&wide) {
            *half = half::from_f32(value);
        }
    } else {
        f(elements_mut(bytes));
    }
}

//! Prepacked operands: copies in a packed layout that are made once and kept beside their buffer until it is written.
//! Weights are packed for their products when a program first runs.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use saggar_tensor::DType;

use super::aligned_buffer::AlignedBuffer;
use super::f32_access::as_f32;
use super::gemm::GemmMatrix;
use super::gemm::pack::{PanelLayout, pack, split_panels};
use super::kernels::implicit_gemm::PackedFilterLayout;
use super::kernels::winograd::WinogradFilterLayout;
use saggar_device::error::DeviceError;
use saggar_device::memory_budget::DeviceMemoryBudget;
use saggar_device::meter::{Meter, MeterCharge};

/// The layout of a prepacked value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PackedLayout {
    /// A matrix in panels.
    Matrix {
        /// The layout of the panels.
        layout: PanelLayout,
        /// Whether the matrix is stored as `columns x depth`.
        transposed: bool,
    },
    /// A filter for an implicit GEMM convolution in NHWC layout.
    Filter(PackedFilterLayout),
    /// A filter for a Winograd convolution.
    Points(WinogradFilterLayout),
}

/// A kernel's request for a prepacked operand.
#[derive(Clone, Debug)]
pub(super) struct PrepackRequest {
    /// Block that the value fills.
    pub(super) block: usize,
    /// Data type of the value.
    pub(super) dtype: DType,
    /// The layout that the kernel needs.
    pub(super) form: PackedLayout,
}

/// A value in a packed layout.
#[derive(Debug)]
pub(super) struct PrepackedOperand {
    form: PackedLayout,
    words: AlignedBuffer,
    _charge: MeterCharge,
}

/// The packed copies of one value.
#[derive(Debug, Default)]
pub(super) struct PrepackCache(Mutex<Vec<Arc<PrepackedOperand>>>);

impl PackedLayout {
    fn len(&self) -> usize {
        match self {
            PackedLayout::Matrix { layout, .. } => layout.len(),
            PackedLayout::Filter(form) => form.layout.len(),
            PackedLayout::Points(form) => form.len(),
        }
    }

    fn write(&self, from: &[f32], out: &mut [f32]) {
        match self {
            PackedLayout::Matrix { layout, transposed } => {
                pack(*layout, GemmMatrix::new(from, layout.columns, layout.depth, *transposed), out);
            }
            PackedLayout::Points(form) => form.transform(from, out),
            PackedLayout::Filter(form) => {
                for part in split_panels(form.layout, out) {
                    part.pack_with(|depth, column| form.element(from, depth, column));
                }
            }
        }
    }
}

impl PrepackedOperand {
    /// Returns the packed elements.
    pub(super) fn data(&self) -> &[f32] {
        &bytemuck::cast_slice(&self.words)[..self.form.len()]
    }
}

impl PrepackRequest {
    /// Returns the bytes of the packed value.
    pub(super) fn bytes(&self) -> u64 {
        4 * self.form.len() as u64
    }
}

/// Returns the bytes of all packed copies. A copy that several kernels need counts once.
pub(super) fn packed_bytes<'a>(all: impl Iterator<Item = &'a PrepackRequest>) -> u64 {
    let mut counted: Vec<&PrepackRequest> = Vec::new();
    for kept in all {
        if !counted.iter().any(|it| it.block == kept.block && it.form == kept.form) {
            counted.push(kept);
        }
    }
    counted.iter().map(|kept| kept.bytes()).fold(0, u64::saturating_add)
}

impl PrepackCache {
    /// Returns the packed copy that `kept` requests, and makes it if it is missing. `bytes` is the value's current data
    /// and `what` its name in errors.
    ///
    /// # Errors
    /// Returns `OutOfMemory` or `InsufficientMemory`.
    pub(super) fn get_or_pack(
        &self,
        kept: &PrepackRequest,
        what: &dyn fmt::Display,
        bytes: &[u8],
        room: &Arc<DeviceMemoryBudget>,
        meter: &Meter,
    ) -> Result<Arc<PrepackedOperand>, DeviceError> {
        let mut forms = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(formed) = forms.iter().find(|formed| formed.form == kept.form) {
            return Ok(Arc::clone(formed));
        }
        let charge = room.charge(&format_args!("{what}, packed"), kept.bytes(), meter)?;
        let mut words = AlignedBuffer::zeroed(4 * kept.form.len());
        let data = &mut bytemuck::cast_slice_mut(&mut words)[..kept.form.len()];
        kept.form.write(&as_f32(kept.dtype, bytes), data);
        let formed = Arc::new(PrepackedOperand { form: kept.form.clone(), words, _charge: charge });
        forms.push(Arc::clone(&formed));
        Ok(formed)
    }

    /// Drops all packed copies, because the value is being written.
    pub(super) fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

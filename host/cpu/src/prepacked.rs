//! Prepacked operands: copies in a packed layout that are made once and kept beside their buffer until it is written.
//! Weights are packed for their products when a program first runs.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use saggar_tensor::DType;

use super::aligned_buffer::AlignedBuffer;
use super::f32_access::as_f32;
use saggar_device::error::DeviceError;
use saggar_device::memory_budget::{DeviceMemoryBudget, DeviceMemoryCharge};
use saggar_device::meter::Meter;

/// A layout in which a kernel reads an operand. The kernel that reads it defines it.
pub(super) trait PackedLayout: Any + fmt::Debug + Send + Sync {
    /// Returns the number of packed elements.
    fn elements(&self) -> usize;

    /// Packs the operand `from` into `out`, which has [`PackedLayout::elements`] elements.
    fn pack(&self, from: &[f32], out: &mut [f32]);

    /// Returns whether `other` is the same layout, so that one packed copy serves both. [`is_same_layout`] implements
    /// it.
    fn is_same(&self, other: &dyn PackedLayout) -> bool;
}

/// Returns whether `other` has the type of `layout` and equals it.
pub(super) fn is_same_layout<T: PackedLayout + PartialEq>(layout: &T, other: &dyn PackedLayout) -> bool {
    (other as &dyn Any).downcast_ref::<T>() == Some(layout)
}

/// A kernel's request for a prepacked operand.
#[derive(Clone, Debug)]
pub(super) struct PrepackRequest {
    /// Block that the value fills.
    pub(super) block: usize,
    /// Data type of the value.
    pub(super) dtype: DType,
    /// The layout that the kernel needs.
    pub(super) layout: Arc<dyn PackedLayout>,
}

/// A value in a packed layout.
#[derive(Debug)]
pub(super) struct PrepackedOperand {
    layout: Arc<dyn PackedLayout>,
    words: AlignedBuffer,
    _charge: DeviceMemoryCharge,
}

/// The packed copies of one value.
#[derive(Debug, Default)]
pub(super) struct PrepackCache(Mutex<Vec<Arc<PrepackedOperand>>>);

impl PrepackedOperand {
    /// Returns the packed elements.
    pub(super) fn data(&self) -> &[f32] {
        &bytemuck::cast_slice(&self.words)[..self.layout.elements()]
    }
}

impl PrepackRequest {
    /// Returns the bytes of the packed value.
    pub(super) fn bytes(&self) -> u64 {
        4 * self.layout.elements() as u64
    }
}

/// Returns the bytes of all packed copies. A copy that several kernels need counts once.
pub(super) fn packed_bytes<'a>(all: impl Iterator<Item = &'a PrepackRequest>) -> u64 {
    let mut counted: Vec<&PrepackRequest> = Vec::new();
    for request in all {
        if !counted.iter().any(|it| it.block == request.block && it.layout.is_same(&*request.layout)) {
            counted.push(request);
        }
    }
    counted.iter().map(|request| request.bytes()).fold(0, u64::saturating_add)
}

impl PrepackCache {
    /// Returns the packed copy that `request` requests, and makes it if it is missing. `bytes` is the value's current data
    /// and `what` its name in errors.
    ///
    /// # Errors
    /// Returns `OutOfMemory` or `InsufficientMemory`.
    pub(super) fn get_or_pack(
        &self,
        request: &PrepackRequest,
        what: &dyn fmt::Display,
        bytes: &[u8],
        room: &Arc<DeviceMemoryBudget>,
        meter: &Meter,
    ) -> Result<Arc<PrepackedOperand>, DeviceError> {
        let mut copies = self.0.lock();
        if let Some(copy) = copies.iter().find(|copy| copy.layout.is_same(&*request.layout)) {
            return Ok(Arc::clone(copy));
        }
        let charge = room.charge(&format_args!("{what}, packed"), request.bytes(), meter)?;
        let mut words = AlignedBuffer::zeroed(4 * request.layout.elements());
        let data = &mut bytemuck::cast_slice_mut(&mut words)[..request.layout.elements()];
        request.layout.pack(&as_f32(request.dtype, bytes), data);
        let copy = Arc::new(PrepackedOperand { layout: Arc::clone(&request.layout), words, _charge: charge });
        copies.push(Arc::clone(&copy));
        Ok(copy)
    }

    /// Drops all packed copies, because the value is being written.
    pub(super) fn clear(&self) {
        self.0.lock().clear();
    }
}

//! What the compiler must know of a device: how elements lie in its memory, and how large an allocation may be.

use saggar_tensor::DType;

/// How a device stores elements; values of different classes never share a slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Raw bytes: a host device, any data type.
    Bytes,
    /// An array of WGSL `f32`.
    F32,
    /// An array of WGSL `i32`: `int32`, and `int8` widened to a word.
    I32,
    /// An array of WGSL `u32`: `uint32`, and `uint8` widened to a word.
    U32,
}

/// A device's memory model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// WGSL storage (words, by class) instead of host bytes.
    pub words: bool,
    /// Alignment of a value in a slab.
    pub alignment_bytes: usize,
    /// Largest slab, and largest single value.
    pub slab_bytes_max: usize,
    /// Distinct values one kernel may touch: a shader's storage bindings.
    pub kernel_values_max: usize,
}

impl Target {
    /// A host with native kernels.
    pub const fn cpu() -> Target {
        Target { words: false, alignment_bytes: 64, slab_bytes_max: 1 << 40, kernel_values_max: 16 }
    }

    /// The class of a data type, or none where the device has no such type.
    pub fn class(&self, dtype: DType) -> Option<Class> {
        if !self.words {
            return Some(Class::Bytes);
        }
        match dtype {
            DType::F32 => Some(Class::F32),
            DType::I32 | DType::I8 => Some(Class::I32),
            DType::U32 | DType::U8 => Some(Class::U32),
            DType::F16 | DType::I64 | DType::U64 => None,
        }
    }

    /// Bytes of one element in the device's memory.
    pub fn element_bytes(&self, dtype: DType) -> usize {
        if self.words { 4 } else { dtype.bytes() }
    }
}

//! What the compiler must know of a device: how elements lie in its memory, and how large an allocation may be.

use saggar_tensor::{DType, Descriptor};
use serde::{Deserialize, Serialize};

use crate::limits::{FUSED_MATMUL_TILE_ROWS, FUSED_MATMUL_VALUES_MAX};
use crate::program::KernelBody;

/// How a device stores elements; values of different classes never share a slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum StorageClass {
    /// Raw bytes: a host device, any data type.
    Bytes,
    /// An array of WGSL `f32`: `float32`, and `float16` widened to a word that holds a half-precision number.
    F32,
    /// An array of WGSL `f16`: `float16` where the device's storage has it.
    F16,
    /// An array of WGSL `i32`: `int32`, and `int8` widened to a word.
    I32,
    /// An array of WGSL `u32`: `uint32`, and `uint8` widened to a word.
    U32,
    /// An array of WGSL `i64`, or of two words an element where shaders have no `i64`.
    I64,
    /// An array of WGSL `u64`, or of two words.
    U64,
}

impl StorageClass {
    /// How WGSL storage holds elements of `dtype`, given whether it has `f16`. No other storage is narrower than a word, so
    /// smaller types are widened.
    pub const fn for_wgsl(dtype: DType, half_storage: bool) -> StorageClass {
        match dtype {
            DType::F16 if half_storage => StorageClass::F16,
            DType::F32 | DType::F16 => StorageClass::F32,
            DType::I32 | DType::I8 => StorageClass::I32,
            DType::U32 | DType::U8 => StorageClass::U32,
            DType::I64 => StorageClass::I64,
            DType::U64 => StorageClass::U64,
        }
    }

    /// Bytes of an element of `dtype` that is stored this way.
    pub const fn element_bytes(self, dtype: DType) -> usize {
        match self {
            StorageClass::Bytes => dtype.bytes(),
            StorageClass::F16 => 2,
            StorageClass::F32 | StorageClass::I32 | StorageClass::U32 => 4,
            StorageClass::I64 | StorageClass::U64 => 8,
        }
    }
}

/// A device's memory model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompileTarget {
    /// WGSL storage (words, by class) instead of host bytes.
    pub words: bool,
    /// Whether that storage has 16-bit floats, which WGSL has as an extension that some adapters lack. Without them `float16` takes a word.
    pub half_storage: bool,
    /// Whether windowed operators are fastest with channels side by side.
    pub channels_last: bool,
    /// Whether a map may write a value over one that it reads element by element, and a gradient of max pooling over one
    /// that it reads tile by tile, where nothing reads it after that. A shader cannot: one storage binding would be read and another one written, both of the same memory.
    pub in_place: bool,
    /// Alignment of a value in a slab.
    pub alignment_bytes: usize,
    /// Largest slab, and largest single value.
    pub slab_bytes_max: usize,
    /// Bytes that a kernel sees of an allocation through one binding; more take several.
    pub binding_bytes_max: usize,
    /// Distinct values one kernel may touch: a shader's storage bindings.
    pub kernel_values_max: usize,
    /// Distinct values that a chain may touch ([`KernelBody::FusedMatMul`]); 0 where there are none, and every product is stored before it
    /// is used.
    pub chain_values_max: usize,
    /// Rows that all matrices of a chain have together, at least: a workgroup has a few of them, and fewer leave most of the device
    /// idle while products are computed again.
    pub chain_rows_min: usize,
}

impl CompileTarget {
    /// A host with native kernels.
    pub const fn cpu() -> CompileTarget {
        CompileTarget {
            words: false,
            half_storage: true,
            channels_last: true,
            in_place: true,
            alignment_bytes: 64,
            slab_bytes_max: 1 << 40,
            binding_bytes_max: 1 << 40,
            kernel_values_max: 16,
            chain_values_max: 0,
            chain_rows_min: 0,
        }
    }

    /// An adapter that has what those of today's desktops and servers have: memory that lanes share, and bindings of up to
    /// 2 GiB. Most kernels use no more than eight of them, which every adapter has.
    pub const fn gpu() -> CompileTarget {
        CompileTarget {
            words: true,
            half_storage: true,
            channels_last: false,
            in_place: false,
            alignment_bytes: 256,
            slab_bytes_max: 1 << 40,
            binding_bytes_max: (1 << 31) - 256,
            kernel_values_max: 7,
            chain_values_max: FUSED_MATMUL_VALUES_MAX,
            chain_rows_min: 128 * FUSED_MATMUL_TILE_ROWS,
        }
    }

    /// Distinct values that this kernel may touch.
    pub(crate) fn values_max(&self, body: &KernelBody) -> usize {
        if matches!(body, KernelBody::Chain { .. }) { self.chain_values_max } else { self.kernel_values_max }
    }

    /// The class of a data type.
    pub fn class(&self, dtype: DType) -> StorageClass {
        if self.words { StorageClass::for_wgsl(dtype, self.half_storage) } else { StorageClass::Bytes }
    }

    /// Bytes of one element in the device's memory.
    pub fn element_bytes(&self, dtype: DType) -> usize {
        self.class(dtype).element_bytes(dtype)
    }

    /// Bytes of a tensor's elements in the device's memory.
    pub fn tensor_bytes(&self, descriptor: &Descriptor) -> u64 {
        (descriptor.shape.elements() as u64).saturating_mul(self.element_bytes(descriptor.dtype) as u64)
    }
}

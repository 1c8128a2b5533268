//! Compile targets: how a device stores elements, and its memory limits.

use saggar_tensor::{DType, Descriptor};
use serde::{Deserialize, Serialize};

use crate::limits::{FUSED_MATMUL_TILE_ROWS, FUSED_MATMUL_VALUES_MAX};
use crate::optimization::{DisabledOptimizations, Optimization};

/// A storage class: how a device stores elements. Values of different classes never share a slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum StorageClass {
    /// Raw bytes: a host device, any data type.
    Bytes,
    /// An array of WGSL `f32`: `float32`, and `float16` as a 32-bit word that holds a half-precision number.
    F32,
    /// An array of WGSL `f16`: `float16` if the device supports `f16` storage.
    F16,
    /// An array of WGSL `i32`: `int32`, and `int8` widened to a word.
    I32,
    /// An array of WGSL `u32`: `uint32`, and `uint8` widened to a word.
    U32,
    /// An array of WGSL `i64`, or of two words per element if shaders do not support `i64`.
    I64,
    /// An array of WGSL `u64`, or of two words per element if shaders do not support `u64`.
    U64,
}

impl StorageClass {
    /// Returns the WGSL storage class of `dtype`. `half_storage` says whether the device supports `f16` storage. No
    /// other storage type is narrower than a word, so smaller types are widened.
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

    /// Returns the bytes of one element of `dtype` in this class.
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
    /// Whether storage is WGSL words, by class, instead of host bytes.
    pub words: bool,
    /// Whether storage supports 16-bit floats, a WGSL extension that some adapters lack. Without it, `float16` takes a
    /// word.
    pub half_storage: bool,
    /// Whether windowed operators are fastest with channels last.
    pub channels_last: bool,
    /// Whether kernels can overwrite operands in scratch memory: a map an operand that it reads element by element, and
    /// a gradient of max pooling one that it reads tile by tile, if no later kernel reads that operand. Shaders cannot,
    /// because the same memory would have one binding that is read and another that is written.
    pub in_place: bool,
    /// Alignment of a value in a slab, in bytes.
    pub alignment_bytes: usize,
    /// Size of the largest slab, and of the largest single value, in bytes.
    pub slab_bytes_max: usize,
    /// Most bytes of an allocation visible through one binding; larger allocations need several bindings.
    pub binding_bytes_max: usize,
    /// Most distinct values that one kernel touches: a shader's storage bindings.
    pub kernel_values_max: usize,
    /// Most distinct values that a fused matmul touches (`KernelBody::Chain`). 0 if the target does not support fused
    /// matmuls; every product is then stored before use.
    pub chain_values_max: usize,
    /// Fewest rows that all matrices of a fused matmul have together. Each workgroup takes a few rows, so with fewer
    /// rows most of the device would be idle while products are recomputed.
    pub chain_rows_min: usize,
    /// The optimizations that are switched off.
    pub without: DisabledOptimizations,
}

impl CompileTarget {
    /// Returns the target of a host with native kernels.
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
            without: DisabledOptimizations::NONE,
        }
    }

    /// Returns the target of an adapter with the common capabilities of current desktops and servers: workgroup memory,
    /// and bindings of up to 2 GiB. Most kernels use at most eight bindings, which every adapter supports.
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
            without: DisabledOptimizations::NONE,
        }
    }

    /// Returns the target without these optimizations.
    #[must_use]
    pub const fn without(self, without: DisabledOptimizations) -> CompileTarget {
        let without = self.without.union(without);
        // The kernels of fused products stage tiles too.
        let has_chains = without.enables(Optimization::FusedMatMul) && without.enables(Optimization::Tiles);
        CompileTarget {
            channels_last: self.channels_last && without.enables(Optimization::ChannelsLast),
            in_place: self.in_place && without.enables(Optimization::InPlace),
            chain_values_max: if has_chains { self.chain_values_max } else { 0 },
            without,
            ..self
        }
    }

    /// Returns the storage class of a data type.
    pub fn class(&self, dtype: DType) -> StorageClass {
        if self.words { StorageClass::for_wgsl(dtype, self.half_storage) } else { StorageClass::Bytes }
    }

    /// Returns the bytes of one element in the device's memory.
    pub fn element_bytes(&self, dtype: DType) -> usize {
        self.class(dtype).element_bytes(dtype)
    }

    /// Returns the bytes of a tensor's elements in the device's memory.
    pub fn tensor_bytes(&self, descriptor: &Descriptor) -> u64 {
        (descriptor.shape.elements() as u64).saturating_mul(self.element_bytes(descriptor.dtype) as u64)
    }
}

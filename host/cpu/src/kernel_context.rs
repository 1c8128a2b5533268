//! What a kernel knows of its program when it is prepared: the regions, types and sizes of its values.

use std::fmt;

use saggar_compile::Optimization;
use saggar_compile::program::{Program, ValueId, ValueLocation};
use saggar_tensor::DType;

use super::alias_check::{KernelRegions, OverlapError, block_index};

/// Why a kernel cannot run: the compiler broke a guarantee of [`saggar_compile::program`].
#[derive(Clone, Copy, Debug)]
pub(super) enum KernelRefusal {
    /// A written value shares part of its memory with another one.
    Overlap,
    /// A written value is also read, but not element by element.
    ReadWhileWritten,
    /// Too many dimensions, or a view of a written value that is not the identity.
    Layout,
    /// A fused matrix product. Programs for hosts contain none.
    FusedMatMul,
    /// The kernel is not defined for this data type.
    Type(DType),
}

impl fmt::Display for KernelRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KernelRefusal::Overlap => f.write_str("a written value shares part of its memory with another one"),
            KernelRefusal::ReadWhileWritten => f.write_str("a written value is also read out of order"),
            KernelRefusal::Layout => f.write_str("too many dimensions, or a written value is not read in order"),
            KernelRefusal::FusedMatMul => f.write_str("the cpu device has no fused matrix products"),
            KernelRefusal::Type(dtype) => write!(f, "not defined for {dtype}"),
        }
    }
}

impl From<OverlapError> for KernelRefusal {
    fn from(_: OverlapError) -> KernelRefusal {
        KernelRefusal::Overlap
    }
}

/// The values of one kernel of a program.
pub(super) struct KernelContext<'a> {
    program: &'a Program,
    regions: &'a KernelRegions,
}

impl<'a> KernelContext<'a> {
    /// Returns the context of a kernel of `program` that accesses `regions`.
    pub(super) fn new(program: &'a Program, regions: &'a KernelRegions) -> KernelContext<'a> {
        KernelContext { program, regions }
    }

    /// Returns whether the program uses an optimization.
    pub(super) fn enables(&self, optimization: Optimization) -> bool {
        self.program.without.enables(optimization)
    }

    /// Returns the region of a value.
    pub(super) fn region(&self, value: ValueId) -> usize {
        self.regions.index_of(value)
    }

    /// Returns the region of a value that is read as a whole.
    ///
    /// # Errors
    /// Returns `ReadWhileWritten` if the kernel also writes it.
    pub(super) fn operand(&self, value: ValueId) -> Result<usize, KernelRefusal> {
        let region = self.regions.index_of(value);
        if self.regions.is_written(region) { Err(KernelRefusal::ReadWhileWritten) } else { Ok(region) }
    }

    /// Returns the block of a value that fills it and does not change between dispatches: a constant, or a variable
    /// that this program does not write. Returns `None` for other values, and if weights are not packed once.
    pub(super) fn constant_block(&self, value: ValueId) -> Option<usize> {
        if !self.enables(Optimization::Prepack) {
            return None;
        }
        let place = self.program.values[value.index()].place;
        match place {
            ValueLocation::Variable(variable) if self.program.written_variables.contains(&variable) => None,
            ValueLocation::Variable(_) | ValueLocation::Constant(_) => Some(block_index(self.program, place).0),
            ValueLocation::Input(_) | ValueLocation::Output(_) | ValueLocation::Slab { .. } => None,
        }
    }

    /// Returns the data type of a value.
    pub(super) fn dtype(&self, value: ValueId) -> DType {
        self.program.values[value.index()].descriptor.dtype
    }

    /// Returns the dimensions of a value.
    pub(super) fn dims(&self, value: ValueId) -> &[usize] {
        self.program.values[value.index()].descriptor.shape.dims()
    }

    /// Returns the data type of a value that must be a float.
    ///
    /// # Errors
    /// Returns `Type` if it is not.
    pub(super) fn float_dtype(&self, value: ValueId) -> Result<DType, KernelRefusal> {
        let dtype = self.dtype(value);
        if dtype.is_float() { Ok(dtype) } else { Err(KernelRefusal::Type(dtype)) }
    }
}

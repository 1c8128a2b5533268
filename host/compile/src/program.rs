//! Programs: what the compiler gives to a device. A program is a list of kernels in execution order, over values with
//! fixed memory locations.
//!
//! A device needs neither the graph nor any operator outside an [`ScalarExpr`] or a [`KernelBody`]. Every value is
//! dense and row-major. Copies are kernels too: an output that is also an input, or an assignment that cannot happen in
//! place.

pub mod expr;

use std::sync::Arc;

use saggar_tensor::op::{Conv2d, Pool2d, PoolKind, ReduceKind, ScatterCombine};
use saggar_tensor::{Descriptor, GraphPort};
use serde::{Deserialize, Serialize};

use crate::optimization::DisabledOptimizations;
use crate::target::StorageClass;
use expr::{Register, ScalarExpr};

/// The index of a value in [`Program::values`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ValueId(pub u32);

impl ValueId {
    /// Returns the index in [`Program::values`].
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A dense tensor that a kernel reads or writes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProgramValue {
    /// Data type and shape.
    pub descriptor: Descriptor,
    /// Memory location of the elements.
    pub place: ValueLocation,
}

/// The memory location of a value's elements while a program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ValueLocation {
    /// In the caller's tensor for input `.0`.
    Input(u32),
    /// In the buffer of variable `.0`, which outlives the dispatch.
    Variable(u32),
    /// In the device's copy of constant `.0`.
    Constant(u32),
    /// In a new tensor, returned to the caller as output `.0`.
    Output(u32),
    /// In scratch memory that other values use at other times.
    Slab {
        /// Index in [`Program::slabs`].
        slab: u32,
        /// Offset of the first byte, a multiple of the target's alignment.
        offset_bytes: usize,
    },
}

/// One allocation of scratch memory, shared over time by values whose lifetimes do not overlap.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Slab {
    /// Storage class of the elements; values of different classes never share a slab.
    pub class: StorageClass,
    /// Size in bytes.
    pub bytes: usize,
}

/// A graph compiled for one target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Program {
    /// All values that kernels read or write.
    pub values: Vec<ProgramValue>,
    /// Scratch memory.
    pub slabs: Vec<Slab>,
    /// Kernels in execution order; each reads only inputs, variables, constants and results of earlier kernels.
    pub kernels: Vec<Kernel>,
    /// Inputs of a dispatch, in the graph's order.
    pub inputs: Vec<GraphPort>,
    /// State that persists between dispatches, in the graph's order.
    pub variables: Vec<GraphPort>,
    /// Variables that some kernel writes: sorted, distinct.
    pub written_variables: Vec<u32>,
    /// Dense little-endian bytes with their descriptors. They are not serialized with the program.
    #[serde(skip)]
    pub constants: Vec<(Descriptor, Arc<[u8]>)>,
    /// Outputs of a dispatch, in the graph's order.
    pub outputs: Vec<GraphPort>,
    /// The optimizations that the device leaves out too.
    pub without: DisabledOptimizations,
}

/// One unit of device work.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Kernel {
    /// Label for errors, traces and profiles: the kernel family, and the plugin's labels if it set any.
    pub label: String,
    /// The computation.
    pub body: KernelBody,
}

/// A store of one register of an [`ScalarExpr`] to a value, in row-major order of the iteration dimensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResultStore {
    /// The value written; it has as many elements as the iteration space.
    pub value: ValueId,
    /// The register stored.
    pub register: Register,
}

/// The fused work on each element of a contraction or convolution before it is stored: an expression over the result's
/// dimensions in which `Instruction::Accumulated` is the element. The trivial epilogue stores `Accumulated` unchanged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Epilogue {
    /// Expression over the kernel's result dimensions.
    pub expr: ScalarExpr,
    /// Stores; at least one.
    pub stores: Vec<ResultStore>,
}

/// The axis order of a windowed kernel's operands and results. Filters are `[o, c/groups, kh, kw]` in both layouts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ChannelLayout {
    /// `[n, c, h, w]`.
    ChannelsFirst,
    /// `[n, h, w, c]`.
    ChannelsLast,
}

/// A batch of matrices as a factor of matrix products.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProductOperand {
    /// The value that holds the matrices.
    pub value: ValueId,
    /// Whether rows and columns are stored in exchanged order.
    pub transposed: bool,
    /// Elements from one batch to the next; 0 if all batches share one matrix.
    pub batch_stride: usize,
}

/// A product `[rows, depth]` by `[depth, columns]` for each batch of a fused matmul.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FusedProduct {
    /// Columns of the first factor.
    pub depth: usize,
    /// First factor.
    pub a: ProductOperand,
    /// Second factor.
    pub b: ProductOperand,
}

/// Row statistics of a softmax that other kernels read: `float32`, one element per row. `None` if no kernel reads the
/// statistic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SoftmaxStatistics {
    /// Largest element of each row.
    pub largest: Option<ValueId>,
    /// Sum over each row of `exp(element - largest)`.
    pub sum: Option<ValueId>,
}

/// How a fused matmul consumes its matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FusedConsumer {
    /// Reduces each row.
    Fold(ReduceKind),
    /// Multiplies the matrix.
    Product {
        /// Second factor, which has as many rows as the matrix has columns.
        factor: ProductOperand,
        /// Columns of the second factor.
        columns: usize,
        /// Whether the result is stored transposed, columns before rows.
        turned: bool,
    },
}

/// The computation of a kernel. Shapes given here are those of the values, as in the operators' documentation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum KernelBody {
    /// Fused element-wise work. A stored value can be a variable that is also loaded, if every load of it has the
    /// identity view: the same lane then reads each element before it writes it.
    Map {
        /// Iteration space, outermost first.
        dims: Vec<usize>,
        /// Expression over `dims`.
        expr: ScalarExpr,
        /// Stores; at least one.
        stores: Vec<ResultStore>,
    },
    /// A reduction with fused prologue and epilogue. The device chooses the order of combination, but it is fixed.
    Fold {
        /// How elements are combined.
        kind: ReduceKind,
        /// Kept dimensions, outermost first: the result's iteration space.
        outer: Vec<usize>,
        /// Reduced dimensions; their product can be 0.
        inner: Vec<usize>,
        /// Expression over `outer ++ inner`; its last instruction is reduced.
        prologue: ScalarExpr,
        /// Epilogue over `outer`.
        epilogue: Epilogue,
    },
    /// Index of the first largest (or smallest) element along the middle axis of `[before, length, after]`, `int32`.
    ArgFold {
        /// Whether the largest element is searched, instead of the smallest.
        largest: bool,
        /// `[before, length, after]` of the operand.
        dims: [usize; 3],
        /// The operand.
        input: ValueId,
        /// The result.
        output: ValueId,
    },
    /// `batch` products of an `m x k` and a `k x n` matrix; the epilogue is over `[batch, m, n]`.
    MatMul {
        /// Sizes: batch, m, n, k.
        sizes: [usize; 4],
        /// First operand, `m x k`, or `k x m` if transposed.
        a: ValueId,
        /// Second operand, `k x n`, or `n x k` if transposed.
        b: ValueId,
        /// Whether `a` is stored `k x m`.
        transpose_a: bool,
        /// Whether `b` is stored `n x k`.
        transpose_b: bool,
        /// Elements from one batch of `a` to the next; 0 if all batches share one matrix.
        batch_stride_a: usize,
        /// Elements from one batch of `b` to the next; 0 if all batches share one matrix.
        batch_stride_b: usize,
        /// Epilogue over `[batch, m, n]`.
        epilogue: Epilogue,
    },
    /// A fused matmul: a reduction or a product of a matrix that is not materialized. The kernel computes the matrix
    /// tile by tile from its factors and consumes each tile at once. Attention and its gradients have this form.
    ///
    /// Source: Dao et al., FlashAttention, arXiv:2205.14135.
    Chain {
        /// Iteration space of the score expression: any number of batch dimensions, then the matrix's rows and columns.
        dims: Vec<usize>,
        /// One or two products whose elements the score expression combines.
        products: Vec<FusedProduct>,
        /// Score expression over `dims`, in which `Instruction::Product(i)` is the element of `products[i]`. Its last
        /// instruction is the matrix element, `float32`.
        link: ScalarExpr,
        /// If `Some`, the matrix is the softmax of the scores over its rows, and these row statistics are stored.
        softmax: Option<SoftmaxStatistics>,
        /// The consumer of the matrix.
        end: FusedConsumer,
        /// Dimensions of the result: batches, then rows for a reduction, and rows and columns (or columns and rows) for
        /// a product.
        results: Vec<usize>,
        /// Epilogue over `results`.
        epilogue: Epilogue,
    },
    /// Convolution; the epilogue is over the result. The shapes below have channels first.
    Conv2d {
        /// Geometry.
        conv: Conv2d,
        /// Axis order of operands and result.
        layout: ChannelLayout,
        /// `[n, c, h, w]`.
        input: ValueId,
        /// `[o, c/groups, kh, kw]`.
        filter: ValueId,
        /// `[n, o, oh, ow]`.
        result: [usize; 4],
        /// Epilogue over `result`.
        epilogue: Epilogue,
    },
    /// Adjoint of the convolution with respect to its input: writes `[n, c, h, w]`.
    Conv2dInputGrad {
        /// The forward geometry.
        conv: Conv2d,
        /// Axis order of operands and result.
        layout: ChannelLayout,
        /// `[n, o, oh, ow]`.
        gradient: ValueId,
        /// `[o, c/groups, kh, kw]`.
        filter: ValueId,
        /// `[n, c, h, w]`.
        output: ValueId,
    },
    /// Adjoint of the convolution with respect to its filter: writes `[o, c/groups, kh, kw]`.
    Conv2dFilterGrad {
        /// The forward geometry.
        conv: Conv2d,
        /// Axis order of operands and result.
        layout: ChannelLayout,
        /// `[n, c, h, w]`.
        input: ValueId,
        /// `[n, o, oh, ow]`.
        gradient: ValueId,
        /// `[o, c/groups, kh, kw]`.
        output: ValueId,
    },
    /// Pooling: `[n, c, h, w]` to `[n, c, oh, ow]`.
    Pool2d {
        /// Kind of pooling.
        kind: PoolKind,
        /// Geometry.
        pool: Pool2d,
        /// Axis order of operand and result.
        layout: ChannelLayout,
        /// The operand.
        input: ValueId,
        /// The result.
        output: ValueId,
    },
    /// Gradient of max pooling; see `ConvolutionOp::MaxPool2dGrad`.
    MaxPool2dGrad {
        /// The forward geometry.
        pool: Pool2d,
        /// Axis order of operands and result.
        layout: ChannelLayout,
        /// The forward operand.
        input: ValueId,
        /// Gradient of the forward result.
        gradient: ValueId,
        /// Gradient of the operand.
        output: ValueId,
    },
    /// Adjoint of sum pooling; see `ConvolutionOp::SumPool2dGrad`.
    SumPool2dGrad {
        /// The forward geometry.
        pool: Pool2d,
        /// Axis order of operand and result.
        layout: ChannelLayout,
        /// Gradient of the forward result.
        gradient: ValueId,
        /// Gradient of the operand.
        output: ValueId,
    },
    /// `x [before, d, after]` and `indices [count]` to `[before, count, after]`; see `IndexOp::Gather`.
    Gather {
        /// `[before, d, after]`.
        dims: [usize; 3],
        /// Operand that elements are taken from.
        input: ValueId,
        /// Indices along the middle axis.
        indices: ValueId,
        /// The result.
        output: ValueId,
    },
    /// `indices [count]` and `updates [before, count, after]` to `[before, size, after]`; see `IndexOp::Scatter` and
    /// `IndexOp::ScatterAdd`.
    Scatter {
        /// `[before, size, after]`.
        dims: [usize; 3],
        /// How an update is combined with the element at its index.
        combine: ScatterCombine,
        /// Initial elements, `[before, size, after]`; `None` means zeros.
        base: Option<ValueId>,
        /// Indices along the middle axis.
        indices: ValueId,
        /// Updates.
        updates: ValueId,
        /// The result; the kernel writes every element of it.
        output: ValueId,
    },
}

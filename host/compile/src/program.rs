//! What the compiler hands to a device: kernels in execution order, over values with fixed places in memory.
//!
//! A device needs nothing else: no graph, no operator but those that stand in an [`ScalarExpr`] or a [`KernelBody`]. Every value is
//! dense and row-major. Copies (an output that is an input, an assignment that cannot happen in place) are kernels too.

use std::sync::Arc;

use saggar_tensor::op::{Conv2d, Pool2d, PoolKind, ReduceKind, ScatterCombine};
use saggar_tensor::{Descriptor, GraphPort};
use serde::{Deserialize, Serialize};

use crate::expr::ScalarExpr;

/// A value's place in [`Program::values`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ValueId(pub u32);

impl ValueId {
    /// The position in [`Program::values`].
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A dense tensor that some kernel reads or writes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProgramValue {
    /// Data type and shape.
    pub descriptor: Descriptor,
    /// Where its elements are.
    pub place: ValueLocation,
}

/// Where a value's elements are while a program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ValueLocation {
    /// In the caller's tensor for input `.0`.
    Input(u32),
    /// In the buffer of variable `.0`, which outlives the dispatch.
    Variable(u32),
    /// In the device's copy of constant `.0`.
    Constant(u32),
    /// In a fresh tensor, returned to the caller as output `.0`.
    Output(u32),
    /// In scratch memory that other values use before and after.
    Slab {
        /// Which of [`Program::slabs`].
        slab: u32,
        /// First byte, a multiple of the target's alignment.
        offset_bytes: usize,
    },
}

/// One allocation of scratch memory, shared over time by values whose lifetimes do not overlap.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Slab {
    /// What its elements are on the device; values of different classes never share a slab.
    pub class: crate::target::StorageClass,
    /// Its size.
    pub bytes: usize,
}

/// A compiled graph for one target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Program {
    /// Every value that a kernel reads or writes.
    pub values: Vec<ProgramValue>,
    /// Scratch memory.
    pub slabs: Vec<Slab>,
    /// In execution order; each may read what earlier ones wrote.
    pub kernels: Vec<Kernel>,
    /// What a dispatch is given, in the graph's order.
    pub inputs: Vec<GraphPort>,
    /// State that outlives a dispatch, in the graph's order.
    pub variables: Vec<GraphPort>,
    /// Variables that some kernel writes: sorted, distinct.
    pub written_variables: Vec<u32>,
    /// Dense little-endian bytes with their descriptors. They are not serialized with the program.
    #[serde(skip)]
    pub constants: Vec<(Descriptor, Arc<[u8]>)>,
    /// What a dispatch returns, in the graph's order.
    pub outputs: Vec<GraphPort>,
}

/// One unit of device work.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Kernel {
    /// For errors, traces and profiles: the family and the plugin's labels where there are any.
    pub label: String,
    /// What is computed.
    pub body: KernelBody,
}

/// An element of an [`ScalarExpr`]'s result written to a value, in row-major order of the iteration dimensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResultStore {
    /// Which value; it has as many elements as the iteration space.
    pub value: ValueId,
    /// Which instruction's result.
    pub register: crate::expr::Register,
}

/// What happens to each element of a contraction or convolution before it is stored: an expression over the result's
/// dimensions in which `Instruction::Accumulated` is the element. The plain case stores `Accumulated` itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Epilogue {
    /// Over the kernel's result dimensions.
    pub expr: ScalarExpr,
    /// At least one.
    pub stores: Vec<ResultStore>,
}

/// The order of the axes of what a windowed kernel reads and writes; filters are `[o, c/groups, kh, kw]` in both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ChannelLayout {
    /// `[n, c, h, w]`.
    ChannelsFirst,
    /// `[n, h, w, c]`.
    ChannelsLast,
}

/// Matrices, one for each batch, as a factor of products.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProductOperand {
    /// Where they are.
    pub value: ValueId,
    /// Whether rows and columns are stored the other way round.
    pub transposed: bool,
    /// Elements from one batch to the next; 0 where all share one matrix.
    pub batch_stride: usize,
}

/// A product `[rows, depth]` by `[depth, columns]` for each batch of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FusedProduct {
    /// Columns of the first factor.
    pub depth: usize,
    /// First factor.
    pub a: ProductOperand,
    /// Second factor.
    pub b: ProductOperand,
}

/// Values that a softmax over rows leaves for others, `float32` and one element a row; none where nobody asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SoftmaxStatistics {
    /// Of each row, the largest element.
    pub largest: Option<ValueId>,
    /// Of each row, the sum of the exponentials of its elements less the largest.
    pub sum: Option<ValueId>,
}

/// What becomes of a chain's matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FusedConsumer {
    /// Each row is folded.
    Fold(ReduceKind),
    /// It is multiplied.
    Product {
        /// By this second factor, which has as many rows as the matrix has columns.
        factor: ProductOperand,
        /// Columns of the second factor.
        columns: usize,
        /// Whether the result is stored with its columns before its rows.
        turned: bool,
    },
}

/// What a kernel computes. Shapes named here are those of the values, as the operator's documentation gives them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum KernelBody {
    /// Fused element-wise work. A stored value may be a variable that is also loaded, if every load of it has the
    /// identity view: each element is then read before it is written, by the same lane.
    Map {
        /// Iteration space, outermost first.
        dims: Vec<usize>,
        /// Over `dims`.
        expr: ScalarExpr,
        /// At least one.
        stores: Vec<ResultStore>,
    },
    /// A fold with fused prologue and epilogue. Order of combination is the device's, but fixed.
    Fold {
        /// How elements are combined.
        kind: ReduceKind,
        /// Kept dimensions, outermost first: the result's iteration space.
        outer: Vec<usize>,
        /// Folded dimensions; their product may be 0.
        inner: Vec<usize>,
        /// Over `outer ++ inner`; its last instruction is what is folded.
        prologue: ScalarExpr,
        /// Over `outer`.
        epilogue: Epilogue,
    },
    /// Index of the first largest (or smallest) element along the middle of `[before, length, after]`, `int32`.
    ArgFold {
        /// Largest, not smallest.
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
        /// First operand, `m x k` or, transposed, `k x m`.
        a: ValueId,
        /// Second operand, `k x n` or, transposed, `n x k`.
        b: ValueId,
        /// Whether `a` is stored `k x m`.
        transpose_a: bool,
        /// Whether `b` is stored `n x k`.
        transpose_b: bool,
        /// Elements from one batch of `a` to the next; 0 where all share one matrix.
        batch_stride_a: usize,
        /// Elements from one batch of `b` to the next; 0 where all share one matrix.
        batch_stride_b: usize,
        /// Over `[batch, m, n]`.
        epilogue: Epilogue,
    },
    /// A fold or a product of a matrix that is stored nowhere: it is computed piece by piece, from products of its own, and
    /// each piece is used at once. Attention is one, and so are the gradients of it.
    ///
    /// Source: Dao et al., FlashAttention, arXiv:2205.14135.
    Chain {
        /// The link's iteration space: batches, any number of dimensions of them, then the matrix's rows and columns.
        dims: Vec<usize>,
        /// One or two products of a row's and a column's elements.
        products: Vec<FusedProduct>,
        /// Over `dims`, with `Instruction::FusedProduct(i)` the element of `products[i]`: its last instruction is the matrix, `float32`.
        link: ScalarExpr,
        /// Whether the matrix is not the link's but the softmax of its rows, and what of that is stored.
        softmax: Option<SoftmaxStatistics>,
        /// What becomes of the matrix.
        end: FusedConsumer,
        /// The result's dimensions: batches, and rows for a fold; rows and columns for a product, or columns and rows.
        results: Vec<usize>,
        /// Over `results`.
        epilogue: Epilogue,
    },
    /// Convolution; the epilogue is over the result. Shapes below are of channels first.
    Conv2d {
        /// Geometry.
        conv: Conv2d,
        /// Order of the axes of what is read and written.
        layout: ChannelLayout,
        /// `[n, c, h, w]`.
        input: ValueId,
        /// `[o, c/groups, kh, kw]`.
        filter: ValueId,
        /// `[n, o, oh, ow]`.
        result: [usize; 4],
        /// Over `result`.
        epilogue: Epilogue,
    },
    /// Adjoint of the convolution in its input: writes `[n, c, h, w]`.
    Conv2dInputGrad {
        /// The forward geometry.
        conv: Conv2d,
        /// Order of the axes of what is read and written.
        layout: ChannelLayout,
        /// `[n, o, oh, ow]`.
        gradient: ValueId,
        /// `[o, c/groups, kh, kw]`.
        filter: ValueId,
        /// `[n, c, h, w]`.
        output: ValueId,
    },
    /// Adjoint of the convolution in its filter: writes `[o, c/groups, kh, kw]`.
    Conv2dFilterGrad {
        /// The forward geometry.
        conv: Conv2d,
        /// Order of the axes of what is read and written.
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
        /// How.
        kind: PoolKind,
        /// Geometry.
        pool: Pool2d,
        /// Order of the axes of what is read and written.
        layout: ChannelLayout,
        /// The operand.
        input: ValueId,
        /// The result.
        output: ValueId,
    },
    /// Gradient of max pooling, as `Convolution::MaxPool2dGrad`.
    MaxPool2dGrad {
        /// The forward geometry.
        pool: Pool2d,
        /// Order of the axes of what is read and written.
        layout: ChannelLayout,
        /// The forward operand.
        input: ValueId,
        /// Gradient of the forward result.
        gradient: ValueId,
        /// Gradient of the operand.
        output: ValueId,
    },
    /// Adjoint of sum pooling, as `Convolution::SumPool2dGrad`.
    SumPool2dGrad {
        /// The forward geometry.
        pool: Pool2d,
        /// Order of the axes of what is read and written.
        layout: ChannelLayout,
        /// Gradient of the forward result.
        gradient: ValueId,
        /// Gradient of the operand.
        output: ValueId,
    },
    /// `x [before, d, after]` and `indices [count]` to `[before, count, after]`, as `Index::Gather`.
    Gather {
        /// `[before, d, after]`.
        dims: [usize; 3],
        /// What is chosen from.
        input: ValueId,
        /// Which are chosen.
        indices: ValueId,
        /// The result.
        output: ValueId,
    },
    /// `indices [count]` and `updates [before, count, after]` to `[before, size, after]`, as `Index::ScatterShader` and
    /// `Index::ScatterAdd`.
    Scatter {
        /// `[before, size, after]`.
        dims: [usize; 3],
        /// What becomes of a place that an update goes to.
        combine: ScatterCombine,
        /// What the places hold at first, `[before, size, after]`; none: zeros.
        base: Option<ValueId>,
        /// Where updates go.
        indices: ValueId,
        /// What goes there.
        updates: ValueId,
        /// The result, every element of which is written.
        output: ValueId,
    },
}

//! The interface of graph builders: the primitive operators that all ONNX operators are composed of.
//!
//! The importer and the predictor build with the host's graph builder. Tests build with an interpreter and need no
//! host.

use saggar_plugin::DataType;

use crate::error::Result;
use crate::value::BackendOperand;

/// An elementwise operator with one operand. The shape and the type are unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are WebNN's")]
pub enum ElementwiseUnary {
    Abs,
    Neg,
    Sign,
    Ceil,
    Floor,
    RoundEven,
    Exp,
    Log,
    Sqrt,
    Reciprocal,
    Sin,
    Cos,
    Tan,
    Tanh,
    Erf,
    LogicalNot,
    Relu,
    Sigmoid,
    Gelu,
    Softplus,
    Softsign,
}

/// An elementwise operator with two operands of one type. Dimensions of size 1 are broadcast. Comparisons return
/// `uint8`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are WebNN's")]
pub enum ElementwiseBinary {
    Add,
    Sub,
    Mul,
    Div,
    Pow,
    Max,
    Min,
    Equal,
    Greater,
    GreaterOrEqual,
    Lesser,
    LesserOrEqual,
    And,
    Or,
    Xor,
}

/// The operator of a reduction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are WebNN's")]
pub enum ReductionOperator {
    Sum,
    Mean,
    Max,
    Min,
    Product,
    LogSumExp,
}

/// The operator of a pooling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are WebNN's")]
pub enum PoolingMode {
    Max,
    /// The mean. Padding is not counted.
    Average,
}

/// How an update is combined with the element that it is written to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are WebNN's")]
pub enum ScatterMode {
    Replace,
    Add,
    Mul,
    Min,
    Max,
}

/// The geometry of 2-D windows that slide over height and width.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlaneWindows {
    /// The padding: top, bottom, left, right.
    pub padding: [usize; 4],
    /// The strides: height, width.
    pub strides: [usize; 2],
    /// The dilations: height, width.
    pub dilations: [usize; 2],
}

/// The result of an operator.
pub type BackendResult = Result<BackendOperand>;

/// A builder of one graph. Operands belong to the backend that made them. Every method returns `Host` if the host
/// refuses shapes or types. Results have the host's type, so booleans are `uint8`.
#[allow(missing_docs, reason = "names and meanings are those of the host's graph builder")]
pub trait GraphBackend {
    fn input(&mut self, name: &str, data_type: DataType, shape: &[usize]) -> BackendResult;
    fn variable(&mut self, name: &str, data_type: DataType, shape: &[usize]) -> BackendResult;
    fn constant(&mut self, data_type: DataType, shape: &[usize], bytes: &[u8]) -> BackendResult;
    fn fill(&mut self, data_type: DataType, shape: &[usize], value: f64) -> BackendResult;
    fn iota(&mut self, data_type: DataType, shape: &[usize], axis: usize) -> BackendResult;

    fn unary(&mut self, op: ElementwiseUnary, x: &BackendOperand) -> BackendResult;
    fn binary(&mut self, op: ElementwiseBinary, a: &BackendOperand, b: &BackendOperand) -> BackendResult;
    fn select(&mut self, condition: &BackendOperand, yes: &BackendOperand, no: &BackendOperand) -> BackendResult;
    fn cast(&mut self, x: &BackendOperand, data_type: DataType) -> BackendResult;
    fn clamp(&mut self, x: &BackendOperand, min: Option<f64>, max: Option<f64>) -> BackendResult;
    fn softmax(&mut self, x: &BackendOperand, axis: usize) -> BackendResult;

    /// Reduces `axes`, which are sorted and stay with size 1. Empty `axes` reduce nothing.
    fn reduce(&mut self, op: ReductionOperator, x: &BackendOperand, axes: &[usize]) -> BackendResult;
    /// Returns the index of the first largest or smallest element, as `int32`. The axis stays with size 1.
    fn arg_extremum(&mut self, largest: bool, x: &BackendOperand, axis: usize) -> BackendResult;
    fn cumulative_sum(&mut self, x: &BackendOperand, axis: usize, exclusive: bool, reversed: bool) -> BackendResult;

    fn reshape(&mut self, x: &BackendOperand, shape: &[usize]) -> BackendResult;
    fn transpose(&mut self, x: &BackendOperand, permutation: &[usize]) -> BackendResult;
    fn expand(&mut self, x: &BackendOperand, shape: &[usize]) -> BackendResult;
    /// Returns `sizes[i]` elements along axis `i`, from `starts[i]` on, every `strides[i]`-th.
    fn slice(&mut self, x: &BackendOperand, starts: &[usize], sizes: &[usize], strides: &[usize]) -> BackendResult;
    fn concat(&mut self, xs: &[BackendOperand], axis: usize) -> BackendResult;
    fn pad(&mut self, x: &BackendOperand, low: &[usize], high: &[usize], value: f64) -> BackendResult;
    fn reverse(&mut self, x: &BackendOperand, axes: &[usize]) -> BackendResult;

    fn gather(&mut self, x: &BackendOperand, indices: &BackendOperand, axis: usize) -> BackendResult;
    fn gather_elements(&mut self, x: &BackendOperand, indices: &BackendOperand, axis: usize) -> BackendResult;
    fn gather_nd(&mut self, x: &BackendOperand, indices: &BackendOperand) -> BackendResult;
    fn scatter_elements(
        &mut self,
        x: &BackendOperand,
        indices: &BackendOperand,
        updates: &BackendOperand,
        axis: usize,
        how: ScatterMode,
    ) -> BackendResult;
    fn scatter_nd(
        &mut self,
        x: &BackendOperand,
        indices: &BackendOperand,
        updates: &BackendOperand,
        how: ScatterMode,
    ) -> BackendResult;

    fn matmul(&mut self, a: &BackendOperand, b: &BackendOperand) -> BackendResult;
    /// Builds a 2-D convolution. Shape: `x` `[n, c, h, w]`, `filter` `[o, c / groups, kh, kw]`.
    fn conv2d(
        &mut self,
        x: &BackendOperand,
        filter: &BackendOperand,
        bias: Option<&BackendOperand>,
        windows: PlaneWindows,
        groups: usize,
    ) -> BackendResult;
    /// Builds a 2-D transposed convolution. Shape: `x` `[n, c, h, w]`, `filter` `[c, o / groups, kh, kw]`; `size` is
    /// the height and width of the result.
    fn conv_transpose2d(
        &mut self,
        x: &BackendOperand,
        filter: &BackendOperand,
        bias: Option<&BackendOperand>,
        windows: PlaneWindows,
        groups: usize,
        size: [usize; 2],
    ) -> BackendResult;
    fn pool2d(
        &mut self,
        how: PoolingMode,
        x: &BackendOperand,
        window: [usize; 2],
        windows: PlaneWindows,
    ) -> BackendResult;
}

//! What a graph is built with: the few operators of the host's builder that everything else is composed of.
//!
//! The importer and the predictor build over the host; tests build over an interpreter and need no host.

use saggar_plugin::DataType;

use crate::error::Result;
use crate::value::BackendOperand;

/// Element by element, one operand; shapes and types unchanged.
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

/// Element by element, two operands of one type; dimensions of size 1 are repeated. Comparisons give `uint8`.
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

/// How elements along axes become one.
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

/// How a pooling's window becomes one element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are WebNN's")]
pub enum PoolingMode {
    Max,
    /// Padding is not counted.
    Average,
}

/// What becomes of an element that an update is written to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are WebNN's")]
pub enum ScatterMode {
    Replace,
    Add,
    Mul,
    Min,
    Max,
}

/// Geometry of windows that slide over height and width.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlaneWindows {
    /// Top, bottom, left, right.
    pub padding: [usize; 4],
    /// Height, width.
    pub strides: [usize; 2],
    /// Height, width.
    pub dilations: [usize; 2],
}

/// What an operator gives.
pub type BackendResult = Result<BackendOperand>;

/// Builds one graph. Operands belong to the backend that made them. Every method answers `HostBackend` where the host refuses
/// shapes or types; results have the host's type, so truth values come as `uint8`.
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

    /// Reduced axes stay with size 1; `axes` are sorted, and none reduces nothing.
    fn reduce(&mut self, op: ReductionOperator, x: &BackendOperand, axes: &[usize]) -> BackendResult;
    /// The index of the first largest or smallest element, `int32`; the axis stays with size 1.
    fn arg_extremum(&mut self, largest: bool, x: &BackendOperand, axis: usize) -> BackendResult;
    fn cumulative_sum(&mut self, x: &BackendOperand, axis: usize, exclusive: bool, reversed: bool) -> BackendResult;

    fn reshape(&mut self, x: &BackendOperand, shape: &[usize]) -> BackendResult;
    fn transpose(&mut self, x: &BackendOperand, permutation: &[usize]) -> BackendResult;
    fn expand(&mut self, x: &BackendOperand, shape: &[usize]) -> BackendResult;
    /// Along each axis `sizes[i]` elements of the result from `starts[i]`, every `strides[i]`-th.
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
    /// `x` `[n, c, h, w]`, `filter` `[o, c / groups, kh, kw]`.
    fn conv2d(
        &mut self,
        x: &BackendOperand,
        filter: &BackendOperand,
        bias: Option<&BackendOperand>,
        windows: PlaneWindows,
        groups: usize,
    ) -> BackendResult;
    /// `x` `[n, c, h, w]`, `filter` `[c, o / groups, kh, kw]`; `size` is the result's height and width.
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

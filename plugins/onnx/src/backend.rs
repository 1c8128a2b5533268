//! What a graph is built with: the few operators of the host's builder that everything else is composed of.
//!
//! The importer and the predictor build over the host; tests build over an interpreter and need no host.

use saggar_plugin::DataType;

use crate::error::Result;
use crate::value::Operand;

/// Element by element, one operand; shapes and types unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are WebNN's")]
pub enum Unary {
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
pub enum Binary {
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
pub enum Reduction {
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
pub enum Pooling {
    Max,
    /// Padding is not counted.
    Average,
}

/// What becomes of an element that an update is written to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are WebNN's")]
pub enum Scatter {
    Replace,
    Add,
    Mul,
    Min,
    Max,
}

/// Geometry of windows that slide over height and width.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Windows {
    /// Top, bottom, left, right.
    pub padding: [usize; 4],
    /// Height, width.
    pub strides: [usize; 2],
    /// Height, width.
    pub dilations: [usize; 2],
}

/// What an operator gives.
pub type Made = Result<Operand>;

/// Builds one graph. Operands belong to the backend that made them. Every method answers `Host` where the host refuses
/// shapes or types; results have the host's type, so truth values come as `uint8`.
#[allow(missing_docs, reason = "names and meanings are those of the host's graph builder")]
pub trait Backend {
    fn input(&mut self, name: &str, data_type: DataType, shape: &[usize]) -> Made;
    fn variable(&mut self, name: &str, data_type: DataType, shape: &[usize]) -> Made;
    fn constant(&mut self, data_type: DataType, shape: &[usize], bytes: &[u8]) -> Made;
    fn fill(&mut self, data_type: DataType, shape: &[usize], value: f64) -> Made;
    fn iota(&mut self, data_type: DataType, shape: &[usize], axis: usize) -> Made;

    fn unary(&mut self, op: Unary, x: &Operand) -> Made;
    fn binary(&mut self, op: Binary, a: &Operand, b: &Operand) -> Made;
    fn select(&mut self, condition: &Operand, yes: &Operand, no: &Operand) -> Made;
    fn cast(&mut self, x: &Operand, data_type: DataType) -> Made;
    fn clamp(&mut self, x: &Operand, min: Option<f64>, max: Option<f64>) -> Made;
    fn softmax(&mut self, x: &Operand, axis: usize) -> Made;

    /// Reduced axes stay with size 1; `axes` are sorted, and none reduces nothing.
    fn reduce(&mut self, op: Reduction, x: &Operand, axes: &[usize]) -> Made;
    /// The index of the first largest or smallest element, `int32`; the axis stays with size 1.
    fn arg(&mut self, largest: bool, x: &Operand, axis: usize) -> Made;
    fn cumulative_sum(&mut self, x: &Operand, axis: usize, exclusive: bool, reversed: bool) -> Made;

    fn reshape(&mut self, x: &Operand, shape: &[usize]) -> Made;
    fn transpose(&mut self, x: &Operand, permutation: &[usize]) -> Made;
    fn expand(&mut self, x: &Operand, shape: &[usize]) -> Made;
    /// Along each axis `sizes[i]` elements of the result from `starts[i]`, every `strides[i]`-th.
    fn slice(&mut self, x: &Operand, starts: &[usize], sizes: &[usize], strides: &[usize]) -> Made;
    fn concat(&mut self, xs: &[Operand], axis: usize) -> Made;
    fn pad(&mut self, x: &Operand, low: &[usize], high: &[usize], value: f64) -> Made;
    fn reverse(&mut self, x: &Operand, axes: &[usize]) -> Made;

    fn gather(&mut self, x: &Operand, indices: &Operand, axis: usize) -> Made;
    fn gather_elements(&mut self, x: &Operand, indices: &Operand, axis: usize) -> Made;
    fn gather_nd(&mut self, x: &Operand, indices: &Operand) -> Made;
    fn scatter_elements(
        &mut self,
        x: &Operand,
        indices: &Operand,
        updates: &Operand,
        axis: usize,
        how: Scatter,
    ) -> Made;
    fn scatter_nd(&mut self, x: &Operand, indices: &Operand, updates: &Operand, how: Scatter) -> Made;

    fn matmul(&mut self, a: &Operand, b: &Operand) -> Made;
    /// `x` `[n, c, h, w]`, `filter` `[o, c / groups, kh, kw]`.
    fn conv2d(
        &mut self,
        x: &Operand,
        filter: &Operand,
        bias: Option<&Operand>,
        windows: Windows,
        groups: usize,
    ) -> Made;
    /// `x` `[n, c, h, w]`, `filter` `[c, o / groups, kh, kw]`; `size` is the result's height and width.
    fn conv_transpose2d(
        &mut self,
        x: &Operand,
        filter: &Operand,
        bias: Option<&Operand>,
        windows: Windows,
        groups: usize,
        size: [usize; 2],
    ) -> Made;
    fn pool2d(&mut self, how: Pooling, x: &Operand, window: [usize; 2], windows: Windows) -> Made;
}
